"""The exceptions of tools, named by what follows, and those of databases.

    ToolError
    ├── Refused       the call is rejected              -> a new plan
    ├── Busy          not now                           -> retried after `retry_after` seconds
    ├── Unreachable   the call did not get through      -> retried with backoff
    └── NeedsPerson   the deployment has to be fixed    -> an operator

Most tools raise none of them: `activities.borders` knows the exceptions of HTTP, SQL, pydantic and the operating
system, and an exception that it does not know is a `bug`, which an operator has to fix.
"""

from typing import Any, ClassVar, TypeVar

from pydantic_core import to_jsonable_python

from workflows.faults import QUADRANT, Code, Fault, Quadrant

RESERVED_CODES = frozenset(
    {
        Code.CIRCUIT_OPEN,
        Code.MISSING_TOOL,
        Code.REPEATED_CALL,
        Code.STORE_UNAVAILABLE,
        Code.UNDECODABLE,
        Code.UNSERIALISABLE,
        Code.WORKER_LOST,
        Code.WORKER_SHUTDOWN,
        Code.WRONG_STORE,
    }
)
"""Codes of faults that Replan itself finds around a call; the workflow relies on them, so no tool may raise them."""


class ToolError(Exception):
    """The base of the four classes that a tool raises."""

    quadrant: ClassVar[Quadrant]
    default: ClassVar[Code]
    is_harmless = False
    """True if the error proves that neither this attempt nor an earlier one of the call has changed anything."""
    requests: int | None = None
    """How many of the last requests of the attempt had no effect, as the error proves; None: all of them."""

    def __init__(
        self, reason: str, *, code: str | None = None, observed: Any = None, retry_after: float | None = None
    ) -> None:
        """`reason` is one sentence about what happened, for the planner and for people.

        `code` is one of `codes()`; `observed` is the state that the planner will see, a model or any JSON value;
        `retry_after` is in seconds.

        Raises:
            ValueError: `code` does not belong to this class.
        """
        if code is not None and code not in self.codes():
            raise ValueError(f"{type(self).__name__} has no code {code!r}: use one of {', '.join(self.codes())}.")
        plain = reason.encode(errors="replace").decode()  # a file's name may contain lone surrogates
        super().__init__(plain)
        known = self.default if code is None else Code(code)
        self.fault = Fault.of(known, plain, observed=to_jsonable_python(observed), retry_after=retry_after)

    @classmethod
    def codes(cls) -> list[str]:
        own = {code for code, quadrant in QUADRANT.items() if quadrant is cls.quadrant}
        return sorted(code.value for code in own - RESERVED_CODES)


E = TypeVar("E", bound=ToolError)


def unsent(error: E) -> E:
    """Return the error, marked as about a request that was not sent; earlier requests may have had an effect."""
    error.requests = 0
    return error


def answered(error: E) -> E:
    """Return the error, marked as about the last request, which had no effect; earlier requests may have had one."""
    error.requests = 1
    return error


class Refused(ToolError):
    """The call is rejected, now and later: make a new plan from `observed`."""

    quadrant = Quadrant.PERSISTENT_SEMANTIC
    default = Code.REFUSED


class Busy(ToolError):
    """The call is rejected for now: retry it after `retry_after` seconds, or after a backoff."""

    quadrant = Quadrant.TRANSIENT_SEMANTIC
    default = Code.BUSY


class Unreachable(ToolError):
    """The call did not get through and had no effect: retry it after a backoff."""

    quadrant = Quadrant.TRANSIENT_INFRASTRUCTURAL
    default = Code.UNREACHABLE


class NeedsPerson(ToolError):
    """Neither a retry nor another plan can succeed: an operator has to fix something first."""

    quadrant = Quadrant.PERSISTENT_INFRASTRUCTURAL
    default = Code.NEEDS_PERSON


class DatabaseUnavailable(Exception):
    """A database of Replan or of a tool cannot be reached, or is locked, and nothing has been done in it."""


class DatabaseFileGone(Exception):
    """The file of a SQLite database was deleted or replaced since it was opened."""


class WriteInReadTransaction(Exception):
    """A statement would write in a transaction that only reads."""
