"""What happens to a followed task, as typed events.

A task is read every quarter of a second, so a status that lasts shorter may be missed.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from client.follow import Attempt, Silent, Snapshot, View
from client.remedy import Door
from client.workflow_task import FailingTask
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import Compaction, Failover, FaultRecord, Pause, PlannerWait, Rejection, Revision
from workflows.inquiries import Capacity
from workflows.people.requests import HumanRequest
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


class Events(View):
    """Calls `tell` with each event of a followed task, once."""

    def __init__(self, tell: Callable[[TaskEvent], None]) -> None:
        self._tell = tell
        self._listener = Listener()
        self._began = False
        self._plans = 0
        self._reported = set[Hashable]()
        self._steps = dict[tuple[str, int], Hashable]()

    def see(self, snapshot: Snapshot) -> None:
        attempts = {id: attempt.number for id, attempt in snapshot.attempts.items()}
        if snapshot.outcome.planner:
            self._tell_changes(snapshot.outcome, attempts)
        for pause in snapshot.outcome.paused:  # also of a task that no worker tells of, since it is paused
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
            self._tell(said)

    def silence(self, who: Silent) -> None:
        self._tell(Silence(who, answers=False))

    def answers(self, who: Silent) -> None:
        self._tell(Silence(who, answers=True))

    def failing(self, task: FailingTask | None) -> None:
        self._tell(WorkflowTaskFails(task))

    def busy(self, capacity: Capacity | None) -> None:
        self._tell(WorkerBusy(capacity))

    def end(self, outcome: Outcome) -> None:
        for said in self._listener.news({}):
            self._tell(said)
        self._tell_changes(outcome, {})
        self._tell(Ended(outcome))

    def _tell_changes(self, outcome: Outcome, running_attempts: Mapping[str, int]) -> None:
        if not self._began:
            self._began = True
            self._tell(Began(outcome))
        for revision in [revision for revision in outcome.revisions if revision.number > self._plans]:
            self._plans = revision.number
            self._tell(PlanAccepted(revision))
        for failover in outcome.failovers:
            self._tell_once(("failover", failover.planner, failover.code), PlannerPassedOver(failover))
        for compaction in outcome.compactions:
            self._tell_once(("compaction", compaction.turn), Compacted(compaction))
        for rejection in outcome.rejections:
            self._tell_once(("rejection", rejection.turn), ProposalRejected(rejection))
        if outcome.waiting:
            self._tell_once(("wait", outcome.waiting), PlannerAwaited(outcome.waiting))
        for request in outcome.requests:
            self._tell_once(("request", request.id), PersonAsked(request))
            if not request.is_open:
                self._tell_once(("answer", request.id), PersonAnswered(request))
        for fault in outcome.faults:
            key = ("fault", fault.step_id, fault.revision, fault.attempt, fault.decision, fault.at)
            self._tell_once(key, FaultHappened(fault))
        for step in outcome.steps:
            count = running_attempts.get(step.id, step.attempts)
            stands, where = (step.status, count, step.kind), (step.id, step.revision)
            if self._steps.get(where) != stands:
                self._steps[where] = stands
                self._tell(StepChanged(step, count))

    def _tell_once(self, key: Hashable, event: TaskEvent) -> None:
        if key not in self._reported:
            self._reported.add(key)
            self._tell(event)


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
        case WorkerBusy(capacity):
            return "busy", {"waits": capacity is not None, **(capacity.model_dump() if capacity else {})}
        case _:
            return None  # whoever follows knows more about the end: the whole document
