"""The calendar: free slots, one booking a slot, refusals that say what is free."""

import asyncio
from collections.abc import AsyncIterator
from datetime import date, time, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.store import open_store, sqlite_url, writing
from activities.toolbox.builtin import TOOLS
from activities.toolbox.calendar import SLOTS, Book, Booking, Day, Slots, book_slot, list_slots, seed
from activities.toolbox.errors import Refused
from activities.toolbox.registry import Registry
from workflows.catalogue import Companion, Effect

TODAY = date(2025, 11, 21)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """A store on disk with the demo world in it."""
    engine = await open_store(sqlite_url(tmp_path))
    await seed(engine, TODAY)
    yield engine
    await engine.dispose()


async def book(engine: AsyncEngine, at: str, name: str = "team", day: date = TODAY) -> Booking:
    """Book in a transaction of its own, as the boundary does."""
    async with writing(engine).begin() as tx:
        return await book_slot(Book(day=day, at=time.fromisoformat(at), name=name), tx)


async def slots(engine: AsyncEngine, day: date = TODAY) -> Slots:
    """What is free."""
    async with engine.begin() as tx:
        return await list_slots(Day(day=day), tx)


async def refusal(engine: AsyncEngine, at: str, day: date = TODAY) -> Refused:
    """Why a slot cannot be booked."""
    with pytest.raises(Refused) as caught:
        await book(engine, at, day=day)
    return caught.value


async def book_all(engine: AsyncEngine, day: date) -> None:
    """Leave nothing free on a day."""
    for at in (await slots(engine, day)).free:
        await book(engine, at.isoformat(), day=day)


async def test_a_free_slot_is_booked(engine: AsyncEngine) -> None:
    """A booking names what was booked, in the words of the JSON."""
    booking = (await book(engine, "14:30")).model_dump(mode="json")

    assert booking == {"id": booking["id"], "day": "2025-11-21", "at": "14:30", "name": "team"}


async def test_a_booked_slot_is_free_no_more(engine: AsyncEngine) -> None:
    """What one has, nobody else is offered."""
    await book(engine, "14:30")

    assert time(14, 30) not in (await slots(engine)).free


async def test_free_slots_are_written_as_on_a_clock(engine: AsyncEngine) -> None:
    """Days are ISO dates and times have no seconds, so that a planner can copy them."""
    listed = (await slots(engine)).model_dump(mode="json")

    assert listed["day"] == "2025-11-21"
    assert {"14:30", "15:00"} <= set(listed["free"])


async def test_a_taken_slot_is_a_conflict_that_says_what_is_free(engine: AsyncEngine) -> None:
    """The refusal carries the state of the world that contradicts the call."""
    fault = (await refusal(engine, "14:00")).fault

    assert (fault.code, fault.reason.split(";")[0]) == ("conflict", "14:00 is taken on 2025-11-21")
    assert fault.observed == {"free": (await slots(engine)).model_dump(mode="json")["free"], "days": []}


async def test_a_time_that_is_no_slot_is_not_found(engine: AsyncEngine) -> None:
    """Half an hour is half an hour; the free slots are offered instead."""
    fault = (await refusal(engine, "14:10")).fault

    assert fault.code == "not_found"
    assert fault.observed == {"free": (await slots(engine)).model_dump(mode="json")["free"], "days": []}


async def test_a_day_without_slots_is_not_found_and_names_later_days_that_have_some(engine: AsyncEngine) -> None:
    """Before the calendar begins, its first days are offered."""
    fault = (await refusal(engine, "14:00", TODAY - timedelta(days=9))).fault

    assert fault.code == "not_found"
    assert fault.observed == {"free": [], "days": ["2025-11-21", "2025-11-22", "2025-11-23"]}


async def test_beyond_the_last_day_nothing_is_offered(engine: AsyncEngine) -> None:
    """An earlier day is no alternative; the reason says where the calendar ends."""
    fault = (await refusal(engine, "14:00", TODAY + timedelta(days=100))).fault

    assert "its last day is 2025-12-04" in fault.reason
    assert fault.observed == {"free": [], "days": []}


async def test_looking_at_a_day_without_slots_is_refused_in_the_same_way(engine: AsyncEngine) -> None:
    """An empty list would say that the day is full."""
    with pytest.raises(Refused, match="no slots on 2025-11-20"):
        await slots(engine, TODAY - timedelta(days=1))


