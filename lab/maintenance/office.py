"""The tools of the tasks in the pictures of the page: a small office that pays, books rooms and writes letters."""

import asyncio
from datetime import date, time
from decimal import Decimal
from enum import StrEnum

from pydantic import BaseModel, Field

from replan import Key, NeedsPerson, Refused, Unreachable, tool

_calls = dict[str, int]()


class Room(StrEnum):
    """The rooms of the office."""

    GARDEN = "garden room"
    ATTIC = "attic"
    LIBRARY = "library"


class InvoiceNumber(BaseModel):
    """Which invoice."""

    number: str = Field(description="As it stands on the invoice, e.g. 2026-114")


class Invoice(BaseModel):
    """What an invoice says."""

    payee: str
    iban: str
    amount: Decimal
    due: date


class Payment(BaseModel):
    """What is paid, to whom."""

    payee: str = Field(description="Who is paid", max_length=80)
    iban: str = Field(description="The account of the payee", max_length=40)
    amount: Decimal = Field(description="In EUR", gt=0, le=10_000)
    due: date = Field(description="The day on which it is paid")
    reference: str = Field(default="", description="What the payee sees", max_length=140)


class Paid(BaseModel):
    """That it was paid."""

    id: str


class PaymentId(BaseModel):
    """Which payment."""

    id: str


class Booking(BaseModel):
    """Which room, when."""

    room: Room
    day: date
    at: time
    seats: int = Field(ge=1, le=40)
    catering: bool = False


class Booked(BaseModel):
    """That it was booked."""

    id: int
    room: Room
    at: time


class BookingId(BaseModel):
    """Which booking."""

    id: int


class Letter(BaseModel):
    """A letter."""

    to: str = Field(max_length=120)
    text: str


class Company(BaseModel):
    """Which company."""

    name: str


class Found(BaseModel):
    """What was found."""

    text: str


@tool.read
async def read_invoice(args: InvoiceNumber) -> Invoice:
    """Read an invoice of the archive."""
    _calls[args.number] = _calls.get(args.number, 0) + 1
    await asyncio.sleep(0.3)
    if args.number.startswith("2026") and _calls[args.number] < 3:  # an archive that is slow to wake up
        raise Unreachable("The archive did not answer.")
    return Invoice(
        payee="Stoll Chairs", iban="AT61 1904 3002 3457 3201", amount=Decimal("900.00"), due=date(2026, 12, 4)
    )


@tool.idempotent
async def refund(args: PaymentId) -> Paid:
    """Take a payment back."""
    return Paid(id=args.id)


@tool.keyed(approve="args.amount > 500", undo=refund.using(id="result.id"))
async def pay(args: Payment, key: Key) -> Paid:
    """Pay an amount to an account."""
    await asyncio.sleep(0.4)
    return Paid(id=f"P-{int(args.amount)}")


@tool.idempotent
async def cancel_room(args: BookingId) -> Found:
    """Cancel a booking of a room."""
    return Found(text="cancelled")


@tool.keyed(undo=cancel_room.using(id="result.id"))
async def book_room(args: Booking, key: Key) -> Booked:
    """Book a room of the office."""
    await asyncio.sleep(0.2)
    if args.at == time(14):
        raise Refused(f"The {args.room} is taken at {args.at:%H:%M}", code="conflict", observed={"free": ["14:30"]})
    return Booked(id=41, room=args.room, at=args.at)


@tool.keyed
async def send_letter(args: Letter, key: Key) -> Found:
    """Post a letter."""
    await asyncio.sleep(0.2)
    return Found(text="posted")


@tool.read
async def look_up_company(args: Company) -> Found:
    """Look a company up in the register."""
    raise NeedsPerson("The key for the company register was revoked.", code="unauthorized")


@tool.read(timeout=3600)
async def search_archive(args: Company) -> Found:
    """Search the whole archive for a company, which takes long."""
    await asyncio.sleep(3000)
    return Found(text="nothing")
