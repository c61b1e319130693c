"""Tasks whose calls wait for their turn at a service that is down, or that limits its callers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import httpx2
import pytest
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from client.follow import View
from client.undo import undo
from replan import Busy, CircuitBreaker, Key, Refused, Unreachable, tool
from tests.activities.payments import payments
from tests.harness import DONE, Stage, outcome, plan, step
from tests.workflows.props import Said, Stages, Word, played
from tests.workflows.test_approvals import reset_to
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.calls.admission import TURN

QUICK = CircuitBreaker(failures=1, calls=1, recovery=0.5)
SLOW = CircuitBreaker(failures=1, calls=1, recovery=300)
TURNS_TAKE = 60.0
"""Seconds within which calls are made whose turn has come, on a busy machine; SLOW alone would take longer."""


class Service:
    """What the tools call: it fails until it is told that it is back."""

    def __init__(self) -> None:
        self.error: BaseException | None = Unreachable("It is down.")
        self.calls = 0

    async def ask(self) -> Said:
        """Answer, or fail."""
        self.calls += 1
        if self.error:
            raise self.error
        return Said(said="here")


@asynccontextmanager
async def asking(stages: Stages, breaker: CircuitBreaker) -> AsyncIterator[tuple[Stage, Service]]:
    """A worker with tools that ask a service."""
    service = Service()

    @tool.read(breaker=breaker)
    async def ask(args: Word) -> Said:
        """Ask the service."""
        return await service.ask()

    @tool.idempotent(breaker=breaker)
    async def take_back(args: Word) -> Said:
        """Undo at the service."""
        return await service.ask()

    put = played("put", "here", declare=tool.idempotent(undo=take_back, breaker=None))
    tools = [ask, take_back, put, played("refuse", Refused("No."), declare=tool.read(observe=ask, breaker=None))]
    async with stages(tools, [plan(step("a", "ask")), DONE]) as stage:
        yield stage, service


async def waits(stage: Stage, number: int, service: str = "ask") -> None:
    """Wait until so many calls wait for their turn."""
    assert stage.breakers
    async with asyncio.timeout(TURNS_TAKE):
        while (await stage.breakers.waiting()).get(service, 0) != number:
            await asyncio.sleep(0.05)


async def begin(stage: Stage, number: int) -> list[WorkflowHandle[AgentWorkflow, Outcome]]:
    """Start so many tasks, whose calls are turned away."""
    started = [await stage.start() for _ in range(number)]
    await waits(stage, number)
    return started


async def is_back(stage: Stage, service: Service, name: str = "ask") -> None:
    """Bring the service back, and let the next call be made."""
    assert stage.breakers
    service.error = None
    await stage.breakers.reset(name)


async def within(work: list[WorkflowHandle[AgentWorkflow, Outcome]]) -> list[Outcome]:
    """How tasks ended that end soon."""
    async with asyncio.timeout(TURNS_TAKE):
        return [await outcome(one) for one in work]


async def test_all_are_told_when_the_service_is_back(stages: Stages) -> None:
    """One after the other, and each waits on one timer, whatever the number of trials before."""
    async with asking(stages, QUICK) as (stage, service):
        began = time.monotonic()
        started = await begin(stage, 6)
        await asyncio.sleep(2)
        trials, most = service.calls, 6 + (time.monotonic() - began) / QUICK.recovery
        service.error = None
        ended = await within(started)
        histories = [await one.fetch_history() for one in started]

    assert {one.status for one in ended} == {TaskStatus.COMPLETED}
    assert max(one.steps[0].attempts for one in ended) <= 2
    assert 2 <= trials <= most  # the first of each task, then one for each recovery time
    signals = [_events(one.events, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED) for one in histories]
    timers = [_events(one.events, EventType.EVENT_TYPE_TIMER_STARTED) for one in histories]
    assert min(signals) >= 1
    assert sum(timers) <= 6 * 2 + trials


@asynccontextmanager
async def open_sqlite(path: Path) -> AsyncIterator[AsyncEngine]:
    """Another connection to the store."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    yield engine
    await engine.dispose()


def _events(events: object, kind: "EventType.ValueType") -> int:
    return sum(one.event_type == kind for one in events)  # type: ignore[attr-defined]  # a list of protobuf messages


