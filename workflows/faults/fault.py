"""The fault taxonomy: how a call failed, as data, and whether a retry can help.

Made when an attempt fails; read when it is decided whether Temporal or the workflow repeats the call.

Only transient faults are retried. An exception that is in no table of `activities/borders` gets the code `bug`: the
call is not retried, and a person has to act.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from operator import not_
from typing import TypedDict, TypeVar, Unpack

from pydantic import BaseModel, Field, JsonValue, ValidationError

from workflows.faults import retries
from workflows.marks import Kept, Refers
from workflows.plans.catalogue import REFUSAL_MAY_FOLLOW_SUCCESS, Effect

M = TypeVar("M", bound=BaseModel)

MAX_TEXT = 8 * 1024
"""The most bytes of `reason`, and the most bytes of `observed` as JSON, that a Fault carries."""
MAX_WORDS = 1_000
"""The most characters of `words` that a Fault carries."""


class Quadrant(StrEnum):
    """The class of a fault: transient or persistent, infrastructural or semantic.

    It is also the `type` of the ApplicationError with which an activity fails.
    """

    TRANSIENT_INFRASTRUCTURAL = "transient_infrastructural"
    """The called system cannot be reached for now: the activity's RetryPolicy retries."""
    TRANSIENT_SEMANTIC = "transient_semantic"
    """The called system asks to call again later: the activity's RetryPolicy retries after its Retry-After."""
    PERSISTENT_INFRASTRUCTURAL = "persistent_infrastructural"
    """The deployment is broken: a retry cannot help, an operator has to repair it."""
    PERSISTENT_SEMANTIC = "persistent_semantic"
    """The called system rejects the call: a retry cannot help, the planner makes a new plan."""

    @property
    def is_transient(self) -> bool:
        return self in (Quadrant.TRANSIENT_INFRASTRUCTURAL, Quadrant.TRANSIENT_SEMANTIC)

    @property
    def is_semantic(self) -> bool:
        """Whether the called system answered, and rejected the call for now or for good."""
        return self in (Quadrant.TRANSIENT_SEMANTIC, Quadrant.PERSISTENT_SEMANTIC)


