"""The calendar: free slots, one booking a slot, refusals that say what is free, bookings that are cancelled."""

import asyncio
from datetime import date, time, timedelta

import pytest
from pydantic import ValidationError

from activities.errors import Refused
from examples.desk.bookings import (
    Book,
    Booking,
    BookingsOf,
    Cancel,
    Day,
    Slots,
    book_slot,
    cancel_booking,
    list_bookings,
    list_slots,
)
from tests.activities.desk.front import TODAY, Desk
from workflows.faults.fault import Fault


async def book(desk: Desk, at: str, name: str = "team", day: date = TODAY) -> Booking:
    """Book one slot."""
    return await desk.do(book_slot, Book(day=day, at=time.fromisoformat(at), name=name))


async def slots(desk: Desk, day: date = TODAY) -> Slots:
    """What is free."""
    return await desk.do(list_slots, Day(day=day))


async def refusal(desk: Desk, at: str, day: date = TODAY) -> Fault:
    """Why a slot cannot be booked."""
    return await desk.refuses(book_slot, Book(day=day, at=time.fromisoformat(at), name="team"))


async def book_all(desk: Desk, day: date) -> None:
    """Leave nothing free on a day."""
    for at in (await slots(desk, day)).free:
        await book(desk, at.isoformat(), day=day)


async def test_a_free_slot_is_booked(desk: Desk) -> None:
    """A booking names what was booked, in the words of the JSON."""
    booking = (await book(desk, "14:30")).model_dump(mode="json")

    assert booking == {"id": booking["id"], "day": "2025-11-21", "at": "14:30", "name": "team"}


async def test_a_booked_slot_is_free_no_more(desk: Desk) -> None:
    """What one has, nobody else is offered."""
    await book(desk, "14:30")

    assert time(14, 30) not in (await slots(desk)).free


async def test_free_slots_are_written_as_on_a_clock(desk: Desk) -> None:
    """Days are ISO dates and times have no seconds, so that a planner can copy them."""
    listed = (await slots(desk)).model_dump(mode="json")

    assert listed["day"] == "2025-11-21"
    assert {"14:30", "15:00"} <= set(listed["free"])


async def test_a_taken_slot_is_a_conflict_that_says_what_is_free(desk: Desk) -> None:
    """The refusal carries the state of the world that contradicts the call."""
    fault = await refusal(desk, "14:00")

    assert (fault.code, fault.reason.split(";")[0]) == ("conflict", "14:00 is taken on 2025-11-21")
    assert fault.observed == {"free": (await slots(desk)).model_dump(mode="json")["free"], "days": []}


async def test_a_time_that_is_no_slot_is_not_found(desk: Desk) -> None:
    """Half an hour is half an hour; the free slots are offered instead."""
    fault = await refusal(desk, "14:10")

    assert fault.code == "not_found"
    assert fault.observed == {"free": (await slots(desk)).model_dump(mode="json")["free"], "days": []}


async def test_a_day_without_slots_is_not_found_and_names_later_days_that_have_some(desk: Desk) -> None:
    """Before the calendar begins, its first days are offered."""
    fault = await refusal(desk, "14:00", TODAY - timedelta(days=9))

    assert fault.code == "not_found"
    assert fault.observed == {"free": [], "days": ["2025-11-21", "2025-11-22", "2025-11-23"]}


async def test_beyond_the_last_day_nothing_is_offered(desk: Desk) -> None:
    """An earlier day is no alternative; the reason says where the calendar ends."""
    fault = await refusal(desk, "14:00", TODAY + timedelta(days=100))

    assert "its last day is 2025-12-04" in fault.reason
    assert fault.observed == {"free": [], "days": []}


async def test_looking_at_a_day_without_slots_is_refused_in_the_same_way(desk: Desk) -> None:
    """An empty list would say that the day is full."""
    with pytest.raises(Refused, match="no slots on 2025-11-20"):
        await slots(desk, TODAY - timedelta(days=1))


async def test_a_full_day_offers_the_next_days(desk: Desk) -> None:
    """Nothing is free, and the fault says where something is."""
    await book_all(desk, TODAY)
    fault = await refusal(desk, "14:00")

    assert (fault.code, fault.observed) == (
        "conflict",
        {"free": [], "days": ["2025-11-22", "2025-11-23", "2025-11-24"]},
    )


async def test_a_refusal_changes_nothing(desk: Desk) -> None:
    """The world after a refusal is the world before it."""
    before = await slots(desk)
    await refusal(desk, "14:00")

    assert await slots(desk) == before


async def test_of_many_who_want_one_slot_one_gets_it(desk: Desk) -> None:
    """The update itself decides, so nothing can come between looking and booking."""
    tries = await asyncio.gather(*(book(desk, "14:30", f"team {n}") for n in range(8)), return_exceptions=True)

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


async def test_a_name_is_only_text(desk: Desk) -> None:
    """Text from the world never becomes SQL."""
    name = "'); DROP TABLE slots; --"

    assert (await book(desk, "14:30", name)).name == name


async def test_a_cancelled_slot_is_free_again(desk: Desk) -> None:
    """What one gives back, anybody may have."""
    booking = await book(desk, "14:30")
    await desk.do(cancel_booking, Cancel(booking=booking.id))

    assert time(14, 30) in (await slots(desk)).free


async def test_cancelling_says_what_was_cancelled(desk: Desk) -> None:
    """The answer names the booking as it was made, and when it ended."""
    booking = await book(desk, "14:30")
    cancelled = await desk.do(cancel_booking, Cancel(booking=booking.id))

    assert cancelled.model_dump(exclude={"cancelled"}) == booking.model_dump()
    assert cancelled.cancelled is not None


async def test_cancelling_twice_leaves_the_next_booking_of_the_slot_alone(desk: Desk) -> None:
    """An id is that of a booking, not of a slot: an undo that comes late must not hit somebody else."""
    first = await book(desk, "14:30")
    await desk.do(cancel_booking, Cancel(booking=first.id))
    second = await book(desk, "14:30", "the auditors")

    assert (await desk.refuses(cancel_booking, Cancel(booking=first.id))).code == "gone"
    assert (await desk.do(list_bookings, BookingsOf(booking=second.id))).bookings[0].cancelled is None


async def test_somebody_elses_booking_can_be_cancelled(desk: Desk) -> None:
    """The taken slots of the demo world are bookings like any other."""
    [theirs] = [one for one in (await desk.do(list_bookings, BookingsOf())).bookings if one.id == 74]
    await desk.do(cancel_booking, Cancel(booking=74))

    assert theirs.at in (await slots(desk, theirs.day)).free


async def test_bookings_are_found_by_name(desk: Desk) -> None:
    """Who lost the id finds it again by a part of the name, however it is spelt."""
    booking = await book(desk, "14:30", "Team Alder")
    found = (await desk.do(list_bookings, BookingsOf(name="team ald"))).bookings

    assert [(one.id, one.name) for one in found] == [(booking.id, "Team Alder")]


async def test_bookings_in_force_come_first(desk: Desk) -> None:
    """What was cancelled does not push out what can still be cancelled."""
    ended = [one.cancelled is not None for one in (await desk.do(list_bookings, BookingsOf(name="Ada"))).bookings]

    assert ended == sorted(ended)
    assert set(ended) == {False, True}


async def test_no_booking_of_a_name_is_an_answer(desk: Desk) -> None:
    """Nobody has to be asked why a list is empty."""
    assert (await desk.do(list_bookings, BookingsOf(name="nobody"))).bookings == []
