"""A task as lines for people: plans, steps, faults, what followed, and the result. Pure functions of an Outcome."""

import textwrap
from collections.abc import Sequence

from workflows.details import SIGNS, brief
from workflows.plan import canonical
from workflows.task import FaultRecord, Outcome, OutcomeStep, Revision, StepStatus

FOLLOWS = {
    "replan": "the same call would fail again -> a new plan, no retry",
    "wait": "waiting, then the same step again",
    "fallback": "another kind takes over",
    "escalate": "neither time nor another plan can help -> a person, no retry",
}


def heading(outcome: Outcome, ui_url: str | None) -> str:
    """The first line: which task, whose plan, where to read it."""
    planner = f"{outcome.planner} planner" if outcome.planner else "waiting for a worker"
    return _printable("  ".join(filter(None, [outcome.task_id, planner, ui_url])))


def plan_lines(revision: Revision) -> list[str]:
    """The lines above the steps of a plan."""
    because = [f"    {one_line(revision.because)}"] if revision.because else []
    if not revision.refused:
        return [f"Plan {revision.number}", *because]
    reasons = [f"because {', '.join(revision.refused)} {'was' if len(revision.refused) == 1 else 'were'} refused"]
    reasons += [f"{', '.join(revision.kept)} kept"] if revision.kept else []
    reasons += [f"looked again with {', '.join(revision.looked)}"] if revision.looked else []
    return [_printable(f"Plan {revision.number}  " + "; ".join(reasons)), *because]


def step_lines(outcome: Outcome, step: OutcomeStep) -> list[str]:
    """A step that has ended, and below it what went wrong and what followed."""
    faults = [fault for fault in outcome.faults if fault.step_id == step.id and fault.revision == step.revision]
    attempts = f"{step.attempts} attempt{'' if step.attempts == 1 else 's'}"
    beside = [other for other in outcome.steps if other.revision == step.revision]
    ids, kinds = (max(map(len, names)) for names in ([one.id for one in beside], [_kind(one) for one in beside]))
    what = brief(f"{step.id:<{min(ids, 14)}} {_kind(step):<{min(kinds, 20)}} {one_line(step.title)}", 52)
    lines = [f"  {SIGNS[step.status]} {_printable(what):<52} {attempts:>11} {_seconds(step):>9}"]
    retried = [fault for fault in faults if fault.decision == "retry"]
    if retried:
        lines.append("    " + _retries(retried))
    for fault in faults:
        if fault.decision != "retry":
            lines += [f"    {fault.code}: {one_line(fault.reason)}", f"    {FOLLOWS[fault.decision]}"]
    return lines


def closing(outcome: Outcome) -> list[str]:
    """The last lines: how it ended, what it cost, and the result."""
    retries = sum(fault.decision == "retry" for fault in outcome.faults)
    calls = outcome.spent.tool_calls
    counts = [_count(outcome.replans, "replan"), _retries_in_all(outcome, retries), _count(calls, "tool call")]
    status = outcome.status.replace("_", " ").capitalize()
    took = "in" if outcome.ended_at else "for"
    lines = [f"{status} {took} {outcome.spent.seconds:.1f} s: {', '.join(counts)}"]
    if outcome.reason:
        lines.append(one_line(outcome.reason))
    if outcome.result is not None:
        text = outcome.result if isinstance(outcome.result, str) else canonical(outcome.result)
        lines.append("\n".join(map(_printable, text.splitlines())))
    return lines


def whole(outcome: Outcome, ui_url: str | None) -> list[str]:
    """Everything at once: heading, plans with their steps, closing."""
    lines = [heading(outcome, ui_url)]
    for revision in outcome.revisions:
        lines += plan_lines(revision)
        for step in outcome.steps:
            if step.revision == revision.number and step.status is not StepStatus.SKIPPED:
                lines += step_lines(outcome, step)
    return lines + closing(outcome)


def has_ended(step: OutcomeStep) -> bool:
    """Whether a step will not change any more, and did something."""
    return step.status in (StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.CANCELLED)


def _kind(step: OutcomeStep) -> str:
    return f"{step.kind} (fallback)" if step.is_fallback else step.kind


def wrapped(line: str, width: int) -> str:
    """A line cut into rows of `width`, the later ones below the beginning of the first."""
    indent = " " * (len(line) - len(line.lstrip()))
    rows = textwrap.wrap(
        line, width, initial_indent="", subsequent_indent=indent, break_long_words=False, drop_whitespace=False
    )
    return "\n".join(row.rstrip() for row in rows)


def one_line(text: str) -> str:
    """Foreign text without line breaks and control characters, so that it cannot draw on the terminal."""
    return " ".join(_printable(text).split())


def _printable(text: str) -> str:
    """The same length without what moves the cursor, rings, colours or turns text round."""
    return "".join(char if char.isprintable() else " " for char in text)


def _retries_in_all(outcome: Outcome, retries: int) -> str:
    """How many retries there were, and whether the step that was retried got through."""
    done = {step.id for step in outcome.steps if step.status is StepStatus.COMPLETED}
    helped = sum(fault.decision == "retry" and fault.step_id in done for fault in outcome.faults)
    return _count(retries, "retry", "retries") + (f" ({helped} helped)" if retries else "")


def _retries(faults: Sequence[FaultRecord]) -> str:
    codes = dict.fromkeys(fault.code for fault in faults)
    counted = [f"{code} {_times(sum(fault.code is code for fault in faults))}" for code in codes]
    waits = [f"{fault.waited:.2f} s" for fault in faults if fault.waited is not None]
    return f"{', '.join(counted)}, waited {' and '.join(waits)}" if waits else ", ".join(counted)


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _seconds(step: OutcomeStep) -> str:
    if step.started is None or step.ended is None:
        return ""
    return f"{(step.ended - step.started).total_seconds():.2f} s"
