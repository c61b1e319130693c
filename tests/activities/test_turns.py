"""Calls that wait for their turn at a service, in the store: their order, and what becomes of those that are lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import update

from activities import deadline
from activities.boundary.boundary import Boundary
from activities.boundary.breakers import states
from activities.boundary.breakers.states import Breaker, BreakerState
from activities.boundary.breakers.tickets import TICKETS
from activities.storage.store import open_store
from activities.toolbox.registry import Registry
from activities.toolbox.resources import Resources
from replan import Busy, CircuitBreaker, Tool, Unreachable, tool
from tests.activities.bench import Bench
from tests.gate import on_sqlite
from workflows.account.metrics import PATIENCE_USED, WAITING_CALLS, Sample
from workflows.calls.header import CallHeader
from workflows.faults import retries
from workflows.faults.fault import Applied, Fault

AT_ONCE = CircuitBreaker(failures=1, calls=1, recovery=60)
ANSWERS: dict[str, BaseException | None] = {}
"""By service, what it answers; None for a result."""


class Nothing(BaseModel):
    """No arguments."""


class Said(BaseModel):
    word: str = "here"


def calling(service: str, kind: Callable[..., Any], **options: Any) -> Tool[..., Any]:
    """A tool that asks this service, or tells it something."""

    async def call(args: Nothing) -> Said:
        """Answer, or fail."""
        if error := ANSWERS.get(service):
            raise error
        return Said()

    call.__name__ = service
    made: Tool[..., Any] = kind(**options)(call)
    return made


ask, send = calling("ask", tool.read, breaker=AT_ONCE), calling("send", tool.unkeyed, breaker=AT_ONCE)
probe, tell = calling("probe", tool.read), calling("tell", tool.unkeyed)
"""Their breakers open after failures of two calls."""


@pytest.fixture
async def workers(store_url: str) -> AsyncIterator[list[Bench]]:
    """Two workers with a store that they share, which tell workflows of turns."""
    ANSWERS.clear()
    async with AsyncExitStack() as stack:
        http, made = await stack.enter_async_context(deadline.client(trust_env=False)), list[Bench]()
        for _ in range(2):
            engine = await open_store(store_url)
            stack.push_async_callback(engine.dispose)
            made.append(Bench(engine, Boundary(Resources(engine, http, None))))
            made[-1].boundary.breakers.namespace = "default"
        yield made


def header(key: str, started: float = 0.0, attempts: int = 4) -> CallHeader:
    """What the workflow of a task that began then tells of its call."""
    return CallHeader(key=key, started=started, attempts=attempts)


async def fault(worker: Bench, key: str, started: float = 0.0, attempts: int = 4) -> Fault:
    """How a call of `ask` failed."""
    return (await worker.fails(ask, header=header(key, started, attempts)))[0]


async def succeeds(worker: Bench, key: str) -> None:
    """Make a call of `ask` that is let through."""
    ANSWERS.clear()
    assert (await worker.call(ask, header=header(key))).result == {"word": "here"}


async def called(worker: Bench, service: str = "ask") -> list[str]:
    """The keys of the calls whose turn has come now."""
    return [one.key for one in (await worker.boundary.breakers.call_next(service)).called]


async def due(worker: Bench, service: str = "ask", **changed: object) -> None:
    """Let the next call be due."""
    changes = {"pause": 1000.0, **changed}
    await worker.boundary.breakers.move(service, lambda one, at: one.model_copy(update={"until": at.now, **changes}))


async def queued(worker: Bench, *started: float) -> None:
    """Let a service go down, and turn a call of a task away for each of these times of its start."""
    ANSWERS["ask"] = Unreachable("It is down.")
    await fault(worker, "first", attempts=1)
    for time in started:
        await fault(worker, f"k{time:g}", time)


async def waited(worker: Bench, seconds: float) -> None:
    """Let all that wait have waited so long."""
    async with worker.engine.begin() as tx:
        await tx.execute(TICKETS.update().values(since=TICKETS.c.since - seconds))


async def row(worker: Bench) -> Breaker:
    """What the store has of the breaker of `ask`."""
    return (await worker.boundary.breakers.all())[0]["ask"]


async def test_first_come_first_served_by_the_start_of_the_task(workers: list[Bench]) -> None:
    """One trial, then two at once, then four, whichever worker calls them; nobody before it is due."""
    await queued(workers[0], 3, 1, 7, 2, 6, 5, 4, 8)
    early = await called(workers[0])
    await due(workers[0])
    turns = [await called(workers[0])]
    while turns[-1]:
        nobody = await called(workers[1])
        for key in turns[-1]:
            await succeeds(workers[1], key)
        turns.append(await called(workers[1]))

    assert early == nobody == []
    assert turns == [["k1"], ["k2", "k3"], ["k4", "k5", "k6", "k7"], ["k8"], []]
    assert (await row(workers[0])).state is BreakerState.CLOSED
    assert await workers[0].boundary.breakers.waiting() == {}


async def test_a_new_call_does_not_overtake_those_that_wait(workers: list[Bench]) -> None:
    """Although it is due, and nobody was told yet; one of an older task may."""
    await queued(workers[0], 2)
    await due(workers[0])
    late = await fault(workers[1], "late", 3)
    early = await fault(workers[1], "early", 1)

    assert (late.code, late.is_trial, early.code, early.is_trial) == ("circuit_open", False, "unreachable", True)
    assert late.reason.endswith("; 1 call waits before this one.")


async def test_a_trial_that_fails_is_no_attempt_and_its_call_waits_on(workers: list[Bench]) -> None:
    """No backoff follows, and the next trial is another call's, since this one may be the only one that fails."""
    await queued(workers[0], 1, 2)
    await due(workers[0])
    first = await called(workers[0])
    failed, error = await workers[1].fails(ask, header=header(first[0], 1))
    await due(workers[0])

    assert (failed.code, failed.is_trial, failed.taken, error.non_retryable) == ("unreachable", True, 0, True)
    assert 86_390 < (failed.queued or 0) <= retries.STEP_DEADLINE.total_seconds()
    assert (first, await called(workers[0])) == (["k1"], ["k2"])


