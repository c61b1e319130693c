"""Makes each call of an agent that changes something as a task of one step: recognised by the store of effects, too."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mcp import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import JsonValue
from temporalio.service import RPCError

from activities.effects.calls import CallRequest, Claim, UnresolvedCall
from activities.effects.errors import EffectError
from activities.effects.flow import Running, Work, new_key
from client.client import TaskHandle
from client.problem import Problem
from extras.gateway import results, tasks
from extras.gateway.attending import Person, RequestState, reply_of
from extras.gateway.effect_calls import AgentCall, AppliedCall, InterimAnswer, MakeCall
from extras.gateway.request import AgentRequest
from extras.gateway.results import Do
from extras.gateway.tasks import CannotStart, EndedWithoutResult, ServerAway, Tasks, Watched
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Applied, Code, Quadrant
from workflows.plans.catalogue import Effect, ToolSpec

LONGEST = 10.0 * 365 * 24 * 3600
"""Seconds that a task may take: it may wait for a person."""
FIRST = 1
"""The token of the first claim of a row."""


@dataclass(frozen=True)
class QueueKind:
    """A tool of the workers of a queue, which check the arguments themselves."""

    spec: ToolSpec

    def parse(self, args: dict[str, JsonValue]) -> dict[str, JsonValue]:
        return args


@dataclass
class TaskCall(AgentCall):
    """One call of an agent, which a worker makes."""

    tasks: Tasks = field(kw_only=True)
    _watched: Watched | None = None

    @classmethod
    def of(cls, tasks: Tasks) -> MakeCall:
        """What makes calls as tasks."""
        return partial(cls, tasks=tasks)

    def call_request(self, client: Running) -> CallRequest:
        return replace(super().call_request(client), timeout=LONGEST, can_look=True)

    def work(self, client: Running) -> Work:
        return replace(
            super().work(client),
            make=lambda claim: partial(self._start, claim),
            look=self._finder,
            proves_no_effect=_proves_no_effect,
            raises_unknown=True,
            is_earlier=lambda claim: claim.is_unproven,
            is_over=lambda error: True,
            name_of=_name_of,
        )

    def _id(self, key: str) -> str:
        return tasks.task_id_of(self.request, self.offer.name, key)

    async def _start(self, claim: Claim) -> AppliedCall:
        base, is_new = self._id(claim.key), claim.token == FIRST
        try:
            done = await self.tasks.run(base, self.offer.kind, self.args, self.request, is_new=is_new)
        except EndedWithoutResult as ended:
            if tasks.applied(ended.outcome) is Applied.APPLIED:
                return AppliedCall(None, results.fault_of(ended.outcome))
            raise
        return AppliedCall(done.result)

    def _finder(self, look: UnresolvedCall) -> Callable[[], Awaitable[AppliedCall | None]]:
        async def find() -> AppliedCall | None:
            done = await self.tasks.find(self._id(look.key))
            return None if done is None else AppliedCall(done.result)

        return find

    async def awaited(self, made: Coroutine[Any, Any, AppliedCall]) -> AppliedCall:
        """Wait for the end of the task; raises InterimAnswer if it waits for a person, or for a worker."""
        ending = asyncio.ensure_future(made)
        try:
            await asyncio.wait([ending], timeout=tasks.POLL)
            if not ending.done():
                await self._watch(ending)
            return await ending
        finally:
            if not ending.done():  # the task goes on, and its result belongs to the next equal call
                ending.cancel()
                await asyncio.wait([ending])

    async def _watch(self, ending: "asyncio.Future[AppliedCall]") -> None:
        """Follow what the task waits for until it ends, and ask the person at the client. Raises InterimAnswer."""
        asking = _Asking(self.request.attended, self.request.id)
        asked_at: float | None = None
        async with AsyncExitStack() as stack:
            while not ending.done():
                key = self.client.key or self.client.waits_for
                if self._watched is None and key:
                    with suppress(ServerAway, Problem):
                        self._watched = await stack.enter_async_context(self.tasks.watching(self._id(key)))
                        stack.push_async_callback(asking.end)
                waiting = self._watched.waiting if self._watched else None
                if waiting is not None:
                    await asking.begin(TaskHandle((await self.tasks.client()).temporal, waiting.task_id))
                    is_alone = not asking.is_under_way
                    asked_at = (asked_at or time.monotonic()) if is_alone else None
                    if asked_at is not None and time.monotonic() - asked_at >= self.request.session.patience:
                        is_structured = "outputSchema" in self.offer.tool
                        answer = self.tasks.pending(waiting.task_id, waiting.request, is_structured=is_structured)
                        raise InterimAnswer(answer)
                elif self._watched and (trouble := self._watched.trouble):
                    raise InterimAnswer(self._in_trouble(trouble, self._id(key)))
                await asyncio.wait([ending], timeout=min(tasks.POLL, self.request.session.patience + 0.05))

    def _in_trouble(self, why: str, task_id: str) -> dict[str, Any]:
        return results.fault(
            Do.WAIT,
            code=Code.UNREACHABLE.value,
            quadrant=Quadrant.TRANSIENT_INFRASTRUCTURAL.value,
            reason=why,
            more="The call is not lost: calling again goes on with it.",
            applied=Applied.UNKNOWN.value,
            wait=results.WAIT_SECONDS,
            task=task_id,
            is_structured="outputSchema" in self.offer.tool,
        )

    def refused(self, error: Exception, fault: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        cause, task_id = error.__cause__, self._id(error.key) if isinstance(error, EffectError) else ""
        match cause:
            case EndedWithoutResult(outcome=outcome):
                remedy = self.calls.store.remedy(error.key, "outcome") if isinstance(error, EffectError) else ""
                return fault(**{**results.fault_of(outcome), "more": remedy})
            case ServerAway():
                return self._in_trouble(str(cause), task_id)
        return super().refused(error, fault)

    def failed(self, error: Exception, fault: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        match error:
            case EndedWithoutResult(outcome=outcome):
                return fault(**results.fault_of(outcome))
            case ServerAway():
                return fault(Do.WAIT, code=Code.UNREACHABLE.value, reason=str(error), wait=results.WAIT_SECONDS)
            case CannotStart():
                return fault(Do.CHANGE, code=Code.REFUSED.value, reason=str(error))
            case Problem():
                return fault(Do.CHANGE, code=error.code, reason=f"{error.reason}: {error.remedy}")
            case RPCError():
                return fault(Do.WAIT, code=Code.UNREACHABLE.value, reason=str(error), wait=results.WAIT_SECONDS)
        return super().failed(error, fault)

    async def report(self) -> None:
        following = asyncio.create_task(self._follow())
        try:
            await super().report()
        finally:
            following.cancel()

    async def _follow(self) -> None:
        """Report the progress of the called server."""
        while self._watched is None:  # noqa: ASYNC110  # seldom
            await asyncio.sleep(tasks.POLL)
        key = self.client.key or self.client.waits_for
        if self.request.report is not None:
            handle = TaskHandle((await self.tasks.client()).temporal, self._id(key))
            await tasks.report_progress(handle, self.request.report)

    def standing(self) -> str:
        waiting = self._watched.waiting if self._watched else None
        return f"waits for a person: {self.tasks.link(waiting.task_id)}" if waiting else super().standing()


def _proves_no_effect(error: BaseException) -> bool:
    match error:
        case EndedWithoutResult(outcome=outcome):
            return tasks.is_void(outcome)
        case ServerAway(is_sure=is_sure):
            return is_sure
    return isinstance(error, CannotStart)


def _name_of(error: BaseException) -> str:
    return str(error) if isinstance(error, EndedWithoutResult) else type(error).__name__


@dataclass
class _Asking:
    """Asks the person at a client once for each request of a task."""

    person: Person | None
    call: str
    task: asyncio.Task[None] | None = None
    asked: set[str] = field(default_factory=set)

    @property
    def is_under_way(self) -> bool:
        """Whether the person at the client has a question now, so that the call does not wait for other people."""
        return self.task is not None and not self.task.done()

    async def begin(self, handle: TaskHandle) -> None:
        """Ask about the first open request of a task. Raises InterimAnswer if the question has to be the result."""
        if self.person is None or self.is_under_way:
            return
        question = None
        with suppress(RPCError, Problem):
            question = await tasks.question(handle)
        if question is None or question.request in self.asked:
            return
        self.asked.add(question.request)
        if not self.person.is_inline:
            raise InterimAnswer(question.as_result(self.call))

        async def ask(person: Person) -> None:
            if reply := reply_of(await person.ask(question), question.choices):
                await tasks.answer(handle, question.request, question.code, reply, person.name)

        self.task = asyncio.create_task(ask(self.person))

    async def end(self) -> None:
        """Ask no longer: the call has its answer."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])


