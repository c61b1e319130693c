"""The tasks of a gateway: each call that has an effect is a task of one step, which a worker makes."""

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from pydantic import JsonValue
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from client import sessions
from client.client import Client, TaskHandle, TaskNotCompleted
from client.connection import connected
from client.events import Working
from client.listing import Waiting
from client.problem import Problem
from client.tasks import existing
from client.text import printable
from client.workers import is_served, serving
from extras.gateway import results
from extras.gateway.attending import Elicitation, ElicitationReply
from extras.gateway.request import AgentRequest, Report
from extras.gateway.results import Do
from extras.gateway.wire import TaskServer
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.commands import WORKER, command
from workflows.faults.fault import Applied
from workflows.json_values import canonical, digest
from workflows.limits.budget import Limits
from workflows.people.card import Fact, value_line
from workflows.people.requests import CHOICES, MAX_NAME, Choice, HumanRequest, RequestKind
from workflows.plans.proposal import Step
from workflows.text import shorten

MAX_TEXT = 300
"""The most characters of a task's text, which shows the call."""
MAX_SHOWN = 4_000
"""The most characters of one fact in a question."""
POLL = 1.0
"""Seconds between two queries for the tasks that wait for a person."""
UNSERVED_AFTER, LATER = 3.0, 6
"""Seconds until the queue is asked for a worker, and by how much that time grows each time."""
START_WITHIN = 5.0
"""Seconds for which a call waits for a Temporal server that does not answer."""
_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.UNKNOWN)

log = structlog.get_logger("replan.gateway")


class EndedWithoutResult(Exception):
    """The task of a call has ended, and did not do what the call asks for; `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"The task {outcome.task_id} is {outcome.status}: {outcome.reason or 'without a reason'}")
        self.outcome = outcome


class Done(NamedTuple):
    """A call was made; its result."""

    result: JsonValue


class ServerAway(Exception):
    """The Temporal server does not answer: nobody knows whether the task was started, unless `is_sure` that not."""

    def __init__(self, reason: str, *, is_sure: bool) -> None:
        super().__init__(reason)
        self.is_sure = is_sure


class CannotStart(Exception):
    """The task of a call was not started, and will not be: the message says why."""


@dataclass
class Tasks:
    """The tasks of one gateway."""

    server: TaskServer
    tools: Sequence[str]
    """The tools files with which a worker has the tools."""
    _connecting: "asyncio.Future[Client] | None" = None
    _watch: "_Watch | None" = None

    async def client(self) -> Client:
        """The client of the task queue. Raises ServerAway if no server answers, Problem for wrong settings."""
        if self._connecting is None or (self._connecting.done() and self._failed(self._connecting)):
            self._connecting = asyncio.ensure_future(self._connect())
        try:
            return await asyncio.shield(self._connecting)
        except Problem as problem:
            if problem.code != "unreachable":
                raise
            raise ServerAway(f"{problem.reason}: {problem.remedy}", is_sure=True) from problem

    @staticmethod
    def _failed(connecting: "asyncio.Future[Client]") -> bool:
        return connecting.cancelled() or connecting.exception() is not None

    async def _connect(self) -> Client:
        server = self.server
        return Client(await connected(server.address, server.namespace, server.profile), queue=server.queue)

    @property
    def start_worker(self) -> str:
        """The command that starts a worker for the calls."""
        args = ["--queue", self.server.queue, *(word for file in self.tools for word in ("--tools", file))]
        args += ["--address", self.server.address] if self.server.address else []
        args += ["--namespace", self.server.namespace] if self.server.namespace else []
        return f"{WORKER} {shlex.join(args)}"

    def link(self, task_id: str) -> str:
        """The address, or the command, with which a person answers for a task."""
        if self.server.page:
            return f"{self.server.page}/ui/tasks/{task_id}"
        return f"`{command('answer', task_id)}`"

    def pending(self, task_id: str, asked: HumanRequest, *, is_structured: bool) -> dict[str, Any]:
        """The answer of a task that waits for a person."""
        is_before = asked.kind is RequestKind.APPROVAL
        applied = Applied.NONE if is_before else Applied.UNKNOWN
        link = self.link(task_id)
        return results.pending(task_id, asked.reason, link, applied=applied, is_structured=is_structured)

    def under_way(self, task_id: str, *, is_structured: bool) -> dict[str, Any]:
        """The answer of a task that has not ended."""
        reason, applied = f"The call {task_id} is under way", Applied.UNKNOWN.value
        return results.fault(Do.WAIT, code="open", reason=reason, applied=applied, wait=5, is_structured=is_structured)

    async def run(
        self, base: str, kind: str, args: Mapping[str, JsonValue], request: AgentRequest, *, is_new: bool
    ) -> Done:
        """Start the task of a call, or find it, and wait for the result of its step. `is_new`: there is none yet.

        `base` is the id of the task; a call that was made in vain has one with a number more.

        Raises:
            EndedWithoutResult: the task has ended without a result.
            ServerAway: no server answers.
            CannotStart: the task cannot be started.
        """
        handle, id = (None, base) if is_new else await self._newest(base)
        if handle is None:
            handle = await self.start(id, _task(kind, args, base, request))
        return _result(await outcome_of(handle))

    async def find(self, base: str) -> Done | None:
        """The result of the task of an earlier call, for which it waits; None if no task may have had an effect.

        Raises EndedWithoutResult for one that has ended without a result, ServerAway.
        """
        handle, _ = await self._newest(base)
        return None if handle is None else _result(await outcome_of(handle))

    async def start(self, id: str, task: Task) -> TaskHandle:
        """Start a task, or find the one with this id. Raises ServerAway, CannotStart."""
        try:
            client, until = await self.client(), time.monotonic() + START_WITHIN
        except Problem as problem:
            raise CannotStart(f"{problem.reason}: {problem.remedy}") from problem
        while True:
            try:
                return await client.start(task, id=id, key=task.effect_key or id)
            except Problem as problem:
                raise CannotStart(f"{problem.reason}: {problem.remedy}") from problem
            except RPCError as error:
                if error.status not in (*_AWAY, RPCStatusCode.RESOURCE_EXHAUSTED):
                    raise CannotStart(f"The Temporal server refuses it: {error}") from error
                if time.monotonic() > until:
                    raise self._away(error) from error
            await asyncio.sleep(POLL)

    async def _newest(self, base: str) -> tuple[TaskHandle | None, str]:
        """The task of a call that may have had an effect, if there is one, else an id that no task has."""
        client, number = await self.client(), 1
        while True:
            id = base if number == 1 else f"{base}-{number}"
            status, handle = await self.status(id), TaskHandle(client.temporal, id)
            if status is None:
                return None, id
            if status is WorkflowExecutionStatus.RUNNING or not is_void(await outcome_of(handle)):
                return handle, id
            number += 1

    async def status(self, id: str) -> WorkflowExecutionStatus | None:
        """The status of a task; None if there is none with this id. Raises ServerAway."""
        client = await self.client()
        try:
            description = await existing(sessions.handle_of(client.temporal, id).describe())
        except RPCError as error:
            if error.status not in _AWAY:
                raise
            raise self._away(error) from error
        return description.status if description else None

    def _away(self, error: RPCError) -> ServerAway:
        where = f" at {self.server.address}" if self.server.address else ""
        return ServerAway(f"The Temporal server{where} does not answer ({error.status.name})", is_sure=False)

    @asynccontextmanager
    async def watching(self, task_id: str) -> AsyncIterator["Watched"]:
        """Follow what a task waits for until the block ends. Raises ServerAway, Problem."""
        if self._watch is None:
            self._watch = _Watch(await self.client(), self)
        async with self._watch.watching(task_id) as watched:
            yield watched


def task_id_of(request: AgentRequest, name: str, key: str) -> str:
    """The id of the task of a call, whose row in the store has this key; `name` is that of the tool."""
    # What a client writes in its key can be no id.
    tail = key if key.startswith(f"{name}-") else f"{name}-{digest(key)[:16]}"
    return f"{request.session.prefix}{tail}"


def starter(request: AgentRequest) -> str:
    """The agent's session as the starter of a task, in words for a person who is asked about the task."""
    return f"an agent, session {request.session.name}"[:MAX_NAME]


