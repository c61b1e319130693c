"""A task as lines for people: plans, steps, faults, what followed, and the result. Pure functions of an Outcome."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.cells import cell_len

from client.follow import Attempt
from client.history.story import OF_TURN, turn_of
from client.text import cut, one_line, printable, starter
from console.render.terminal import pad
from console.render.terminal import wrapped as wrapped
from workflows import ids
from workflows.budget import Spent
from workflows.details import SIGNS
from workflows.faults import Applied, Code
from workflows.outcome import Outcome, OutcomeStep
from workflows.plan import canonical
from workflows.record import Compaction, FaultRecord, Rejection, Revision, StepStatus, UndoRecord
from workflows.task import TaskStatus

MAX_BECAUSE = 400
"""Cells of a planner's reason."""
MANY_TURNS = 12
"""Turns beyond which one that only goes on has no heading: the ids of its steps begin with its number."""


def turn_number(outcome: Outcome, revision: Revision) -> int | None:
    """The number of the turn that a revision is; None for a plan."""
    if outcome.strategy != "react":
        return None
    return turn_of(step.id for step in outcome.steps if step.revision == revision.number)


def revision_name(outcome: Outcome, revision: Revision) -> str:
    """`Plan 2`, `Turn 7`."""
    number = turn_number(outcome, revision)
    return f"Plan {revision.number}" if number is None else f"Turn {number}"


def heading_lines(outcome: Outcome, revision: Revision) -> list[str]:
    """The lines above its steps; none above one of many turns that went on as the ones before."""
    said = one_line(revision.because)
    facts = _facts(outcome, revision)
    if turn_number(outcome, revision) is not None and not facts:
        is_shown = revision is outcome.revisions[0] or len(outcome.revisions) <= MANY_TURNS
        return [cut("  ".join(filter(None, [revision_name(outcome, revision), said])), MAX_BECAUSE)] if is_shown else []
    because = [f"    {cut(said, MAX_BECAUSE)}"] if said else []
    return [printable("  ".join(filter(None, [revision_name(outcome, revision), "; ".join(facts)]))), *because]


def _facts(outcome: Outcome, revision: Revision) -> list[str]:
    """Whose it is where that is another than before, why it came, and what was kept."""
    before = next((one.planner for one in reversed(outcome.revisions) if one.number < revision.number), "")
    is_new = bool(before and revision.planner) and revision.planner not in before.split(", ")
    facts = [f"by {revision.planner}"] if is_new else []
    if revision.refused:
        refused = ", ".join(revision.refused)
        facts.append(f"because {refused} {'was' if len(revision.refused) == 1 else 'were'} refused")
        facts += [f"{_kept(revision.kept)} kept"] if revision.kept else []
        facts += [f"looked again with {', '.join(revision.looked)}"] if revision.looked else []
    return facts


def _kept(ids: tuple[str, ...]) -> str:
    return ", ".join(ids) if len(ids) <= 8 else f"{len(ids)} steps"


MAX_NOTE = 400
"""Cells of the reason why a planner, or what it proposed, could not be used."""
PLAN_REFUSED = "plan_refused"
"""The code of a task whose hand-written plan was rejected: the reason of its end says it all."""
_OF_CALL = re.compile(rf"step '{OF_TURN.pattern}': ")
"""Which call of a turn a reason is about: nobody has seen the id of a call that was never made."""


def failovers(outcome: Outcome) -> dict[tuple[str, str], list[str]]:
    """What is said of each planner that could not be used, once for each reason, however often it was tried."""
    told = dict[tuple[str, str], list[str]]()
    for one in outcome.failovers:
        took_over = f"; {one_line(outcome.planner)} took over" if outcome.planner not in ("", one.planner) else ""
        reason = cut(one_line(one.reason), MAX_NOTE).rstrip(".")
        head = f"  ! {one_line(one.planner)} could not be used ({one_line(one.code)})"
        told.setdefault((one.planner, one.code), [head, f"    {reason}{took_over}"])
    return told


