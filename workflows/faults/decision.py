"""What follows a fault: wait and repeat, a fallback, a new plan, reconciliation, or a person; and the words for it.

Runs after an activity has failed and Temporal retries it no more; the words are used whenever the fault is shown.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, NamedTuple, assert_never

from pydantic import BaseModel, Field

from workflows.faults import retries
from workflows.faults.fault import Applied, Code, Fault, Quadrant
from workflows.plans.catalogue import IN_LEDGER, SAFE, Effect, ToolSpec


class Remaining(BaseModel, frozen=True):
    """The attempts and the time that a step has left, and other facts from which `decide` decides what follows."""

    attempts: int
    waits: int = 0
    """How many times the step has waited until now."""
    losses: int = 0
    """How many attempts of the step were lost because their workers went silent, the newest attempt included."""
    waited: float = 0.0
    """Seconds that the step has already waited because no worker had its tool."""
    patience: float = 0.0
    """Seconds that the step may wait in total until a worker has its tool."""
    replans: bool = True
    """Whether the task may still replan."""
    deadline: float = retries.STEP_DEADLINE.total_seconds()
    """Seconds that the step may still wait until its waits add up to `retries.STEP_DEADLINE`."""
    down: tuple[str, ...] = ()
    """Kinds of tools that the task may not use any more, because their retries are used up."""
    reconcile: bool = True
    """Whether the outcome of the call may still be reconciled; False after a reconciliation."""


class Wait(BaseModel, frozen=True):
    """Wait, then schedule the same call again."""

    action: Literal["wait"] = "wait"
    seconds: float
    until_admitted: bool = False
    """Whether the wait ends early when the call is admitted."""


class UseFallback(BaseModel, frozen=True):
    """Call another tool for the step: the fallback of its kind."""

    action: Literal["fallback"] = "fallback"
    kind: str


class NewPlan(BaseModel, frozen=True):
    """Ask the planner for a new plan."""

    action: Literal["replan"] = "replan"
    mark_down: bool = False
    """Whether this kind of tool is blocked for all later plans of the task."""


class Reconcile(BaseModel, frozen=True):
    """Find out whether the call was applied, before it is decided what follows."""

    action: Literal["reconcile"] = "reconcile"


class Escalate(BaseModel, frozen=True):
    """A person has to act."""

    action: Literal["escalate"] = "escalate"


class Ask(BaseModel, frozen=True):
    """Ask a person, and wait for the answer; the step goes on with it."""

    action: Literal["ask"] = "ask"


Decision = Wait | UseFallback | NewPlan | Reconcile | Escalate
Action = Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")]
"""The name of a decision in DECISIONS.

