"""Forms for the calendar: book, move, cancel, list."""

import re
from datetime import date, time

from activities.llm.clause import unquoted
from activities.llm.forms.form import IT, THEM, It, Own, Wanted, form, number_or_it
from activities.llm.forms.noun import BOOKED_DAY, BOOKED_NAME, BOOKING
from activities.llm.moment import WEEKDAYS, read_day, read_time
from activities.toolbox.desk.bookings import clock

_ON = rf"today|tomorrow|(?:(?:this|next)\s+)?(?:{'|'.join(WEEKDAYS)})"
_PART = re.compile(rf"(?:^|(?<!next)(?<!this)\s+)(?=(?:for|on|at|{_ON})\b)", re.IGNORECASE)
_BOOKING = r"(?:(?:the|my|our)\s+)?booking\s+(?:no\.?\s*|#\s*)?[0-9]{1,9}"


def _parts(rest: str) -> dict[str, str] | None:
    """What follows `for`, `on` and `at`; None when something else stands there, or one of them twice."""
    parts = dict[str, str]()
    for part in filter(None, (part.strip(" ,\n") for part in _PART.split(rest))):
        word, _, value = part.partition(" ")
        if re.fullmatch(_ON, part.split(",")[0], re.IGNORECASE) or re.match(rf"(?:{_ON})\b", part, re.IGNORECASE):
            word, value = "on", part
        if word.lower() not in ("for", "on", "at") or (value and word.lower() in parts):
            return None
        if value:
            parts[word.lower()] = value
    return parts


def _name(said: str) -> str:
    return re.sub(r"^(?:the|my|our)\s+", "", unquoted(said), flags=re.IGNORECASE)


def _book(found: re.Match[str], today: date) -> tuple[Wanted, ...] | None:
    parts = _parts(found["rest"])
    if parts is None or "at" not in parts:
        return None
    day, at = read_day(parts.get("on", "today"), today), read_time(parts["at"])
    name = _name(parts.get("for", "me"))
    if day is None or at is None or not name:
        return None
    title = f"{name} {clock(at)}" if day == today else f"{name} {day} {clock(at)}"
    return (Wanted("book_slot", "book", {"day": day.isoformat(), "at": clock(at), "name": name}, title),)


def _list(found: re.Match[str], today: date) -> tuple[Wanted, ...] | None:
    parts = _parts(found["rest"])
    if parts is None or "at" in parts or len(parts) > 1:
        return None
    day = read_day(next(iter(parts.values()), "today"), today)
    if day is None:
        return None
    title = f"free slots {'today' if day == today else day}"
    return (Wanted("list_slots", "slots", {"day": day.isoformat()}, title),)


def _move(found: re.Match[str], today: date) -> tuple[Wanted, ...] | None:
    """Book first, then cancel: when the new slot is refused, the old booking is still there."""
    to = _moment(found["to"], today)
    booking = number_or_it(found["booking"], BOOKING)
    if to is None or (isinstance(booking, It) and booking.is_each):
        return None
    day, at = to
    what = f"booking {booking}" if isinstance(booking, int) else "{it}"
    is_looked_up = isinstance(booking, int)
    look = (Wanted("list_bookings", "booking", {"booking": booking}, what),) if is_looked_up else ()
    name, its_day = (Own(0, noun) if is_looked_up else It(noun) for noun in (BOOKED_NAME, BOOKED_DAY))
    args = {"day": day.isoformat() if day else its_day, "at": clock(at), "name": name}
    book = Wanted("book_slot", "move", args, f"{what} to {f'{day} ' if day else ''}{clock(at)}")
    return (*look, book, Wanted("cancel_booking", "cancel", {"booking": booking}, f"cancel {what}", is_last=True))


def _moment(said: str, today: date) -> tuple[date | None, time] | None:
    """A time, or a day and a time; without a day it stays what it was."""
    words = re.sub(r"^(?:on|at)\s+", "", said.strip(), flags=re.IGNORECASE).split()
    for count in (1, 2, 3):
        at = read_time(" ".join(words[-count:])) if count <= len(words) else None
        if at is None:
            continue
        before = re.sub(r"[\s,]*\bat$", "", " ".join(words[:-count]), flags=re.IGNORECASE)
        day = read_day(before, today) if before else None
        if day is not None or not before:
            return day, at
    return None


def _cancel(found: re.Match[str], _today: date) -> tuple[Wanted, ...]:
    booking = number_or_it(found["booking"], BOOKING)
    what = f"booking {booking}" if isinstance(booking, int) else "{it}"
    return (Wanted("cancel_booking", "cancel", {"booking": booking}, f"cancel {what}"),)


def _list_bookings(found: re.Match[str], _today: date) -> tuple[Wanted, ...]:
    name = _name(found["name"]) if found["name"] else ""
    title = f"bookings for {name}" if name else "bookings"
    return (Wanted("list_bookings", "bookings", {"name": name} if name else {}, title),)


FORMS = (
    form(
        "book_slot",
        "book a slot [for NAME] [on DATE] at 14:00",
        "book a slot for the team on Friday at 14:00",
        r"(?:book|reserve)(?:\s+(?:me|us))?(?:\s+(?:an?|the|one))?(?:\s+free)?\s+(?:time\s+)?slot\b(?P<rest>.*)",
        _book,
    ),
    form(
        "list_bookings book_slot cancel_booking",
        "move booking 12 to [DATE] 15:00",
        "move booking 12 to Monday 15:00",
        rf"(?:move|reschedule)\s+(?P<booking>{_BOOKING}|{IT})\s+to\s+(?P<to>.+)",
        _move,
    ),
    form(
        "cancel_booking",
        "cancel booking 12",
        "book a slot at 14:00, book a slot at 15:00, then cancel them",
        rf"cancel\s+(?P<booking>{_BOOKING}|{IT}|{THEM})",
        _cancel,
    ),
    form(
        "list_slots",
        "list the free slots [on DATE]",
        "list the free slots on 24 November",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|any))*(?:\s+(?:free|open|available))?\s+slots\b(?P<rest>.*)",
        _list,
    ),
    form(
        "list_bookings",
        "list the bookings [for NAME]",
        "list the bookings for Ada",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our))*\s+bookings(?:\s+(?:for|of)\s+(?P<name>.+))?",
        _list_bookings,
    ),
)
