"""Translates exceptions of other libraries to Faults, which are typed errors as data, with what they prove.

One module holds the tables of one wire: `http`, `sql`, `aws`, `google`, `services`, `standard`, `validation`, and one
for each model's SDK. The most specific class wins. The reason of a Fault comes from the table, never from the
exception's message, which may contain secrets, or instructions for a model.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from activities.borders import declared
from activities.borders.table import Entry, Proof, Table, Verdict, qualified
from activities.errors import ToolError
from workflows.faults import Code, Fault, Quadrant

# A new library: its rows go to the module of its wire, its package here, its distribution to the extra `libraries`, its
# classes to tests/activities/libraries/classes.json (`python -m tests.libraries`).
WIRES: Mapping[str, tuple[str, ...]] = {
    "http": ("httpx2", "httpcore2", "httpx", "httpcore", "requests", "urllib3", "aiohttp", "urllib", "http", "ssl"),
    "sql": (
        "sqlalchemy",
        "sqlite3",
        "aiosqlite",
        "psycopg",
        "psycopg2",
        "psycopg_pool",
        "asyncpg",
        "pymysql",
        "activities",
    ),
    "aws": ("botocore", "boto3", "s3transfer"),
    "google": ("google", "grpc"),
    "services": ("stripe", "redis"),
    "standard": ("builtins", "asyncio", "concurrent", "json", "queue", "_queue", "socket", "subprocess", "tenacity"),
    "validation": ("pydantic", "pydantic_core"),
    "anthropic": ("anthropic",),
    "openai": ("openai",),
}
"""The modules with tables, and the top-level packages whose exceptions each one knows."""

KNOWN = frozenset(package for packages in WIRES.values() for package in packages)
"""The packages that have a table."""

MAX_NAME = 80
"""Characters of a class's name in a reason."""
_PERSON_FIRST = (
    Quadrant.PERSISTENT_INFRASTRUCTURAL,
    Quadrant.PERSISTENT_SEMANTIC,
    Quadrant.TRANSIENT_INFRASTRUCTURAL,
    Quadrant.TRANSIENT_SEMANTIC,
)
_LEAST_PROVEN_FIRST = (Proof.UNKNOWN, Proof.REFUSED, Proof.NOT_SENT)


def classify(error: BaseException) -> Fault:
    """Translate an exception to its Fault; an exception whose class is in no table is a `bug`."""
    return judge(error).fault


def judge(error: BaseException, raises: Mapping[type[BaseException], Entry] | None = None) -> Verdict:
    """Translate an exception to its Fault, with what it proves about the effect of the call.

    `raises` are the entries that the tool itself declares: they come before every table. A group is as bad as the worst
    of its members, and proves no more than all of them prove.
    """
    if isinstance(error, BaseExceptionGroup):
        return _worst([judge(one, raises) for one in _members(error)])
    if isinstance(error, ToolError):
        return Verdict(error.fault, Proof.NOT_SENT if error.requests == 0 else Proof.REFUSED, error.requests)
    entry = declared.entry_of(type(error), raises or {}) or entry_of(map(qualified, type(error).__mro__))
    return entry(error) if entry else _unknown(type(error).__name__[:MAX_NAME])


def _unknown(name: str) -> Verdict:
    fault = Fault.of(Code.BUG, f"The tool raised {name}, which no table knows: fix the tool.")
    return Verdict(fault, Proof.UNKNOWN, unknown=name)


def entry_of(classes: Iterable[str]) -> Entry | None:
    """The entry for an exception with these classes: the qualified names of its own and its parents, nearest first."""
    for name in classes:
        entry = table_of(name.partition(".")[0]).get(name)
        if entry is not None:
            return entry
    return None


@cache
def table_of(package: str) -> Table:
    """The table of a top-level package: the entry points' for it, over Replan's own; empty if nobody has one."""
    wire = next((wire for wire, packages in WIRES.items() if package in packages), None)
    known: Table = importlib.import_module(f"activities.borders.{wire}").TABLE if wire else {}
    return {**known, **declared.from_entry_points(package)}


def _members(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    """The exceptions of a group and of the groups in it; without recursion, since groups may be nested to any depth."""
    found, left = list[BaseException](), [*group.exceptions]
    while left:
        one = left.pop(0)
        if isinstance(one, BaseExceptionGroup):
            left[:0] = one.exceptions
        else:
            found.append(one)
    return found


def _worst(verdicts: list[Verdict]) -> Verdict:
    """Of some verdicts the fault that needs most attention, and what all of them prove."""
    by_need = sorted(verdicts, key=lambda one: (_PERSON_FIRST.index(one.fault.quadrant), -(one.fault.retry_after or 0)))
    proves = min((one.proves for one in verdicts), key=_LEAST_PROVEN_FIRST.index)
    requests = min((one.requests for one in verdicts if one.requests is not None), default=None)
    return replace(by_need[0], proves=proves, requests=requests)