def _task(kind: str, args: Mapping[str, JsonValue], base: str, request: AgentRequest) -> Task:
    shown = " ".join(f"{kind} {canonical(dict(args))}".split())
    return Task(
        text=shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 1]}…",
        plan=(Step(id="call", kind=kind, args=dict(args)),),
        plan_only=True,
        limits=Limits(replans=0),
        on_escalation="wait",
        approve="declared",
        by=starter(request),
        effect_key=base.replace(":", "/"),
    )


async def outcome_of(handle: TaskHandle) -> Outcome:
    """Wait for the Outcome of a task, for any length of time while the server is away."""
    while True:
        try:
            return await handle.result()
        except TaskNotCompleted as ended:
            return ended.outcome
        except RPCError as error:
            if error.status not in _AWAY:
                raise
            await asyncio.sleep(POLL)


def _result(outcome: Outcome) -> Done:
    """The result of the step of a task that has ended. Raises EndedWithoutResult if there is none."""
    step = outcome.steps[-1] if outcome.steps else None
    if outcome.status is not TaskStatus.COMPLETED or step is None or step.status is not StepStatus.COMPLETED:
        raise EndedWithoutResult(outcome)
    if step.result_omitted:
        return Done(f"Done. The result of {step.result_bytes} bytes is too large to be shown here.")
    return Done(step.result)


def is_void(outcome: Outcome) -> bool:
    """Whether a task certainly changed nothing."""
    return applied(outcome) is Applied.NONE


def applied(outcome: Outcome) -> Applied:
    """What is known of the effect of a task that has ended."""
    if any(step.status is StepStatus.COMPLETED for step in outcome.steps):
        return Applied.APPLIED
    return outcome.faults[-1].applied if outcome.faults else Applied.NONE


