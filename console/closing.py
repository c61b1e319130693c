"""The last lines of a task: how it ended, what it cost, the result, and where to read why."""

from console import notes
from console.cells import cut, one_line, printable
from console.shown import starter
from console.step_lines import duration, without_word
from workflows.budget import Spent
from workflows.outcome import Outcome, OutcomeStep
from workflows.plan import canonical
from workflows.record import FaultRecord, StepStatus
from workflows.task import TaskStatus

MAX_RESULT = 4000
"""Characters of a result that a terminal shows."""
MAX_ROWS = 60
"""Lines of it."""
MAX_REASON = 600
"""Cells of the reason for an end."""
FROM_WHAT_IS_THERE = "The answer from what was finished by then:"
LEAST_USD = 0.0001
CLOSED = "closed"
"""The code of a task that was closed from outside."""
CALLS_FOR_WHY = (TaskStatus.ESCALATED, TaskStatus.OVER_BUDGET)
"""How a task ends for a reason that one sentence does not tell, even where no step met a fault."""
HELPED = (StepStatus.COMPLETED, StepStatus.UNDONE)
LOST = (StepStatus.FAILED, StepStatus.SKIPPED, StepStatus.CANCELLED)


def lines(outcome: Outcome) -> list[str]:
    """Status, time and counts; the reason; the result; the command that explains what went wrong."""
    said = [headline(outcome)]
    if outcome.reason:
        said.append(cut(one_line(outcome.reason), MAX_REASON))
    if outcome.result is not None:
        said += [FROM_WHAT_IS_THERE] if outcome.status is TaskStatus.OVER_BUDGET else []
        said += _result(outcome)
    if outcome.faults or notes.rejections(outcome) or outcome.status in CALLS_FOR_WHY:
        said.append(f"Why: {starter('explain', outcome.task_id)}")
    return said


def headline(outcome: Outcome) -> str:
    """`Completed in 2.3 s: 1 replan, 2 retries (both helped), 0 wasted, 7 tool calls`.

    A task that was closed from outside left no account, so nothing is counted.
    """
    counts = [count(outcome.replans, "replan"), *_retries(outcome), count(outcome.spent.tool_calls, "tool call")]
    counts += spent_on_models(outcome.spent)
    status = outcome.status.replace("_", " ").capitalize()
    took = "in" if outcome.ended_at else "for"
    said = f"{status} {took} {duration(outcome.spent.seconds, digits=1)}"
    return said if outcome.code == CLOSED else f"{said}: {', '.join(counts)}"


def spent_on_models(spent: Spent) -> list[str]:
    """`12 model calls, 48,120 tokens for 0.3104 USD`; nothing where no model was asked."""
    if not spent.model_calls:
        return []
    return [count(spent.model_calls, "model call"), f"{spent.tokens:,} tokens{_price(spent)}"]


def _price(spent: Spent) -> str:
    if spent.usd is not None:
        return f" for {spent.usd:.4f} USD" if spent.usd >= LEAST_USD else f" for less than {LEAST_USD} USD"
    return ", price unknown" if spent.unpriced else ""


def _retries(outcome: Outcome) -> list[str]:
    """How many retries there were, for how many the step got through, and how many were for nothing."""
    steps = {(step.id, step.revision): step for step in outcome.steps}
    retried = [fault for fault in outcome.faults if fault.decision == "retry"]
    of = [_became(steps.get((fault.step_id, fault.revision)), fault) for fault in retried]
    of += [_became(step) for step in outcome.steps for _ in range(without_word(outcome, step))]
    counted = count(len(of), "retry", "retries")
    if not of:
        return [counted]
    helped, wasted = sum(one in HELPED for one in of), sum(one in LOST for one in of)
    return [f"{counted} ({_helped(helped, len(of))})", f"{wasted} wasted"]


def _became(step: OutcomeStep | None, fault: FaultRecord | None = None) -> StepStatus | None:
    """What a retry came to: those of a kind whose fallback took over came to nothing, whatever that did."""
    if step is None:
        return None
    by_own = not step.is_fallback or (fault is not None and fault.source == step.kind)
    return step.status if by_own else StepStatus.FAILED


def _helped(helped: int, number: int) -> str:
    if helped == number:
        return {1: "it helped", 2: "both helped"}.get(number, "all helped")
    if helped == 0:
        return "it did not help" if number == 1 else "none helped"
    return f"{helped} of {number} helped"


def _result(outcome: Outcome) -> list[str]:
    """Text as it is and everything else as JSON, up to what a terminal can show."""
    text = outcome.result if isinstance(outcome.result, str) else canonical(outcome.result)
    kept = text[:MAX_RESULT].splitlines()[:MAX_ROWS]
    said = [printable(line) for line in kept]
    if len(text) > MAX_RESULT or len(text.splitlines()) > MAX_ROWS:
        where = starter("show", outcome.task_id, "--json")
        said.append(printable(f"... cut here; all {len(text):,} characters: {where}"))
    return said


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 retry`, `2 retries`; without `many` the word gets an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"
