"""The Python API: `Client` starts and finds tasks; a `TaskHandle` follows, answers, cancels or undoes one task.

Runs when a user's program, the HTTP API, the page or the gateway does something with tasks.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import JsonValue
from temporalio.client import Client as TemporalClient

from client import incidents as resolving, people, start, tasks, undo as undoing
from client.connection import connected
from client.continuing import continued
from client.effects import TaskEffect
from client.encrypted import no_key
from client.events import Events, TaskEvent
from client.explain.explanation import Explanation, explain_task
from client.follow import Follower, View, fetch_standing
from client.history.fetch import fetch_history, final_outcome
from client.incidents import Incident
from client.listing import MAX_WAITING, Listed, Waiting, list_tasks, list_waiting, status_named
from client.report.cache import default_file
from client.report.report import DAY, MAX_TASKS, Period, Progress, Report, make_report
from client.reset import Fate, ResetResult, reset
from client.task_document import task_document
from client.text import QUEUE
from client.undo import Rollback
from client.vouching import Voucher
from client.workers import list_effects
from runtime.client import as_replan
from runtime.payloads import NoKey
from workflows.account.outcome import Outcome
from workflows.account.records import FaultRecord
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.people.card import Fact, facts
from workflows.people.incidents import Resolved
from workflows.people.requests import Choice, HumanRequest
from workflows.plans.proposal import Step
from workflows.text import nearest

OnEscalation = Literal["wait", "end", "undo"]


class TaskNotCompleted(Exception):
    """A task ended without being completed; `outcome` has the status and the reason of its end."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"Task {outcome.task_id!r} is {outcome.status}: {outcome.reason or 'without a reason'}")
        self.outcome = outcome

    @property
    def fault(self) -> FaultRecord | None:
        """The last fault of the task, with its quadrant, code, reason, observed state and effect; None without one."""
        return self.outcome.faults[-1] if self.outcome.faults else None


class TaskFailed(TaskNotCompleted):
    """The planner gave up, a person ended the task, or its plan was refused."""


class TaskEscalated(TaskNotCompleted):
    """The task needed a person, and nobody was asked or nobody answered."""


class TaskOverBudget(TaskNotCompleted):
    """A limit of the task was reached."""


class TaskCancelled(TaskNotCompleted):
    """Somebody asked the task to stop."""


_ENDED: Mapping[TaskStatus, type[TaskNotCompleted]] = {
    TaskStatus.FAILED: TaskFailed,
    TaskStatus.ESCALATED: TaskEscalated,
    TaskStatus.OVER_BUDGET: TaskOverBudget,
    TaskStatus.CANCELLED: TaskCancelled,
}