def compaction(one: Compaction) -> str:
    """That the oldest turns of a conversation were summarised."""
    oldest = "the oldest turn" if one.turns == 1 else f"the oldest {one.turns} turns"
    return f"  ≡ {oldest} summarised at turn {one.turn}: the conversation had {one.tokens:,} tokens"


def rejections(outcome: Outcome) -> Sequence[Rejection]:
    """The proposals that were not used and of which the end of the task does not tell."""
    return () if outcome.code == PLAN_REFUSED else outcome.rejections


def rejection(outcome: Outcome, one: Rejection) -> str:
    """That nothing of a proposal was carried out, and why."""
    what = "Turn" if outcome.strategy == "react" else "Proposal"
    reasons = "; ".join(_OF_CALL.sub("", one_line(reason)) for reason in one.reasons)
    return f"  ! {what} {one.turn} not used: {cut(reasons, MAX_NOTE)}"


def notes_above(outcome: Outcome, revision: Revision | None) -> Iterator[tuple[Compaction | Rejection, str]]:
    """What stands above a revision and below the one before, with its line; for None, below all."""
    below = [one for one in outcome.revisions if revision is None or one.number < revision.number]
    since = _turn(outcome, below[-1]) if below else 0
    until = _turn(outcome, revision) if revision else float("inf")
    found: list[Compaction | Rejection] = [*outcome.compactions, *rejections(outcome)]
    for one in sorted(found, key=lambda one: one.turn):
        if since < one.turn <= until:
            yield one, rejection(outcome, one) if isinstance(one, Rejection) else compaction(one)


def _turn(outcome: Outcome, revision: Revision) -> int:
    """At which turn it was proposed: a plan does not say it, but what else the other turns were is known."""
    number = turn_number(outcome, revision)
    if number is not None:
        return number
    others = {one.turn for one in outcome.rejections}
    others |= {at for one in outcome.compactions for at in (one.turn - 1, one.turn)}  # that it is needed, and itself
    number = revision.number
    for other in sorted(others):
        number += other <= number
    return number


FOLLOWS = {
    "replan": "the same call would fail again -> a new plan, no retry",
    "end": "the same call would fail again: no retry",
    "wait": "waiting, then the same step again",
    "fallback": "another kind takes over",
    "reconcile": "it may have happened -> finding that out before anything else",
    "escalate": "neither time nor another plan can help -> a person, no retry",
}
FOUND = {
    "replan": "it had not happened -> a new plan",
    "end": "it had not happened",
    "wait": "it had not happened -> the same step again",
    "fallback": "it had not happened -> another kind takes over",
    "reconcile": "it had happened: its result was found, nothing was done again",
    "escalate": "it had not happened, but neither time nor another plan can help -> a person",
}
"""What followed where it was found out first whether the call had happened."""
NEW_PLAN, NEXT_TURN = "a new plan", "the model's next turn"
"""What answers a refusal; where a model makes one move at a time, it has no plan."""
TO_A_PERSON = {
    Applied.APPLIED: "it happened, so it is not done once more -> a person",
    Applied.UNKNOWN: "nobody knows whether it happened -> a person, no second call",
}
"""Why a person has to act on a call that changed the world, or may have."""
WIDTH = 80
"""Columns of a terminal that nobody asked for its size."""
MAX_REASON = 400
"""Cells of a fault's reason; `explain` and `--json` have the rest."""
USUAL, LEAST = 52, 12
"""Cells for id, kind and title: as many as fit WIDTH, and what is left of them on a narrow terminal."""
TAIL = 21
"""Cells for attempts and time."""
MAX_ID, MAX_KIND = 14, 20


@dataclass(frozen=True)
class Now:
    """What is known of a running task beside its Outcome."""

    at: datetime
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    """By step id."""