# A new code also needs its quadrant in `_CODES`, its remedy in `client.explain.remedies` and in docs/errors.md, and
# something that produces it, such as a row of a table in `activities/borders`. Tests name what is missing.
class Code(StrEnum):
    """How a call failed; each code belongs to one quadrant (`QUADRANT`)."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    WORKER_SHUTDOWN = "worker_shutdown"
    WORKER_LOST = "worker_lost"
    INTERRUPTED = "interrupted"
    CIRCUIT_OPEN = "circuit_open"
    STORE_UNAVAILABLE = "store_unavailable"
    RATE_LIMITED = "rate_limited"
    BUSY = "busy"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    QUOTA_EXHAUSTED = "quota_exhausted"
    MISSING_TOOL = "missing_tool"
    CHANGED_TOOL = "changed_tool"
    MALFORMED_SCHEMA = "malformed_schema"
    TOO_LARGE = "too_large"
    UNDECODABLE = "undecodable"
    UNSERIALISABLE = "unserialisable"
    WRONG_STORE = "wrong_store"
    NEEDS_PERSON = "needs_person"
    NEEDS_APPROVAL = "needs_approval"
    BUG = "bug"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    GONE = "gone"
    PRECONDITION_FAILED = "precondition_failed"
    INVALID_INPUT = "invalid_input"
    NO_RESULTS = "no_results"
    UNEXPECTED_RESULT = "unexpected_result"
    REPEATED_CALL = "repeated_call"
    REFUSED = "refused"
    REJECTED = "rejected"


_CODES = {
    Quadrant.TRANSIENT_INFRASTRUCTURAL: (
        "timeout unreachable server_error overloaded worker_shutdown worker_lost interrupted circuit_open"
        " store_unavailable"
    ),
    Quadrant.TRANSIENT_SEMANTIC: "rate_limited busy",
    Quadrant.PERSISTENT_INFRASTRUCTURAL: (
        "unauthorized forbidden quota_exhausted missing_tool changed_tool malformed_schema too_large undecodable"
        " unserialisable wrong_store needs_person needs_approval bug"
    ),
    Quadrant.PERSISTENT_SEMANTIC: (
        "not_found conflict gone precondition_failed invalid_input no_results unexpected_result repeated_call refused"
        " rejected"
    ),
}
QUADRANT: Mapping[Code, Quadrant] = {Code(code): cell for cell, codes in _CODES.items() for code in codes.split()}
_PERSISTENT_INFRASTRUCTURAL = frozenset(_CODES[Quadrant.PERSISTENT_INFRASTRUCTURAL].split())


DEFERRED = frozenset({Code.WORKER_SHUTDOWN, Code.CIRCUIT_OPEN, Code.STORE_UNAVAILABLE})
"""Transient codes that do not count as attempts; the workflow, not the RetryPolicy, repeats the call."""
UNCOUNTED = DEFERRED | {Code.MISSING_TOOL, Code.CHANGED_TOOL, Code.NEEDS_APPROVAL}
"""Codes whose attempts are not counted for the step: the tool was not called, or its worker stopped it."""


FAILURE_TYPES = frozenset({*map(str, Quadrant), Code.NEEDS_APPROVAL.value})
"""The types of the failures with which attempts report their faults. A call that a person must approve has a type
of its own, since nothing went wrong."""
OF_ONE_TASK = frozenset({Code.NEEDS_PERSON, Code.NEEDS_APPROVAL})
"""Persistent infrastructural codes whose cause lies in the single call."""


def cause_of(resource: str, code: str) -> str:
    """The cause that a fault may share with faults of other tasks: the resource (a kind, or the planner) and the code.

    It is empty unless the code is a persistent infrastructural one, and for a code in OF_ONE_TASK.
    """
    is_shared = code in _PERSISTENT_INFRASTRUCTURAL and code not in OF_ONE_TASK
    return f"{resource}/{code}" if is_shared else ""


class Applied(StrEnum):
    """Whether the effect of a failed call was applied."""

    NONE = "none"
    APPLIED = "applied"
    UNKNOWN = "unknown"


class ModelUse(BaseModel, frozen=True):
    """How many calls, tokens and US dollars of models one attempt used, as the providers of the models count them."""

    calls: int = 0
    tokens: int = 0
    usd: float | None = None
    """US dollars; None where the price is not known, or no model answered."""
    estimated: int = 0
    """Calls whose tokens are estimated, because the server did not count them."""


class _Details(TypedDict, total=False):
    """Optional fields of a new fault, besides its code and reason; see the fields of Fault."""

    observed: JsonValue
    words: str
    retry_after: float | None
    applied: Applied
    source: str
    attempt: int
    waited: float | None
    unsent: bool
    uncounted: bool
    by_id: bool
    still_running: bool
    is_down: bool
    queued: float | None
    defaults: dict[str, JsonValue]


class Fault(BaseModel, frozen=True):
    """A failed attempt as data: the only form in which an error passes from an activity to the workflow."""

    # Set when the error is classified
    quadrant: Quadrant
    code: Code
    reason: str
    """What happened, in one sentence; never the message of another library's exception."""
    observed: JsonValue = None
    """The state that the called system reported when the call failed; None if it reported no state."""
    words: str = Field(default="", exclude_if=not_)
    """The message in the answer of the called system, for people and for the planner, without possible secrets. It is
    untrusted content, which decides nothing. Empty if the answer has no message."""
    retry_after: float | None = None
    """Seconds that the called system asked to wait; None if it asked for no wait."""

    # Set when the attempt ends
    applied: Applied = Applied.NONE
    source: Kept[str] = ""
    attempt: int = Field(default=1, ge=0)
    """The number of the attempt within its activity execution, from 1; 0 if no attempt was made."""
    waited: float | None = None
    """Seconds that Temporal waits between this attempt and the next one of its execution; None if none follows."""

    # Set if the attempt failed before or beside the called system
    unsent: bool = False
    """Whether the attempt made no connection, so that a model's provider cannot have billed it."""
    lost: int = 0
    """How many replies of a model earlier attempts lost, if the budget therefore allows no further request; else 0."""
    uncounted: bool = False
    """Whether the attempt is a loss: its worker went silent. It is not counted; `retries.MAX_LOSSES` limits losses."""
    by_id: bool = False
    """Whether the ledger rejected only the step's id, so that the same call may be made under another id."""
    still_running: bool = False
    """Whether the tool's thread still ran when the attempt ended, so that its effect may be applied later."""

    # Set if a model was used
    model_use: ModelUse | None = None
    """What the attempt used of models; None if the kind uses none, or if the use is unknown since a reply was lost."""
    lost_model: str = ""
    """The model whose reply was lost; its provider may bill the reply. Empty if no reply was lost."""
    lost_use: ModelUse | None = Field(default=None, exclude_if=lambda use: use is None)
    """The most that the attempt can have used of models, if a reply was lost and the worker knows it."""
    unreadable: tuple[str, ...] = ()
    """The models of responses that were billed, but could not be read as replies; one item for each such response."""

    # Set for the circuit breaker, and by it
    is_down: bool = Field(default=False, exclude_if=not_)
    """Whether the fault shows by itself that the service is down: no connection was made, or the service said so, as
    with HTTP 503. After other faults, such as a timeout, only failures of several calls show it."""
    queued: float | None = Field(default=None, exclude_if=lambda seconds: seconds is None)
    """Seconds that the call may still wait for its turn at its service, which a Signal reports; 0 if it has waited
    enough. None if the call has no place in the queue."""
    is_trial: bool = Field(default=False, exclude_if=not_)
    """Whether the attempt, which is then not counted, was a trial call and found its service still unusable."""

    # Set if an operator held the attempt back, a fault was guessed, or a person has to approve
    held: float = Field(default=0.0, exclude_if=not_)
    """Seconds that an operator held the attempts of the activity execution back, as with `temporal activity pause`."""
    guessed: str = Field(default="", exclude_if=not_)
    """The attribute, such as `ApiError.status_code`, from which the fault was guessed, because no table knows the
    exception. Empty if nothing was guessed. A guess never proves that a call had no effect."""
    defaults: Refers[dict[str, JsonValue]] = Field(default_factory=dict, exclude_if=not_)
    """For a call that needs an approval: by name, the arguments that its tool adds to those of the call. If the call
    leaves out parts of an argument, the whole argument is here. Empty in a FaultRecord."""

    @classmethod
    def of(cls, code: Code, reason: str, **details: Unpack[_Details]) -> "Fault":
        """A fault in the quadrant of its code."""
        return cls(quadrant=QUADRANT[code], code=code, reason=reason, **details)

    @property
    def taken(self) -> int:
        """How many attempts of the activity execution are counted as attempts of the step."""
        return self.attempt if self.is_counted else max(0, self.attempt - 1)

    @property
    def is_counted(self) -> bool:
        """Whether the step counts the attempt: not a loss (`uncounted`), not a trial, and no code in UNCOUNTED."""
        return not (self.uncounted or self.is_trial or self.code in UNCOUNTED)

    @property
    def asks_long_wait(self) -> bool:
        """Whether the called system asked for a wait above `LONGEST_RETRY_AFTER`, so that Temporal does not retry."""
        return self.quadrant.is_transient and (self.retry_after or 0) > retries.LONGEST_RETRY_AFTER

    @property
    def may_run_on(self) -> bool:
        """Whether the tool's thread may run on without a limit; False after a shutdown, which ends the thread."""
        return self.still_running and self.code is not Code.WORKER_SHUTDOWN

    @property
    def failure_type(self) -> str:
        """The type of the failure with which an attempt reports the fault."""
        return (self.code if self.code is Code.NEEDS_APPROVAL else self.quadrant).value

    def retryable(self, *, is_safe: bool = False) -> bool:
        """Whether Temporal's RetryPolicy may retry the activity; a wait above `LONGEST_RETRY_AFTER` forbids it.

        `is_safe`: the call may be repeated even if its effect was, or may have been, applied.
        """
        if not self.quadrant.is_transient or (self.applied is not Applied.NONE and not is_safe):
            return False
        if self.queued is not None:  # its workflow waits for its turn
            return False
        if self.code in DEFERRED or self.still_running:  # a cancel during the policy's backoff would hide the thread
            return False
        return not self.asks_long_wait


