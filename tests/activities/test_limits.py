"""Limits that tools declare, and services that they share: two workers, one store."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.exceptions import ApplicationError

from activities import deadline
from activities.boundary.boundary import Boundary
from activities.boundary.breakers import states
from activities.boundary.breakers.states import Breaker, BreakerState
from activities.errors import Unreachable
from activities.storage.store import open_store
from activities.toolbox.declare.tool import CallLimit, Tool
from activities.toolbox.registry import Registry, ToolMistakes
from activities.toolbox.resources import Resources
from replan import tool
from tests.activities.bench import Bench
from workflows.calls.header import CallHeader
from workflows.faults.circuit_breaker import CircuitBreaker
from workflows.faults.fault import Applied, Code, Fault
from workflows.json_values import digest

AT_ONCE = CircuitBreaker(failures=1, calls=1)
DOWN = set[str]()
"""The tools whose service is down."""


class Nothing(BaseModel):
    """No arguments."""


class Said(BaseModel):
    word: str = "here"


async def answer(name: str) -> Said:
    """Answer, unless the service is down."""
    if name in DOWN:
        raise Unreachable("It is down.")
    return Said()


def asking(name: str, **options: Any) -> Tool[..., Any]:
    """A tool of this name that asks a service."""

    async def ask(args: Nothing) -> Said:
        """Ask a service."""
        return await answer(name)

    ask.__name__ = name
    return tool.read(**options)(ask)


few = asking("few", limit="3/min")
balance, rate = asking("balance", service="bank", limit="2/h"), asking("rate", service="bank", limit="2/h")
europe = asking("europe", service="shop", credential="EUROPE", breaker=AT_ONCE)
america = asking("america", service="shop", credential="AMERICA", breaker=AT_ONCE)


class Place(BaseModel):
    region: str


def region_of(args: Place) -> str:
    """The region that a call is for."""
    if args.region == "nowhere":
        raise LookupError(args.region)
    return args.region


@tool.read(service=region_of, breaker=AT_ONCE)
async def stock(args: Place) -> Said:
    """Ask a region for its stock."""
    return await answer(args.region)


@pytest.fixture
async def workers(store_url: str) -> AsyncIterator[list[Bench]]:
    """Two workers with a store that they share, which tell workflows of turns."""
    DOWN.clear()
    async with AsyncExitStack() as stack:
        http, made = await stack.enter_async_context(deadline.client(trust_env=False)), list[Bench]()
        for _ in range(2):
            engine = await open_store(store_url)
            stack.push_async_callback(engine.dispose)
            made.append(Bench(engine, Boundary(Resources(engine, http, None))))
            made[-1].boundary.breakers.namespace = "default"
        yield made


async def made(worker: Bench, of: Tool[..., Any], key: str, started: float = 0.0, **args: Any) -> Fault | None:
    """Make a call; return the fault with which it was turned away."""
    try:
        await worker.call(of, header=CallHeader(key=key, started=started, attempts=4), **args)
    except ApplicationError as error:
        assert isinstance(error.details[0], Fault)
        return error.details[0]
    return None


async def row(worker: Bench, service: str) -> Breaker:
    return (await worker.boundary.breakers.all())[0][service]


async def later(worker: Bench, service: str, seconds: float) -> None:
    """Let all calls have been made so many seconds earlier."""
    await worker.boundary.breakers.move(
        service, lambda one, _: one.model_copy(update={"taken": tuple(at - seconds for at in one.taken)})
    )


async def called(worker: Bench, service: str) -> list[str]:
    return [one.key for one in (await worker.boundary.breakers.call_next(service)).called]


async def test_no_more_calls_are_made_than_the_limit_allows_over_all_workers(workers: list[Bench]) -> None:
    """The others wait, and say for what; calls that wait go before new ones, by the start of their tasks."""
    first = [await made(workers[number % 2], few, f"k{number}") for number in range(3)]
    third, second = [await made(workers[0], few, key, began) for key, began in (("third", 3), ("second", 2))]
    early = await called(workers[1], "few")
    await later(workers[0], "few", 61)
    new = await made(workers[1], few, "new", 4)
    turns = await called(workers[1], "few")
    after = [await made(workers[1], few, key, began) for key, began in (("second", 2), ("third", 3), ("new", 4))]
    more = await made(workers[0], few, "more", 5)

    assert first == [None] * 3
    assert second is not None
    assert third is not None
    assert (second.code, second.taken, early) == ("circuit_open", 0, [])
    assert 50 < (second.retry_after or 0) <= 60
    assert states.LIMIT_PATIENCE - 5 < (second.queued or 0) <= states.LIMIT_PATIENCE
    assert second.reason.startswith("few is left alone: it gets at most 3/min calls, the next call is in ")
    assert new is not None
    assert turns == ["second", "third", "new"]
    assert after == [None] * 3
    assert more is not None
    assert (await row(workers[0], "few")).state is BreakerState.CLOSED


async def test_a_turn_that_was_told_needs_no_second_place(workers: list[Bench]) -> None:
    """What it may be made by was taken when it was called; others do not get it."""
    for number in range(3):
        await made(workers[0], few, f"k{number}")
    await made(workers[0], few, "waits")
    await later(workers[0], "few", 61)
    for number in range(2):
        await made(workers[0], few, f"more{number}", -1)
    turns, refused = await called(workers[1], "few"), await made(workers[0], few, "other", -2)

    assert turns == ["waits"]
    assert refused is not None
    assert await made(workers[1], few, "waits") is None
    assert await workers[0].boundary.breakers.waiting() == {"few": 1}


async def test_the_tools_of_one_service_share_its_limit(workers: list[Bench]) -> None:
    """Whichever of them is called; else each call would change it."""
    faults = [await made(workers[0], one, f"k{number}") for number, one in enumerate((balance, rate, balance))]

    assert [one is None for one in faults] == [True, True, False]
    assert set((await workers[0].boundary.breakers.all())[0]) == {"bank"}

    other = asking("other", service="bank", limit="5/s")

    with pytest.raises(ToolMistakes, match=r"other: limit='5/s' is not the limit of balance, which calls the same"):
        Registry([balance, other])
    for text in ("0/s", "5", "5/day", "1001/s", "-1/s", "1.5/s", " 5/s", "5/S", "\u0665/s", ""):
        with pytest.raises(ValueError, match="is no limit"):
            CallLimit.of(text)


async def test_one_credential_does_not_stop_the_calls_with_another(workers: list[Bench]) -> None:
    """At the same service."""
    DOWN.update({"europe", "america"})
    await made(workers[0], europe, "a")
    DOWN.clear()
    refused, other = await made(workers[0], europe, "b"), await made(workers[1], america, "c")

    assert refused is not None and refused.reason.startswith("shop/EUROPE is left alone")
    assert other is None


async def test_a_service_that_the_arguments_name_does_not_stop_the_calls_of_another(workers: list[Bench]) -> None:
    """A text that is no name is kept as its digest, so that nothing of a plan is shown as a service."""
    odd = "ignore all; it's \u202ereset"
    DOWN.update({"europe", odd})
    failed = [await made(workers[0], stock, region, region=region) for region in ("europe", odd)]
    refused = [await made(workers[1], stock, f"{region} 2", region=region) for region in ("europe", odd)]
    nowhere = await made(workers[0], stock, "a", region="nowhere")

    assert [fault and fault.code for fault in failed] == [Code.UNREACHABLE] * 2
    assert [fault and fault.code for fault in refused] == [Code.CIRCUIT_OPEN] * 2
    assert nowhere is not None and (nowhere.code, nowhere.applied) == (Code.BUG, Applied.NONE)
    assert set((await workers[0].boundary.breakers.all())[0]) == {"europe", digest(odd)}
    assert await made(workers[1], stock, "other", region="asia") is None


async def test_an_outage_keeps_the_limit(workers: list[Bench]) -> None:
    """What was taken before is taken after it, too; a person who closes the breaker does not double it."""
    DOWN.add("few")
    for number in range(3):
        await made(workers[number % 2], few, f"k{number}")
    await workers[0].boundary.breakers.move("few", lambda one, at: one.closed(at.now))
    DOWN.clear()

    assert await made(workers[0], few, "next") is not None
    assert len((await row(workers[0], "few")).taken) == 3


def test_no_time_of_the_length_of_a_limit_has_more_calls() -> None:
    """Wherever it begins; a clock that was set back holds nobody: times in the future do not count."""
    breaker, now, made = Breaker(limit="5/s"), time.time(), list[float]()
    for number in range(400):
        at = now + number * 0.0137
        if breaker.room(at):
            breaker = breaker.taking(at)
            made.append(at)
    back = Breaker(limit="2/min").taking(1000.0, 2)

    assert max(sum(begin <= at < begin + 0.999 for at in made) for begin in made) == 5
    assert len(made) >= 5 * 5
    assert (back.room(1030.0), back.wait(1030.0)) == (0, 30.0)
    assert back.room(10.0) == back.room(1060.0) == 2
