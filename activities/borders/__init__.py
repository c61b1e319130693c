"""Where foreign exceptions become Faults: one table per library, the most specific class wins.

A table maps an exception class to what makes a Fault of it. Reasons are written here, never copied from a foreign
message, which may carry secrets or instructions.
"""

from collections.abc import Mapping
from typing import Any

from activities.borders import http, os, sql, validation
from activities.borders.table import Table
from activities.toolbox.errors import ToolError
from workflows.faults import Code, Fault

TABLES: Mapping[str, Table] = {"http": http.TABLE, "sql": sql.TABLE, "validation": validation.TABLE, "os": os.TABLE}

_ALL: Table = {name: entry for table in TABLES.values() for name, entry in table.items()}


def classify(error: BaseException) -> Fault:
    """Turn any exception of a tool into a Fault; total, and what no table knows is `bug`."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # what a TaskGroup makes of it
        error = error.exceptions[0]
    if isinstance(error, ToolError):
        return error.fault
    for parent in type(error).__mro__:
        entry = _ALL.get(parent)
        if entry is not None:
            return entry(error)
    return Fault.of(Code.BUG, f"The tool raised {type(error).__name__}, which no table knows: mend the tool.")


__all__: list[Any] = ["TABLES", "classify"]
