"""What a tool may raise, named by what happens next.

    ToolError
    ├── Refused       the world says no             -> a new plan
    ├── Busy          not now                       -> later, after `retry_after` seconds
    ├── Unreachable   the way to the world is cut   -> retried with backoff
    └── NeedsPerson   the deployment is at fault    -> a person

Most tools raise none of them: the HTTP, SQL, pydantic and OS tables know what their exceptions mean, and whatever no
table knows is `bug`, which goes to a person.
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
"""Codes for what happens around a call; the workflow trusts them to be true, so no tool may raise them."""


class ToolError(Exception):
    """Base of the four; raise one of them."""

    quadrant: ClassVar[Quadrant]
    default: ClassVar[Code]
    is_harmless = False
    """Whether no attempt of the call can have changed anything, whatever its tool may do with other arguments."""
    requests: int | None = None
    """How many sent requests it speaks of, where it is not the author's word on the whole call."""

    def __init__(
        self, reason: str, *, code: str | None = None, observed: Any = None, retry_after: float | None = None
    ) -> None:
        """Say what happened in one instructive sentence.

        `code` is one of the closed list that belongs to this class; `observed` is what the planner will see of the
        world (a model, or anything that JSON can carry); `retry_after` is in seconds.

        Raises:
            ValueError: `code` does not belong to this class.
        """
        plain = reason.encode(errors="replace").decode()  # a file's name may have bytes that are no characters
        super().__init__(plain)
        self.fault = Fault.of(self._code(code), plain, observed=to_jsonable_python(observed), retry_after=retry_after)

    @classmethod
    def _code(cls, name: str | None) -> Code:
        allowed = cls.codes()
        if name is not None and name not in allowed:
            raise ValueError(f"{cls.__name__} has no code {name!r}: use one of {', '.join(allowed)}.")
        return cls.default if name is None else Code(name)

    @classmethod
    def codes(cls) -> list[str]:
        """The codes that belong to this class, by name."""
        own = {code for code, quadrant in QUADRANT.items() if quadrant is cls.quadrant}
        return sorted(code.value for code in own - RESERVED_CODES)


E = TypeVar("E", bound=ToolError)


def unsent(error: E) -> E:
    """The same error, said of one request, which was not sent; of those before it that says nothing."""
    error.requests = 0
    return error


def answered(error: E) -> E:
    """The same error, said of the last request, which did nothing; of those before it that says nothing."""
    error.requests = 1
    return error


class Refused(ToolError):
    """The world says no, and will say it again: plan anew from `observed`."""

    quadrant = Quadrant.PERSISTENT_SEMANTIC
    default = Code.REFUSED


class Busy(ToolError):
    """The world says not now: try again after `retry_after` seconds, or after a backoff."""

    quadrant = Quadrant.TRANSIENT_SEMANTIC
    default = Code.BUSY


class Unreachable(ToolError):
    """The call did not get through and had no effect: try again after a backoff."""

    quadrant = Quadrant.TRANSIENT_INFRASTRUCTURAL
    default = Code.UNREACHABLE


class NeedsPerson(ToolError):
    """Neither time nor another plan can help: a person has to mend something first."""

    quadrant = Quadrant.PERSISTENT_INFRASTRUCTURAL
    default = Code.NEEDS_PERSON


class DatabaseUnavailable(Exception):
    """A database of Replan or of a tool cannot be reached, or is locked, and nothing has been done in it."""


class DatabaseFileGone(Exception):
    """The file of a SQLite database was deleted or replaced since it was opened."""


class WriteInReadTransaction(Exception):
    """A statement would write in a transaction that only reads."""
