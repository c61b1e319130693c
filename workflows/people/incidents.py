"""Resolving an incident: many tasks wait for one cause, which was repaired, and one answer goes to all of them.

Runs as a workflow of its own, when a person reports that the cause is repaired, until all these tasks were told.

An incident itself is no workflow and no row, but a query: the tasks that publish its cause in a search attribute. First
one task, the canary, is told that the cause was repaired. If the same fault comes back, no other task is told.
"""

from enum import StrEnum
from typing import TypeVar

from pydantic import AwareDatetime, BaseModel, Field
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, FailureError

from workflows.account.progress import Progress
from workflows.account.records import StepStatus
from workflows.account.search_attributes import INCIDENTS, is_quotable
from workflows.arguments import require_argument, undecoded
from workflows.calls.scheduling import InternalActivityFailed, OwnAttempts, OwnCall
from workflows.faults import retries
from workflows.people.requests import MAX_NAME, MAX_WORDS, HumanRequest, Resolution
from workflows.people.statement import Statement
from workflows.people.updates import RESOLVE
from workflows.plans import own_activities
from workflows.plans.catalogue import ToolSpec
from workflows.web_ui import escape, summary

CANARY_LIMIT = 3600.0
"""Seconds to wait for what becomes of the canary: the first task that is told that the cause was repaired."""
LIST_IS_BEHIND = 1.0
"""Seconds by which the server's list of tasks may be behind."""
MAX_CANARIES = 20
"""How many tasks are tried as the canary, since some may end just then or be answered by somebody else."""
MAX_BATCHES = 20
"""How many batches are sent, since some tasks begin to wait only after a batch has begun."""
BEHIND = "until the server's list of tasks is up to date"
PATIENCE = 5
"""How many times the list is read without a change before another batch is sent."""

T = TypeVar("T")


def waiting_query(cause: str, queue: str) -> str:
    """The list filter for the tasks of a queue that wait because of a cause; ValueError if these cannot be quoted."""
    if not (is_quotable(cause) and is_quotable(queue)):
        raise ValueError(f"{cause!r} or {queue!r} cannot stand in a query")
    return (
        "WorkflowType = 'AgentWorkflow' AND ExecutionStatus = 'Running'"
        f" AND TaskQueue = '{queue}' AND {INCIDENTS.name} = '{cause}'"
    )


class Resolve(BaseModel, frozen=True):
    """The input of ResolveWorkflow: the cause that was repaired, and who says so."""

    cause: str = Field(min_length=1, max_length=MAX_NAME)
    queue: str = Field(min_length=1)
    by: str = Field(default="", max_length=MAX_NAME)
    note: str = Field(default="", max_length=MAX_WORDS)
    statement: Statement | None = Field(default=None, exclude_if=lambda stated: stated is None)
    """What a door has signed about who says so, for the record; None if no door knew who that is."""


class Search(BaseModel, frozen=True):
    """Asks for the tasks of an incident."""

    cause: str
    queue: str
    resolution: str
    """The id of the resolution that is under way."""
    not_: tuple[str, ...] = ()
    """The ids of tasks that may not be `WaitingTasks.first`."""


class WaitingTasks(BaseModel, frozen=True):
    """The tasks that wait because of a cause, as the server lists them."""

    tasks: int
    """How many tasks the resolution has not answered yet, or has answered just now."""
    again: int
    """How many tasks wait again after the resolution."""
    first: str | None = None
    """The id of the task that has waited longest; None if there is no task."""


class Look(BaseModel, frozen=True):
    """Asks what became of a task that a resolution answered."""

    task: str
    resolution: Resolution


class Fate(StrEnum):
    """What became of a task that was told of a resolution."""

    PENDING = "pending"
    WENT_ON = "went_on"
    FAILED_AGAIN = "failed_again"
    GONE = "gone"
    """The task no longer waits for the cause, and the resolution is not the reason."""


