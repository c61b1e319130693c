"""The calendar: free slots, one booking a slot, refusals that say what is free, bookings that are cancelled."""

from datetime import date, time, timedelta

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
from tests.activities.desk.front import FREE, TODAY, Desk


def call(at: str, name: str = "team", day: date = TODAY) -> Book:
    return Book(day=day, at=time.fromisoformat(at), name=name)


async def book(desk: Desk, at: str, name: str = "team", day: date = TODAY) -> Booking:
    return await desk.do(book_slot, call(at, name, day))


async def slots(desk: Desk, day: date = TODAY) -> Slots:
    return await desk.do(list_slots, Day(day=day))


async def test_a_free_slot_is_booked_and_free_no_more(desk: Desk) -> None:
    """Days are ISO dates and times have no seconds, so that a planner can copy them; a name is only text."""
    name = "'); DROP TABLE slots; --"
    before = (await slots(desk)).model_dump(mode="json")
    booking = (await book(desk, "14:30", name)).model_dump(mode="json")
    after = (await slots(desk)).model_dump(mode="json")

    assert booking == {"id": booking["id"], "day": "2025-11-21", "at": "14:30", "name": name}
    assert before == {"day": "2025-11-21", "free": FREE, "days": []}
    assert after["free"] == [at for at in FREE if at != "14:30"]


REFUSED: list[tuple[int, str, str, str, list[str], list[str]]] = [
    (0, "14:00", "conflict", "14:00 is taken on 2025-11-21;", FREE, []),
    (0, "14:10", "not_found", "", FREE, []),
    (-9, "14:00", "not_found", "", [], ["2025-11-21", "2025-11-22", "2025-11-23"]),
    (100, "14:00", "not_found", "its last day is 2025-12-04", [], []),
]
"""Days from today, time, code, words of the reason, what is free on that day, and later days that have free slots."""


async def test_a_refusal_says_what_is_free_instead(desk: Desk) -> None:
    """An earlier day is no alternative, and an empty list of slots would say that the day is full."""
    wrong = []
    for days, at, code, words, free, later in REFUSED:
        fault = await desk.refuses(book_slot, call(at, day=TODAY + timedelta(days)))
        if (fault.code, fault.observed) != (code, {"free": free, "days": later}) or words not in fault.reason:
            wrong.append((days, at, fault))
    unseen = await desk.refuses(list_slots, Day(day=TODAY - timedelta(days=1)))
    for at in FREE:
        await book(desk, at)
    full = await desk.refuses(book_slot, call("14:00"))

    assert wrong == []
    assert "no slots on 2025-11-20" in unseen.reason
    assert full.code == "conflict"
    assert full.observed == {"free": [], "days": ["2025-11-22", "2025-11-23", "2025-11-24"]}


async def test_a_cancelled_slot_is_free_again(desk: Desk) -> None:
    """An id is that of a booking, not of a slot: an undo that comes late must not hit who has the slot next.

    Bookings are found by a part of the name; what was cancelled does not push out what can still be cancelled.
    """
    first = await book(desk, "14:30")
    cancelled = await desk.do(cancel_booking, Cancel(booking=first.id))
    free = (await slots(desk)).free
    second = await book(desk, "14:30", "Team Alder")
    late = await desk.refuses(cancel_booking, Cancel(booking=first.id))
    theirs = await desk.do(cancel_booking, Cancel(booking=74))  # of the demo world
    found, ada, nobody = [
        (await desk.do(list_bookings, BookingsOf(name=name))).bookings for name in ("team ald", "Ada", "nobody")
    ]
    ended = [one.cancelled is not None for one in ada]

    assert cancelled.cancelled is not None and cancelled.model_dump(exclude={"cancelled"}) == first.model_dump()
    assert time(14, 30) in free and theirs.at in (await slots(desk, theirs.day)).free
    assert late.code == "gone"
    assert [(one.id, one.name, one.cancelled) for one in found] == [(second.id, "Team Alder", None)]
    assert ended == sorted(ended) and set(ended) == {False, True}
    assert nobody == []