class Columns:
    """How wide the parts of a task's rows are, so that they stand below each other."""

    def __init__(self, outcome: Outcome, width: int = WIDTH) -> None:
        """Measure all steps for a terminal of `width` columns; a wide one shows longer titles."""
        self.width = width
        self._ids = _widest(outcome, lambda step: step.id, MAX_ID)
        self._kinds = _widest(outcome, kind, MAX_KIND)
        longest = max((cell_len(self._what(step)) for step in outcome.steps), default=0)
        self._room = max(LEAST, min(width - WIDTH + USUAL, max(USUAL, longest)))

    def row(self, step: OutcomeStep, state: str, time: str) -> str:
        """Sign, id, kind and title, then the state and the time at the right."""
        tail = f"{state:>11} {time:>9}"
        room = self._room - (len(tail) - TAIL)
        return f"  {SIGNS[step.status]} {pad(cut(self._what(step), room), room)} {tail}".rstrip()

    def _what(self, step: OutcomeStep) -> str:
        names = f"{pad(step.id, self._ids[step.revision])} {pad(kind(step), self._kinds[step.revision])}"
        return f"{printable(names)} {one_line(step.title)}"


def lines_of_step(outcome: Outcome, step: OutcomeStep, columns: Columns, now: Now | None = None) -> list[str]:
    """The row of a step, and below it what went wrong and what followed."""
    attempt = now.attempts.get(step.id) if now and step.status is StepStatus.RUNNING else None
    said = [columns.row(step, _state(step, attempt), _time(step, now))]
    faults = [fault for fault in outcome.faults if fault.step_id == step.id and fault.revision == step.revision]
    retried = [fault for fault in faults if fault.decision == "retry"]
    if retried:
        said.append("    " + _retries(retried))
    if silent := without_word(outcome, step):
        left = f"{silent} attempt{'' if silent == 1 else 's'} left no word"
        said.append(f"    {left} (worker lost or timed out)")
    for fault in faults:
        if fault.decision != "retry":
            said += [f"    {fault.code}: {cut(one_line(fault.reason), MAX_REASON)}", f"    {_follows(outcome, fault)}"]
    return said + (_again(attempt, now) if attempt and now else [])


def without_word(outcome: Outcome, step: OutcomeStep) -> int:
    """How many attempts before its last one ended without a fault that anybody could record."""
    told = [
        fault
        for fault in outcome.faults
        if fault.step_id == step.id and fault.revision == step.revision and fault.attempt
    ]
    counted = [fault.decision for fault in told if fault.code is not Code.WORKER_SHUTDOWN]
    retried = counted.count("retry")
    was_found = bool(told) and told[-1].reconciled == "applied"
    last = step.status in (StepStatus.COMPLETED, StepStatus.CANCELLED, StepStatus.UNDONE) and not was_found
    return max(0, step.attempts - retried - max(1, len(counted) - retried + last))


def _follows(outcome: Outcome, fault: FaultRecord) -> str:
    """What followed a fault; a task that ended before a new plan came had none."""
    replanned = any(revision.number > fault.revision for revision in outcome.revisions)
    if fault.decision == "escalate" and fault.applied in TO_A_PERSON:
        return TO_A_PERSON[fault.applied]
    known = FOUND if fault.reconciled in ("applied", "not_applied") else FOLLOWS
    if fault.decision == "replan" and outcome.ended_at and not replanned:
        return known["end"]
    said = known[fault.decision]
    return said.replace(NEW_PLAN, NEXT_TURN) if outcome.strategy == "react" and fault.decision == "replan" else said


def kind(step: OutcomeStep) -> str:
    """The kind that a step uses, marked where it is not the planned one."""
    return f"{step.kind} (fallback)" if step.is_fallback else step.kind


