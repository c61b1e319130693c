"""What happens to a followed task, as typed events.

Made while a program, the page or a command with `--jsonl` follows the task: when an entry of its journal was read, and
at each poll of the server. Most are projections of such entries, so that none is missed. What only the server knows,
such as attempts under way, is read every quarter of a second: there, what lasts shorter may be missed.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from client.encrypted import NO_KEY
from client.follow import Silent, View
from client.remedy import Door
from client.snapshot import Attempt, Snapshot
from client.workflow_task import FailingTask
from workflows.account import entries_of_people as people, entries_of_steps as steps, journal
from workflows.account.journal import AnyEntry, JournalPage
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import (
    Compaction,
    Failover,
    FaultRecord,
    Pause,
    PlannerWait,
    Rejection,
    Revision,
    StepStatus,
)
from workflows.inquiries import Capacity
from workflows.people.requests import HumanAnswer, HumanRequest, RequestKind
from workflows.unfinished import Unfinished


@dataclass(frozen=True)
class TaskEvent:
    """Something that happened to a task."""


@dataclass(frozen=True)
class Began(TaskEvent):
    """A worker has taken the task up."""

    outcome: Outcome


@dataclass(frozen=True)
class PlanAccepted(TaskEvent):
    """A plan was accepted."""

    plan: Revision


@dataclass(frozen=True)
class StepChanged(TaskEvent):
    """The status, the attempts or the kind of a step changed."""

    step: OutcomeStep
    attempts: int
    """The number of the running attempt or, if no attempt runs, the number of all attempts."""


@dataclass(frozen=True)
class FaultHappened(TaskEvent):
    """A step met a fault; its `decision` says what follows."""

    fault: FaultRecord


@dataclass(frozen=True)
class PlannerPassedOver(TaskEvent):
    """A planner could not be used, and the next one is asked."""

    failover: Failover


@dataclass(frozen=True)
class PlannerAwaited(TaskEvent):
    """The task waits for its planner."""

    wait: PlannerWait


@dataclass(frozen=True)
class Thinking(TaskEvent):
    """A model is asked, or more tokens of its reply arrived."""

    activity: str
    """The id of the activity that asks the model."""
    tokens: int
    """The tokens of the reply that have come, estimated."""
    attempt: int = 1
    """The number of the attempt that asks the model; the reply to an earlier attempt was lost."""


@dataclass(frozen=True)
class RequestRetried(TaskEvent):
    """A request to the planner, or another call of Replan's own, is made again after it failed."""

    activity: str
    """The id of the activity that makes the call, e.g. `plan:2`."""
    attempt: Attempt
    """The second attempt, or a later one."""


@dataclass(frozen=True)
class ModelSays(TaskEvent):
    """The text of a model's reply that arrived since the last such event: untrusted, unfinished, and stored nowhere.

    The reply may break off; only other events show what the task does.
    """

    activity: str
    """The id of the activity that asks the model: that of the step, or e.g. `plan:0`."""
    reply: str
    """The id of the reply. If the model is asked again, the id is new, and the text of the earlier reply is void."""
    start: int
    """The offset of `text` in the reply, in characters. If much arrived at once, characters before it are missing."""
    text: str
    is_over: bool = False
    """Whether the reply is complete or broke off, so that no more text follows; then `text` is empty."""


@dataclass(frozen=True)
class Working(TaskEvent):
    """The call of a step reports its progress."""

    step: str
    """The id of the step, or of the activity that observes or reconciles for it."""
    done: float
    total: float | None
    """The value of `done` at the end; None if it is unknown."""
    words: str
    """The words of the server that is called, which are untrusted."""


@dataclass(frozen=True)
class Paused(TaskEvent):
    """An operator has paused a step, another activity, or the task."""

    pause: Pause


@dataclass(frozen=True)
class PersonAsked(TaskEvent):
    """The task asks a person."""

    request: HumanRequest


@dataclass(frozen=True)
class PersonEndorsed(TaskEvent):
    """One of several people who must answer a request alike has answered it; it stays open."""

    request: HumanRequest
    answer: HumanAnswer


@dataclass(frozen=True)
class PersonAnswered(TaskEvent):
    """A request was answered, or closed without an answer."""

    request: HumanRequest


@dataclass(frozen=True)
class Compacted(TaskEvent):
    """The oldest turns of the conversation with the model were summarised."""

    compaction: Compaction


@dataclass(frozen=True)
class ProposalRejected(TaskEvent):
    """Replan rejected a proposal of the planner."""

    rejection: Rejection


@dataclass(frozen=True)
class Silence(TaskEvent):
    """The server, or every worker, does not answer (`answers` is False), or answers again (True)."""

    who: Silent
    answers: bool