async def test_the_failure_that_opens_it_is_an_attempt_and_waits_for_its_turn(workers: list[Bench]) -> None:
    """Unless no attempt is left: nobody would come when it is called."""
    ANSWERS["ask"] = Unreachable("It is down.")
    last = await fault(workers[0], "last", attempts=1)
    await workers[0].boundary.breakers.reset("ask")
    other = await fault(workers[0], "other", attempts=2)

    assert (last.taken, last.queued, other.taken, other.queued) == (1, None, 1, 86_400)
    assert await workers[0].boundary.breakers.waiting() == {"ask": 1}
    assert Sample(WAITING_CALLS, ("ask",), 1) in await workers[0].boundary.breakers.samples()


async def probed(worker: Bench, key: str, attempts: int = 4, patience: float | None = None) -> Fault:
    """How a call of `probe` failed, whose breaker opens after failures of two calls."""
    ANSWERS["probe"] = Unreachable("It takes no connection.")
    given = header(key, attempts=attempts).model_copy(update={"patience": patience})
    return (await worker.fails(probe, header=given))[0]


async def answered(worker: Bench, key: str) -> None:
    """Make a call of `probe` that succeeds."""
    ANSWERS.clear()
    assert (await worker.call(probe, header=header(key))).result == {"word": "here"}


async def waits_alone(worker: Bench) -> list[Fault]:
    """Let a call find out twice that its service takes no connection, and its wait be over."""
    found = [await probed(worker, "a") for _ in range(2)]
    assert await called(worker, "probe") == []
    await change(worker, until=1.0)
    return found


async def change(worker: Bench, **changed: float) -> None:
    """Change what the store has of the call that waits alone."""

    def move(one: Breaker, _at: object) -> Breaker:
        return one.model_copy(update={"alone": {"a": one.alone["a"].model_copy(update=changed)}})

    await worker.boundary.breakers.move("probe", move)


async def test_a_call_that_alone_finds_its_service_down_waits_and_delays_nobody(workers: list[Bench]) -> None:
    """From its second failure on; what follows are trials, which are no attempts."""
    first, second = await waits_alone(workers[0])
    told = await called(workers[1], "probe")
    trial = await probed(workers[1], "a")
    early = await called(workers[1], "probe")
    await answered(workers[0], "b")

    assert (first.queued, second.queued, second.is_trial, second.taken) == (None, 600, False, 1)
    assert (told, trial.is_trial, trial.taken, trial.retryable(), early) == (["a"], True, 0, False, [])
    assert 590 < (trial.queued or 0) <= 600
    # the calls that wait for a limit do not wait for it either
    limited = calling("limited", tool.read, limit="100/s")
    ANSWERS["limited"] = Unreachable("It takes no connection.")
    waits = [(await workers[0].fails(limited, header=header("a")))[0].queued for _ in range(2)]
    ANSWERS.clear()
    assert waits == [None, 600]
    assert (await workers[1].call(limited, header=header("b", started=9.0))).result == {"word": "here"}


