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
    """How often the step has waited before."""
    losses: int = 0
    """Attempts whose workers went silent, the last one included."""
    waited: float = 0.0
    """Seconds that the step has waited for a worker that knows its kind."""
    patience: float = 0.0
    """Seconds that the step may wait, in all, for a worker that knows its kind."""
    replans: bool = True
    """Whether the task may still replan."""
    deadline: float = routing.STEP_DEADLINE.total_seconds()
    """Seconds that the step may still wait."""
    down: tuple[str, ...] = ()
    """Kinds that the task may not use any more."""
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
    """Whether the kind is marked down, so that later plans of the task may not use it."""


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
    """Decide after an unknown outcome: repeat the call if that is safe, else reconcile it, else ask a person.

    A fallback or a new plan follows only an idempotent call, where an effect that was applied does no harm.
    """
    # A safe repeat comes before reconciliation: it takes less time and has the same result.
    is_safe = spec.effect in SAFE and fault.quadrant.is_transient
    if is_safe and (repeat := _repeat(fault, remaining)):
        return repeat
    if remaining.reconcile and (spec.reconcile is not None or spec.effect is Effect.TRANSACTIONAL):
        return Reconcile()
    return _transient(fault, spec, remaining) if is_safe and spec.effect is Effect.IDEMPOTENT else Escalate()


def _missing_tool(remaining: Remaining) -> Decision:
    """Wait for a worker that knows the kind: during a rolling deploy there may be none for a short time."""
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
    """The wait before the same call is repeated; None if it may not be repeated."""
    if fault.code is Code.WORKER_SHUTDOWN:
        return Wait(seconds=0)  # another worker can take the call at once
    if fault.uncounted:  # it used no attempt, so these faults have a limit of their own
        may_repeat, seconds = remaining.losses <= routing.MAX_LOSSES, routing.loss_wait(remaining.losses)
    else:
        may_repeat, seconds = remaining.attempts > 0, _durable_wait(fault, remaining)
    return Wait(seconds=seconds) if may_repeat and seconds <= remaining.deadline else None


def _durable_wait(fault: Fault, remaining: Remaining) -> float:
    # Attempts are left when the retry policy may not wait for this fault, or other steps gave retries back.
    if fault.code in (Code.CIRCUIT_OPEN, Code.STORE_UNAVAILABLE):
        return routing.circuit_wait(remaining.waits)
    return max(fault.retry_after or 0.0, routing.sibling_wait(remaining.waits))