@dataclass(frozen=True)
class WorkflowTaskFails(TaskEvent):
    """The workflow task of the task fails or, if `failing` is None, no longer fails."""

    failing: FailingTask | None


@dataclass(frozen=True)
class WorkerBusy(TaskEvent):
    """A step waits because all slots of the worker are in use or, if `capacity` is None, no step waits any more."""

    capacity: Capacity | None


@dataclass(frozen=True)
class Gap(TaskEvent):
    """Events are missing here: the task is long, and has dropped what happened first."""

    run: str
    """The id of the run whose history has the first of what is missing."""


@dataclass(frozen=True)
class Restarted(TaskEvent):
    """The task was reset since the last event: what happens to it is told from its start."""


@dataclass(frozen=True)
class Ended(TaskEvent):
    """The task has ended; this is the last event."""

    outcome: Outcome


FIRST = Attempt(1, None)


class Listener:
    """Finds the text in the replies of models that one reader has not received yet."""

    def __init__(self) -> None:
        self._heard = dict[str, Unfinished]()

    def news(self, words: Mapping[str, Unfinished]) -> Iterator[ModelSays]:
        """Yield the new text in `words` (see `Snapshot.words`), and record it as received."""
        for activity, heard in [*self._heard.items()]:
            if activity not in words:
                del self._heard[activity]
                yield ModelSays(activity, heard.reply, heard.length, "", is_over=True)
        for activity, now in words.items():
            before = self._heard.get(activity)
            known = before.length if before and before.reply == now.reply else 0
            if now.length > known:
                self._heard[activity] = now
                start = max(known, now.start)
                yield ModelSays(activity, now.reply, start, now.text[start - now.start :])


CURSOR = re.compile(r"([0-9a-f-]{1,50}):([0-9]{1,15})(?:\.([0-9]{1,9}))?", re.ASCII)
"""The cursor of an event: a run, the number of an entry and, if more events follow from it, how many have come."""
ALL = float("inf")


