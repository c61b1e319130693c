"""Circuit breakers in the boundary and the store: two workers, a service that is down and comes back."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from sqlalchemy import event
from structlog.testing import capture_logs
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import deadline
from activities.boundary.boundary import Boundary
from activities.boundary.breakers.rows import Breakers
from activities.boundary.breakers.states import Breaker, BreakerState
from activities.boundary.failpoints import FaultInjection
from activities.boundary.threads import Threads
from activities.boundary.tool_loop import ToolLoop
from activities.storage.store import open_store, twin
from activities.toolbox.registry import Registry
from activities.toolbox.resources import Resources
from replan import Busy, CircuitBreaker, NeedsPerson, Refused, Tool, Unreachable, tool
from tests.activities.bench import Bench, bench
from tests.gate import on_sqlite
from workflows.calls.header import CallHeader, Provided
from workflows.faults.fault import Applied, Code, Fault

PATIENT = CircuitBreaker(recovery=60)
AT_ONCE = CircuitBreaker(failures=1, calls=1, recovery=60)


class Service:
    """What the tools call: it counts, and fails while it is down."""

    def __init__(self) -> None:
        self.calls = self.now = 0
        self.together = list[int]()
        """By call, how many calls were under way when it came, itself included."""
        self.is_down = True
        self.seconds = 0.0
        self.answers = asyncio.Event()
        """Calls wait for it."""
        self.answers.set()
        self.answer: BaseException | None = None
        self.go_on = threading.Event()

    async def ask(self) -> "Said":
        """Answer, or fail."""
        self.calls += 1
        self.now += 1
        self.together.append(self.now)
        try:
            await asyncio.sleep(self.seconds)
            await self.answers.wait()
        finally:
            self.now -= 1
        if self.answer:
            raise self.answer
        if self.is_down:
            raise Unreachable("It is down.")
        return Said(word="here")


SERVICE = Service()
CALLS = itertools.count()
"""Calls of two workers have different keys."""


class Nothing(BaseModel):
    """No arguments."""


class Said(BaseModel):
    word: str


def asking(name: str, of: Any = tool.read, breaker: CircuitBreaker | None = AT_ONCE) -> Tool[..., Any]:
    """A tool of this name that asks the service."""

    async def ask(args: Nothing) -> Said:
        """Ask the service."""
        return await SERVICE.ask()

    ask.__name__ = name
    made: Tool[..., Any] = of(breaker=breaker)(ask)
    return made


ask, insist = asking("ask", breaker=PATIENT), asking("insist", breaker=None)
send, ask_once = asking("send", tool.unkeyed), asking("ask_once")


@pytest.fixture(autouse=True)
def service() -> Service:
    SERVICE.__init__()  # type: ignore[misc]  # the tools know this object
    return SERVICE


@pytest.fixture
async def workers(store_url: str) -> AsyncIterator[list[Bench]]:
    """Two workers with a store that they share."""
    async with AsyncExitStack() as stack:
        http, made = await stack.enter_async_context(deadline.client(trust_env=False)), list[Bench]()
        for _ in range(2):
            engine = await open_store(store_url)
            stack.push_async_callback(engine.dispose)
            made.append(Bench(engine, Boundary(Resources(engine, http, None)), CALLS))
        yield made


async def codes(worker: Bench, times: int, tool: Tool[..., Any] = ask, **more: Any) -> list[str]:
    return [(await worker.fails(tool, **more))[0].code.value for _ in range(times)]


async def state(worker: Bench, tool: Tool[..., Any] = ask) -> Breaker:
    return (await worker.boundary.breakers.all())[0].get(tool.__name__, Breaker())


async def recover(worker: Bench) -> None:
    """Let the recovery time of `ask` be over."""
    await worker.boundary.breakers.move("ask", lambda one, moment: one.model_copy(update={"until": moment.now}))


async def test_a_tool_whose_service_is_down_is_left_alone_by_all_workers(workers: list[Bench]) -> None:
    """After three failures no call is made: no effect, no attempt, and the fault says when to come back."""
    first, second = workers
    counted = await codes(first, 3)
    with pytest.raises(ApplicationError) as refused:
        await second.call(ask)
    fault = refused.value.details[0]

    assert (counted, SERVICE.calls) == (["unreachable"] * 3, 3)
    assert isinstance(fault, Fault)
    assert (fault.code, fault.applied, fault.taken, refused.value.non_retryable) == ("circuit_open", "none", 0, True)
    assert 50 < (fault.retry_after or 0) <= 60
    assert fault.reason.startswith("ask is left alone: 3 calls in a row failed (unreachable), the next call is in ")


@on_sqlite
async def test_one_bad_call_with_its_retries_does_not_open_it(workers: list[Bench]) -> None:
    """Other calls of the tool are still made."""
    await codes(workers[0], 6, run="the-same")
    SERVICE.is_down = False

    assert (await workers[1].call(ask)).result == {"word": "here"}
    assert (await state(workers[1])).is_clean


async def test_one_trial_at_a_time_and_then_more_at_once(workers: list[Bench]) -> None:
    """Of calls of two workers that come together, the others are turned away."""
    await codes(workers[0], 3)
    await recover(workers[0])
    SERVICE.is_down = False

    assert [await made(workers, 1), await made(workers, 2)] == [1, 2]
    assert SERVICE.together == [1, 1, 1, 1, 1, 2]  # three failures, a trial, two at once
    assert (await state(workers[0])).is_clean


async def made(workers: list[Bench], held: int) -> int:
    """How many of twenty calls are made, of which so many wait for the service until the others are over."""
    SERVICE.answers.clear()
    calls = [asyncio.create_task(gently(one)) for one in workers * 10]
    async with asyncio.timeout(30):
        while sum(not one.done() for one in calls) > held:
            await asyncio.sleep(0.01)
    SERVICE.answers.set()
    return sum(await asyncio.gather(*calls))


async def gently(worker: Bench) -> bool:
    """Whether a call was made."""
    try:
        return (await worker.call(ask)).result == {"word": "here"}
    except ApplicationError as error:
        assert error.details[0].code is Code.CIRCUIT_OPEN
        return False


@on_sqlite
async def test_a_failed_trial_opens_it_again_for_everybody(workers: list[Bench]) -> None:
    """One call per recovery time, over all workers."""
    await codes(workers[0], 3)
    await recover(workers[0])
    SERVICE.seconds = 1
    faults = await asyncio.gather(*(worker.fails(ask) for worker in workers for _ in range(10)))

    assert SERVICE.calls == 4
    assert sorted(fault.code.value for fault, _ in faults) == ["circuit_open"] * 19 + ["unreachable"]
    assert (await state(workers[0])).state is BreakerState.OPEN


@on_sqlite
async def test_a_call_does_not_wait_in_its_worker_for_a_slow_trial(workers: list[Bench]) -> None:
    """Its slot is needed for other tools. A trial that is cut off says nothing, and frees its lease at once."""
    await codes(workers[0], 3)
    await recover(workers[0])
    SERVICE.seconds, environment = 60, ActivityEnvironment()
    trial = asyncio.create_task(workers[0].call(ask, environment=environment))
    while SERVICE.calls < 4:
        await asyncio.sleep(0.01)
    fault, _ = await workers[1].fails(ask)
    made = SERVICE.calls
    environment.cancel()
    await asyncio.gather(trial, return_exceptions=True)
    freed = await state(workers[1])
    SERVICE.seconds, SERVICE.is_down = 0, False

    assert (fault.code, made) == (Code.CIRCUIT_OPEN, 4)
    assert "as many calls as it may get are under way" in fault.reason
    assert (freed.state, freed.places) == (BreakerState.HALF_OPEN, {})
    assert (await workers[1].call(ask)).result == {"word": "here"}


@on_sqlite
async def test_a_late_failure_of_before_the_outage_does_not_prolong_it(workers: list[Bench]) -> None:
    """A call that was under way when the breaker opened."""
    SERVICE.seconds = 0.5
    late = asyncio.create_task(workers[1].fails(ask))
    while not SERVICE.calls:
        await asyncio.sleep(0.01)
    SERVICE.seconds = 0
    await codes(workers[0], 3)
    opened = await state(workers[0])
    await late

    assert (opened.state, await state(workers[1])) == (BreakerState.OPEN, opened)


async def test_a_person_closes_it(workers: list[Bench]) -> None:
    """The other workers know it within a second. Times are those of a clock that they share: PostgreSQL's own."""
    await codes(workers[0], 1, ask_once)
    opened, now = await workers[1].boundary.breakers.all()
    change = await workers[1].boundary.breakers.reset("ask_once")
    SERVICE.is_down = False

    assert opened["ask_once"].since <= now < opened["ask_once"].until
    assert (change.before.state, change.after.state) == (BreakerState.OPEN, BreakerState.CLOSED)
    assert (await workers[1].call(ask_once)).result == {"word": "here"}
    await asyncio.sleep(1)
    assert (await workers[0].call(ask_once)).result == {"word": "here"}


