"""Describes how the tables classify a class of exceptions, for `worker.py --classify` and for docs/errors.md."""

import asyncio
import pkgutil
import sys
from collections.abc import Iterator, Mapping

from activities.borders import declared, entries_of, entry_of, guessed_status, is_known, table_of
from activities.borders.table import Cases, Entry, Proof, Row, class_names, qualified, tells_its_cause
from activities.errors import ToolError
from workflows.faults.fault import QUADRANT, Quadrant
from workflows.text import nearest

FOLLOWS: Mapping[Quadrant, str] = {
    Quadrant.TRANSIENT_INFRASTRUCTURAL: "retried with growing waits; then fallback=, else a new plan, else a person",
    Quadrant.TRANSIENT_SEMANTIC: "retried, after the wait that was asked for; then fallback=, else a new plan",
    Quadrant.PERSISTENT_INFRASTRUCTURAL: "no retry and no new plan: a person",
    Quadrant.PERSISTENT_SEMANTIC: "no retry: a new plan",
}
"""What Replan does after a fault, if the outcome of the call is known."""
PROVES: Mapping[Proof, str] = {
    Proof.PROMISED: "the tool says that this attempt had none; after one with an unknown outcome it proves nothing",
    Proof.NOT_SENT: "nothing was sent; if the call sent nothing else, even an unkeyed one may be retried",
    Proof.REFUSED: "the rejected request had no effect: the attempt had none if that was its only request",
    Proof.UNKNOWN: "nothing: a keyed call is repeated with its key, an unkeyed one is reconciled, or a person decides",
}
"""What an exception proves about the effect of its call, and what that means for a tool with an effect."""


class UnknownClass(ValueError):
    """No class of exceptions has this name; the message says what to do."""


def describe(name: str, tools: Mapping[str, declared.Entries]) -> str:
    """A text about a class of exceptions: its fault, what follows, and what it proves about an effect.

    `name` is `package.module.Class`, or the name of a class that a loaded tools file uses. `tools` are the entries that
    each tool declares with `raises=`, by its kind.

    Raises:
        UnknownClass: there is no such class.
    """
    raised = _class(name)
    title = qualified(raised) if raised else name
    names = class_names(raised) if raised else [name]
    lines = [title]
    for kind, raises in tools.items():
        entry = declared.entry_of(raised, raises) if raised else None
        lines += _entry_lines(f"in {kind}, by raises=", entry) if entry else []
        for status, row in raises.items():
            if isinstance(status, int) and _may_carry(names, status):
                lines += _entry_lines(f"in {kind}, by raises=, with the HTTP status {status}", row)
    if raised and (special := _special(raised)):
        return f"{title}\n  {special}"
    source, entry = next(entries_of(names), ("", None))
    if entry is None:
        follows = FOLLOWS[Quadrant.PERSISTENT_INFRASTRUCTURAL]
        is_named = raised is not None and tells_its_cause(raised)
        unless = ", unless it is raised from one that is known (`raise ... from error`)" if is_named else ""
        lines.append(f"  no table knows it, so it is a bug{unless}: {follows}")
        if raised and raised.__module__ != "builtins":
            places = ", ".join(map(".".join, guessed_status.PLACES))
            lines.append(f"  guessed  if it carries an HTTP status from 400 to 599 in one of {places}:")
            lines.append("           then it becomes what docs/errors.md says of that status, and proves nothing")
            lines.append(f'  a tool may declare it: raises={{{raised.__name__}: "CODE"}} with a code of docs/errors.md')
    else:
        lines += _entry_lines("" if source == title else f"as {source}", entry)
    return "\n".join(lines)


def _may_carry(names: list[str], status: int) -> bool:
    """Whether exceptions of a class may carry an HTTP status: its entry decides by it, or no table knows the class."""
    entry = entry_of(names)
    return entry is None or (isinstance(entry, Cases) and str(status // 100 * 100) in entry.rows)


def _special(raised: type[BaseException]) -> str:
    """A text about a class that Replan classifies without a table; empty for any other class."""
    if issubclass(raised, ToolError):
        return "says itself what it is: docs/tools.md#what-to-raise"
    if issubclass(raised, BaseExceptionGroup):
        return "is as bad as the worst of its members, and proves no more than all of them prove"
    if issubclass(raised, asyncio.CancelledError):
        return "cancels a call: it is no fault of the tool, unless the tool did so itself"
    return ""


def unknown(package: str) -> list[type[Exception]]:
    """The classes of exceptions of a package that are loaded now and that no table knows, nearest to Exception first.

    A class whose parent is in the list is left out.
    """
    if is_known(package) or table_of(package):
        return []
    found, left = list[type[Exception]](), [*Exception.__subclasses__()]
    while left:
        raised = left.pop(0)
        is_theirs = str(raised.__module__).partition(".")[0] == package and not issubclass(raised, Warning | ToolError)
        if is_theirs and entry_of(class_names(raised)) is None:
            found.append(raised)
        else:
            left += type.__subclasses__(raised)
    return found


def rows_of(entry: Entry) -> Iterator[tuple[str, Row]]:
    """Yield the rows that an entry can give, each after the value that chooses it, which is "" for a Row."""
    if isinstance(entry, Row):
        yield "", entry
    else:
        yield from entry.rows.items()
        yield "anything else", entry.otherwise


def _entry_lines(heading: str, entry: Entry) -> Iterator[str]:
    if heading:
        yield f"  {heading}"
    if isinstance(entry, Row):
        yield f"  becomes  {entry.code.value} ({QUADRANT[entry.code].value.replace('_', ', ')}): {entry.reason}"
        yield f"  then     {FOLLOWS[QUADRANT[entry.code]]}"
        yield f"  proves   {PROVES[entry.proves]}"
        return
    yield f"  becomes  one of these, by {entry.by}"
    width = max((len(value) for value, _ in rows_of(entry)), default=0)
    for value, row in rows_of(entry):
        yield f"    {value:<{width}}  {row.code.value:<19}  {row.proves.value:<8}  {FOLLOWS[QUADRANT[row.code]]}"


def _class(name: str) -> type[BaseException] | None:
    """The class of this name; None if it cannot be imported here, but a table has the name.

    Raises UnknownClass if no class of exceptions has this name.
    """
    # A tools file is a module whose name nobody knows.
    for module in [module for key, module in sys.modules.items() if key.startswith("replan_tools.")]:
        if isinstance(found := getattr(module, name, None), type) and issubclass(found, BaseException):
            return found
    try:
        found = pkgutil.resolve_name(name if "." in name else f"builtins.{name}")
    except (Exception, SystemExit) as error:  # it imports the module, which may do anything
        table = table_of(name.partition(".")[0])
        if name in table:
            return None
        why = "it cannot be imported" if isinstance(error, ImportError) else "there is no such class"
        near = nearest(name, table)
        remedy = "write package.module.Class, and install its package."
        raise UnknownClass(f"--classify {name}: {why}{near}: {remedy}") from None
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise UnknownClass(f"--classify {name}: this is no class of exceptions: write package.module.Class.")
    return found