class Events(View):
    """Calls `tell` with each event of a followed task, once, and with its cursor: empty if only the server knows it."""

    def __init__(self, tell: Callable[[TaskEvent, str], None], after: str = "") -> None:
        """`after` is the cursor of the last event that was told before; one that cannot be read counts as none."""
        self._tell, self._listener = tell, Listener()
        known = CURSOR.fullmatch(after)
        run, number, events = known.groups() if known else ("", "0", None)
        self._known_run: str = run
        self._after = int(number), float(events) if events else ALL
        """The number of the entry that was told last, and how many of its events."""
        self._run = ""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._began, self._number = False, 0
        self._steps = dict[str, OutcomeStep]()
        """The newest step with each id, as the entries tell it."""
        self._shown = dict[str, Hashable]()
        """By the id of a step, how it was told last."""
        self._faults = dict[str, FaultRecord]()
        """The newest fault of each step."""
        self._open, self._paused = set[str](), set[str]()
        """The ids of the open requests, and of the steps that were told as paused."""
        self._reported = set[Hashable]()

    def journal(self, page: JournalPage, outcome: Outcome) -> None:
        moves = [(entry.number, entry.run) for entry in page.entries if isinstance(entry, journal.MovedOn)]
        runs = {"", page.run, *(run for _, run in moves)}
        if page.restarted if self._run else self._known_run not in runs:
            self._after = 0, ALL
            self._begin_anew()
            self._tell(Restarted(), f"{page.run}:0")
        self._run, has_gap = page.run, False
        number, events = self._after
        for entry in page.entries:
            last = max(self._number, number if events == ALL else number - 1)
            if entry.number > last + 1 and not has_gap:
                has_gap, run = True, next((run for moved, run in moves if moved > last), page.run)
                self._tell(Gap(run), f"{page.run}:{entry.number}.0")
            self._number = entry.number
            happened = list(self._of_entry(entry, outcome))
            for count, event in enumerate(happened, 1):
                part = f".{count}" if count < len(happened) else ""
                self._pass(event, f"{page.run}:{entry.number}{part}", is_new=(entry.number, count) > self._after)
        if page.gap and not page.entries:
            self._tell(Gap(page.gap), "")

    def see(self, snapshot: Snapshot) -> None:
        outcome, attempts = snapshot.outcome, {id: attempt.number for id, attempt in snapshot.attempts.items()}
        if outcome.code == NO_KEY and outcome.planner:  # no entry can be read
            self._tell_rest(outcome, attempts)
        paused = {pause.activity for pause in outcome.paused if pause.activity in self._steps}
        for id in sorted({*attempts, *paused, *self._paused} & {*self._steps}):
            step = self._steps[id]
            if step.status is StepStatus.RUNNING:
                shown = step.model_copy(update={"status": StepStatus.PAUSED}) if id in paused else step
                self._pass(StepChanged(_whole(shown, outcome), attempts.get(id, step.attempts)))
        self._paused = {id for id in paused if id}
        for pause in outcome.paused:  # also of a task that no worker tells of, since it is paused
            self._tell_once(("pause", pause.activity, pause.since), Paused(pause))
        for activity, attempt in snapshot.requests.items():
            if attempt.number > 1:
                self._tell_once(("retry", activity, attempt), RequestRetried(activity, attempt))
        for activity, tokens in snapshot.thinking.items():
            attempt = {**snapshot.attempts, **snapshot.requests}.get(activity, FIRST)
            self._tell_once(("thinking", activity, attempt.number, tokens), Thinking(activity, tokens, attempt.number))
        for activity, far in snapshot.working.items():
            self._tell_once(("working", activity, far), Working(activity, far.done, far.total, far.words))
        for said in self._listener.news(snapshot.words):
            self._tell(said, "")

    def silence(self, who: Silent) -> None:
        self._tell(Silence(who, answers=False), "")

    def answers(self, who: Silent) -> None:
        self._tell(Silence(who, answers=True), "")

    def failing(self, task: FailingTask | None) -> None:
        self._tell(WorkflowTaskFails(task), "")

    def busy(self, capacity: Capacity | None) -> None:
        self._tell(WorkerBusy(capacity), "")

    def end(self, outcome: Outcome) -> None:
        for said in self._listener.news({}):
            self._tell(said, "")
        self._tell_rest(outcome, {})
        self._tell(Ended(outcome), "")

    def _pass(self, event: TaskEvent, cursor: str = "", *, is_new: bool = True) -> None:
        """Tell an event; if no entry tells it, how a step stands only if it was not told so before."""
        if isinstance(event, StepChanged):
            shown = event.step.revision, event.step.status, event.step.kind, event.attempts
            is_new = is_new and (bool(cursor) or self._shown.get(event.step.id) != shown)
            self._shown[event.step.id] = shown
        if is_new:
            self._tell(event, cursor)

    def _once(self, key: Hashable, event: TaskEvent) -> Iterator[TaskEvent]:
        if key not in self._reported:
            self._reported.add(key)
            yield event

    def _tell_once(self, key: Hashable, event: TaskEvent) -> None:
        for new in self._once(key, event):
            self._tell(new, "")

    def _tell_rest(self, outcome: Outcome, attempts: Mapping[str, int]) -> None:
        """Tell what no entry tells: the end of a task that was closed from outside, or all if no entry can be read."""
        if not self._began:
            self._began = True
            self._tell(Began(outcome), "")
        if not self._number:
            for plan in outcome.revisions:
                self._tell_once(("plan", plan.number), PlanAccepted(plan))
            for fault in outcome.faults:
                self._tell_once(_key(fault), FaultHappened(fault))
            for request in outcome.requests:
                self._tell_once(("request", request.id), PersonAsked(request))
                self._open.add(request.id)
                for endorsement in request.endorsed:
                    self._tell_once(("endorsed", request.id, endorsement.at), PersonEndorsed(request, endorsement))
        for answer in self._answers({request.id for request in outcome.requests if not request.is_open}, outcome):
            self._tell(answer, "")
        for step in outcome.steps:
            if step.id in self._steps or not self._number:
                self._pass(StepChanged(step, attempts.get(step.id, step.attempts)))

    def _of_entry(self, entry: AnyEntry, outcome: Outcome) -> Iterator[TaskEvent]:
        """The events of an entry, which depend only on it and on those before; `outcome` adds values."""
        match entry:
            case journal.TaskBegun() if not self._began:
                self._began = True
                yield Began(outcome)
            case journal.PlanInForce():
                yield PlanAccepted(entry.revision)
            case steps.Attempted(is_own=False, is_check=False):  # and Reconciled
                yield from self._fault(entry.step, entry.fault)
            case steps.Decided() if fault := self._faults.get(entry.step):
                yield from self._fault(entry.step, fault.model_copy(update={"decision": entry.decision}))
            case steps.Waited(planner=PlannerWait() as wait):
                yield PlannerAwaited(wait)
            case people.PersonIsAsked():
                self._open.add(entry.request)
                yield from (PersonAsked(request) for request in outcome.requests if request.id == entry.request)
            case people.Endorsed(answer=answer):
                about = [request for request in outcome.requests if request.id == entry.request]
                yield from (PersonEndorsed(request, answer) for request in about)
            case people.Answered() | people.Closed():
                yield from self._answers({entry.request}, outcome)
            case people.Extended(answer=answer):
                about = [request for request in outcome.requests if request.kind is RequestKind.BUDGET]
                yield from self._answers({request.id for request in about if request.code in answer.extended}, outcome)
            case journal.FailedOver(failover=failover):
                yield from self._once(("failover", failover.planner, failover.code), PlannerPassedOver(failover))
            case journal.ConversationCompacted():
                yield Compacted(entry.compaction)
            case journal.RejectedPlan():
                yield ProposalRejected(entry.rejection)
            case journal.TaskClosed():
                yield from self._answers({*self._open}, outcome)
        for standing in entry.stands:
            before = self._steps.get(standing.id)
            title = standing.title or (before.title if before else "")
            step = OutcomeStep(**{**dict(standing), "title": title})
            self._steps[step.id] = step
            yield StepChanged(_whole(step, outcome), step.attempts)

    def _fault(self, step: str, fault: FaultRecord) -> Iterator[TaskEvent]:
        self._faults[step] = fault
        yield from self._once(_key(fault), FaultHappened(fault))

    def _answers(self, ids: Collection[str], outcome: Outcome) -> Iterator[PersonAnswered]:
        """The answers to those of the requests `ids` that are open as far as was told."""
        for request in outcome.requests:
            if request.id in ids and request.id in self._open:
                self._open.remove(request.id)
                yield PersonAnswered(request)


