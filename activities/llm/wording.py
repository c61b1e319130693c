"""The answer in words: one sentence for each finished step."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta

from pydantic import JsonValue, ValidationError

from activities.toolbox.calculate import Calculation, plain
from activities.toolbox.desk.bookings import Booking, Slots, clock
from activities.toolbox.search import Found
from workflows.plan import canonical
from workflows.task import StepRecord

MAX_SENTENCE, MAX_SLOTS = 500, 8


def tell(records: Sequence[StepRecord], today: date) -> str:
    """What the finished steps came to, in the order of the plan."""
    return "\n".join(_sentence(record, today)[:MAX_SENTENCE] for record in records)


def _sentence(record: StepRecord, today: date) -> str:
    phrase = _PHRASES.get(record.kind)
    if phrase is not None:
        try:
            return phrase(record.result, today)
        except ValidationError:
            pass  # a kind of the same name with another result
    return f"{record.step.label or record.step.id}: {_brief(record.result)}"


def _booked(result: JsonValue, today: date) -> str:
    booking = Booking.model_validate(result)
    name = f"the {booking.name}" if booking.name[:1].islower() else booking.name
    whom = "" if booking.name == "me" else f" for {name}"
    return f"Booked {clock(booking.at)} {_day(booking.day, today)}{whom}."


def _listed(result: JsonValue, today: date) -> str:
    slots = Slots.model_validate(result)
    day = _day(slots.day, today)
    if not slots.free:
        return f"Nothing is free {day}."
    more = len(slots.free) - MAX_SLOTS
    times = ", ".join(clock(at) for at in slots.free[:MAX_SLOTS])
    return f"Free {day}: {times}{f' and {more} more' if more > 0 else ''}."


def _searched(result: JsonValue, _today: date) -> str:
    found = Found.model_validate(result)
    if not found.hits:
        return f"Nothing was found for {found.query}."
    best = found.hits[0]
    return f"{best.title}: {best.text} ({best.path}, line {best.line})"


def _calculated(result: JsonValue, _today: date) -> str:
    calculation = Calculation.model_validate(result)
    return f"{calculation.expression} = {plain(calculation.value)}."


_PHRASES: Mapping[str, Callable[[JsonValue, date], str]] = {
    "book_slot": _booked,
    "list_slots": _listed,
    "search": _searched,
    "calculate": _calculated,
}


def _day(day: date, today: date) -> str:
    near = {today: "today", today + timedelta(days=1): "tomorrow"}
    return near.get(day, f"on {day}")


def _brief(value: JsonValue) -> str:
    """A result as text: the plain fields of an object, everything else as JSON."""
    if isinstance(value, dict) and value:
        return ", ".join(f"{name} {item if isinstance(item, str) else canonical(item)}" for name, item in value.items())
    return value if isinstance(value, str) else canonical(value)
