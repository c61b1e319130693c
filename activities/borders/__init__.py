"""Translates exceptions of other libraries to Faults (typed errors as data), with what each exception proves.

One module holds the tables of one wire: `http`, `sql`, `mail`, `standard`, `validation`, one for each model's SDK, and
those of extras. The most specific class wins. The last table is `guessed_status`, for all other classes. The reason of
a Fault comes from the table, never from the exception's message, which may contain secrets, or instructions for a
model.
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from activities.borders import declared, guessed_status, http
from activities.borders.address import address_of
from activities.borders.table import (
    MAX_CARRIED,
    Cases,
    Entry,
    Proof,
    Row,
    Table,
    Verdict,
    as_words,
    cause_of,
    class_name,
    class_names,
    shows_down,
    tells_its_cause,
    verdict_of,
)
from activities.errors import ToolError
from extras import plugins
from workflows.faults.fault import Code, Fault, Quadrant

# A further library has its rows in extras/libraries, whose plugin.py says where else it is named.
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
        "oracledb",
        __name__.partition(".")[0],  # our own: `replan` where the wheel is installed
    ),
    "mail": ("smtplib",),
    "standard": ("builtins", "asyncio", "concurrent", "json", "queue", "_queue", "socket", "subprocess", "tenacity"),
    "validation": ("pydantic", "pydantic_core"),
    "anthropic": ("anthropic",),
    "openai": ("openai",),
}
"""The modules here with tables, and the top-level packages for whose exceptions each module has entries."""


@cache
def tables() -> Mapping[str, tuple[str, ...]]:
    """All modules with tables, those of extras too, and the top-level packages that each is about."""
    ours = {f"{__name__}.{wire}": packages for wire, packages in WIRES.items()}
    return ours | {module: packages for plugin in plugins().values() for module, packages in plugin.tables.items()}


def is_known(package: str) -> bool:
    """Whether a top-level package has a table."""
    return any(package in packages for packages in tables().values())


_PERSON_FIRST = (
    Quadrant.PERSISTENT_INFRASTRUCTURAL,
    Quadrant.PERSISTENT_SEMANTIC,
    Quadrant.TRANSIENT_INFRASTRUCTURAL,
    Quadrant.TRANSIENT_SEMANTIC,
)
_LEAST_PROVEN_FIRST = (Proof.UNKNOWN, Proof.REFUSED, Proof.NOT_SENT, Proof.PROMISED)


def classify(error: BaseException) -> Fault:
    """Translate an exception to its Fault: by the tables, else by its cause, by an HTTP status, or as a `bug`."""
    return judge(error).fault


def judge(error: BaseException, raises: declared.Entries | None = None) -> Verdict:
    """Translate an exception to its Fault, with what the exception proves about the effect of the call.

    `raises` are the entries that the tool itself declares, by class and by HTTP status: they come before every table.
    An exception without an entry is translated like the exception that it was raised `from`, else by the HTTP status
    that it carries, else as a bug. A group gets the fault of its worst member, and proves only what all its members
    prove. There is a verdict even if the exception raises another exception when its attributes are read.
    """
    try:
        # By their real class: `isinstance` would ask the exception for its `__class__`.
        if issubclass(type(error), BaseExceptionGroup):
            return _worst([judge(member, raises) for member in _members(error)])
        known = raises or {}
        verdicts = ((cause, _verdict(cause, known)) for cause in _error_and_causes(error))
        guesses = ((cause, guessed_status.guess(cause)) for cause in _error_and_causes(error))
        found = ((cause, verdict) for cause, verdict in itertools.chain(verdicts, guesses) if verdict)
        cause, verdict = next(found, (error, None))
        if verdict:
            return _with_address(_by_status(verdict, cause, known), cause)
        passed = next((entry for entry in _entries(error, known) if isinstance(entry, Cases)), None)
        return passed.otherwise.verdict() if passed else _of_unknown_class(class_name(error))
    except BaseException:  # of an attribute: an exception is code of anybody
        return _of_unknown_class(class_name(error))


def _error_and_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes (`raise ... from`), but none below a mistake, such as a KeyError.

    An author writes `from` to give a failure another name. An exception that was only being handled (`__context__`) is
    left out: code that fails in an `except`, after a request that had its effect, is a bug.
    """
    found = list[BaseException]()
    cause: BaseException | None = error
    while cause is not None and len(found) <= MAX_CARRIED and all(cause is not earlier for earlier in found):
        found.append(cause)
        yield cause
        cause = cause_of(cause) if tells_its_cause(type(cause)) else None


def _verdict(error: BaseException, raises: declared.Entries) -> Verdict | None:
    """The verdict on one exception of a chain of causes; None if its class has no entry that knows it.

    If the tool declares the HTTP status of the exception, what it declares of the class does not count.
    """
    if issubclass(type(error), ToolError):
        return _of_tool_error(error)
    own, status = declared.entry_of(type(error), raises), _declared_status(error, raises)
    entries = _entries(error, {} if status else raises)
    verdict = next(filter(None, (verdict_of(entry, error) for entry in entries)), None)
    # The tool knows the class, so its status is no guess.
    return http.by_answer(error, status) if verdict is None and own and status else verdict