class CanaryEnd(BaseModel, frozen=True):
    """What became of the canary."""

    fate: Fate
    reason: str = ""
    """Why the canary failed again, or that nothing became of it in time; else empty."""


class Batch(BaseModel, frozen=True):
    """Asks to tell all tasks of an incident by one batch operation of the server."""

    id: str
    """The id of the operation; the same in each attempt."""
    queue: str
    resolution: Resolution


class Gone(BaseModel, frozen=True):
    """The tasks that a batch did not reach."""

    gone: int
    """How many tasks could not be told, since they had ended."""


class Resolved(BaseModel, frozen=True):
    """How far a resolution is, and at its end what became of the tasks."""

    cause: str
    canary: str | None = None
    """The id of the task that was told first; None if no task waits."""
    fate: Fate = Fate.PENDING
    """What became of the canary."""
    reason: str = ""
    """Why no other task was told."""
    tasks: int = 0
    """How many tasks were told, the canary included."""
    again: int = 0
    """How many of these tasks wait again."""
    gone: int = 0
    """How many of these tasks had ended before they were told."""
    left: int = 0
    """How many tasks still wait without having processed the resolution."""
    since: AwareDatetime | None = None
    """When the resolution began."""

    @property
    def went_on(self) -> int:
        """How many of the tasks that were told had not ended before, and do not wait again."""
        return max(0, self.tasks - self.again - self.gone)


def fate_of(progress: Progress, resolution: Resolution) -> CanaryEnd:
    """The Fate of a task with the state `progress`, after it was told of a resolution."""
    same = [request for request in progress.requests if request.cause == resolution.cause]
    answered = [request for request in same if request.answer and request.answer.resolution == resolution.id]
    for same_request in same:
        if same_request.after == resolution.id:
            return CanaryEnd(fate=Fate.FAILED_AGAIN, reason=same_request.reason)
    if not answered:
        return CanaryEnd(fate=Fate.PENDING if any(request.is_open for request in same) else Fate.GONE)
    is_over = progress.ending is not None or all(_has_gone_on(progress, request) for request in answered)
    return CanaryEnd(fate=Fate.WENT_ON if is_over else Fate.PENDING)


def _has_gone_on(progress: Progress, request: HumanRequest) -> bool:
    later = progress.requests[progress.requests.index(request) + 1 :]
    if any(later_request.step == request.step for later_request in later):
        return True  # it asks about something else
    if request.step is None:  # a planner that answers makes a plan, or asks
        return progress.revision > request.revision or bool(later)
    records = [record for record in progress.records if record.step.id == request.step]
    return all(record.status not in (StepStatus.RUNNING, StepStatus.WAITING, StepStatus.PENDING) for record in records)