Names outside DECISIONS are read, too: a console that is older than the worker must still show the task.
"""


class DecisionTexts(NamedTuple):
    """The words for a decision, the same on all screens; docs/architecture.md lists what else a new decision needs."""

    counted: tuple[str, ...] = ()
    """The noun with which an explanation counts such decisions: singular and plural, or only the singular if the plural
    adds an `s`; empty if an explanation does not count them."""
    follows: Mapping[str, tuple[str, str]] = {"": ("", "")}
    """By a fact about the fault (see `_facts`), why this was decided, and what follows; "" is for all other faults.

    `{plan}` stands for a new plan, or for the next turn of the model. An empty clause is left out.
    """
    column: str = ""
    """The heading in a report; empty if it is the name of the decision."""
    is_recorded: bool = True
    """Whether a FaultRecord may have this decision; else only an explanation has it."""


_AGAIN, _USED_UP = "waiting, then the same step again", "the retries are used up"
_WHY_A_PERSON = {
    "applied": "it was applied, so it is not repeated",
    "unknown": "nobody knows whether it was applied",
    "lost": f"more than {retries.MAX_LOSSES} workers died or froze during the call",
    "needs_approval": "the call needs an approval",
    "missing_tool": "no worker knew the kind in time",
    "changed_tool": "the plan was made for another version of the tool",
    "transient": _USED_UP,
    "": "neither a retry nor a new plan can help",
}
_WAIT = {"not_applied": ("", "the same step again"), "unknown": ("a repetition does no harm", _AGAIN), "": ("", _AGAIN)}
_RECONCILE = {
    "applied": ("", "its result was found, nothing was repeated"),
    "": ("unknown outcome", "finding out whether it was applied"),
}
_REPLAN = {
    "by_id": ("only its id is used up", "the same call may be made under another id"),
    "rejected": ("a person rejected the call", "{plan}, no retry"),
    "transient": (_USED_UP, "{plan}"),
    "": ("the same call would fail again", "{plan}, no retry"),
}
_ESCALATE = {fact: (why, "a person has to act") for fact, why in _WHY_A_PERSON.items()}
_ASK = {fact: (why, "a person is asked") for fact, why in _WHY_A_PERSON.items()}
_UNUSABLE = ("planner that could not be used", "planners that could not be used")
_UNDECIDED = ("fault not decided yet", "faults not decided yet")
DECISIONS: Mapping[str, DecisionTexts] = {
    "retry": DecisionTexts(("retried call",), {"": ("", "the same call again")}),  # decided by Temporal
    "wait": DecisionTexts(("wait",), _WAIT),
    "fallback": DecisionTexts(("fallback",), {"": (_USED_UP, "its fallback takes over")}),
    "reconcile": DecisionTexts(("unknown outcome",), _RECONCILE, column="found"),
    "replan": DecisionTexts(("fault that called for {plan}", "faults that called for {plan}"), _REPLAN),
    "send_back": DecisionTexts(("rejected proposal",), is_recorded=False),
    "failover": DecisionTexts(_UNUSABLE, is_recorded=False),
    "escalate": DecisionTexts(("escalation",), _ESCALATE),
    "ask": DecisionTexts(("request to a person", "requests to people"), _ASK),
    "end": DecisionTexts(follows={"": ("", "the task ends")}, is_recorded=False),
    "undecided": DecisionTexts(_UNDECIDED, {"": ("", "what follows is not decided yet")}, is_recorded=False),
}
"""Every decision, by its name in logs, JSON documents and histories, in the order in which explanations count them."""
_FOUND = {
    "applied": "it was applied",
    "not_applied": "it was not applied",
    "cannot_tell": "nobody knows whether it was applied",
}
"""A clause for each verdict of a reconciliation."""


def texts_of(decision: str) -> DecisionTexts:
    """The words for a decision; for a decision that only a newer version of Replan knows, its name."""
    unknown = DecisionTexts((decision, decision), {"": ("a newer version of Replan decided", decision)})
    return DECISIONS.get(decision, unknown)


def plan_text(text: str, *, in_turns: bool) -> str:
    """The text with `a new plan` in place of `{plan}` or, if `in_turns`, with `the model's next turn`."""
    return text.format(plan="the model's next turn" if in_turns else "a new plan")


def what_follows(
    decision: str, fault: Fault, reconciled: str | None = None, *, in_turns: bool = False, is_over: bool = False
) -> tuple[str, str]:
    """Why a decision was made, and what follows it, as two clauses; either may be empty.

    `in_turns`: the task works turn by turn. `is_over`: the task ended without another plan.
    """
    texts = texts_of(decision).follows
    because, then = next((texts[fact] for fact in _facts(fault, reconciled) if fact in texts), texts[""])
    reasons = dict.fromkeys(filter(None, (_FOUND.get(reconciled or ""), because)))
    then = then.format(plan="").lstrip(", ") if is_over else plan_text(then, in_turns=in_turns)
    return ", and ".join(reasons), then


def _facts(fault: Fault, reconciled: str | None) -> Iterator[str]:
    """The facts about a fault, as keys of `DecisionTexts.follows`; the most specific facts come first."""
    if fault.by_id:
        yield "by_id"
    yield "unknown" if reconciled == "cannot_tell" else reconciled or fault.applied.value
    if fault.uncounted:
        yield "lost"
    yield fault.code.value
    if fault.quadrant.is_transient:
        yield "transient"


def decide(fault: Fault, spec: ToolSpec, remaining: Remaining) -> Decision:
    """Decide what follows a fault; a pure function, called when Temporal does not retry the activity any more."""
    if fault.applied is Applied.UNKNOWN:
        return _after_unknown_outcome(fault, spec, remaining)
    if fault.applied is Applied.APPLIED and spec.effect is not Effect.IDEMPOTENT:
        return Escalate()  # a new plan would apply the effect again
    if fault.code is Code.MISSING_TOOL:
        return _after_missing_tool(fault, remaining)
    match fault.quadrant:
        case Quadrant.TRANSIENT_INFRASTRUCTURAL | Quadrant.TRANSIENT_SEMANTIC:
            return _after_transient(fault, spec, remaining)
        case Quadrant.PERSISTENT_SEMANTIC:
            return NewPlan()
        case Quadrant.PERSISTENT_INFRASTRUCTURAL:
            return Escalate()
        case unreachable:
            assert_never(unreachable)


def outlast(fault: Fault, remaining: Remaining) -> Wait | None:
    """The wait before another request to the planner although its attempts are used up; None if none follows.

    A task cannot go on without its planner, so it waits for the end of an outage as long as a step may wait.
    """
    if not fault.quadrant.is_transient or fault.uncounted or remaining.deadline <= 0:
        return None
    seconds = max(fault.retry_after or 0.0, retries.circuit_wait(remaining.waits))
    return Wait(seconds=min(seconds, remaining.deadline))


def _after_unknown_outcome(fault: Fault, spec: ToolSpec, remaining: Remaining) -> Decision:
    """Decide after an unknown outcome: repeat the call if that is safe, else reconcile it, else ask a person.

    Only an idempotent call may be followed by a fallback or a new plan: it does no harm if it was applied.
    """
    # A safe repeat comes before reconciliation: it takes less time and has the same result.
    is_safe = spec.effect in SAFE and fault.quadrant.is_transient
    if is_safe and (repeat := _wait_before_repeat(fault, remaining)):
        return repeat
    if remaining.reconcile and (spec.reconcile is not None or spec.effect in IN_LEDGER):
        return Reconcile()
    if fault.guessed and fault.quadrant is Quadrant.PERSISTENT_SEMANTIC and spec.effect is Effect.IDEMPOTENT:
        return NewPlan()
    return _after_transient(fault, spec, remaining) if is_safe and spec.effect is Effect.IDEMPOTENT else Escalate()


def _after_missing_tool(fault: Fault, remaining: Remaining) -> Decision:
    if remaining.waited >= remaining.patience:
        return Escalate()
    # A fault that says when to come again knows that there is a worker with the tool.
    seconds = fault.retry_after or retries.missing_tool_wait(remaining.waits)
    return Wait(seconds=min(seconds, remaining.patience - remaining.waited))


def _after_transient(fault: Fault, spec: ToolSpec, remaining: Remaining) -> Decision:
    if repeat := _wait_before_repeat(fault, remaining):
        return repeat
    if fault.uncounted:
        return Escalate()  # the call may kill its workers, so a person has to look
    if spec.fallback is not None and spec.fallback not in remaining.down:
        return UseFallback(kind=spec.fallback)
    return NewPlan(mark_down=True) if remaining.replans else Escalate()


def _wait_before_repeat(fault: Fault, remaining: Remaining) -> Wait | None:
    if fault.code is Code.WORKER_SHUTDOWN:
        return Wait(seconds=0)  # another worker can take the call at once
    if fault.queued is not None:
        may_wait = remaining.attempts > 0 and fault.queued > 0 and remaining.deadline > 0
        return Wait(seconds=min(fault.queued, remaining.deadline), until_admitted=True) if may_wait else None
    if fault.uncounted:  # it used no attempt, so these faults have a limit of their own
        may_repeat, seconds = remaining.losses <= retries.MAX_LOSSES, retries.loss_wait(remaining.losses)
    else:
        may_repeat, seconds = remaining.attempts > 0, _seconds_before_repeat(fault, remaining)
    return Wait(seconds=seconds) if may_repeat and seconds <= remaining.deadline else None


def _seconds_before_repeat(fault: Fault, remaining: Remaining) -> float:
    # Attempts are left when the retry policy may not wait for this fault, or other steps gave retries back.
    is_outage = fault.code in (Code.CIRCUIT_OPEN, Code.STORE_UNAVAILABLE)
    wait = retries.circuit_wait if is_outage else retries.sibling_wait
    return max(fault.retry_after or 0.0, wait(remaining.waits))