async def report_progress(handle: TaskHandle, report: Report) -> None:
    """Report the progress of the called server to the agent, until the task ends."""
    with suppress(RPCError, Problem):
        async for event in handle.follow():
            if isinstance(event, Working):
                await report(event.done, event.total, event.words)


@dataclass
class Watched:
    """A task for which a call waits."""

    watch: "_Watch"
    waiting: Waiting | None = None
    """The request with which it waits for a person; None if it waits for nobody."""

    @property
    def trouble(self) -> str:
        """Why nothing is done, and what to do; empty if something is."""
        return self.watch.away or self.watch.unserved


@dataclass
class _Watch:
    """Finds out which tasks of the calls under way wait for a person: one query a second for all of them."""

    client: Client
    tasks: Tasks
    watched: dict[str, list[Watched]] = field(default_factory=dict)
    polling: asyncio.Task[None] | None = None
    away: str = ""
    """That the server does not answer, if it has not for START_WITHIN seconds."""
    unserved: str = ""
    """That no worker serves the queue, if that is so."""

    @asynccontextmanager
    async def watching(self, task_id: str) -> AsyncIterator[Watched]:
        one = Watched(self)
        self.watched.setdefault(task_id, []).append(one)
        if self.polling is None or self.polling.done():
            self.away = self.unserved = ""
            self.polling = asyncio.create_task(self._poll())
        try:
            yield one
        finally:
            self.watched[task_id].remove(one)
            if not self.watched[task_id]:
                del self.watched[task_id]

    async def _poll(self) -> None:
        looking, answered = asyncio.create_task(self._look_for_workers()), time.monotonic()
        try:
            while self.watched:
                try:
                    waiting = {one.task_id: one for one in await self.client.waiting()}
                except (RPCError, Problem) as error:
                    if time.monotonic() - answered > START_WITHIN:
                        self.away = f"The Temporal server does not answer ({error})"
                else:
                    self.away, answered = "", time.monotonic()
                    for task_id, watched in self.watched.items():
                        for one in watched:
                            one.waiting = waiting.get(task_id)
                await asyncio.sleep(POLL)
        finally:
            looking.cancel()

    async def _look_for_workers(self) -> None:
        """Ask the queue for a worker, seldom: each question is a short workflow."""
        wait = UNSERVED_AFTER - POLL
        while True:
            await asyncio.sleep(wait)
            with suppress(RPCError, Problem):
                queue, temporal = self.client.queue, self.client.temporal
                is_there = await serving(temporal, queue) and await is_served(temporal, queue)
                reason = f"No worker serves the queue {queue}: start one with `{self.tasks.start_worker}`"
                self.unserved = "" if is_there else reason
                wait *= LATER if is_there else 1


# Questions for the person at a client.


async def question(handle: TaskHandle) -> Elicitation | None:
    """The question for a task's first open request; None if no form can answer it."""
    requests = await handle.requests()
    return question_of(handle.id, requests[0], await handle.facts(requests[0])) if requests else None


def question_of(task_id: str, request: HumanRequest, known: Sequence[Fact]) -> Elicitation | None:
    """The question for a request with the facts `known`; None if no form can answer it."""
    choices = [choice for choice in request.choices if _is_simple(choice)]
    call = request.call
    if not choices or (call is None and any(CHOICES[choice].needs_code for choice in choices)):
        return None
    lines = [*map(_fact_line, known), *(f"{choice.value}: {CHOICES[choice].sentence}" for choice in choices)]
    message = "\n".join(map(printable, lines))
    names = [choice.value for choice in choices]
    return Elicitation(task_id, request.id, call.code if call else "", message, names, request.options)


def _fact_line(fact: Fact) -> str:
    origin = f" ({fact.origin_text})" if fact.origin else ""
    return f"{fact.about}: {shorten(value_line(fact.text), MAX_SHOWN)}{origin}"


def _is_simple(choice: Choice) -> bool:
    """Whether an answer with this choice needs at most a text beside the choice."""
    return choice is not Choice.APPROVE_ALL and (choice is Choice.REPLY or not CHOICES[choice].needs_option)


SIMPLE = [choice.value for choice in Choice if _is_simple(choice)]
"""The choices that a form can give."""


async def answer(handle: TaskHandle, request: str, code: str, reply: ElicitationReply, by: str) -> bool:
    """Pass a person's reply on to a request of a task; returns whether it was accepted.

    `code` is the code of the call in the question, empty without a call.
    """
    choice, values = Choice(reply.choice), dict[str, JsonValue]()
    if code and CHOICES[choice].needs_code:
        values["call"] = code
    name = next((option.name for option in CHOICES[choice].options if option.type == "text"), None)
    if name and reply.words:
        values[name] = reply.words
    try:
        await handle.answer(choice, request=request, by=by, **values)
    except (Problem, RPCError) as error:  # another person was faster, or the task waits for somebody else
        log.warning("gateway_answer_refused", task=handle.id, reason=str(error))
        return False
    return True