@workflow.defn(name="ResolveWorkflow")
class ResolveWorkflow:
    """Tells the tasks of one incident that its cause was repaired; returns what became of them."""

    def __init__(self) -> None:
        self._now = Resolved(cause="")

    @workflow.query
    def resolved(self) -> Resolved:
        return self._now

    @workflow.run
    @undecoded
    async def run(self, *arguments: Resolve | RawValue) -> Resolved:
        """Tell one task, the canary; if it goes on, tell the others, until the server lists no task that was not told.

        Raises:
            ApplicationError: the input cannot be read, or no worker can list, watch or tell the tasks.
        """
        request = require_argument("resolution", arguments, Resolve)
        resolution = Resolution(
            id=workflow.info().first_execution_run_id, cause=request.cause, by=request.by, note=request.note
        )
        search = Search(cause=request.cause, queue=request.queue, resolution=resolution.id)
        self._now = Resolved(cause=request.cause, since=workflow.now())
        try:
            await self._try_one(search, resolution)
            if self._now.fate is Fate.WENT_ON:
                await self._tell_all(search, resolution)
        except InternalActivityFailed as failed:
            raise ApplicationError(failed.fault.reason, type=failed.fault.code, non_retryable=True) from None
        return self._now

    async def _try_one(self, search: Search, resolution: Resolution) -> None:
        """Tell one task, the canary, and wait for what becomes of it; if it is gone, tell another one."""
        tried = list[str]()
        while len(tried) < MAX_CANARIES:
            found = await self._find(search.model_copy(update={"not_": tuple(tried)}))
            if found.first is None:
                self._set(reason="No task waits because of it.")
                return
            tried.append(found.first)
            self._set(canary=found.first, fate=Fate.PENDING)
            try:
                await workflow.get_external_workflow_handle(found.first).signal(RESOLVE, resolution)
            except FailureError:  # it has ended since the list was made
                continue
            result = await self._watch(Look(task=found.first, resolution=resolution))
            if result.fate is not Fate.GONE:
                self._set(fate=result.fate, tasks=1, again=int(result.fate is Fate.FAILED_AGAIN), reason=result.reason)
                return
        self._set(reason=f"The {MAX_CANARIES} tasks that were tried had ended, or somebody else answered them.")

    async def _watch(self, look: Look) -> CanaryEnd:
        waited, count = 0.0, 0
        while waited < CANARY_LIMIT:
            pause = retries.canary_wait(count)
            await workflow.sleep(pause, summary=summary(f"until {look.task} has gone on"))
            waited, count = waited + pause, count + 1
            result = await _run(own_activities.LOOK_AT_CANARY, look, CanaryEnd, f"what became of {look.task}")
            if result.fate is not Fate.PENDING:
                return result
        return CanaryEnd(fate=Fate.PENDING, reason=f"Nothing became of {look.task} within {CANARY_LIMIT:g} s.")

    async def _tell_all(self, search: Search, resolution: Resolution) -> None:
        """Send batches until all waiting tasks were told, or until a batch changes nothing any more."""
        await workflow.sleep(LIST_IS_BEHIND, summary=BEHIND)
        found, before = await self._find(search), 0
        for number in range(1, MAX_BATCHES + 1):
            if found.tasks in (0, before):
                break
            batch = Batch(id=f"{resolution.id}-{number}", queue=search.queue, resolution=resolution)
            counts = await _run(own_activities.SIGNAL_WAITING, batch, Gone, f"tell {found.tasks} tasks")
            self._set(tasks=self._now.tasks + found.tasks, gone=self._now.gone + counts.gone)
            before, found = found.tasks, await self._find_settled(search)
        if found.tasks:
            self._set(left=found.tasks, tasks=max(0, self._now.tasks - found.tasks))

    async def _find_settled(self, search: Search) -> WaitingTasks:
        """List the tasks that wait, again and again until the list no longer changes, and return the last list."""
        found, same = WaitingTasks(tasks=0, again=-1), 0
        while same < (1 if found.tasks == 0 else PATIENCE):
            await workflow.sleep(LIST_IS_BEHIND, summary=BEHIND)
            newest = await self._find(search)
            same = same + 1 if newest == found else 0
            found = newest
            self._set(again=found.again)
        return found

    async def _find(self, search: Search) -> WaitingTasks:
        return await _run(own_activities.FIND_WAITING, search, WaitingTasks, "which tasks wait")

    def _set(self, **changed: object) -> None:
        self._now = self._now.model_copy(update=changed)
        now = self._now
        lines = [f"**{escape(now.cause)}**: {now.tasks} told, {now.again} wait again, {now.gone} had ended.", ""]
        lines += [f"First: {escape(now.canary)}, {now.fate.replace('_', ' ')}.", ""] if now.canary else []
        lines += [escape(now.reason), ""] if now.reason else []
        workflow.set_current_details("\n".join([*lines, "---"]))


async def _run(spec: ToolSpec, request: BaseModel, returns: type[T], title: str) -> T:
    payload = request.model_dump(mode="json")
    own = OwnCall(None, spec, spec.kind, revision=0)
    return await OwnAttempts(own, payload, returns, title).run()