async def test_a_service_that_limits_its_callers_fails_no_task(stages: Stages) -> None:
    """However long it does, for it names no time; its trials are no attempts."""
    async with asking(stages, CircuitBreaker(recovery=0.5)) as (stage, service):
        service.error = Busy("Too many.", code="rate_limited")
        started = [await stage.start() for _ in range(4)]
        await waits(stage, 4)
        await asyncio.sleep(4)
        service.error = None
        ended = await within(started)

    assert {one.status for one in ended} == {TaskStatus.COMPLETED}
    assert max(one.steps[0].attempts for one in ended) <= 3


class Posted(BaseModel):
    url: str


class Receipt(BaseModel):
    id: int


BRISK = CircuitBreaker(recovery=0.5)
"""The usual breaker, which failures of one call do not open, with short pauses."""


async def post(url: str, http: httpx2.AsyncClient, key: str) -> Receipt:
    """Post to a service."""
    reply = await http.post(url, json={}, headers={"Idempotency-Key": key})
    return Receipt.model_validate(reply.raise_for_status().json())


@tool.keyed(breaker=BRISK)
async def charge(args: Posted, key: Key, http: httpx2.AsyncClient) -> Receipt:
    """Charge a card."""
    return await post(args.url, http, key)


@tool.read(breaker=BRISK)
async def quote(args: Posted, http: httpx2.AsyncClient) -> Receipt:
    """Ask for a price."""
    return await post(args.url, http, "none")


@pytest.mark.parametrize(
    ("kind", "on_escalation"), [("charge", "end"), pytest.param("quote", "wait", marks=pytest.mark.full)]
)
async def test_a_call_that_alone_meets_an_outage_survives_it(
    stages: Stages, kind: str, on_escalation: Literal["end", "wait"]
) -> None:
    """As those do that come later: it waits from its second failure on, and nobody is asked."""
    with payments() as service:
        service.plan = ["503"] * 7
        step_of_kind = step("a", kind, url=service.url)
        async with stages([charge, quote], [plan(step_of_kind), DONE]) as stage:
            [ended] = await within([await stage.start(Task(text="a task", on_escalation=on_escalation))])

    assert (ended.status, len(service.charges), ended.requests) == (TaskStatus.COMPLETED, 1, ())
    assert [fault.decision for fault in ended.faults] == ["retry", *["wait"] * 6]
    assert ended.steps[0].attempts == 3


async def test_a_call_that_fails_while_others_succeed_ends(stages: Stages) -> None:
    """Its own arguments may be the reason: it neither waits for a day nor holds the others up."""

    @tool.read(breaker=BRISK)
    async def say(args: Word) -> Said:
        """Say it, unless the service falls over it."""
        if args.word == "bad":
            raise Unreachable("It takes no connection.")
        return Said(said=args.word)

    def saying(word: str) -> Task:
        return Task(text="say", plan=(step("a", "say", word=word),), plan_only=True)

    async with stages([say], [DONE]) as stage:
        bad, others = await stage.start(saying("bad")), list[Outcome]()
        async with asyncio.timeout(TURNS_TAKE):
            while (await bad.describe()).status is WorkflowExecutionStatus.RUNNING:
                others += await within([await stage.start(saying("good"))])
        ended = await outcome(bad)

    assert (ended.faults[-1].code, ended.faults[-1].decision, ended.steps[0].attempts) == ("unreachable", "replan", 4)
    assert {(one.status, one.steps[0].attempts) for one in others} == {(TaskStatus.COMPLETED, 1)}


async def test_a_declared_limit_holds_for_all_tasks(stages: Stages) -> None:
    """Nobody fails, no second has more calls, and the wait uses no attempt."""
    begun, times = time.time(), list[float]()

    @tool.read(limit="4/s")
    async def ask(args: Word) -> Said:
        """Ask a service that must not be asked more often."""
        times.append(time.time())
        return Said(said="here")

    async with stages([ask], [plan(step("a", "ask")), DONE]) as stage:
        ended = await within([await stage.start() for _ in range(14)])

    assert {one.status for one in ended} == {TaskStatus.COMPLETED}
    assert {one.steps[0].attempts for one in ended} == {1}
    # Let through at most 4 times in a second, and called later by as much as the machine takes.
    assert max(times) - begun >= 3


async def test_a_cancel_ends_the_wait_and_holds_up_nobody(stages: Stages) -> None:
    """The turn of a cancelled task's call goes to the next one."""
    async with asking(stages, SLOW) as (stage, service):
        started = await begin(stage, 3)
        await started[0].cancel()
        [cancelled] = await within(started[:1])
        await is_back(stage, service)
        ended = await within(started[1:])

    assert cancelled.status is TaskStatus.CANCELLED
    assert {one.status for one in ended} == {TaskStatus.COMPLETED}


