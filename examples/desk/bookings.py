"""The shared calendar: `list_slots`, `book_slot`, `list_bookings` and `cancel_booking`.

To move a booking, book another slot and cancel it.
"""

from datetime import UTC, date, datetime, time
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, PlainSerializer
from pydantic_core import PydanticCustomError
from sqlalchemy import (
    Column,
    Date,
    ForeignKey,
    Integer,
    String,
    Table,
    Time,
    UniqueConstraint,
    exists,
    func,
    insert,
    select,
    update,
)

from replan import Moment, Refused, Transaction, metadata, tool

SLOTS = Table(
    "slots",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("day", Date, nullable=False),
    Column("at", Time, nullable=False),
    Column("name", String(80)),
    UniqueConstraint("day", "at"),
)
"""The slots of the calendar; a slot without a name is free."""

BOOKINGS = Table(
    "bookings",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("slot", ForeignKey("slots.id"), nullable=False),
    Column("name", String(80), nullable=False),
    Column("cancelled", Moment),
    sqlite_autoincrement=True,
)
"""The bookings. No row is deleted, so the id of a cancelled booking is never used for another booking."""

MAX_DAYS = 3  # how many other days are suggested if a day has no free slot
MAX_LISTED = 20


def clock(at: time) -> str:
    return f"{at:%H:%M}"


def _local(at: time) -> time:
    if at.tzinfo is not None:
        raise PydanticCustomError("zoned_time", "Input should be a time without a time zone: write 14:00")
    return at


Clock = Annotated[time, AfterValidator(_local), PlainSerializer(clock, return_type=str)]


class Day(BaseModel):
    """Which day."""

    day: date = Field(description="ISO date, e.g. 2025-11-21")


class Slots(BaseModel):
    """The free slots of a day."""

    day: date
    free: list[Clock]
    days: list[date] = Field(default_factory=list)
    """The next days with free slots, if `day` has none."""


class Book(BaseModel):
    """Which slot, and for whom."""

    day: date = Field(description="ISO date, e.g. 2025-11-21")
    at: Clock = Field(description="When the slot begins, e.g. 14:00")
    name: str = Field(description="The person or team that the slot is for", min_length=1, max_length=80)


class Booking(BaseModel):
    """A slot that was booked."""

    id: int
    day: date
    at: Clock
    name: str


class BookingsOf(BaseModel, extra="forbid"):
    """Which bookings; without an argument all."""

    booking: int | None = Field(default=None, description="The id of one booking", ge=1, lt=2**31)
    name: str | None = Field(default=None, description="Part of the name that it was booked in", max_length=80)


class Entry(Booking, from_attributes=True):
    """A booking, which may have been cancelled."""

    cancelled: datetime | None = None


class Entries(BaseModel):
    """Bookings that are not cancelled first, the latest of them first."""

    bookings: list[Entry]


class Cancel(BaseModel):
    """Which booking."""

    booking: int = Field(description="The id of the booking, as book_slot returned it", ge=1, lt=2**31)


@tool.read
async def list_slots(args: Day, tx: Transaction) -> Slots:
    """List the free slots of one day in the calendar."""
    of_day = select(SLOTS.c.at).where(SLOTS.c.day == args.day)
    free = list(await tx.scalars(of_day.where(SLOTS.c.name.is_(None)).order_by(SLOTS.c.at)))
    later = select(SLOTS.c.day).where(SLOTS.c.name.is_(None), SLOTS.c.day > args.day).distinct().order_by(SLOTS.c.day)
    days = [] if free else list(await tx.scalars(later.limit(MAX_DAYS)))
    if not free and not await tx.scalar(select(exists(of_day))):
        last = await tx.scalar(select(func.max(SLOTS.c.day)))
        reason = f"The calendar has no slots on {args.day}; its last day is {last}: choose a day that has some."
        raise Refused(reason, code="not_found", observed={"free": [], "days": days})
    return Slots(day=args.day, free=free, days=days)


@tool.read
async def list_bookings(args: BookingsOf, tx: Transaction) -> Entries:
    """List bookings of the calendar with their ids, by name or id; 20 at the most, those in force first."""
    columns = (BOOKINGS.c.id, SLOTS.c.day, SLOTS.c.at, BOOKINGS.c.name, BOOKINGS.c.cancelled)
    order = (BOOKINGS.c.cancelled.is_not(None), BOOKINGS.c.id.desc())
    query = select(*columns).join_from(BOOKINGS, SLOTS).order_by(*order).limit(MAX_LISTED)
    if args.booking is not None:
        query = query.where(BOOKINGS.c.id == args.booking)
    if args.name is not None:
        query = query.where(BOOKINGS.c.name.icontains(args.name, autoescape=True))
    return Entries(bookings=[Entry.model_validate(row) for row in await tx.execute(query)])


@tool.transactional(observe=list_bookings)
async def cancel_booking(args: Cancel, tx: Transaction) -> Entry:
    """Cancel one booking of the calendar, so that its slot is free again."""
    live = (BOOKINGS.c.id == args.booking) & BOOKINGS.c.cancelled.is_(None)
    slot = await tx.scalar(update(BOOKINGS).where(live).values(cancelled=datetime.now(UTC)).returning(BOOKINGS.c.slot))
    found = (await list_bookings(BookingsOf(booking=args.booking), tx)).bookings
    if slot is None:
        raise await _not_live(args.booking, found, tx)
    await tx.execute(update(SLOTS).where(SLOTS.c.id == slot).values(name=None))
    return found[0]


@tool.transactional(observe=list_slots, undo=cancel_booking.using(booking="result.id"))
async def book_slot(args: Book, tx: Transaction) -> Booking:
    """Book one free slot of the calendar in the name of a person or team."""
    slot = (SLOTS.c.day == args.day) & (SLOTS.c.at == args.at)
    free = SLOTS.c.name.is_(None)
    taken = await tx.scalar(update(SLOTS).where(slot & free).values(name=args.name).returning(SLOTS.c.id))
    if taken is None:
        is_taken = await tx.scalar(select(exists().where(slot)))
        raise _not_free(args, await list_slots(Day(day=args.day), tx), is_taken=bool(is_taken))
    id = await tx.scalar(insert(BOOKINGS).values(slot=taken, name=args.name).returning(BOOKINGS.c.id))
    return Booking(id=id, day=args.day, at=args.at, name=args.name)


def _not_free(args: Book, slots: Slots, *, is_taken: bool) -> Refused:
    what = f"{clock(args.at)} is taken on {args.day}" if is_taken else f"{clock(args.at)} is no slot of {args.day}"
    nearest = sorted(sorted(slots.free, key=lambda at: abs(_minutes(at) - _minutes(args.at)))[:3])
    offer = f"the nearest free ones are {', '.join(map(clock, nearest))}" if nearest else "nothing is free on that day"
    observed = slots.model_dump(mode="json", include={"free", "days"})
    return Refused(f"{what}; {offer}.", code="conflict" if is_taken else "not_found", observed=observed)


async def _not_live(id: int, found: list[Entry], tx: Transaction) -> Refused:
    if not found:
        reason = f"There is no booking {id}: look for it by name with list_bookings."
        return Refused(reason, code="not_found", observed=await list_bookings(BookingsOf(), tx))
    reason = f"Booking {id} was cancelled at {found[0].cancelled:%Y-%m-%d %H:%M} UTC: there is nothing left to cancel."
    return Refused(reason, code="gone", observed=Entries(bookings=found))


def _minutes(at: time) -> int:
    return at.hour * 60 + at.minute
