"""Shows a task as lines for people: plans, steps, faults with their consequences, the result.

Runs whenever a task is shown: once, at each change while it is followed, and at its end. The functions depend only on
an Outcome.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.cells import cell_len

from client.history.story import requests_about, turn_of
from client.lines import Line, pad, signed, wrap
from client.pauses import OPEN
from client.snapshot import Attempt, Snapshot, thinking_text, working_text
from client.tasks import CLOSED, UNTOLD
from client.text import cut, one_line, printable
from client.wording import MAX_REASON, count, expiry_text, pause_text, people_text, spent_on_models, times
from workflows import ids
from workflows.account import metrics
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import Compaction, FaultRecord, Pause, Rejection, Revision, StepStatus, UndoRecord
from workflows.account.task import TaskStatus
from workflows.faults.decision import what_follows
from workflows.faults.fault import Code, ProgressReport
from workflows.plans.proposal import BY_HAND
from workflows.text import legible, service_words, without_repeats
from workflows.unfinished import Unfinished
from workflows.web_ui import SIGNS

MANY_TURNS = 12
"""In a task of more turns, a turn has a heading only if there is a fact to tell, such as a rejected step.

For any other turn, the ids of its steps show its number, as in `t7.c0`.
"""
WIDTH = 80
"""Columns of the output if stdout is not a terminal."""
USUAL_NAMES, MIN_NAMES = 52, 12
"""Terminal cells for the id, kind and title of a step: USUAL_NAMES if a row has WIDTH cells, at least MIN_NAMES."""
TAIL = 21
"""Terminal cells for the state of a step (such as its attempts) and its time."""
MAX_ID, MAX_KIND = 14, 20
WORD_ROWS, MAX_SPEAKERS = 3, 4
"""The most rows of the unfinished words of a model, and the most models whose words are shown at once."""
UNDO_HEADING = "Undo  the newest first"
EARLIER_HEADING = "Before a reset  by an earlier run"
STATUS_COLOURS: Mapping[str, str] = {
    StepStatus.COMPLETED: "green",
    StepStatus.FAILED: "red",
    StepStatus.RUNNING: "cyan",
    **dict.fromkeys((StepStatus.WAITING, StepStatus.PAUSED, StepStatus.CANCELLED, StepStatus.UNDONE), "yellow"),
}
"""By status of a step or a task, its colour; any other status of a task is red."""


@dataclass(frozen=True)
class LiveState:
    """What is known of a running task in addition to its Outcome."""

    at: datetime
    """The time now, for the durations of running steps."""
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    thinking: Mapping[str, int] = field(default_factory=dict)
    """For each step that asks a model, by its id: how many tokens of the reply have come."""
    working: Mapping[str, ProgressReport] = field(default_factory=dict)
    """For each step whose call reports progress, by the id of the step: the newest report."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "LiveState":
        return cls(datetime.now(UTC), snapshot.attempts, snapshot.thinking, snapshot.working)


@dataclass(frozen=True)
class LineGroup:
    """Lines that belong together: the lines of a step, or the lines above the steps of a plan."""

    lines: list[str]
    revision: int
    step: OutcomeStep | None = None


class RowLayout:
    """The widths of the columns in the rows of a task's steps."""

    def __init__(self, outcome: Outcome, width: int = WIDTH) -> None:
        """Lay out all steps for a terminal of `width` columns; a wide terminal shows longer titles."""
        self._ids = _column_widths(outcome, lambda step: step.id, MAX_ID)
        self._kinds = _column_widths(outcome, lambda step: kind_and_title(step)[0], MAX_KIND)
        longest = max((cell_len(self._names_and_title(step)) for step in outcome.steps), default=0)
        self._room = max(MIN_NAMES, min(width - WIDTH + USUAL_NAMES, max(USUAL_NAMES, longest)))

    def row(self, step: OutcomeStep, state: str, time: str) -> Line:
        """The row of a step: sign, id, kind and title, then the state and the time at the right."""
        tail = f"{state:>11} {time:>9}"  # TAIL cells, unless a text is longer
        room = self._room - (len(tail) - TAIL)
        text = f"{pad(cut(self._names_and_title(step), room), room)} {tail}".rstrip()
        return signed(SIGNS[step.status], text, STATUS_COLOURS.get(step.status, ""))

    def _names_and_title(self, step: OutcomeStep) -> str:
        kind, title = kind_and_title(step)
        id, kind = pad(step.id, self._ids[step.revision]), pad(kind, self._kinds[step.revision])
        return " ".join(filter(None, [printable(id), printable(kind), one_line(title)]))