async def resume(
    tasks_: Tasks, asked: RequestState, said: Mapping[str, Any], request: AgentRequest, *, is_structured: bool
) -> dict[str, Any] | None:
    """Pass what a person has said at the client on to a task of the session, and wait for it.

    Returns the answer to the call; None if the task was completed, so that the store has its result. Raises MCPError
    if the task belongs to another session.
    """
    if not asked.about.startswith(request.session.prefix):
        raise MCPError(INVALID_PARAMS, "This session has not asked for this input")
    handle, person = TaskHandle((await tasks_.client()).temporal, asked.about), request.attended
    reply = reply_of(said, tasks.SIMPLE)
    is_accepted = False
    if reply and person:
        is_accepted = await tasks.answer(handle, asked.request, asked.code, reply, person.name)
    ending, until = asyncio.ensure_future(tasks.outcome_of(handle)), time.monotonic() + request.session.patience
    try:
        while time.monotonic() < until:
            await asyncio.wait([ending], timeout=tasks.POLL)
            if ending.done():
                outcome = ending.result()
                is_done = outcome.status is TaskStatus.COMPLETED
                return None if is_done else results.of_outcome(outcome, is_structured=is_structured)
            if is_accepted and (question := await tasks.question(handle)) and question.request != asked.request:
                return question.as_result(asked.call)
        open_ones = [one for one in await handle.requests() if one.is_open]
        if open_ones:
            return tasks_.pending(asked.about, open_ones[0], is_structured=is_structured)
        return tasks_.under_way(asked.about, is_structured=is_structured)
    finally:
        ending.cancel()


class ReadCall(TaskCall):
    """A call that changes nothing, and is made by a worker, too: it is not recognised."""

    async def make(self) -> AppliedCall:
        self.client.key = new_key(self.offer.name)
        return await self.awaited(self._start(Claim(self.client.key, FIRST, 0)))


class StartCall(TaskCall):
    """The start of a task that is planned: its result is the id of the task, which is not waited for."""

    async def _start(self, claim: Claim) -> AppliedCall:
        id, by = self._id(claim.key), tasks.starter(self.request)
        key = id.replace(":", "/")
        await self.tasks.start(id, Task(text=str(self.args["task"]), on_escalation="wait", effect_key=key, by=by))
        return self._started(id)

    def _finder(self, look: UnresolvedCall) -> Callable[[], Awaitable[AppliedCall | None]]:
        async def find() -> AppliedCall | None:
            id = self._id(look.key)
            return self._started(id) if await self.tasks.status(id) else None

        return find

    def _started(self, id: str) -> AppliedCall:
        return AppliedCall({"id": id, "status": "running"})


STARTED = QueueKind(ToolSpec(kind="replan_start_task", effect=Effect.UNKEYED))
"""The kind under which the starts of tasks are recorded."""