async def test_a_call_that_fails_while_others_succeed_uses_its_attempts(workers: list[Bench]) -> None:
    """Its service is there, so it does not wait for ever."""
    await waits_alone(workers[0])
    await answered(workers[1], "b")
    told = await called(workers[0], "probe")
    third, fourth = await probed(workers[0], "a", attempts=2), await probed(workers[0], "a", attempts=1)

    assert told == ["a"]
    assert [(one.queued, one.is_trial, one.taken) for one in (third, fourth)] == [(None, False, 1)] * 2
    assert await workers[0].boundary.breakers.services_awaited() == []


async def test_the_success_of_a_call_that_waited_alone_leaves_nothing(workers: list[Bench]) -> None:
    """No ticket, and the row is as before."""
    await waits_alone(workers[0])
    assert await called(workers[0], "probe") == ["a"]
    await answered(workers[1], "a")

    assert (await workers[0].boundary.breakers.all())[0] == {"probe": Breaker()}
    assert await workers[0].boundary.breakers.services_awaited() == []


async def test_the_patience_of_a_call_alone_ends(workers: list[Bench]) -> None:
    """After ten minutes, or when its workflow says so: nobody else says that the service is down."""
    await waits_alone(workers[0])
    hasty = await probed(workers[0], "a", patience=60)
    await waited(workers[0], 600)
    await change(workers[0], until=1.0)
    over = await probed(workers[0], "a")

    assert 50 < (hasty.queued or 0) <= 60
    assert (over.queued, await workers[0].boundary.breakers.waiting()) == (0, {})


async def test_calls_that_wait_alone_wait_with_all_others_when_the_breaker_opens(workers: list[Bench]) -> None:
    """In one queue, with the patience for a service that several calls found down."""
    await waits_alone(workers[0])
    other = await probed(workers[1], "b")
    trial = await probed(workers[0], "a")

    assert (other.queued, trial.code) == (86_400, "circuit_open")
    assert await workers[0].boundary.breakers.waiting() == {"probe": 2}
    assert 86_390 < (trial.queued or 0) <= 86_400


async def test_a_slow_trial_of_a_call_alone_is_not_told_of_its_turn_again(workers: list[Bench]) -> None:
    """Its worker renews a lease; without one, as after the worker's death, it is told once more."""
    await waits_alone(workers[0])
    assert await called(workers[0], "probe") == ["a"]
    breakers = workers[0].boundary.breakers
    await breakers.move("probe", lambda one, at: one.renewed("a", one.generation, at.now))
    async with workers[0].engine.begin() as tx:
        await tx.execute(TICKETS.update().values(called=TICKETS.c.called - states.CALL_LEASE - 1))
    running = await called(workers[0], "probe")
    await change(workers[0], lease=1.0)

    assert (running, await called(workers[0], "probe")) == ([], ["a"])


async def test_a_call_alone_waits_only_if_it_may_be_repeated(workers: list[Bench]) -> None:
    """A 500, a lost answer of a call without a key, a long Retry-After and a `retry="once"` are what they were."""
    once = tool.read(retry="once")(probe.function)
    waits = list[float | None]()
    for kind, error in ((tell, ConnectionResetError()), (probe, Unreachable("No.", code="server_error"))):
        ANSWERS.update(probe=error, tell=error)
        waits += [(await workers[0].fails(kind, header=header(kind.__name__)))[0].queued for _ in range(3)]
    await workers[0].boundary.breakers.reset("probe")
    ANSWERS["probe"] = Unreachable("It takes no connection.", retry_after=3600)
    waits += [(await workers[0].fails(probe, header=header("long")))[0].queued for _ in range(2)]
    await workers[0].boundary.breakers.reset("probe")
    ANSWERS["probe"] = Unreachable("It takes no connection.")
    waits += [(await workers[0].fails(once, header=header("once", attempts=1)))[0].queued for _ in range(2)]

    assert waits == [None] * 10


@pytest.mark.parametrize(("digest", "is_queued"), [(Registry([ask])["ask"].spec.digest, True), ("another", False)])
async def test_the_usual_attempts_are_known_by_the_spec(workers: list[Bench], digest: str, is_queued: bool) -> None:
    """A workflow does not send them; if it has another spec than the worker, they may be others."""
    ANSWERS["ask"] = Unreachable("It is down.")
    failed, _ = await workers[0].fails(ask, header=CallHeader(key="usual", started=0.0, digest=digest))

    assert (failed.queued is not None) is is_queued