def body(outcome: Outcome, ui_url: str | None, width: int = WIDTH, live: LiveState | None = None) -> list[str]:
    """All lines about a task: the heading and the lines below it; `live` has the state of a running task."""
    groups = line_groups(outcome, RowLayout(outcome, width), live)
    return [heading(outcome, ui_url), *(line for group in groups for line in group.lines)]


def heading(outcome: Outcome, ui_url: str | None) -> str:
    """The first line about a task: its id, its planner, its URL in the web UI."""
    is_unknown = outcome.ended_at or outcome.code == UNTOLD
    nobody = "planner unknown" if is_unknown else "waiting for a worker"
    planner = f"{outcome.planner} planner" if outcome.planner else nobody
    planner = f"planned {BY_HAND}" if outcome.planner == BY_HAND else planner
    return printable("  ".join(filter(None, [outcome.task_id, planner, ui_url])))


def line_groups(outcome: Outcome, layout: RowLayout, live: LiveState | None = None) -> list[LineGroup]:
    """The lines below the heading, in groups: failovers, plans with their steps, steps of earlier runs, undo calls."""
    groups = [LineGroup(lines, 0) for lines in failovers(outcome).values()]
    if outcome.omitted:
        omitted = f"  … {outcome.omitted} earlier steps of this long task: `explain` tells of them"
        groups.insert(0, LineGroup([omitted], 0))
    shown = [step for step in outcome.steps if step.status is not StepStatus.SKIPPED and not is_undo(step)]
    earlier = [step for step in outcome.steps if not step.revision and not is_undo(step)]
    if earlier:
        groups.append(LineGroup([EARLIER_HEADING], 0))
        groups += [LineGroup(step_lines(outcome, step, layout, live), 0, step) for step in earlier]
    for revision in outcome.revisions:
        number = revision.number
        groups.append(LineGroup([line for _, line in notes_above(outcome, revision)], number))
        groups.append(LineGroup(plan_heading(outcome, revision), number))
        steps = [step for step in shown if step.revision == number]
        groups += [LineGroup(step_lines(outcome, step, layout, live), number, step) for step in steps]
    last = outcome.revisions[-1].number if outcome.revisions else 0
    groups.append(LineGroup([line for _, line in notes_above(outcome, None)], last))
    undo_steps, stays = [step for step in outcome.steps if is_undo(step)], not_tried(outcome)
    if undo_steps or stays:
        groups.append(LineGroup([UNDO_HEADING, *map(stays_line, stays)], last))
    groups += [LineGroup(step_lines(outcome, step, layout, live), last, step) for step in undo_steps]
    return [group for group in groups if group.lines]


def activity_line(what: str) -> Line:
    """The line of an activity that runs now, such as `  ● asking the planner`."""
    return signed(SIGNS[StepStatus.RUNNING], one_line(what), STATUS_COLOURS[StepStatus.RUNNING])


def says_line(activity: str) -> Line:
    """The line above the unfinished words of a model, such as `  ● plan:0 the model says, unfinished:`."""
    return activity_line(f"{activity} the model says, unfinished:")


