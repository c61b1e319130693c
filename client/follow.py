"""Follows a task until it ends, across restarts of workers and server, and passes its progress to a view.

Runs while somebody watches a task or waits for the end of a rollback, and once when a task is shown.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from math import inf
from typing import Self

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
)
from temporalio.service import RPCError, RPCStatusCode

from client.effects import with_reset_point
from client.encrypted import NO_KEY, is_sealed, sealed_outcome
from client.history.fetch import fetch_history, final_outcome, replayed
from client.pauses import is_paused
from client.problem import Problem, ProblemKind
from client.remedy import Remedy, Text, start_worker
from client.snapshot import Snapshot, snapshot_of
from client.tasks import (
    QUERY_TIMEOUT,
    TASK_TYPE,
    Handle,
    query_journal,
    query_progress,
    query_words,
    untold_outcome,
)
from client.workers import ask
from client.workflow_task import FailingTask, failing, unanswered
from runtime.payloads import NoKey
from workflows.account.journal import JournalPage
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.task import TaskStatus
from workflows.agent import AgentWorkflow
from workflows.inquiries import Capacity, WorkerInquiry

PERMANENT = (
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.INVALID_ARGUMENT,
)
"""The statuses of an RPCError that a later poll would get again; after any other status the server is polled again."""


@dataclass
class Known:
    """What a follower knows of a task: how far it has read the journal, and the Outcome after that entry."""

    is_followed: bool = True
    """Whether the entries of the journal are wanted at all."""
    cursor: str = ""
    outcome: Outcome | None = None
    _replayed: tuple[str, int] = ("", 0)
    """The run and the number of its events when its history was replayed last."""

    @property
    def outcome_now(self) -> Outcome | None:
        """The Outcome with the seconds until now: while a task runs, they grow without an entry."""
        if self.outcome is None:
            return None
        seconds = (datetime.now(UTC) - self.outcome.started_at).total_seconds()
        spent = self.outcome.spent.model_copy(update={"seconds": seconds})
        return self.outcome.model_copy(update={"spent": spent})

    async def ask(self, handle: Handle, run: str) -> JournalPage | None:
        """Ask a worker for the entries after the cursor, and for the Outcome if there are any; None if none answers.

        `run` is the newest run that is known.
        """
        page: JournalPage | None = JournalPage(run=run, entries=(), number=0)
        if self.is_followed:
            page = await query_journal(handle, self.cursor)
        if page is None or (self.outcome and not page.entries and not page.restarted):
            return page
        return self._take(page, await query_progress(handle))

    async def replay(self, client: Client, description: WorkflowExecutionDescription) -> JournalPage | None:
        """Replay the history of the task here, if it has grown; None if it has not, or cannot be replayed."""
        run = description.run_id
        now = run, description.history_length
        if now == self._replayed or description.workflow_type != TASK_TYPE:
            return None
        self._replayed = now
        progress = await replayed(client, description.id, run)
        return self._take(progress.entries_after(run, self.cursor, most=inf), progress) if progress else None

    def _take(self, page: JournalPage, progress: Progress | None) -> JournalPage | None:
        if progress is None:
            return None
        self.cursor, self.outcome = page.cursor, progress.outcome(datetime.now(UTC))
        return page


@dataclass(frozen=True)
class TaskState:
    """What the server and, if one answered, a worker say about a task."""

    description: WorkflowExecutionDescription
    snapshot: Snapshot | None = None
    """The progress of a running task; None if nobody can tell it."""
    failing: FailingTask | None = None
    """Why the workflow task of the task fails, so that no worker can answer the query; None if it does not fail."""
    page: JournalPage | None = None
    """The entries of the journal that were not known, maybe none; None if nobody could tell."""

    @property
    def closed(self) -> bool:
        return self.description.status is not WorkflowExecutionStatus.RUNNING

    @property
    def is_answered(self) -> bool:
        """Whether it is known how the workflow of a running task does."""
        return self.failing is not None or (self.snapshot is not None and not self.snapshot.is_replayed)


async def fetch_state(
    client: Client, handle: Handle, known: Known | None = None, *, with_words: bool = False
) -> TaskState | None:
    """Ask the server and a worker once for the state of a task; None if the server does not answer.

    If no worker answers, the history is replayed here. A task that an operator has paused answers no query: its
    progress is then that in `known`, which a follower passes at each poll, and which is brought up to date. With
    `with_words`, the unfinished replies of models are fetched, too.

    Raises:
        RPCError: the server no longer has the task, or refuses access.
    """
    known = known or Known(is_followed=False)
    description = await _describe_in_time(handle)
    if description is None:
        return None
    found = TaskState(description)
    if found.closed:
        return found
    if is_paused(description):
        outcome = known.outcome_now or await untold_outcome(description, TaskStatus.PAUSED)
        return replace(found, snapshot=await snapshot_of(client, outcome, description))
    try:
        if failure := await failing(client, description):  # a query would be rejected by the server, or wait
            return replace(found, failing=failure)
        if await is_sealed(description):
            return replace(found, snapshot=await _sealed_snapshot(client, handle, description))
        page = await known.ask(handle, description.run_id)
        is_replayed = page is None
        if page is None:  # a worker may have failed the workflow task meanwhile, and with it the question
            later = await _describe_in_time(handle)
            if later is None:
                return None
            if failure := await failing(client, later):
                return replace(found, failing=failure)
            page = await known.replay(client, later)
    except WorkflowQueryFailedError as error:
        return replace(found, failing=unanswered(description, error.message))
    except NoKey:  # a workflow of another program started it, so no memo shows that it is encrypted
        return replace(found, snapshot=await _sealed_snapshot(client, handle, description))
    except RPCError as error:
        if error.status in PERMANENT:
            raise
        return None
    if page is None or (now := known.outcome_now) is None:
        return found
    snapshot = replace(await snapshot_of(client, now, description), is_replayed=is_replayed)
    if with_words and not is_replayed and (snapshot.doing or snapshot.attempts):
        snapshot = replace(snapshot, words={said.activity: said for said in await query_words(handle)})
    return replace(found, snapshot=snapshot, page=page)


async def _sealed_snapshot(client: Client, handle: Handle, description: WorkflowExecutionDescription) -> Snapshot:
    return await snapshot_of(client, sealed_outcome(await fetch_history(client, handle), description), description)


async def outcome_of_ended(client: Client, handle: Handle) -> Outcome:
    """The Outcome of a task that has ended; if the task is encrypted and the key is missing, from its events alone."""
    description = await handle.describe()
    if not await is_sealed(description):
        with suppress(NoKey):  # another client started it, so no memo shows that it is encrypted
            return await final_outcome(client, handle)
    return sealed_outcome(await fetch_history(client, handle), description)


async def fetch_standing(client: Client, handle: Handle) -> tuple[Outcome, Snapshot | None]:
    """The Outcome of a task so far, or of its end; of a running task also its Snapshot.

    If no worker answers, the history of the task is replayed here.

    Raises:
        Problem: the server does not answer, the workflow task of the task fails, or no worker answers and the history
            cannot be replayed.
    """
    found = await fetch_state(client, handle)
    if found is None:
        remedy = Text("see whether it runs (", Remedy("doctor"), "), and try again")
        raise Problem("unreachable", "The server does not answer", remedy, ProblemKind.UNREACHABLE)
    if found.closed:
        return await outcome_of_ended(client, handle), None
    if found.failing is not None:
        raise (await with_reset_point(client, found.failing)).problem()
    if found.snapshot is None:
        reason = f"Task {handle.id!r} is running, but no worker answers for it"
        remedy = Text("start one with ", start_worker(found.description.task_queue))
        raise Problem("no_worker", reason, remedy, ProblemKind.UNREACHABLE)
    return found.snapshot.outcome, found.snapshot


async def _describe_in_time(handle: Handle) -> WorkflowExecutionDescription | None:
    with _suppress_temporary_rpc_errors(), suppress(TimeoutError):
        async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):  # the SDK tries again for longer than people wait
            return await handle.describe()
    return None


@contextmanager
def _suppress_temporary_rpc_errors() -> Iterator[None]:
    try:
        yield
    except RPCError as error:
        if error.status in PERMANENT:
            raise


POLL_SECONDS = 0.25
LONGEST_POLL = 1.0
"""Seconds: the longest pause between two polls."""
# A little shorter than QUERY_TIMEOUT, so that one query without an answer is enough to tell the view.
PATIENCE_SECONDS = 3.4
"""Seconds that a worker is silent, a call waits, or a workflow task fails, before the Follower tells its view."""
CAPACITY_SECONDS = 10.0
"""While a call waits for a free slot, a worker is asked every CAPACITY_SECONDS how busy it is."""
HEALING_SECONDS = 60.0
"""Seconds until the Follower gives up a failing workflow task that may recover by itself, as when a store is down."""


class Silent(StrEnum):
    """Who does not answer; WORKER means every worker."""

    SERVER = "server"
    WORKER = "worker"


class View:
    """The methods that a Follower calls to show a task; in this base class they show nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Restore the terminal; also called if an exception ends the `with` block."""

    def journal(self, page: JournalPage, outcome: Outcome) -> None:
        """Show entries of the journal, each once and in order; `outcome` has the values that the entries leave out."""

    def see(self, snapshot: Snapshot) -> None:
        """Show the progress of the task; `snapshot` may be equal to the snapshot before."""

    def silence(self, who: Silent) -> None:
        """Show that the server, or every worker, has not answered for some seconds."""

    def answers(self, who: Silent) -> None:
        """Show that the server, or a worker, answers again."""

    def failing(self, task: FailingTask | None) -> None:
        """Show that the task's workflow task has been failing for some seconds or, with None, that it recovered."""

    def busy(self, capacity: Capacity | None) -> None:
        """Show that a call has waited for some seconds since all slots are in use or, with None, that no call waits."""

    def tick(self) -> None:
        """Update the times that the view shows; called every POLL_SECONDS."""

    def end(self, outcome: Outcome) -> None:
        """Show how the task ended."""