def duration(seconds: float, digits: int = 2) -> str:
    """`0.66 s`, `2 min 05 s`, `1 h 02 min`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{max(0.0, seconds):.{digits}f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _widest(outcome: Outcome, name: Callable[[OutcomeStep], str], most: int) -> dict[int, int]:
    widths = dict[int, int]()
    for step in outcome.steps:
        widths[step.revision] = max(widths.get(step.revision, 0), min(cell_len(name(step)), most))
    return widths


def _state(step: OutcomeStep, attempt: Attempt | None) -> str:
    if attempt:
        return attempt.words
    as_it_is = (StepStatus.PENDING, StepStatus.WAITING, StepStatus.SKIPPED, StepStatus.UNDONE)
    if step.status in as_it_is or not step.attempts:
        return step.status.value
    return f"{step.attempts} attempt{'' if step.attempts == 1 else 's'}"


def _time(step: OutcomeStep, now: Now | None) -> str:
    if step.started is None:
        return ""
    if step.ended is not None:
        return duration((step.ended - step.started).total_seconds())
    return duration((now.at - step.started).total_seconds(), digits=1) if now else ""


def _again(attempt: Attempt, now: Now) -> list[str]:
    """Why it is not the first attempt, and when it comes."""
    if attempt.code is None:
        return []
    wait = (attempt.due - now.at).total_seconds() if attempt.due else 0
    return [f"    {attempt.code}, again in {duration(wait, 1)}" if wait > 0 else f"    after {attempt.code}"]


def _retries(faults: Sequence[FaultRecord]) -> str:
    codes = dict.fromkeys(fault.code for fault in faults)
    counted = [f"{code} {_times(sum(fault.code is code for fault in faults))}" for code in codes]
    waits = [f"{fault.waited:.2f} s" for fault in faults if fault.waited is not None]
    return f"{', '.join(counted)}, waited {' and '.join(waits)}" if waits else ", ".join(counted)


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


MAX_RESULT = 4000
"""Characters of a result that a terminal shows."""
MAX_ROWS = 60
"""Lines of it."""
MAX_CLOSING_REASON = 600
"""Cells of the reason for an end."""
FROM_WHAT_IS_THERE = "The answer from what was finished by then:"
LEAST_USD = 0.0001
CLOSED = "closed"
"""The code of a task that was closed from outside."""
CALLS_FOR_WHY = (TaskStatus.ESCALATED, TaskStatus.OVER_BUDGET)
"""How a task ends for a reason that one sentence does not tell, even where no step met a fault."""
HELPED = (StepStatus.COMPLETED, StepStatus.UNDONE)
LOST = (StepStatus.FAILED, StepStatus.SKIPPED, StepStatus.CANCELLED)


def closing_lines(outcome: Outcome) -> list[str]:
    """Status, time and counts; the reason; the result; the command that explains what went wrong."""
    said = [headline(outcome)]
    if outcome.reason:
        said.append(cut(one_line(outcome.reason), MAX_CLOSING_REASON))
    if outcome.result is not None:
        said += [FROM_WHAT_IS_THERE] if outcome.status is TaskStatus.OVER_BUDGET else []
        said += _result(outcome)
    if outcome.faults or rejections(outcome) or outcome.status in CALLS_FOR_WHY:
        said.append(f"Why: {starter('explain', outcome.task_id)}")
    return said


def headline(outcome: Outcome) -> str:
    """`Completed in 2.3 s: 1 replan, 2 retries (both helped), 0 wasted, 7 tool calls`.

    A task that was closed from outside left no account, so nothing is counted.
    """
    counts = [count(outcome.replans, "replan"), *_retry_count(outcome), count(outcome.spent.tool_calls, "tool call")]
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


def _retry_count(outcome: Outcome) -> list[str]:
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


UNDO_HEADING = "Undo  the newest first"
EARLIER_HEADING = "Before a reset  by an earlier run"


@dataclass(frozen=True)
class Block:
    """Lines that belong together: those of a step, or those above the steps of a plan."""

    lines: list[str]
    revision: int
    step: OutcomeStep | None = None


def heading(outcome: Outcome, ui_url: str | None) -> str:
    """The first line: which task, whose plan, where to read it."""
    nobody = "planner unknown" if outcome.ended_at else "waiting for a worker"
    planner = f"{outcome.planner} planner" if outcome.planner else nobody
    return printable("  ".join(filter(None, [outcome.task_id, planner, ui_url])))


def step_lines(outcome: Outcome, step: OutcomeStep, columns: Columns | None = None) -> list[str]:
    """A step, and below it what went wrong and what followed."""
    return lines_of_step(outcome, step, columns or Columns(outcome))


def blocks(outcome: Outcome, columns: Columns, now: Now | None = None) -> list[Block]:
    """All plans with their steps, in order, without those that never had their turn."""
    found = list[Block]()
    if outcome.omitted:
        found.append(Block([f"  … {outcome.omitted} earlier steps of this long task: `explain` tells of them"], 0))
    found += [Block(told, 0) for told in failovers(outcome).values()]
    earlier = [step for step in outcome.steps if not step.revision and not is_undo(step)]
    found += _blocks_of([EARLIER_HEADING] if earlier else [], 0)
    found += [Block(lines_of_step(outcome, step, columns, now), 0, step) for step in earlier]
    for revision in outcome.revisions:
        found += _blocks_of([line for _, line in notes_above(outcome, revision)], revision.number)
        found += _blocks_of(heading_lines(outcome, revision), revision.number)
        for step in outcome.steps:
            if step.revision == revision.number and step.status is not StepStatus.SKIPPED and not is_undo(step):
                found.append(Block(lines_of_step(outcome, step, columns, now), revision.number, step))
    last = outcome.revisions[-1].number if outcome.revisions else 0
    found += _blocks_of([line for _, line in notes_above(outcome, None)], last)
    return found + _undo(outcome, columns, now)


def _blocks_of(lines: list[str], revision: int) -> list[Block]:
    return [Block(lines, revision)] if lines else []


def _undo(outcome: Outcome, columns: Columns, now: Now | None) -> list[Block]:
    """What was taken back, the newest first, and what stays, below all plans."""
    undos, stays = [step for step in outcome.steps if is_undo(step)], not_tried(outcome)
    if not undos and not stays:
        return []
    last = outcome.revisions[-1].number if outcome.revisions else 0
    found = [Block([UNDO_HEADING, *map(stays_line, stays)], last)]
    return found + [Block(lines_of_step(outcome, step, columns, now), last, step) for step in undos]


def is_undo(step: OutcomeStep) -> bool:
    """Whether a step is none of a plan but takes one back."""
    return step.id.startswith(ids.UNDO)


def not_tried(outcome: Outcome) -> list[UndoRecord]:
    """What was to be undone and has no call that could have done it."""
    tried = {step.id for step in outcome.steps}
    return [one for one in outcome.undo if not one.done and ids.of_undo(one.step_id) not in tried]


def stays_line(stays: UndoRecord) -> str:
    """A step that nothing takes back."""
    return f"    {printable(stays.step_id)} stays: {cut(one_line(stays.reason), MAX_REASON)}"


def body(outcome: Outcome, ui_url: str | None, width: int = WIDTH, now: Now | None = None) -> list[str]:
    """Heading, and all plans with their steps."""
    told = blocks(outcome, Columns(outcome, width), now)
    return [heading(outcome, ui_url), *(line for block in told for line in block.lines)]


def closing(outcome: Outcome) -> list[str]:
    """The last lines: how it ended, what it cost, and the result."""
    return closing_lines(outcome)


def whole(outcome: Outcome, ui_url: str | None, width: int = WIDTH, now: Now | None = None) -> list[str]:
    """Everything at once: heading, plans with their steps, closing."""
    return body(outcome, ui_url, width, now) + closing(outcome)


def has_ended(step: OutcomeStep) -> bool:
    """Whether a step will not change any more, and did something."""
    return step.status in (StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.CANCELLED, StepStatus.UNDONE)