def words_lines(words: Mapping[str, Unfinished], width: int, height: int) -> list[str]:
    """The last rows of the replies in `words`, dimmed, each reply below its `says_line`; at most `height / 2` lines."""
    lines, most = list[str](), min(MAX_SPEAKERS, height // (2 * WORD_ROWS + 2))
    for said in [*words.values()][len(words) - most if most < len(words) else 0 :]:
        # A row more than is shown, so that the first one that is shown is whole.
        last = said.text[-width * (WORD_ROWS + 1) :].splitlines()[-WORD_ROWS - 1 :]
        rows = [row for line in last for row in wrap(legible(line), width - 4)][-WORD_ROWS:]
        lines += [says_line(said.activity), *(Line(f"    {row}", "dim") for row in rows)]
    return lines


def waiting_lines(outcome: Outcome) -> list[str]:
    """The lines that say that a task waits for its planner, and why; none if the task does not wait."""
    if outcome.waiting is None:
        return []
    until = outcome.waiting.until.astimezone(UTC)
    head = f"waits for the planner until {until:%Y-%m-%d %H:%MZ} ({one_line(outcome.waiting.code)})"
    sign, colour = SIGNS[StepStatus.WAITING], STATUS_COLOURS[StepStatus.WAITING]
    return [signed(sign, head, colour), f"    {cut(one_line(outcome.waiting.reason), MAX_REASON)}"]


def paused_lines(outcome: Outcome) -> list[str]:
    """The lines about what is paused besides steps: the whole task, or activities such as the planner's."""
    steps, lines = {step.id for step in outcome.steps}, list[str]()
    for pause in outcome.paused:
        if pause.activity not in steps:
            name = "the task" if pause.activity is None else printable(pause.kind)
            head = f"{name} is {one_line(pause_text(pause))}"
            lines += [signed(SIGNS[StepStatus.PAUSED], head, STATUS_COLOURS[StepStatus.PAUSED]), *_resume_lines(pause)]
    return lines


def _resume_lines(pause: Pause) -> list[str]:
    expiry = expiry_text(pause)
    return [*([f"    {expiry}. First: {pause.extend}"] if expiry else []), f"    Resume: {pause.resume}"]


def is_undo(step: OutcomeStep) -> bool:
    return step.id.startswith(ids.UNDO)


def not_tried(outcome: Outcome) -> list[UndoRecord]:
    """Effects that were to be undone and for which no call was made."""
    tried = {step.id for step in outcome.steps}
    return [record for record in outcome.undo if not record.done and ids.of_undo(record.step_id) not in tried]


def stays_line(stays: UndoRecord) -> str:
    """The line about an effect that was not undone, with the reason."""
    return f"    {printable(stays.step_id)} stays: {cut(one_line(stays.reason), MAX_REASON)}"


def has_ended(step: OutcomeStep) -> bool:
    """Whether the step is completed, failed, cancelled or undone."""
    return step.status in (StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.CANCELLED, StepStatus.UNDONE)


def turn_number(outcome: Outcome, revision: Revision) -> int | None:
    """The number of the model's turn whose calls `revision` holds; None if `revision` is a plan."""
    if outcome.strategy != "react":
        return None
    return turn_of(step.id for step in outcome.steps if step.revision == revision.number)


def plan_heading(outcome: Outcome, revision: Revision) -> list[str]:
    """The lines above the steps of a plan or a turn; none for some turns of a long task, see MANY_TURNS."""
    turn, because = turn_number(outcome, revision), one_line(revision.because)
    name, facts = f"Plan {revision.number}" if turn is None else f"Turn {turn}", _plan_facts(outcome, revision)
    if turn is not None and not facts:
        if revision is not outcome.revisions[0] and len(outcome.revisions) > MANY_TURNS:
            return []
        return [Line(cut("  ".join(filter(None, [name, because])), MAX_REASON), "bold", 0, len(name))]
    head: str = Line(printable("  ".join(filter(None, [name, "; ".join(facts)]))), "bold", 0, len(name))
    return [head, f"    {cut(because, MAX_REASON)}"] if because else [head]


def _plan_facts(outcome: Outcome, revision: Revision) -> list[str]:
    before = next((plan.planner for plan in reversed(outcome.revisions) if plan.number < revision.number), "")
    is_new = bool(before and revision.planner) and revision.planner not in before.split(", ")
    facts = [f"by {revision.planner}"] if is_new else []
    if revision.refused:
        rejected = ", ".join(revision.refused)
        facts.append(f"because {rejected} {'was' if len(revision.refused) == 1 else 'were'} rejected")
        kept = ", ".join(revision.kept) if len(revision.kept) <= 8 else f"{len(revision.kept)} steps"
        facts += [f"{kept} kept"] if kept else []
        facts += [f"observed with {', '.join(revision.looked)}"] if revision.looked else []
    return facts


def failovers(outcome: Outcome) -> dict[tuple[str, str], list[str]]:
    """The lines about planners that could not be used, by planner and code; the first failover of a pair counts."""
    lines = dict[tuple[str, str], list[str]]()
    for failover in outcome.failovers:
        took_over = f"; {one_line(outcome.planner)} took over" if outcome.planner not in ("", failover.planner) else ""
        reason = cut(one_line(failover.reason), MAX_REASON).rstrip(".")
        head = signed("!", f"{one_line(failover.planner)} could not be used ({one_line(failover.code)})", "yellow")
        lines.setdefault((failover.planner, failover.code), [head, f"    {reason}{took_over}"])
    return lines


def _compaction(compaction: Compaction) -> Line:
    oldest = "the oldest turn" if compaction.turns == 1 else f"the oldest {compaction.turns} turns"
    text = f"{oldest} summarised at turn {compaction.turn}: the conversation had {compaction.tokens:,} tokens"
    return signed("≡", text, "yellow")


def rejections(outcome: Outcome) -> Sequence[Rejection]:
    """The proposals of the planner that Replan rejected; none if the reason why the task ended names them already."""
    return () if outcome.code == "plan_refused" else outcome.rejections


def _rejection(outcome: Outcome, rejection: Rejection) -> Line:
    what = "Turn" if outcome.strategy == "react" else "Proposal"
    reasons = "; ".join(map(one_line, rejection.reasons))
    return signed("!", f"{what} {rejection.turn} not used: {cut(reasons, MAX_REASON)}", "yellow")


def notes_above(outcome: Outcome, revision: Revision | None) -> Iterator[tuple[Compaction | Rejection, str]]:
    """The compactions and rejected proposals just before a plan, each with its line; with None, after the last plan."""
    below = [plan for plan in outcome.revisions if revision is None or plan.number < revision.number]
    since = below[-1].turn if below else 0
    until = revision.turn if revision else float("inf")
    found: list[Compaction | Rejection] = [*outcome.compactions, *rejections(outcome)]
    for note in sorted(found, key=lambda note: note.turn):
        if since < note.turn <= until:
            yield note, _rejection(outcome, note) if isinstance(note, Rejection) else _compaction(note)


def step_lines(
    outcome: Outcome, step: OutcomeStep, layout: RowLayout | None = None, live: LiveState | None = None
) -> list[str]:
    """The row of a step, and below it the lines about its faults and what followed them."""
    attempt = live.attempts.get(step.id) if live and step.status in OPEN else None
    lines: list[str] = [(layout or RowLayout(outcome)).row(step, state_of(step, attempt), time_of(step, live))]
    faults = [fault for fault in outcome.faults if fault.step_id == step.id and fault.revision == step.revision]
    retried = [fault for fault in faults if fault.decision == "retry"]
    if retried:
        lines.append("    " + _retries_text(retried))
    if step.silent:
        lines.append(f"    {count(step.silent, 'attempt')} ended without a response (worker lost or timeout)")
    for fault in faults:
        if fault.code is Code.NEEDS_APPROVAL:  # which is no fault
            lines += _approval(outcome, fault)
        elif fault.decision != "retry":
            reason = cut(one_line(fault.reason), MAX_REASON)
            said = [f"    {one_line(service_words(fault.words))}"] if fault.words else []
            lines += [f"    {fault.code}: {reason}", *said, f"    {follows(outcome, fault)}"]
    pause = next((pause for pause in outcome.paused if pause.activity == step.id and step.status in OPEN), None)
    if pause:
        tried = f"{attempt.label} {'runs' if pause.is_running else 'is next'}; " if attempt else ""
        lines += [f"    {tried}{pause_text(pause)}", *_resume_lines(pause)]
    if attempt and live:
        lines += _earlier_fault(attempt, live)
        lines += [f"    {thinking_text(live.thinking[step.id])}"] if step.id in live.thinking else []
        lines += [f"    {working_text(live.working[step.id])}"] if step.id in live.working else []
    return lines


def _approval(outcome: Outcome, fault: FaultRecord) -> list[str]:
    """The lines about a call that needed an approval; none while the request is open, which shows the same."""
    if any(request.is_open for request in requests_about(outcome, fault)):
        return []
    followed = _answered(outcome, fault) or "nobody has approved it"
    return [f"    {cut(one_line(fault.reason), MAX_REASON)}", f"    -> {followed}"]


def follows(outcome: Outcome, fault: FaultRecord) -> str:
    """Why a decision was made after a fault, and what followed: `the same call would fail again -> a new plan`."""
    is_over = bool(outcome.ended_at) and all(revision.number <= fault.revision for revision in outcome.revisions)
    answered, in_turns = _answered(outcome, fault), outcome.strategy == "react"
    decision = "ask" if answered else fault.decision
    because, then = what_follows(decision, fault, fault.reconciled, in_turns=in_turns, is_over=is_over)
    return " -> ".join(filter(None, (because, answered or then)))


def _answered(outcome: Outcome, fault: FaultRecord) -> str:
    """What a person answered after a fault; empty if nobody was asked about it, or nobody has answered yet."""
    for request in requests_about(outcome, fault):
        if request.answer and not request.refused:
            return f"{people_text(request, 'a person')} answered {request.answer.choice.value}"
    return ""


def state_of(step: OutcomeStep, attempt: Attempt | None) -> str:
    """The state of a step in its row: the running attempt, the number of attempts, or the status."""
    if attempt and step.status is not StepStatus.PAUSED:
        return attempt.label
    as_it_is = (StepStatus.PAUSED, StepStatus.PENDING, StepStatus.WAITING, StepStatus.SKIPPED, StepStatus.UNDONE)
    if step.status in as_it_is or not step.attempts:
        return step.status.value
    return count(step.attempts, "attempt")


def time_of(step: OutcomeStep, live: LiveState | None) -> str:
    """The duration of a step, of a running step until `live.at`; empty without a start, or without end and `live`."""
    if step.started is None:
        return ""
    if step.ended is not None:
        return duration((step.ended - step.started).total_seconds())
    return duration((live.at - step.started).total_seconds(), digits=1) if live else ""


def _earlier_fault(attempt: Attempt, live: LiveState) -> list[str]:
    """The line about the failure before `attempt`: its code and, while `attempt` waits, the time until it begins."""
    if attempt.code is None:
        return []
    wait = (attempt.due - live.at).total_seconds() if attempt.due else 0
    code = one_line(attempt.code)
    return [f"    {code}, again in {duration(wait, 1)}" if wait > 0 else f"    after {code}"]


def _retries_text(faults: Sequence[FaultRecord]) -> str:
    codes = Counter(fault.code for fault in faults)
    counted = [f"{code} {times(number)}" for code, number in codes.items()]
    waits = [f"{fault.waited:.2f} s" for fault in faults if fault.waited is not None]
    return f"{', '.join(counted)}, waited {' and '.join(waits)}" if waits else ", ".join(counted)


def kind_and_title(step: OutcomeStep) -> tuple[str, str]:
    """What follows the id of a step: the kind that it used, marked if it is the fallback, and its title.

    Either is empty where it would only repeat what stands before it.
    """
    kind, title = without_repeats(step.id, step.kind, step.title)
    return f"{step.kind} (fallback)" if step.is_fallback else kind, title


def _column_widths(outcome: Outcome, name: Callable[[OutcomeStep], str], most: int) -> dict[int, int]:
    widths = dict[int, int]()
    for step in outcome.steps:
        widths[step.revision] = max(widths.get(step.revision, 0), min(cell_len(name(step)), most))
    return widths


def headline(outcome: Outcome) -> Line:
    """The line that sums a task up: `Completed in 2.3 s: 1 replan, 2 retries (both helped), 0 wasted, 7 tool calls`."""
    counts = [count(outcome.replans, "replan"), *_retry_count(outcome), count(outcome.spent.tool_calls, "tool call")]
    counts += spent_on_models(outcome.spent)
    took = "in" if outcome.ended_at else "for"
    took_words = f"{took} {duration(outcome.spent.seconds, digits=1)}"
    is_untold = outcome.code in (CLOSED, UNTOLD) and outcome.counts is None
    return status_line(outcome.status, took_words if is_untold else f"{took_words}: {', '.join(counts)}")


def status_line(status: TaskStatus, text: str) -> Line:
    """A coloured status and the text about it: `Completed in 2.3 s`."""
    name = status.replace("_", " ").capitalize()
    return Line(f"{name} {text}", f"bold {STATUS_COLOURS.get(status, 'red')}", 0, len(name))


def _retry_count(outcome: Outcome) -> list[str]:
    """How many retries there were, and how many helped (the tool completed the call) or followed a persistent fault."""
    summed = metrics.RETRIES, metrics.HELPED_RETRIES, metrics.WASTED_ATTEMPTS
    retries, helped, wasted = (metrics.total(outcome.counts or {}, metric) for metric in summed)
    counted = count(retries, "retry", "retries")
    return [f"{counted} ({_helped_text(helped, retries)})", f"{wasted} wasted"] if retries else [counted]


def _helped_text(helped: int, number: int) -> str:
    if helped == number:
        return {1: "it helped", 2: "both helped"}.get(number, "all helped")
    if helped == 0:
        return "it did not help" if number == 1 else "none helped"
    return f"{helped} of {number} helped"


def duration(seconds: float, digits: int = 2) -> str:
    """A duration: `0.66 s`, `2 min 05 s`, `1 h 02 min`; `digits` are decimals of the seconds."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{max(0.0, seconds):.{digits}f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def age(then: datetime, now: datetime) -> str:
    """How long ago: `5s`, `2h`, `3d`."""
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