@pytest.mark.parametrize(
    ("answer", "patience"), [(Busy("Too many.", code="rate_limited"), 600), (Unreachable("It is down."), 86_400)]
)
async def test_all_workers_show_how_much_of_its_patience_the_longest_wait_has_used(
    workers: list[Bench], answer: BaseException, patience: float
) -> None:
    """Ten minutes at a service that limits its callers, a day at one that is down."""
    ANSWERS["ask"] = answer
    for key in "abc":
        await fault(workers[0], key)
    async with workers[0].engine.begin() as tx:
        await tx.execute(update(TICKETS).where(TICKETS.c.key == "c").values(since=TICKETS.c.since - patience / 2))

    for worker in workers:
        shown = {sample.metric: sample.value for sample in await worker.boundary.breakers.samples()}
        assert shown[PATIENCE_USED] == pytest.approx(0.5, abs=0.01)


async def test_two_limited_calls_hold_all_back_and_one_does_not(workers: list[Bench]) -> None:
    """For the time that the service has asked for, with a patience of its own."""
    ANSWERS["ask"] = Busy("Too many.", code="rate_limited", retry_after=30)
    alone = [(await fault(workers[0], "one")).queued for _ in range(2)]
    second, third = await fault(workers[1], "two"), await fault(workers[1], "three")

    assert alone == [None, None]
    assert (second.code, second.queued, third.code) == ("rate_limited", 600, "circuit_open")
    assert 28 < (third.retry_after or 0) <= 30
    assert third.reason.startswith("ask is left alone: it limits its callers, the next call is in ")


async def test_an_absurd_time_to_wait_is_cut(workers: list[Bench]) -> None:
    """Half of the patience, so that the service is tried before it is over."""
    ANSWERS["ask"] = Busy("Too many.", code="rate_limited", retry_after=86_400)
    for key in "ab":
        await fault(workers[0], key)

    assert 290 < (await row(workers[0])).pause <= 300


async def test_an_effect_that_may_have_happened_does_not_wait_for_its_turn(workers: list[Bench]) -> None:
    """It may not be repeated, so somebody finds out first."""
    ANSWERS["send"] = TimeoutError()
    lost, _ = await workers[0].fails(send, header=header("a"))
    away, _ = await workers[0].fails(send, header=header("b"))

    assert (lost.applied, lost.queued, lost.source) == (Applied.UNKNOWN, None, "send")
    assert (away.applied, away.queued) == (Applied.NONE, 86_400)


async def test_a_call_that_does_not_come_is_called_once_more_and_then_forgotten(workers: list[Bench]) -> None:
    """Its Signal was lost, or its step was given up: the others do not wait for it."""
    await queued(workers[0], 1, 2)
    await due(workers[0])
    told = list[list[str]]()
    for _ in range(4):
        told.append(await called(workers[0]))
        await _age(workers[0])

    assert told == [["k1"], ["k2"], ["k1"], ["k2"]]
    assert await called(workers[0]) == []
    assert await workers[0].boundary.breakers.services_awaited() == []


async def _age(worker: Bench) -> None:
    """Let the turns that have come be over, as after CALL_LEASE."""
    async with worker.engine.begin() as tx:
        past = TICKETS.c.called - states.CALL_LEASE - 1
        await tx.execute(TICKETS.update().where(TICKETS.c.called > 0).values(called=past))

    def expired(one: Breaker, _at: object) -> Breaker:
        return one.model_copy(update={"places": {}})

    await worker.boundary.breakers.move("ask", expired)


async def test_patience_ends_unless_other_calls_succeed(workers: list[Bench]) -> None:
    """Then the fault says so, and the call waits no more."""
    await queued(workers[0], 1, 2)
    await waited(workers[0], 86_000)
    waits = await fault(workers[0], "k1", 1)
    await due(workers[0], until=1e12, advanced=(await row(workers[0])).since)
    advances = await fault(workers[0], "k1", 1)
    await waited(workers[0], 1000)
    await due(workers[0], advanced=0.0, until=0.0)
    await due(workers[0], state=BreakerState.OPEN, places={}, window=0)
    over = await fault(workers[0], "k1", 1)

    assert 0 < (waits.queued or 0) <= 400 < 86_000 < (advances.queued or 0)
    assert over.queued == 0
    assert await workers[0].boundary.breakers.waiting() == {"ask": 1}