class TaskHandle:
    """One task, whether it runs or has ended."""

    def __init__(self, temporal: TemporalClient, id: str, *, voucher: Voucher | None = None) -> None:
        """Called by `Client.start` and `Client.task`; `temporal` is a client with Replan's data converter.

        A `voucher` signs who answers, extends or undoes the task.
        """
        self.id = id
        self._temporal = temporal
        self._voucher = voucher

    @property
    def _handle(self) -> tasks.Handle:
        return self._temporal.get_workflow_handle_for(AgentWorkflow.run, self.id)  # its newest run

    async def follow(self, *, text: bool = False) -> AsyncIterator[TaskEvent]:
        """Yield the events of the task until it ends, across restarts of workers and server; the last event is `Ended`.

        A task that waits for a person is still followed. With `text`, events `ModelSays` are yielded, too: the text of
        a model's reply while it arrives, which is untrusted and unfinished.

        Raises:
            Problem: the server does not know the task any more.
        """
        events = asyncio.Queue[TaskEvent | None]()
        view = Events(lambda event, _: events.put_nowait(event))
        follower = Follower(self._temporal, self._handle, view, with_words=lambda: text)
        following = asyncio.create_task(follower.to_the_end())
        following.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            following.result()
        finally:
            following.cancel()

    async def outcome(self) -> Outcome:
        """The Outcome of the task so far or, if the task has ended, of its end; does not wait for the end.

        Raises:
            Problem: the server does not answer, the workflow task of the running task fails, or no worker answers and
                the history cannot be replayed here.
        """
        return (await fetch_standing(self._temporal, self._handle))[0]

    async def result(self) -> Outcome:
        """Wait for the end of the task, and return its Outcome.

        Raises:
            TaskNotCompleted: the task failed, escalated, went over its budget or was cancelled; the exception's
                `outcome` has the Outcome.
            Problem: the Outcome is encrypted, and this client does not have the key.
        """
        try:
            outcome = await final_outcome(self._temporal, self._handle)
        except NoKey as error:
            raise no_key(error) from error
        if ended := _ENDED.get(outcome.status):
            raise ended(outcome)
        return outcome

    async def requests(self) -> Sequence[HumanRequest]:
        """The open requests of the task to people, the oldest first.

        If no worker answers in time, only the oldest request is returned, without the `call` that needs an approval.
        """
        return await people.open_requests(self._handle)

    async def facts(self, request: HumanRequest) -> Sequence[Fact]:
        """The facts that a person needs in order to answer `request`, in the order in which every screen shows them.

        The texts come from the task, its planner and its tools, so they are untrusted: escape them before display.
        """
        return facts(request, await people.asker(self._handle))

    async def answer(
        self,
        choice: Choice | str,
        *,
        request: HumanRequest | str | None = None,
        by: str | None = None,
        **values: JsonValue,
    ) -> str | None:
        """Answer a request, as the command `answer` does; return the task's reply, None if it does not reply in time.

        `request` is the request, or its id; it may be left out if only one request is open. An approval and an edit
        need the HumanRequest itself, or `call`, the code of the call that the person saw. `by` is the name of the
        person, by default the login name; with an identity, it is its person. `values` are the other fields of the
        answer: `reason`, `hint`, `args`, `result`, `text` or `undo`.

        Raises:
            Problem: the task does not accept the answer, or no worker took it in time.
            ValueError: there is no such choice.
        """
        chosen = Choice(choice)
        named: dict[str, Any] = {}
        if isinstance(request, HumanRequest):
            named = people.reference_to(request, chosen)
        elif request is not None:
            named = {"request": request}
        who = {} if by is None else {"by": by}
        return await people.answer(self._handle, chosen, voucher=self._voucher, **{**named, **who, **values})

    async def extend(
        self,
        *,
        tool_calls: int = 0,
        replans: int = 0,
        tokens: int = 0,
        usd: float = 0.0,
        by: str | None = None,
        key: str | None = None,
    ) -> str | None:
        """Raise the limits of the task by these amounts; return the new limits in words.

        The result is None if the reply of the task does not come in time. An extension that is sent several times with
        the same `key` counts once.

        Raises:
            Problem: no amount is given, the task has ended or has no such limit, or no worker took the extension in
                time.
        """
        fields: dict[str, Any] = {"tool_calls": tool_calls, "replans": replans, "tokens": tokens, "usd": usd, "by": by}
        chosen = {name: value for name, value in fields.items() if value}
        return await people.answer(self._handle, Choice.EXTEND, key, voucher=self._voucher, **chosen)

    async def cancel(self, *, undo: bool = False) -> None:
        """Ask the task to stop. The effects of finished steps stay; with `undo`, they are undone before the task ends.

        Undo calls that need an approval are not made: the outcome names them, and `TaskHandle.undo` can make them.

        Raises:
            Problem: the task has ended already, or cannot stop because its workflow task fails.
        """
        if found := await undoing.cancel(self._temporal, self._handle, undo=undo):
            raise found.problem()

    async def undo(self, *, confirm: str | None = None) -> Rollback:
        """Undo the effects of the ended task, the newest first, and wait for the rollback; no effect is undone twice.

        A call that needs an approval is not made: `planned` of the result has the call, and a `code`. After a person
        has seen these calls, `confirm=code` makes them.

        Raises:
            Problem: the task is running, no worker answers for the task, the task is encrypted and its key is missing
                here, `confirm` is the code of other calls, or the rollback ended without an outcome.
        """
        how = undoing.with_code(confirm)
        return await undoing.undo(
            self._temporal, self._handle, View(), is_attended=False, confirm=how, voucher=self._voucher
        )

    async def reset(
        self, to: str, *, reason: str = "", fate: Fate | Literal["undo", "keep"] | None = None
    ) -> ResetResult:
        """Start a new run of the task from just before its step `to`.

        `fate` decides whether effects that were applied after that step are undone or kept.

        Raises:
            Problem: as for `client.reset.reset`.
            ValueError: `fate` is no Fate.
        """
        why, chosen = reason or f"reset to {to}", None if fate is None else Fate(fate)
        return await reset(self._temporal, self._handle, to=to, reason=why, fate=chosen, view=View(), is_attended=False)

    async def document(self) -> dict[str, JsonValue]:
        """The Outcome of the task so far or of its end, as the JSON document that `show --json` prints.

        Raises:
            Problem: as for `outcome`.
        """
        return await task_document(self._temporal, self._handle, await self.outcome())

    async def explain(self) -> Explanation:
        """Explain from its history why the task did what it did; no worker is asked.

        On the result, `step(id)` returns the part about one step. The result and that part have `document()` for JSON.
        """
        return explain_task(await fetch_history(self._temporal, self._handle, journal=True))

    async def effects(self) -> Sequence[TaskEffect]:
        """The applied and possibly applied effects of the task, with keys, from its history and a worker's ledgers.

        Raises:
            Problem: no worker answers.
        """
        return (await list_effects(self._temporal, self._handle)).effects


