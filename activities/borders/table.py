"""What the tables that translate exceptions are made of: rows, choices between rows, and their verdicts.

A table is a Mapping from the qualified name of an exception's class, such as `requests.exceptions.ReadTimeout`, to an
Entry. It uses names, and not classes, so that the worker imports no library for its table. The name is that of the
module which defines the class (`__module__`) and of the class in it (`__qualname__`).
"""

import builtins
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType, TracebackType
from typing import Any, TypeVar

from pydantic import JsonValue

from activities.errors import bounded
from workflows.faults.fault import MAX_WORDS, Code, Fault

T = TypeVar("T")


class Proof(StrEnum):
    """What an exception proves about the effect of the request that failed with it."""

    PROMISED = "promised"
    """The tool itself says that the call had no effect, whatever it has sent."""
    NOT_SENT = "not sent"
    """The request was not sent, so it had no effect. Other requests of the same call may have had one."""
    REFUSED = "refused"
    """The request was answered, and the answer says that nothing was changed. Other requests of the same call may have
    had an effect."""
    UNKNOWN = "unknown"
    """Nothing: the request may have had its effect."""


@dataclass(frozen=True)
class Verdict:
    """How Replan classifies an exception: as which fault, and what the exception proves."""

    fault: Fault
    proves: Proof
    requests: int | None = None
    """How many of the call's requests that may have changed something were refused; None if it is not known whether the
    refused request was one of these."""
    unknown: str = ""
    """The name of the exception's class, if no table knows it; else empty."""
    words: str = ""
    """The message in the answer of the service, which is untrusted and may hold secrets; empty if there is none."""


@dataclass(frozen=True)
class Row:
    """A row of a table: the same verdict for any exception of a class."""

    code: Code
    reason: str
    """A whole sentence. It goes into history and to the planner, so it never quotes the exception's message."""
    proves: Proof
    retry_after: float | None = None
    """Seconds to wait before a retry; None for the tool's backoff."""
    says_down: bool = False
    """Whether the service itself says that it is down, as with HTTP 503."""

    def __call__(self, error: BaseException) -> Verdict:
        return self.verdict()

    def verdict(
        self, *, reason: str | None = None, observed: JsonValue = None, retry_after: float | None = None
    ) -> Verdict:
        """The verdict of this row, with `observed`; a given `reason` or `retry_after` (seconds) replaces the row's."""
        wait = bounded(self.retry_after if retry_after is None else retry_after)
        is_down = self.says_down or shows_down(self.code, self.proves)
        fault = Fault.of(self.code, reason or self.reason, observed=observed, retry_after=wait, is_down=is_down)
        return Verdict(fault, self.proves)


def shows_down(code: Code, proves: Proof) -> bool:
    """Whether a fault with this code shows by itself that the service is down: it is overloaded, or unconnected."""
    return code is Code.OVERLOADED or (code is Code.UNREACHABLE and proves in (Proof.NOT_SENT, Proof.PROMISED))


@dataclass(frozen=True)
class Cases:
    """An entry whose verdict depends on data in the exception, such as an HTTP status or a SQLSTATE."""

    by: str
    """What decides, as words for people: `its HTTP status`."""
    rows: Mapping[str, Row]
    """The rows among which `decide` chooses, by the value that chooses them, for docs/errors.md and `--classify`."""
    decide: Callable[[Any], Verdict | None]
    otherwise: Row
    """The row where `decide` returns None, or fails: an exception may hold anything, as a tool may have made it."""
    covers_children: bool = True
    """Whether the entry is also for children of its class that have no entry of their own."""
    may_pass: bool = False
    """Whether None of `decide` leaves the exception to the next entry that fits, and not to `otherwise`."""

    def __call__(self, error: BaseException) -> Verdict:
        try:
            return self.decide(error) or self.otherwise.verdict()
        except Exception:  # see `otherwise`
            return self.otherwise.verdict()


Entry = Row | Cases


def as_words(text: object) -> str:
    """The words of a service on one line, cut to what a fault can need; empty if it is no text, as a page is not."""
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    line = " ".join(plain[: 8 * MAX_WORDS].split()) if isinstance(plain, str) else ""
    is_text = not line.startswith("<") and "\0" not in line and line.count("\ufffd") * 10 <= len(line)
    return line[: 4 * MAX_WORDS].encode(errors="replace").decode() if is_text else ""


def verdict_of(entry: Entry, error: BaseException) -> Verdict | None:
    """The verdict of an entry on an exception; None if the entry leaves the exception to the next one that fits."""
    return entry.decide(error) if isinstance(entry, Cases) and entry.may_pass else entry(error)