def _entries(error: BaseException, raises: declared.Entries) -> Iterator[Entry]:
    """Yield the entries for an exception, first the one that the tool declares for its class."""
    if own := declared.entry_of(type(error), raises):
        yield own
    for _, entry in entries_of(class_names(type(error))):
        yield entry


def _by_status(verdict: Verdict, error: BaseException, raises: declared.Entries) -> Verdict:
    """The verdict, or the one that the tool declares for the HTTP status of the exception."""
    status = _declared_status(error, raises)
    by_tool = verdict_of(raises[status], error) if status else None
    return declared.by_status(verdict, error, by_tool) if by_tool else verdict


def _with_address(verdict: Verdict, error: BaseException) -> Verdict:
    """The verdict; if nothing answered, with a reason that names the host and port."""
    fault = verdict.fault
    where = address_of(error) if fault.code is Code.UNREACHABLE and not issubclass(type(error), ToolError) else ""
    if not where or where.rpartition(":")[0].strip("[]") in fault.reason:
        return verdict
    return replace(verdict, fault=fault.model_copy(update={"reason": f"{fault.reason} Address: {where}."}))


def _declared_status(error: BaseException, raises: declared.Entries) -> int | None:
    """The HTTP status of an exception, if the tool declares this status; else None."""
    status = guessed_status.status_of(error) if raises and not issubclass(type(error), ToolError) else None
    return status if status in raises else None


def _of_tool_error(error: Any) -> Verdict:
    """The verdict on a ToolError: Refused, Busy, Unreachable or NeedsPerson."""
    known, requests = getattr(error, "fault", None), error.requests
    if not isinstance(known, Fault):
        return Row(
            Code.BUG, f"{class_name(error)} has no fault: call super().__init__(reason) in it.", Proof.UNKNOWN
        ).verdict()
    words = as_words(error.words)
    proves = Proof.UNKNOWN if error.proves_nothing else _OWN_PROOF.get(requests, Proof.REFUSED)
    fault = known.model_copy(update={"is_down": known.is_down or shows_down(known.code, proves)})
    return Verdict(fault, proves, None if error.proves_nothing else requests, words=words)


_OWN_PROOF = {None: Proof.PROMISED, 0: Proof.NOT_SENT}


def _of_unknown_class(name: str) -> Verdict:
    fault = Fault.of(Code.BUG, f"The tool raised {name}, which no table knows: fix the tool.")
    return Verdict(fault, Proof.UNKNOWN, unknown=name)


def entry_of(classes: Iterable[str]) -> Entry | None:
    """The nearest entry for an exception; `classes` are the qualified names of its class and parents, nearest first."""
    return next((entry for _, entry in entries_of(classes)), None)


def entries_of(classes: Iterable[str]) -> Iterator[tuple[str, Entry]]:
    """Yield the entries for an exception, nearest class first, each with its class; `classes` are as in `entry_of`."""
    for number, name in enumerate(classes):
        entry = table_of(name.partition(".")[0]).get(name)
        if entry is not None and (number == 0 or isinstance(entry, Row) or entry.covers_children):
            yield name, entry


@lru_cache(maxsize=1000)
def table_of(package: str) -> Table:
    """The table of a top-level package: Replan's own, overridden by those of entry points; empty if there is none."""
    module = next((module for module, packages in tables().items() if package in packages), None)
    known: Table = importlib.import_module(module).TABLE if module else {}
    return {**known, **declared.from_entry_points(package)}


_EXCEPTIONS = vars(BaseExceptionGroup)["exceptions"]


def _members(group: BaseException) -> list[BaseException]:
    """The exceptions of a group and of the groups in it, each once.

    Without recursion, since groups may be nested to any depth, and may hold one group several times.
    """
    found, left, ids = list[BaseException](), [group], set[int]()
    while left:
        member = left.pop()
        if id(member) in ids:
            continue
        ids.add(id(member))
        if issubclass(type(member), BaseExceptionGroup):
            left += reversed(_EXCEPTIONS.__get__(member))
        else:
            found.append(member)
    return found


def _worst(verdicts: list[Verdict]) -> Verdict:
    """The verdict on a group: the fault that needs most attention, and only what all the verdicts prove."""
    worst = min(
        verdicts,
        key=lambda verdict: (_PERSON_FIRST.index(verdict.fault.quadrant), _LEAST_PROVEN_FIRST.index(verdict.proves)),
    )
    proves = min((verdict.proves for verdict in verdicts), key=_LEAST_PROVEN_FIRST.index)
    counts = [verdict.requests for verdict in verdicts if verdict.proves is Proof.REFUSED]
    requests = min((count for count in counts if count is not None), default=None) if None not in counts else None
    waits = [verdict.fault.retry_after for verdict in verdicts if verdict.fault.retry_after is not None]
    found: dict[str, Any] = {"retry_after": max(waits, default=None)} if worst.fault.quadrant.is_transient else {}
    if proves is Proof.UNKNOWN and worst.proves is not proves:  # the reason may say that nothing was sent
        reason = worst.fault.reason.removesuffix(".")
        found["reason"] = f"{reason}, but another call of the same attempt may have had an effect."
    return replace(worst, fault=worst.fault.model_copy(update=found), proves=proves, requests=requests)
