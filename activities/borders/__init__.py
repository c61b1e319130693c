"""Where exceptions of other libraries become Faults: one table for each library, the most specific class wins.

Reasons are written here and never copied from an exception's message, which may contain secrets or instructions.
"""

import importlib
from collections.abc import Mapping

from activities.borders import http, os, sql, validation
from activities.borders.table import Entry, Table
from activities.errors import ToolError
from workflows.faults import Code, Fault

TABLES: Mapping[str, Table] = {"http": http.TABLE, "sql": sql.TABLE, "validation": validation.TABLE, "os": os.TABLE}

MODEL_SDKS = ("anthropic", "openai")
"""Libraries whose tables are imported when one of them raises: that takes seconds, also in a worker without models."""

_ALL: Table = {name: entry for table in TABLES.values() for name, entry in table.items()}


def classify(error: BaseException) -> Fault:
    """The Fault of any exception of a tool; one that is in no table is a `bug`."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # as a TaskGroup wraps it
        error = error.exceptions[0]
    if isinstance(error, ToolError):
        return error.fault
    for parent in type(error).__mro__:
        entry = _ALL.get(parent) or _of_model_sdk(parent)
        if entry is not None:
            return entry(error)
    return Fault.of(Code.BUG, f"The tool raised {type(error).__name__}, which no table knows: fix the tool.")


def _of_model_sdk(raised: type) -> Entry | None:
    package = raised.__module__.partition(".")[0]
    if package not in MODEL_SDKS:
        return None
    table: Table = importlib.import_module(f"activities.borders.{package}").TABLE
    return table.get(raised)
