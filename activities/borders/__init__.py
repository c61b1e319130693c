"""Translates exceptions of other libraries to Faults, which are typed errors as data.

Each library has one table by class of exception, and the most specific class wins. The reason of a Fault comes from the
table, never from the exception's message, which may contain secrets, or instructions for a model.
"""

import importlib
from collections.abc import Mapping

from activities.borders import http, os, sql, validation
from activities.borders.table import Entry, Table
from activities.errors import ToolError
from workflows.faults import Code, Fault

TABLES: Mapping[str, Table] = {"http": http.TABLE, "sql": sql.TABLE, "validation": validation.TABLE, "os": os.TABLE}

# The import of an SDK takes seconds, and a worker without models needs none.
MODEL_SDKS = ("anthropic", "openai")
"""Packages whose tables are imported only when one of their exceptions is classified."""

_ALL: Table = {name: entry for table in TABLES.values() for name, entry in table.items()}


def classify(error: BaseException) -> Fault:
    """Translate an exception of a tool to its Fault; an exception whose class is in no table is a `bug`."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # a TaskGroup wraps even one exception
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