async def test_a_full_day_offers_the_next_days(engine: AsyncEngine) -> None:
    """Nothing is free, and the fault says where something is."""
    await book_all(engine, TODAY)
    fault = (await refusal(engine, "14:00")).fault

    assert (fault.code, fault.observed) == (
        "conflict",
        {"free": [], "days": ["2025-11-22", "2025-11-23", "2025-11-24"]},
    )


async def test_a_refusal_changes_nothing(engine: AsyncEngine) -> None:
    """The world after a refusal is the world before it."""
    before = await slots(engine)
    await refusal(engine, "14:00")

    assert await slots(engine) == before


async def test_of_many_who_want_one_slot_one_gets_it(engine: AsyncEngine) -> None:
    """The update itself decides, so nothing can come between looking and booking."""
    tries = await asyncio.gather(*(book(engine, "14:30", f"team {n}") for n in range(8)), return_exceptions=True)

    assert sum(isinstance(one, Booking) for one in tries) == 1
    assert sum(isinstance(one, Refused) and one.fault.code == "conflict" for one in tries) == 7


@pytest.mark.parametrize(
    "call",
    [
        {"day": "2025-11-21", "at": "14:00Z", "name": "team"},
        {"day": "2025-11-21", "at": "2 pm", "name": "team"},
        {"day": "tomorrow", "at": "14:00", "name": "team"},
        {"day": "2025-11-21", "at": "14:00", "name": ""},
        {"day": "2025-11-21", "at": "14:00", "name": "x" * 81},
    ],
)
def test_a_call_that_means_nothing_is_refused_by_the_schema(call: dict[str, str]) -> None:
    """The calendar knows local times, ISO dates and names of ordinary length."""
    with pytest.raises(ValidationError):
        Book.model_validate(call)


async def test_a_name_is_only_text(engine: AsyncEngine) -> None:
    """Text from the world never becomes SQL."""
    name = "'); DROP TABLE slots; --"

    assert (await book(engine, "14:30", name)).name == name


async def test_the_demo_world_is_two_weeks_of_half_hours(engine: AsyncEngine) -> None:
    """Today and 13 days, 09:00 to 17:00."""
    async with engine.begin() as tx:
        row = (await tx.execute(select(func.count(), func.min(SLOTS.c.at), func.max(SLOTS.c.at)))).one()
        days = await tx.scalar(select(func.max(SLOTS.c.day)))

    assert tuple(row) == (14 * 16, time(9), time(16, 30))
    assert days == TODAY + timedelta(days=13)


@pytest.mark.parametrize("ahead", range(14))
async def test_every_day_of_the_demo_world_has_taken_and_free_slots(engine: AsyncEngine, ahead: int) -> None:
    """Other people use the calendar too."""
    free = (await slots(engine, TODAY + timedelta(days=ahead))).free

    assert 8 <= len(free) < 16


async def test_seeding_again_does_nothing(engine: AsyncEngine) -> None:
    """A worker that starts again finds the world as it left it."""
    await book(engine, "14:30")
    await seed(engine, TODAY)

    assert time(14, 30) not in (await slots(engine)).free


async def test_seeding_leaves_a_calendar_of_ones_own_alone(tmp_path: Path) -> None:
    """One row is enough to show that somebody uses it."""
    engine = await open_store(sqlite_url(tmp_path))
    async with writing(engine).begin() as tx:
        await tx.execute(insert(SLOTS), {"day": TODAY, "at": time(7)})
    await seed(engine, TODAY)
    free = (await slots(engine)).free
    await engine.dispose()

    assert free == [time(7)]


async def test_workers_may_seed_at_the_same_time(tmp_path: Path) -> None:
    """Two workers on one store start together: the world is made once."""
    engine = await open_store(sqlite_url(tmp_path))
    await asyncio.gather(*(seed(engine, TODAY) for _ in range(4)))
    async with engine.begin() as tx:
        count = await tx.scalar(select(func.count()).select_from(SLOTS))
    await engine.dispose()

    assert count == 14 * 16


def test_booking_looks_again_with_list_slots() -> None:
    """A refused booking is observed anew through the read of the same day."""
    spec = Registry(TOOLS)["book_slot"].spec

    assert (spec.effect, spec.observe) == (
        Effect.TRANSACTIONAL,
        Companion(kind="list_slots", args={"day": "args.day"}),
    )