def applied_by_call(
    effect: Effect, last: Fault, earlier: Iterable[Fault] = (), *, is_unreported: bool = False
) -> Applied:
    """Whether a call applied its effect, from the fault of its last attempt and the faults of the attempts before.

    `is_unreported`: an attempt before may have ended without a fault.
    """
    before = {fault.applied for fault in earlier}
    if Applied.APPLIED in before and effect is not Effect.READ:  # nothing that comes later takes it back
        return Applied.APPLIED
    maybe = is_unreported or Applied.UNKNOWN in before
    if last.applied is not Applied.NONE or not maybe or effect is Effect.READ:
        return last.applied
    # An answer proves nothing where it may follow from the effect of an attempt before: "already paid".
    is_proof = _is_answer(last) and effect not in REFUSAL_MAY_FOLLOW_SUCCESS
    return Applied.NONE if is_proof else Applied.UNKNOWN


def _is_answer(fault: Fault) -> bool:
    """Whether the attempt was rejected by the ledger of its call, or by the called system.

    A worker without the tool, with another store or with another schema fails before it asks them.
    """
    return fault.quadrant is Quadrant.PERSISTENT_SEMANTIC and fault.attempt > 0 and fault.code is not Code.INVALID_INPUT


class ReplyProgress(BaseModel, frozen=True, extra="forbid"):
    """How much of a model's reply an attempt has received, as a heartbeat reports it; without the text of the reply."""

    thinking: int
    """Estimated tokens of the reply received so far."""