@on_sqlite
async def test_a_healthy_tool_costs_no_query_for_each_call(workers: list[Bench]) -> None:
    worker, statements = workers[0], list[str]()
    SERVICE.is_down = False
    event.listen(worker.engine.sync_engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    began = asyncio.get_running_loop().time()
    for _ in range(200):
        await worker.call(ask)
    seconds = asyncio.get_running_loop().time() - began

    asked = [one for one in statements if "replan_breakers" in one]
    assert 1 <= len(asked) <= 1 + seconds
    assert not [one for one in statements if "INSERT" in one or "UPDATE" in one]


async def test_only_a_service_that_is_down_feeds_it(calls: Bench) -> None:
    """Whatever it answers it is there; and what says nothing about it changes nothing."""
    feeds: dict[str, list[BaseException]] = {
        "open": [TimeoutError(), httpx2.ConnectError("no"), Unreachable("no"), Unreachable("no", code="overloaded")],
        "closed": [Refused("no"), Busy("no"), NeedsPerson("no", code="unauthorized"), NeedsPerson("no")],
        "counted": [RuntimeError("a bug"), asyncio.CancelledError()],
    }
    breakers, three = calls.boundary.breakers, CircuitBreaker(failures=2, calls=1)
    ask_twice = tool.read(breaker=three)(ask.function)
    found: dict[str, list[str]] = {name: [] for name in feeds}
    for name, errors in feeds.items():
        for error in errors:
            await breakers.reset("ask")
            SERVICE.answer = None
            await codes(calls, 1, ask_twice)  # the first failure
            SERVICE.answer = error
            await codes(calls, 1, ask_twice)
            now = await state(calls)
            found[name].append("counted" if now.failures == 1 else now.state.value)

    assert found == {name: [name] * len(errors) for name, errors in feeds.items()}


async def test_a_call_without_a_free_thread_says_nothing_about_its_service(calls: Bench) -> None:
    """It is this worker that is busy. And a tool without a breaker is always called: its arguments name the service."""

    @tool.read(breaker=AT_ONCE)
    def queue_up(args: Nothing) -> Said:
        """Run in a thread."""
        return Said(word="here")

    calls.boundary.threads = Threads(size=1)
    calls.boundary.threads.size = 0
    fault, _ = await calls.fails(queue_up)
    await codes(calls, 5, insist)

    assert fault.code is Code.BUSY
    assert SERVICE.calls == 5
    assert (await calls.boundary.breakers.all())[0] == {}


async def test_a_call_that_is_not_made_is_not_claimed_and_a_result_by_hand_passes(calls: Bench) -> None:
    """A call that must not be repeated can be made later, since nothing was done."""
    SERVICE.answer = httpx2.ConnectError("refused")
    await codes(calls, 1, send)
    fault, _ = await calls.fails(send)
    claimed = await calls.rows("SELECT key FROM replan_ledger")
    provided = Provided(result={"word": "by hand"})
    passed = await calls.call(send, header=CallHeader(key="run/step", provided=provided))

    assert (fault.code, fault.applied, claimed) == (Code.CIRCUIT_OPEN, Applied.NONE, [])
    assert (passed.result, SERVICE.calls) == ({"word": "by hand"}, 1)
    assert (await state(calls, send)).state is BreakerState.OPEN


async def test_injected_faults_feed_it_like_real_ones(calls: Bench) -> None:
    """`--break ask=503` shows what a dead service would do."""
    kinds = Registry([ask])
    resources = calls.boundary._resources
    broken = Bench(calls.engine, Boundary(resources, FaultInjection(["ask=503"], {"ask": kinds["ask"].spec})))

    assert await codes(broken, 4) == ["server_error"] * 3 + ["circuit_open"]
    assert SERVICE.calls == 0


async def test_a_tool_that_blocks_its_event_loop_is_counted(tmp_path: Path) -> None:
    """The breaker lives on the worker's own loop, which no tool can block."""

    @tool.read(breaker=AT_ONCE, timeout=0.2)
    async def block(args: Nothing) -> Said:
        """Block the event loop of the tools."""
        SERVICE.go_on.wait(30)
        return Said(word="late")

    async with ToolLoop() as loop, bench(tmp_path) as calls:
        own = twin(calls.engine)
        calls.boundary = Boundary(calls.boundary._resources, loop=loop, breakers=Breakers(own))
        fault, _ = await calls.fails(block)
        found = await state(calls, block)
        SERVICE.go_on.set()
        await own.dispose()

    assert fault.code is Code.TIMEOUT
    assert (found.state, found.code) == (BreakerState.OPEN, Code.TIMEOUT)


@on_sqlite
async def test_without_a_store_calls_are_made(workers: list[Bench]) -> None:
    """A tool that needs the store says so itself."""
    await codes(workers[0], 1, ask_once)
    SERVICE.is_down = False
    async with workers[0].engine.begin() as connection:
        await connection.exec_driver_sql("DROP TABLE replan_breakers")
    await asyncio.sleep(1)
    with capture_logs() as lines:
        said = [(await workers[0].call(ask_once)).result for _ in range(3)]

    assert said == [{"word": "here"}] * 3
    assert [line["event"] for line in lines if line["event"].startswith("breaker")] == ["breakers_unknown"]


async def test_the_log_says_when_it_opens_tries_and_closes(calls: Bench) -> None:
    with capture_logs() as lines:
        await codes(calls, 4)
        await recover(calls)
        SERVICE.is_down = False
        await calls.call(ask)
        await calls.call(ask)
    told = [line for line in lines if line["event"].startswith("breaker")]

    assert [line["event"] for line in told] == ["breaker_opened", "breaker_tries", "breaker_closed"]
    assert told[0] == {
        **{"event": "breaker_opened", "log_level": "warning", "kind": "ask"},
        **{"failures": 3, "code": "unreachable", "trial_in": 60.0},
    }
