"""What follows a fault that came back to the workflow: wait, another kind, a new plan, or a person."""

from typing import Literal, assert_never

from pydantic import BaseModel, ConfigDict

from workflows import routing
from workflows.catalogue import SAFE, Effect, ToolSpec
from workflows.faults import Applied, Code, Fault, Quadrant


class Left(BaseModel):
    """What a step still has when `decide` is asked."""

    model_config = ConfigDict(frozen=True)

    attempts: int
    """Attempts of this kind that may still be scheduled."""
    waits: int = 0
    """Durable waits that this step has had."""
    losses: int = 0
    """Attempts that went with their workers, this one included."""
    waited: float = 0.0
    """Seconds that this step has waited for its kind to appear on a worker."""
    patience: float = 0.0
    """Seconds that a kind which no worker knows is waited for."""
    replans: bool = True
    """Whether a replan is still possible."""
    deadline: float = routing.STEP_DEADLINE.total_seconds()
    """Seconds that the step may still wait in all."""
    down: tuple[str, ...] = ()
    """Kinds that may not be used any more."""
    reconcile: bool = True
    """Whether it can still be found out if the call happened."""


class _Decision(BaseModel):
    model_config = ConfigDict(frozen=True)


class Wait(_Decision):
    """Sleep on a named timer, then schedule the same step again."""

    action: Literal["wait"] = "wait"
    seconds: float


class UseFallback(_Decision):
    """Do the step with another kind, marked `is_fallback`."""

    action: Literal["fallback"] = "fallback"
    kind: str


class Replan(_Decision):
    """Ask the planner for a new plan; never the same call again."""

    action: Literal["replan"] = "replan"
    mark_down: bool = False
    """Whether the kind may not be used in this task any more."""


class Reconcile(_Decision):
    """Find out whether the call happened, before anything else follows."""

    action: Literal["reconcile"] = "reconcile"


class Escalate(_Decision):
    """A person has to act."""

    action: Literal["escalate"] = "escalate"


Decision = Wait | UseFallback | Replan | Reconcile | Escalate


def decide(fault: Fault, spec: ToolSpec, left: Left) -> Decision:
    """Say what follows a fault that came back to the workflow; pure and total. Retries themselves are Temporal's."""
    if fault.effect is Applied.UNKNOWN:
        return _unknown(fault, spec, left)
    if fault.effect is Applied.APPLIED and spec.effect is not Effect.IDEMPOTENT:
        return Escalate()  # a new plan would do once more what has happened
    if fault.code is Code.MISSING_TOOL:
        return _missing_tool(left)
    match fault.quadrant:
        case Quadrant.TRANSIENT_INFRASTRUCTURAL | Quadrant.TRANSIENT_SEMANTIC:
            return _transient(fault, spec, left)
        case Quadrant.PERSISTENT_SEMANTIC:
            return Replan()
        case Quadrant.PERSISTENT_INFRASTRUCTURAL:
            return Escalate()
        case unreachable:
            assert_never(unreachable)


def _unknown(fault: Fault, spec: ToolSpec, left: Left) -> Decision:
    """A call that may have happened is repeated only where that is safe, and planned around only where it is harmless.

    Where it is safe, it is repeated first: that is quicker than asking, and tells as much.
    """
    is_safe = spec.effect in SAFE and fault.quadrant.is_transient
    if is_safe and (again := _again(fault, left)):
        return again
    if left.reconcile and (spec.reconcile is not None or spec.effect is Effect.TRANSACTIONAL):
        return Reconcile()
    return _transient(fault, spec, left) if is_safe and spec.effect is Effect.IDEMPOTENT else Escalate()


def _missing_tool(left: Left) -> Decision:
    """A worker of an older or newer version may be the only one for a moment, as in a rolling deploy."""
    if left.waited >= left.patience:
        return Escalate()
    return Wait(seconds=min(routing.missing_tool_wait(left.waits), left.patience - left.waited))


def _transient(fault: Fault, spec: ToolSpec, left: Left) -> Decision:
    if again := _again(fault, left):
        return again
    if fault.uncounted:
        return Escalate()  # what takes one worker after the other with it is not planned around
    if spec.fallback is not None and spec.fallback not in left.down:
        return UseFallback(kind=spec.fallback)
    return Replan(mark_down=True) if left.replans else Escalate()


def _again(fault: Fault, left: Left) -> Wait | None:
    """The wait before the same call, where it may still be made."""
    if fault.code is Code.WORKER_SHUTDOWN:
        return Wait(seconds=0)
    if fault.uncounted:
        seconds = routing.loss_wait(left.losses)
        return Wait(seconds=seconds) if left.losses <= routing.MAX_LOSSES and seconds <= left.deadline else None
    if left.attempts > 0 and _durable_wait(fault, left) <= left.deadline:
        return Wait(seconds=_durable_wait(fault, left))
    return None


def _durable_wait(fault: Fault, left: Left) -> float:
    """Seconds before the step is scheduled again with the attempts that it still has.

    It has some when the RetryPolicy is the wrong place to wait, or when its siblings had reserved the retries of its
    kind and did not need them.
    """
    if fault.code in (Code.CIRCUIT_OPEN, Code.STORE_UNAVAILABLE):
        return routing.circuit_wait(left.waits)
    return max(fault.retry_after or 0.0, routing.sibling_wait(left.waits))