def _key(fault: FaultRecord) -> Hashable:
    return "fault", fault.step_id, fault.revision, fault.attempt, fault.decision, fault.at


def _whole(step: OutcomeStep, outcome: Outcome) -> OutcomeStep:
    """The step of the Outcome, as the entries tell it."""
    same = (other for other in outcome.steps if (other.id, other.revision) == (step.id, step.revision))
    whole = next(same, step)
    fields = {"status": step.status, "kind": step.kind, "attempts": step.attempts, "title": whole.title or step.title}
    return whole.model_copy(update=fields)


def event_fields(event: TaskEvent, queue: str, door: Door) -> tuple[str, dict[str, Any]] | None:
    """The name of an event, as docs/console.md lists it, and its fields; None for `Ended`. `queue`: the task queue."""
    match event:
        case Began(outcome):
            chosen = {"task_id", "task", "planner", "strategy", "started_at"}
            return "task", outcome.model_dump(mode="json", include=chosen)
        case PlanAccepted(plan):
            return "plan", plan.model_dump(mode="json")
        case StepChanged(step, attempts):
            shown = step.model_dump(mode="json", include={"id", "kind", "title", "revision", "status"})
            return "step", {**shown, "attempts": attempts}
        case FaultHappened(fault):
            return "fault", fault.model_dump(mode="json")
        case PlannerPassedOver(failover):
            return "failover", failover.model_dump(mode="json")
        case PlannerAwaited(wait):
            return "wait", wait.model_dump(mode="json")
        case Thinking(activity, tokens, attempt):
            return "thinking", {"activity": activity, "tokens": tokens, "attempt": attempt}
        case RequestRetried(activity, attempt):
            fields = {"activity": activity, "attempt": attempt.number, "of": attempt.of, "code": attempt.code}
            return "retry", {**fields, "due": attempt.due.isoformat() if attempt.due else None}
        case ModelSays(activity, reply, start, text, is_over):
            return "words", {"activity": activity, "reply": reply, "start": start, "text": text, "over": is_over}
        case Working(step, done, total, words):
            return "working", {"step": step, "done": done, "total": total, "words": words}
        case PersonAsked(request):
            return "request", request.model_dump(mode="json")
        case PersonEndorsed(request, answer):
            about = request.model_dump(mode="json", include={"id", "step", "revision", "approvers", "needed"})
            return "endorsement", {**about, "answer": answer.model_dump(mode="json")}
        case PersonAnswered(request):
            return "answer", request.model_dump(mode="json")
        case Compacted(compaction):
            return "compaction", compaction.model_dump(mode="json")
        case ProposalRejected(rejection):
            return "rejection", rejection.model_dump(mode="json")
        case Silence(who, answers):
            return who.value, {"answers": answers, "queue": queue}
        case WorkflowTaskFails(task):
            return "workflow_task", {"fails": task is not None, **(task.document(door) if task else {})}
        case Paused(pause):
            return "pause", pause.model_dump(mode="json")
        case Gap(run):
            return "gap", {"run": run}
        case Restarted():
            return "restarted", {}
        case WorkerBusy(capacity):
            return "busy", {"waits": capacity is not None, **(capacity.model_dump() if capacity else {})}
        case _:
            return None  # whoever follows knows more about the end: the whole document