Table = Mapping[str, Entry]


def named(*rows: tuple[T, str]) -> dict[str, T]:
    """The rows by name; each comes with the names of the classes or codes that it is for, separated by spaces."""
    return {name: entry for entry, names in rows for name in names.split()}


def of_module(module: str, *rows: tuple[Entry, str]) -> Table:
    """The entries by the qualified names of classes; each comes with the names that its classes have in `module`."""
    return {f"{module}.{name}": entry for name, entry in named(*rows).items()}


def qualified(raised: type[BaseException]) -> str:
    """The name that a class has in tables: its module and its qualified name."""
    return f"{raised.__module__}.{raised.__qualname__}"


# An exception's class may hide what Python itself knows of it, or raise when it is asked: these ask Python.

_MRO, _NAME = vars(type)["__mro__"], vars(type)["__name__"]
_TRACEBACK, _CAUSE = vars(BaseException)["__traceback__"], vars(BaseException)["__cause__"]
_PYTHONS_OWN = [var for var in vars(builtins).values() if isinstance(var, type)]
_VAGUE = (Exception, RuntimeError, ValueError)
"""Python's own classes that do not say what failed; any other, such as KeyError, says that the code is wrong."""


def parents(raised: type) -> tuple[type[BaseException], ...]:
    """A class and its parents, nearest first."""
    found: tuple[type[BaseException], ...] = _MRO.__get__(raised)
    return found


def class_names(raised: type) -> list[str]:
    """The names that a class and its parents have in tables, nearest first."""
    return [qualified(parent) for parent in parents(raised)]


def class_name(error: BaseException) -> str:
    """The name of an exception's class, for the reason of a fault; `an exception` if the name is no identifier."""
    name: str = _NAME.__get__(type(error))
    return name[:MAX_CLASS_NAME] if name.isidentifier() else "an exception"


def is_pythons_own(error: BaseException) -> bool:
    """Whether the class of an exception is one of Python's own, such as KeyError."""
    return any(own is type(error) for own in _PYTHONS_OWN)


def tells_its_cause(raised: type[BaseException]) -> bool:
    """Whether an exception of a class that no table has is translated like the exception that it was raised `from`.

    False for a group: its members may have groups as their causes, and so on without end.
    """
    is_plain = any(raised is vague for vague in _VAGUE) or all(raised is not own for own in _PYTHONS_OWN)
    return is_plain and not issubclass(raised, BaseExceptionGroup)


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of an exception, even if its class hides it; None without one."""
    found: TracebackType | None = _TRACEBACK.__get__(error)
    return found


def frames(error: BaseException, *packages: str) -> Iterator[tuple[str, FrameType]]:
    """The module and the frame of each function through which an exception came, outermost first.

    With `packages`, only those of functions of these top-level packages.
    """
    for frame, _line in traceback.walk_tb(traceback_of(error)):
        module = str(frame.f_globals.get("__name__"))
        if not packages or module.partition(".")[0] in packages:
            yield module, frame


def cause_of(error: BaseException) -> BaseException | None:
    """The exception that `error` was raised `from`; None without one."""
    found: BaseException | None = _CAUSE.__get__(error)
    return found


def carried(error: BaseException) -> list[BaseException]:
    """The exceptions that an exception wraps, outermost first: as an argument, `reason`, `os_error`, or cause.

    A client often wraps the exception of the layer below, and only the innermost says whether anything was sent. A
    `__context__` is left out: it may be of an earlier request, if the tool sends another request in its `except`.
    """
    found = list[BaseException]()
    current: BaseException | None = error
    while current is not None and len(found) < MAX_CARRIED and all(current is not earlier for earlier in found):
        found.append(current)
        args = attribute(current, "args")
        inner = (
            *(args[:4] if isinstance(args, tuple) else ()),
            attribute(current, "reason"),
            attribute(current, "os_error"),
            current.__cause__,
        )
        current = next((wrapped for wrapped in inner if isinstance(wrapped, BaseException)), None)
    return found[1:]


def attribute(thing: object, *path: str) -> Any:
    """The value at a path of attributes that begins at `thing`; None if an attribute is missing or raises."""
    for name in path:
        try:
            thing = getattr(thing, name, None)
        except Exception:  # of a property: that of httpx raises RuntimeError where no request was set
            return None
    return thing


MAX_CLASS_NAME = 80
"""Characters of a class's name in a reason."""
MAX_CARRIED = 20
"""The most exceptions that `carried` reads; a chain may have any length."""
