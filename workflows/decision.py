"""What follows a fault: wait and repeat, a fallback, a new plan, reconciliation, or a person."""

from typing import Literal, assert_never

from pydantic import BaseModel

from workflows import routing
from workflows.catalogue import SAFE, Effect, ToolSpec
from workflows.faults import Applied, Code, Fault, Quadrant


class Remaining(BaseModel, frozen=True):
    """What a step has left when `decide` is called."""

    attempts: int
    waits: int = 0
    losses: int = 0
    """Attempts whose workers went silent, this one included."""
    waited: float = 0.0
    """Seconds that the step has waited for a worker that knows its kind."""
    patience: float = 0.0
    """Seconds that it may wait for such a worker."""
    replans: bool = True
    deadline: float = routing.STEP_DEADLINE.total_seconds()
    down: tuple[str, ...] = ()
    reconcile: bool = True
    """Whether the outcome of the call may still be reconciled; False after a reconciliation."""


class Wait(BaseModel, frozen=True):
    """Wait, then schedule the same call again."""

    action: Literal["wait"] = "wait"
    seconds: float


class UseFallback(BaseModel, frozen=True):
    """Run the step with another kind."""

    action: Literal["fallback"] = "fallback"
    kind: str


class Replan(BaseModel, frozen=True):
    """Ask the planner for a new plan."""

    action: Literal["replan"] = "replan"
    mark_down: bool = False
    """Whether the task may not use the kind any more."""


class Reconcile(BaseModel, frozen=True):
    """First find out whether the call was applied."""

    action: Literal["reconcile"] = "reconcile"


class Escalate(BaseModel, frozen=True):
    """A person has to act."""

    action: Literal["escalate"] = "escalate"


Decision = Wait | UseFallback | Replan | Reconcile | Escalate


def decide(fault: Fault, spec: ToolSpec, remaining: Remaining) -> Decision:
    """Decide what follows a fault; a pure function, called when Temporal does not retry the activity any more."""
    if fault.applied is Applied.UNKNOWN:
        return _unknown(fault, spec, remaining)
    if fault.applied is Applied.APPLIED and spec.effect is not Effect.IDEMPOTENT:
        return Escalate()  # a new plan would apply the effect again
    if fault.code is Code.MISSING_TOOL:
        return _missing_tool(remaining)
    match fault.quadrant:
        case Quadrant.TRANSIENT_INFRASTRUCTURAL | Quadrant.TRANSIENT_SEMANTIC:
            return _transient(fault, spec, remaining)
        case Quadrant.PERSISTENT_SEMANTIC:
            return Replan()
        case Quadrant.PERSISTENT_INFRASTRUCTURAL:
            return Escalate()
        case unreachable:
            assert_never(unreachable)


def _unknown(fault: Fault, spec: ToolSpec, remaining: Remaining) -> Decision:
    """Repeat a call with an unknown outcome where that is safe, else reconcile; replan only where it does no harm."""
    # A safe repeat comes before reconciliation: it takes less time and has the same result.
    is_safe = spec.effect in SAFE and fault.quadrant.is_transient
    if is_safe and (repeat := _repeat(fault, remaining)):
        return repeat
    if remaining.reconcile and (spec.reconcile is not None or spec.effect is Effect.TRANSACTIONAL):
        return Reconcile()
    return _transient(fault, spec, remaining) if is_safe and spec.effect is Effect.IDEMPOTENT else Escalate()


def _missing_tool(remaining: Remaining) -> Decision:
    """Wait for another worker: during a rolling deploy those that know the kind may be down."""
    if remaining.waited >= remaining.patience:
        return Escalate()
    return Wait(seconds=min(routing.missing_tool_wait(remaining.waits), remaining.patience - remaining.waited))


def _transient(fault: Fault, spec: ToolSpec, remaining: Remaining) -> Decision:
    if repeat := _repeat(fault, remaining):
        return repeat
    if fault.uncounted:
        return Escalate()  # the call may kill its workers, so a person has to look
    if spec.fallback is not None and spec.fallback not in remaining.down:
        return UseFallback(kind=spec.fallback)
    return Replan(mark_down=True) if remaining.replans else Escalate()


def _repeat(fault: Fault, remaining: Remaining) -> Wait | None:
    """The wait before the same call is repeated; None where it may not be."""
    if fault.code is Code.WORKER_SHUTDOWN:
        return Wait(seconds=0)
    if fault.uncounted:
        may_repeat, seconds = remaining.losses <= routing.MAX_LOSSES, routing.loss_wait(remaining.losses)
    else:
        may_repeat, seconds = remaining.attempts > 0, _durable_wait(fault, remaining)
    return Wait(seconds=seconds) if may_repeat and seconds <= remaining.deadline else None


def _durable_wait(fault: Fault, remaining: Remaining) -> float:
    # Attempts are left when the retry policy may not wait for this fault, or other steps gave retries back.
    if fault.code in (Code.CIRCUIT_OPEN, Code.STORE_UNAVAILABLE):
        return routing.circuit_wait(remaining.waits)
    return max(fault.retry_after or 0.0, routing.sibling_wait(remaining.waits))