class Client:
    """Starts tasks on Replan's workers, and finds them again."""

    def __init__(self, temporal: TemporalClient, *, queue: str = QUEUE, identity: str | Path | None = None) -> None:
        """Use a connection to Temporal; `queue` is the task queue that Replan's workers serve.

        `identity` is the file of a person's own key, which `people add NAME --key FILE` makes: it signs that it is this
        person who starts, answers, extends, resolves or undoes.

        The data converter of the connection is used, too: its payload codec, failure converter and external storage,
        and its payload converter for encodings that Replan's own payload converter does not know.

        Raises:
            Problem: the identity cannot be used.
        """
        self.temporal = as_replan(temporal)
        self.queue = queue
        self._voucher = Voucher.of_key(identity) if identity else None

    def signing(self, voucher: Voucher | None) -> Self:
        """This client, for a person for whom a door vouches; with None, for somebody for whom nobody does."""
        found = copy.copy(self)
        found._voucher = voucher
        return found

    @classmethod
    async def connect(
        cls,
        address: str | None = None,
        *,
        namespace: str | None = None,
        profile: str | None = None,
        queue: str = QUEUE,
        keys: str | Path | None = None,
        codec: str | None = None,
        identity: str | Path | None = None,
    ) -> Self:
        """Connect to a Temporal server; a missing argument is read from TEMPORAL_ADDRESS and the like, or a profile.

        `keys` is the file of a keyring and `codec` the MODULE:OBJECT of a payload codec, both as the workers have them;
        the defaults are the variables REPLAN_KEYS and REPLAN_CODEC. `identity` is the file of a person's own key, which
        signs that it is this person who starts, answers, extends, resolves or undoes.

        Raises:
            Problem: no server answers, or the environment, the profile, the keys, the codec or the identity cannot be
                used.
        """
        voucher = Voucher.of_key(identity) if identity else None  # a mistake is reported without connecting
        connection = await connected(address, namespace, profile, keys=keys, codec=codec)
        return cls(connection, queue=queue).signing(voucher)

    async def start(
        self,
        task: str | Task,
        *,
        id: str | None = None,
        key: str | None = None,
        again: bool = False,
        plan: Collection[Step] | None = None,
        limits: Limits | None = None,
        on_escalation: OnEscalation | None = None,
        continues: str | None = None,
        **options: Any,
    ) -> TaskHandle:
        """Start a task; if a task with this id and the same content is running, return the running task.

        `continues` is the id of an ended task, or the beginning of that id: the planner knows what was said and done in
        the ended task. `options` are further fields of Task. `again` allows the id of a task that has ended. With a
        `key`, such as the number of an order, a second start of the same task returns the first task, also after the
        end of the first task, as long as the server has it; a `key` excludes `again`. Tasks with the same `effect_key`
        are different tasks, but their steps with the same id apply one effect, also when the server no longer has the
        first task.

        Raises:
            Problem: the id belongs to a task that has ended, or to a running task with other content; or the task to
                continue is running, or does not exist.
            pydantic.ValidationError: a value is not valid.
            TypeError: Task has no such field.
        """
        if unknown := [name for name in options if name not in Task.model_fields]:
            raise TypeError(f"A task has no option {unknown[0]!r}{nearest(unknown[0], Task.model_fields)}")
        new_task = task if isinstance(task, Task) else Task(text=task)
        fields: dict[str, Any] = {"plan": plan, "limits": limits, "on_escalation": on_escalation, **options}
        chosen = {name: value for name, value in fields.items() if value is not None}
        new_task = Task.model_validate({**dict(new_task), **chosen})
        if id is not None:
            start.check_id(id)
        if continues is not None:
            new_task = await continued(self.temporal, new_task, continues)
        handle = await start.start(
            self.temporal, new_task, id=id, queue=self.queue, again=again, key=key, voucher=self._voucher
        )
        return TaskHandle(self.temporal, handle.id, voucher=self._voucher)

    async def run(self, task: str | Task, **options: Any) -> Outcome:
        """Start a task, wait for its end, and return its Outcome; the options are those of `start`.

        Raises:
            TaskNotCompleted: the task failed, escalated, went over its budget or was cancelled.
            Problem: the task cannot be started.
        """
        return await (await self.start(task, **options)).result()

    async def task(self, id: str | None = None) -> TaskHandle:
        """The task with this id, else the only task whose id begins with `id`; without an id, the task started last.

        Raises:
            Problem: there is no such task, or more than one.
        """
        found = await tasks.find_task(self.temporal, id)
        return TaskHandle(self.temporal, found.id, voucher=self._voucher)

    async def list(
        self, *, status: TaskStatus | str | None = None, query: str | None = None, limit: int = 20
    ) -> Sequence[Listed]:
        """The newest tasks, newest first; with the status `waiting`, the tasks that wait longest, longest wait first.

        `query` is a list filter of Temporal.

        Raises:
            Problem: there is no such status, or the server rejects the query.
        """
        task_status = status_named(status)
        return (await list_tasks(self.temporal, status=task_status, query=query, limit=limit)).tasks

    async def waiting(self, *, limit: int = MAX_WAITING) -> Sequence[Waiting]:
        """The tasks that wait for a person, the longest wait first; without calls to approve, since no worker is asked.

        One list query finds the tasks; of more than 1,000 waiting tasks, it finds those that began last.
        """
        return (await list_waiting(self.temporal))[:limit]

    async def report(
        self,
        *,
        since: timedelta | datetime | None = DAY,
        query: str | None = None,
        limit: int = MAX_TASKS,
        cached: bool = True,
        progress: Progress | None = None,
    ) -> Report:
        """Report on the tasks that ran at or after `since`, a time or a duration before now; on all tasks with None.

        `query` is a list filter of Temporal. Of more than `limit` tasks, those that ended last are read. `progress` is
        called with the number of tasks read so far and the number of all tasks. With `cached` False, no cache is used.

        Raises:
            Problem: the server rejects the query.
        """
        from_when = datetime.now(UTC) - since if isinstance(since, timedelta) else since
        file = default_file() if cached else None
        period = Period(from_when, query)
        return await make_report(self.temporal, period, limit=limit, cache=file, progress=progress)

    async def incidents(self) -> Sequence[Incident]:
        """The causes for which tasks wait for a person, the cause with the most waiting tasks first.

        Raises:
            Problem: the namespace lacks the search attribute with the causes.
        """
        return await resolving.find_incidents(self.temporal)

    async def resolve(self, cause: str, *, by: str | None = None, note: str = "") -> Resolved:
        """Report that the cause of an incident is repaired, and return what became of the waiting tasks.

        One task is answered first, then all others; if the same fault comes back, the others are not answered.

        Raises:
            Problem: no task waits because of `cause`, no worker runs, or the resolution ended early.
        """
        who = people.login_name() if by is None else by
        running = await resolving.resolve(self.temporal, cause, self.queue, by=who, note=note, voucher=self._voucher)
        done = Resolved(cause=cause)
        async for now in resolving.follow_resolution(self.temporal, running):
            done = now
        return done