class Follower:
    """Polls one task, and calls the methods of its view."""

    def __init__(
        self,
        client: Client,
        handle: Handle,
        view: View,
        *,
        is_attended: bool = True,
        least_pause: Callable[[], float] = lambda: POLL_SECONDS,
        with_words: Callable[[], bool] = lambda: False,
    ) -> None:
        """`least_pause` returns the least seconds between two polls, `with_words` whether somebody reads model replies.

        Both are called at each poll. `is_attended` is whether a person watches; if nobody does, a task that only a
        person can repair is not followed for ever.
        """
        self._client = client
        self._with_words = with_words
        self._least_pause = least_pause
        # Without a run id, so that it means the newest run: a reset starts another one.
        self._handle: Handle = client.get_workflow_handle_for(AgentWorkflow.run, handle.id)
        self._view = view
        self._is_attended = is_attended
        self._known = Known()
        self.snapshot: Snapshot | None = None
        """The newest progress of the task; None before a worker has answered."""
        self._silent: Silent | None = None
        self._failing: FailingTask | None = None
        """The failure that was last passed to the view; None while the workflow task does not fail."""
        self._failing_since: float | None = None
        self._sure_since: float | None = None
        """Since when (monotonic seconds) a worker has run a workflow task that surely fails; None if not sure."""
        self._heard = time.monotonic()
        self._queued = dict[str, float]()
        """For each activity that waits in the task queue, the time (monotonic seconds) when this was first seen."""
        self._asked_capacity, self._is_busy = float("-inf"), False
        self._asking: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    async def to_the_end(self) -> Outcome:
        """Follow until the task ends, and return its Outcome.

        If nobody watches, the method also returns when the task can only go on with a person's answer.

        Raises:
            Problem: the server no longer has the task, or the workflow task keeps failing and nobody watches.
            RPCError: the server refuses access.
        """
        looking, waking = asyncio.create_task(self._poll_until_end()), asyncio.create_task(self._wake())
        try:
            while not (await asyncio.wait([looking], timeout=POLL_SECONDS))[0]:
                self._view.tick()
            outcome = looking.result()
        finally:
            tasks = [task for task in (looking, waking, self._asking) if task]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # a replay must have ended, see `gathered`
        self._view.end(outcome)
        return outcome

    async def _poll_until_end(self) -> Outcome:
        while True:
            began = time.monotonic()
            found = await self._fetch_state()
            self._note(found)
            await self._note_failing(found)
            if found and found.snapshot:
                self._note_queued(found.snapshot.queued)
            if found and found.closed:
                with _suppress_temporary_rpc_errors():
                    return await self._end(found.description)
            if not self._is_attended and found and found.is_answered and found.snapshot and found.snapshot.needs_answer:
                return found.snapshot.outcome
            # A worker that answers slowly is asked less often.
            took = time.monotonic() - began if found and (found.snapshot or found.failing) else 0
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), max(self._least_pause(), min(LONGEST_POLL, took)))
            self._woken.clear()

    async def _end(self, description: WorkflowExecutionDescription) -> Outcome:
        """Pass the last entries of a closed task to the view, and return its Outcome."""
        outcome, page = await outcome_of_ended(self._client, self._handle), None
        if outcome.code != NO_KEY:
            # Who comes when all is over asks no worker; who has followed a long task need not replay it.
            if self._known.cursor:
                with suppress(WorkflowQueryFailedError):
                    page = await self._known.ask(self._handle, description.run_id)
            page = page or await self._known.replay(self._client, description)
            gap = description.run_id if outcome.revisions else ""
            page = page or JournalPage(run=description.run_id, entries=(), number=0, gap=gap)
            self._view.journal(page, outcome)
        return outcome

    async def _fetch_state(self) -> TaskState | None:
        try:
            return await fetch_state(self._client, self._handle, self._known, with_words=self._with_words())
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            reason = f"The server does not know task {self._handle.id!r} any more"
            raise Problem("unknown_id", reason, "it was deleted, or the server began anew without its data") from error

    async def _wake(self) -> None:
        """Wait for the task's end with a long poll, and then end the pause between two polls."""
        ending = self._client.get_workflow_handle(self._handle.id)
        while True:
            try:
                with suppress(WorkflowFailureError, NoKey):
                    await ending.result()
                return self._woken.set()
            except RPCError:
                await asyncio.sleep(POLL_SECONDS)

    def _note(self, found: TaskState | None) -> None:
        """Pass the newest snapshot to the view, and whether the server and a worker answer."""
        if found is None:
            if self._silent is not Silent.SERVER:
                self._silent = Silent.SERVER
                self._view.silence(Silent.SERVER)
            return
        if self._silent is Silent.SERVER:
            self._note_answer(Silent.SERVER)
        if found.is_answered:
            self._heard = time.monotonic()
            if self._silent is Silent.WORKER:
                self._note_answer(Silent.WORKER)
        if found.page and self._known.outcome and (found.page.entries or found.page.restarted):
            self._view.journal(found.page, self._known.outcome)
        if found.snapshot:
            self.snapshot = found.snapshot
            self._view.see(found.snapshot)
        is_silent = not (found.closed or found.is_answered)
        if is_silent and not self._silent and time.monotonic() - self._heard > PATIENCE_SECONDS:
            self._silent = Silent.WORKER
            self._view.silence(Silent.WORKER)

    def _note_answer(self, who: Silent) -> None:
        self._silent, self._heard = None, time.monotonic()
        self._view.answers(who)

    def _note_queued(self, queued: Collection[str]) -> None:
        """Ask a worker for its capacity if a call waits in the queue; tell the view when no call waits any more."""
        now = time.monotonic()
        self._queued = {id: self._queued.get(id, now) for id in queued}
        waited = now - min(self._queued.values(), default=now)
        if waited > PATIENCE_SECONDS and now - self._asked_capacity > CAPACITY_SECONDS:
            self._asked_capacity = now
            # Beside the polls, since an answer may take as long as a worker is away.
            self._asking = asyncio.create_task(self._ask_capacity())
        if self._is_busy and not self._queued:
            self._is_busy = False
            self._view.busy(None)

    async def _ask_capacity(self) -> None:
        with suppress(Problem, RPCError):  # nobody can tell; the view says by itself that no worker answers
            queue = (await self._handle.describe()).task_queue
            worker = (await ask(self._client, queue, WorkerInquiry())).worker
            capacity = worker.capacity if worker else None
            if capacity and capacity.calls >= capacity.slots and self._queued:
                self._is_busy = True
                self._view.busy(capacity)

    async def _note_failing(self, found: TaskState | None) -> None:
        if found is None or not (found.is_answered or found.closed):
            return  # nobody answered, so nothing is known about the workflow task
        now, task = time.monotonic(), found.failing
        if task is None:
            if self._failing is not None:
                self._view.failing(None)
            self._failing = self._failing_since = self._sure_since = None
            return
        self._heard = now  # a failing workflow task is reported as such, not as a missing worker
        self._failing_since = self._failing_since or now
        self._sure_since = (self._sure_since or now) if task.is_sure and task.is_taken else None
        is_news = self._failing is None or task.cause is not self._failing.cause
        if is_news and now - self._failing_since > PATIENCE_SECONDS:
            self._failing = task
            with suppress(RPCError):  # without the server, the failure is shown without its reset point
                self._failing = await with_reset_point(self._client, task)
            self._view.failing(self._failing)
        # A repaired worker would complete the workflow task within milliseconds.
        patience = HEALING_SECONDS if task.may_heal else PATIENCE_SECONDS
        if not self._is_attended and self._sure_since is not None and now - self._sure_since > patience:
            raise _given_up(self._failing or task)


def _given_up(task: FailingTask) -> Problem:
    is_task = task.task_id == task.workflow_id
    again = Remedy("show", task.task_id, {"follow": True}) if is_task else Remedy("undo", task.task_id)
    remedy = Text(task.remedy, "; it was not stopped: ", again, " follows it again")
    return Problem("workflow_task_fails", task.reason, remedy, ProblemKind.NEEDS_PERSON)