async def test_a_person_who_closes_it_lets_those_that_wait_follow_one_after_the_other(workers: list[Bench]) -> None:
    """All at once would bring the service down again."""
    await queued(workers[0], 1, 2, 3)
    change = await workers[1].boundary.breakers.reset("ask")
    first = await called(workers[0])
    await succeeds(workers[0], "k1")

    assert (change.after.state, first, await called(workers[0])) == (BreakerState.OPEN, ["k1"], ["k2", "k3"])


@on_sqlite
async def test_a_workflow_that_cannot_be_told_gets_no_ticket(workers: list[Bench]) -> None:
    """It is of an earlier version, or no worker would tell it: it waits for a timer."""
    await queued(workers[0])
    older, _ = await workers[0].fails(ask, header=CallHeader(key="older"))
    workers[1].boundary.breakers.namespace = None
    silent = await fault(workers[1], "silent")

    assert (older.code, older.queued, silent.code, silent.queued) == ("circuit_open", None, "circuit_open", None)
    assert await workers[0].boundary.breakers.waiting() == {}


async def test_calls_of_another_namespace_are_called_by_its_own_workers(workers: list[Bench]) -> None:
    """A worker cannot tell a workflow at another server; and a call of another service does not wait for them."""
    await queued(workers[0], 1)
    assert (await workers[0].call(send, header=header("b"))).result == {"word": "here"}
    await due(workers[0])
    workers[1].boundary.breakers.namespace = "other"

    assert (await workers[1].boundary.breakers.services_awaited(), await called(workers[1])) == ([], [])
    assert await called(workers[0]) == ["k1"]


async def test_of_workers_that_look_at_the_same_time_one_calls(workers: list[Bench]) -> None:
    """A turn comes once."""
    await queued(workers[0], *range(1, 9))
    await due(workers[0], window=3)
    found = await asyncio.gather(*(called(worker) for worker in workers * 5))

    assert sorted(key for keys in found for key in keys) == ["k1", "k2", "k3"]


@on_sqlite
async def test_calls_that_are_turned_away_together_are_all_kept(workers: list[Bench]) -> None:
    """Each has its ticket, once, however often it comes."""
    await queued(workers[0])
    faults = await asyncio.gather(*(fault(worker, f"k{n}", n) for worker in workers for n in range(40)))

    assert all(one.queued for one in faults)
    assert await workers[0].boundary.breakers.waiting() == {"ask": 40}


async def test_a_limit_counts_once_however_many_calls_were_under_way_or_had_been_told(workers: list[Bench]) -> None:
    """A call that was told of its turn, and had not begun when the service limited another one, waits again.

    Else each of them would meet the limit, and lengthen the pause.
    """
    await queued(workers[0], *range(1, 9))
    await due(workers[0], window=4.0, limits=0)
    told = await called(workers[0])
    ANSWERS["ask"] = Busy("Too many.", code="rate_limited")
    limited = await fault(workers[0], told[0], 1)
    opened = await row(workers[0])
    late = [await fault(workers[1], key, 2) for key in told[1:]]
    after = await row(workers[0])

    assert (len(told), limited.code, opened.limits, opened.window) == (4, "rate_limited", 1, 2)
    assert [one.code for one in late] == ["circuit_open"] * 3
    assert all(one.queued for one in late)
    assert (after.limits, after.window, after.until, dict(after.places)) == (1, 2, opened.until, {})
    assert (await workers[0].boundary.breakers.waiting()) == {"ask": 8}


SLOW_TICKETS = (
    "CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$",
    "CREATE TRIGGER slow BEFORE INSERT ON replan_tickets FOR EACH ROW EXECUTE FUNCTION take_time()",
)


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
async def test_calls_that_wait_for_each_other_at_a_slow_store_are_not_let_through(workers: list[Bench]) -> None:
    """The store answers each of them in time, so the breaker is known, however many come first."""
    await queued(workers[0])
    async with workers[0].engine.begin() as tx:
        for statement in SLOW_TICKETS:
            await tx.exec_driver_sql(statement)
    faults = await asyncio.gather(*(fault(workers[0], f"k{n}", n) for n in range(12)))

    assert {one.code for one in faults} == {"circuit_open"}
    assert await workers[0].boundary.breakers.waiting() == {"ask": 12}
