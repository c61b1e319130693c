"""The kinds `list_slots` and `book_slot`: a small calendar in the store, shared by everybody who books in it."""

from collections.abc import Iterator
from datetime import date, time, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, PlainSerializer
from pydantic_core import PydanticCustomError
from sqlalchemy import (
    Column,
    Date,
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
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.store import metadata, writing
from activities.toolbox.errors import Refused
from activities.toolbox.injection import Transaction
from activities.toolbox.tool import tool

SLOTS = Table(
    "slots",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("day", Date, nullable=False),
    Column("at", Time, nullable=False),
    Column("name", String(80)),
    UniqueConstraint("day", "at"),
)
"""One row a slot; it is free while it has no name."""

MAX_DAYS = 3
"""Other days that are named when a day has nothing free."""
DEMO_DAYS = 14
DEMO_NAMES = ("Ada", "Grace", "the night shift", "Linus", "the auditors")


def clock(at: time) -> str:
    """Write a time as on a clock: 14:00."""
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
    """What is free on a day."""

    day: date
    free: list[Clock]
    days: list[date] = Field(default_factory=list)
    """The next days with free slots, when this one has none."""


class Book(BaseModel):
    """Which slot, and for whom."""

    day: date = Field(description="ISO date, e.g. 2025-11-21")
    at: Clock = Field(description="When the slot begins, e.g. 14:00")
    name: str = Field(description="The person or team that the slot is for", min_length=1, max_length=80)


class Booking(BaseModel):
    """A slot that is taken now."""

    id: int
    day: date
    at: Clock
    name: str


@tool.read
async def list_slots(args: Day, tx: Transaction) -> Slots:
    """List the free slots of one day in the calendar."""
    of_day = select(SLOTS.c.at).where(SLOTS.c.day == args.day)
    free = list(await tx.scalars(of_day.where(SLOTS.c.name.is_(None)).order_by(SLOTS.c.at)))
    days = [] if free else await _later_days(args.day, tx)
    if not free and not await tx.scalar(select(exists(of_day))):
        last = await tx.scalar(select(func.max(SLOTS.c.day)))
        reason = f"The calendar has no slots on {args.day}; its last day is {last}: choose a day that has some."
        raise Refused(reason, code="not_found", observed={"free": [], "days": days})
    return Slots(day=args.day, free=free, days=days)


@tool.transactional(observe=list_slots)
async def book_slot(args: Book, tx: Transaction) -> Booking:
    """Book one free slot of the calendar in the name of a person or team."""
    slot = (SLOTS.c.day == args.day) & (SLOTS.c.at == args.at)
    free = SLOTS.c.name.is_(None)
    id = await tx.scalar(update(SLOTS).where(slot & free).values(name=args.name).returning(SLOTS.c.id))
    if id is None:
        is_taken = await tx.scalar(select(exists().where(slot)))
        raise _not_free(args, await list_slots(Day(day=args.day), tx), is_taken=bool(is_taken))
    return Booking(id=id, day=args.day, at=args.at, name=args.name)


async def seed(engine: AsyncEngine, today: date) -> None:
    """Fill an empty calendar with two weeks of half hours from 09:00 to 17:00, some of them taken by other people."""
    rows = list(_demo_world(today))
    try:
        async with writing(engine).begin() as tx:
            if not await tx.scalar(select(func.count()).select_from(SLOTS)):
                await tx.execute(insert(SLOTS), rows)
    except IntegrityError:
        return  # another worker filled it in the same moment


async def _later_days(day: date, tx: Transaction) -> list[date]:
    """The next days with free slots: who cannot come on a day is rarely helped by an earlier one."""
    days = select(SLOTS.c.day).where(SLOTS.c.name.is_(None), SLOTS.c.day > day).distinct()
    return list(await tx.scalars(days.order_by(SLOTS.c.day).limit(MAX_DAYS)))


def _not_free(args: Book, slots: Slots, *, is_taken: bool) -> Refused:
    what = f"{clock(args.at)} is taken on {args.day}" if is_taken else f"{clock(args.at)} is no slot of {args.day}"
    nearest = sorted(sorted(slots.free, key=lambda at: abs(_minutes(at) - _minutes(args.at)))[:3])
    offer = f"the nearest free ones are {', '.join(map(clock, nearest))}" if nearest else "nothing is free on that day"
    observed = slots.model_dump(mode="json", include={"free", "days"})
    return Refused(f"{what}; {offer}.", code="conflict" if is_taken else "not_found", observed=observed)


def _minutes(at: time) -> int:
    return at.hour * 60 + at.minute


def _demo_world(today: date) -> Iterator[dict[str, Any]]:
    """On the first day 14:00 is taken, 14:30 and 15:00 are free; elsewhere about every third slot is taken."""
    for ahead in range(DEMO_DAYS):
        for half in range(16):
            at = time(9 + half // 2, half % 2 * 30)
            is_taken = (ahead * 5 + half * 7) % 3 == 0
            if ahead == 0 and time(14) <= at <= time(15):
                is_taken = at == time(14)
            name = DEMO_NAMES[(ahead + half) % len(DEMO_NAMES)] if is_taken else None
            yield {"day": today + timedelta(days=ahead), "at": at, "name": name}