async def test_a_signal_that_is_lost_is_made_good(stages: Stages) -> None:
    """By another call of the same turn; here the worker that was to tell has died."""
    async with asking(stages, SLOW) as (stage, service):
        started = await begin(stage, 1)
        assert stage.breakers
        service.error = None
        namespace, stage.breakers.namespace = stage.breakers.namespace, "nobody"
        await stage.breakers.reset("ask")
        await asyncio.sleep(0.3)
        stage.breakers.namespace = namespace
        [ended] = await within(started)

    assert ended.status is TaskStatus.COMPLETED


@pytest.mark.full
async def test_a_store_that_is_away_while_calls_wait_loses_none(stages: Stages) -> None:
    """Nobody can be told meanwhile; when it is back, all have their places."""
    async with asking(stages, QUICK) as (stage, service), open_sqlite(stages.folder / "store.db") as store:
        started = await begin(stage, 3)
        async with store.begin() as away:
            await away.exec_driver_sql("ALTER TABLE replan_tickets RENAME TO away")
        service.error = None
        await asyncio.sleep(2)
        early = [(await one.describe()).status for one in started]
        async with store.begin() as back:
            await back.exec_driver_sql("ALTER TABLE away RENAME TO replan_tickets")
        ended = await within(started)

    assert early == [WorkflowExecutionStatus.RUNNING] * 3
    assert {one.status for one in ended} == {TaskStatus.COMPLETED}


@pytest.mark.full
async def test_a_reset_task_is_told_of_its_turn(stages: Stages) -> None:
    """Its new run has the same id, and its call the same place in the queue."""
    async with asking(stages, SLOW) as (stage, service):
        [started] = await begin(stage, 1)
        await reset_to(stages.client, started, event=4)
        await asyncio.sleep(1)
        await waits(stage, 1)
        await is_back(stage, service)
        latest = stages.client.get_workflow_handle_for(AgentWorkflow.run, started.id)
        [ended] = await within([latest])

    assert ended.status is TaskStatus.COMPLETED


async def test_a_turn_that_nobody_waits_for_changes_nothing(stages: Stages) -> None:
    """Any program may send the Signal: the call is made once more at the most, and is turned away."""
    async with asking(stages, SLOW) as (stage, service):
        [started] = await begin(stage, 1)
        key = f"{(await started.describe()).run_id}/a"
        for sent in ({"key": "another"}, {"key": key}, {"key": key}, {"no": "key"}):
            await started.signal(TURN, sent)
        await asyncio.sleep(1)
        calls = service.calls
        await is_back(stage, service)
        [ended] = await within([started])

    assert calls == 1
    assert ended.status is TaskStatus.COMPLETED


async def test_a_rollback_waits_for_its_turn(stages: Stages) -> None:
    """The workflow that undoes a task is told like a task."""
    async with asking(stages, SLOW) as (stage, service):
        handle = await stage.start(Task(text="put", plan=(step("p", "put"),), plan_only=True))
        done = await outcome(handle)
        undoing = asyncio.create_task(undo(stages.client, handle, View(), is_attended=False))
        async with asyncio.timeout(TURNS_TAKE):
            while not service.calls:
                await asyncio.sleep(0.05)
        await waits(stage, 1, "take_back")
        await is_back(stage, service, "take_back")
        async with asyncio.timeout(TURNS_TAKE):
            undone = await undoing

    assert done.status is TaskStatus.COMPLETED
    assert [one.done for one in undone.outcome.undo] == [True]


async def test_an_observation_waits_for_its_turn(stages: Stages) -> None:
    """So that the new plan is made with a fresh look, and not with a stale one."""
    async with asking(stages, SLOW) as (stage, service):
        away = await begin(stage, 1)
        looking = await stage.start(Task(text="look", plan=(step("r", "refuse"),)))
        await waits(stage, 2)
        await is_back(stage, service)
        await within(away)
        async with asyncio.timeout(TURNS_TAKE):
            while not (seen := (await looking.query(AgentWorkflow.progress)).observations):
                await asyncio.sleep(0.1)
        await within([looking])

    assert [(one.kind, one.stale) for one in seen] == [("ask", False)]