class ProgressReport(BaseModel, frozen=True, extra="forbid"):
    """How far a call is, in a unit of its own, as a heartbeat reports it."""

    done: float
    total: float | None = None
    """What `done` is when the call ends; None if nobody knows."""
    words: str = ""
    """The words of the server that is called, which are untrusted."""


class Held(BaseModel, frozen=True, extra="forbid"):
    """How long an operator held attempts back, as the last heartbeat of an attempt reports it to the next attempt."""

    held: float
    """Seconds that an operator held the attempts up to this one back, added up."""
    due: datetime
    """When the next attempt is to begin if no operator holds it back, by the server's clock."""


class RecordedModelUse(BaseModel, frozen=True, extra="forbid"):
    """Stands beside faults in `Proposed.earlier` if an earlier activity execution had already recorded the proposal."""

    found: ModelUse
    """What the attempt that recorded the proposal used of models; its activity execution ended without a response."""


def parse_found(earlier: Iterable[JsonValue]) -> ModelUse | None:
    """The model use of the attempt that recorded the proposal, from `Proposed.earlier`; None if that has none."""
    return next((item.found for item in _parsed(earlier, RecordedModelUse)), None)


def parse_held(details: Iterable[JsonValue]) -> Held | None:
    """The `Held` in the details of a heartbeat; None if there is none."""
    return next(_parsed(details, Held), None)


def number_of(attempt: int, earlier: Iterable[Fault]) -> int:
    """The number of an attempt within its activity execution, from its number at the server and the `earlier` faults.

    After `temporal activity reset`, the server counts from 1 again, and the numbers of the faults continue.
    """
    return max(attempt, 1 + max((fault.attempt for fault in earlier), default=0))


def parse_thinking(details: Iterable[JsonValue]) -> int | None:
    """The tokens of a reply in the details of a heartbeat (see `ReplyProgress`); None if the details have none."""
    return next((found.thinking for found in _parsed(details, ReplyProgress)), None)


def parse_working(details: Iterable[JsonValue]) -> ProgressReport | None:
    """The `ProgressReport` in the details of a heartbeat: how far a call is; None if the call does not report it."""
    return next(_parsed(details, ProgressReport), None)


def parse_faults(faults: Iterable[JsonValue]) -> tuple[Fault, ...]:
    """Read faults from JSON; items that are no faults, or have a code of a newer version, are left out."""
    return tuple(_parsed(faults, Fault))


def _parsed(items: Iterable[JsonValue], model: type[M]) -> Iterator[M]:
    for item in items:
        with suppress(ValidationError):
            yield model.model_validate(item)
