"""The tools of the worker behind `serve`: `--tools extras/web/tests/tools.py`."""

import asyncio
from typing import Literal

from pydantic import BaseModel, Field

from replan import CircuitBreaker, Key, NeedsPerson, Unreachable, tool


class Amount(BaseModel):
    """What is paid."""

    amount: int = Field(default=0, ge=0)


class Receipt(BaseModel):
    """That it was paid."""

    id: int


@tool.idempotent
async def refund(args: Amount) -> Receipt:
    """Pay back."""
    return Receipt(id=args.amount)


@tool.idempotent(approve="args.amount > 500")
async def wire(args: Amount) -> Receipt:
    """Wire money out."""
    return Receipt(id=args.amount)


@tool.keyed(undo=wire)
async def reserve(args: Amount, key: Key) -> Receipt:
    """Reserve an amount."""
    return Receipt(id=args.amount)


@tool.keyed(approve="args.amount > 500", undo=refund.using(amount="result.id"))
async def charge(args: Amount, key: Key) -> Receipt:
    """Charge a card."""
    await asyncio.sleep(args.amount / 1000 if args.amount < 500 else 0)
    return Receipt(id=args.amount)


class Letter(BaseModel):
    """What is sent."""

    to: str
    text: str = ""


@tool.idempotent
async def send(args: Letter) -> Letter:
    """Send a letter."""
    return args


@tool.read(untrusted=True)
async def wish(args: Amount) -> Letter:
    """Read what somebody wishes."""
    return Letter(to="mallory")


class Gift(BaseModel):
    """What is given; much of it may be left out."""

    to: str
    amount: int = 20
    currency: Literal["EUR", "CHF"] = "EUR"
    note: str | None = None


@tool.keyed(approve="always", undo=refund.using(amount="result.id"))
async def give(args: Gift, key: Key) -> Receipt:
    """Give somebody money."""
    return Receipt(id=args.amount)


@tool.read
async def shut(args: Amount) -> Receipt:
    """Need a key that nobody has."""
    raise NeedsPerson("The key was revoked.", code="unauthorized")


@tool.read(breaker=CircuitBreaker(failures=1, calls=1, recovery=3600))
async def knock(args: Amount) -> Receipt:
    """Knock where nobody answers."""
    raise Unreachable("Nobody answers.")
