"""The exceptions that a tool may raise, one class for each reaction of Replan, and three exceptions of databases.

    ToolError
    ├── Refused       the call is rejected              -> a new plan
    ├── Busy          the call is rejected for now      -> retried after `retry_after` seconds
    ├── Unreachable   the call did not get through      -> retried with backoff
    └── NeedsPerson   the deployment has to be fixed    -> Replan waits for an operator

Most tools raise none of them: the tables in `activities.borders` translate the exceptions of the common libraries, and
`raises=` of a tool translates further ones. Any other exception is a `bug`, which an operator has to fix.
"""

from typing import Any, ClassVar, TypeVar

from pydantic_core import to_jsonable_python

from activities.extent import fault_of_extent
from workflows.faults import retries
from workflows.faults.fault import QUADRANT, Code, Fault, Quadrant

RESERVED_CODES = frozenset(
    {
        Code.CHANGED_TOOL,
        Code.CIRCUIT_OPEN,
        Code.INTERRUPTED,
        Code.MISSING_TOOL,
        Code.NEEDS_APPROVAL,
        Code.REJECTED,
        Code.REPEATED_CALL,
        Code.STORE_UNAVAILABLE,
        Code.UNDECODABLE,
        Code.UNSERIALISABLE,
        Code.WORKER_LOST,
        Code.WORKER_SHUTDOWN,
        Code.WRONG_STORE,
    }
)
"""Codes that only Replan gives to a fault: a tool may not raise them, since the workflow relies on their meaning."""


MAX_WAIT = retries.STEP_DEADLINE.total_seconds()
"""The most seconds that a service can ask to wait: no step waits longer."""


def bounded(wait: float | None) -> float | None:
    """The seconds `wait`, limited to the range from 0 to MAX_WAIT; None for None and for NaN.

    A service may send any number, even a wait that would end after the last date of any calendar.
    """
    # Not by `math.isnan`, which raises for an int that is too large for a float.
    return None if wait is None or wait != wait else float(min(max(wait, 0.0), MAX_WAIT))  # NaN


class ToolError(Exception):
    """The base of the four exceptions that a tool may raise; it is not raised itself."""

    quadrant: ClassVar[Quadrant]
    default: ClassVar[Code]
    is_harmless = False
    """True if the error proves that no attempt of the call, this one or an earlier one, has changed anything."""
    requests: int | None = None
    """The number of requests that may change something and that had no effect, as the error proves; None if the tool
    itself reports that the whole call had no effect."""

    proves_nothing = False
    """True if the call may have had its effect although it failed."""
    words = ""
    """The message in the answer of the service, if Replan itself called it; untrusted."""

    def __init__(
        self, reason: str, *, code: str | None = None, observed: Any = None, retry_after: float | None = None
    ) -> None:
        """`reason` is one sentence about what happened, for the planner and for people.

        `code` is one of `codes()`, by default the `default` of the class. `observed` is the state that the planner will
        see: a pydantic model or any JSON value; an iterator, or a value that is too large or too deep, is left out.
        `retry_after` is in seconds.

        Raises:
            ValueError: `code` does not belong to this class.
        """
        if code is not None and code not in self.codes():
            raise ValueError(f"{type(self).__name__} has no code {code!r}: use one of {', '.join(self.codes())}.")
        plain = reason.encode(errors="replace").decode()  # a file's name may contain lone surrogates
        super().__init__(plain)
        known = self.default if code is None else Code(code)
        plain_observed = None if fault_of_extent("", observed) else to_jsonable_python(observed)
        self.fault = Fault.of(known, plain, observed=plain_observed, retry_after=bounded(retry_after))

    @classmethod
    def codes(cls) -> list[str]:
        """The codes that a tool may raise with this class, sorted."""
        own = {code for code, quadrant in QUADRANT.items() if quadrant is cls.quadrant}
        return sorted(code.value for code in own - RESERVED_CODES)


E = TypeVar("E", bound=ToolError)


def unsent(error: E) -> E:
    """Mark and return an error whose request was not sent; earlier requests of the attempt may have had an effect."""
    error.requests = 0
    return error


def answered(error: E) -> E:
    """Mark and return an error whose request was answered and had no effect; earlier requests may have had one."""
    error.requests = 1
    return error


def unproven(error: E) -> E:
    """Mark and return an error that proves nothing: what was sent may have had its effect."""
    error.proves_nothing = True
    return error


class Refused(ToolError):
    """The call is rejected, and a retry would be rejected, too: the planner makes a new plan from `observed`."""

    quadrant = Quadrant.PERSISTENT_SEMANTIC
    default = Code.REFUSED


class Busy(ToolError):
    """The call is rejected for now: Replan retries it after `retry_after` seconds, or after a backoff."""

    quadrant = Quadrant.TRANSIENT_SEMANTIC
    default = Code.BUSY


class Unreachable(ToolError):
    """The call did not get through and had no effect: Replan retries it after a backoff."""

    quadrant = Quadrant.TRANSIENT_INFRASTRUCTURAL
    default = Code.UNREACHABLE


class NeedsPerson(ToolError):
    """Neither a retry nor another plan can succeed: an operator has to fix something first."""

    quadrant = Quadrant.PERSISTENT_INFRASTRUCTURAL
    default = Code.NEEDS_PERSON


class AsksPerson(NeedsPerson):
    """A service needs answers from a person; once they are given, the call is made again with the answers.

    For Replan itself: the workflow shows the call as one to approve, and the person edits its arguments.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.fault = self.fault.model_copy(update={"code": Code.NEEDS_APPROVAL})


class DatabaseUnavailable(Exception):
    """A database of Replan or of a tool cannot be reached or is locked; nothing was changed in it."""


class DatabaseFileGone(Exception):
    """The file of a SQLite database was deleted or replaced since it was opened."""


class WriteInReadTransaction(Exception):
    """A statement tried to write in a transaction that may only read."""
