"""Tools of a worker that is watched: one for each kind of fault, by their names."""

import asyncio
from collections import Counter

from pydantic import BaseModel

from replan import Busy, CircuitBreaker, Key, NeedsPerson, Refused, Unreachable, tool

CALLS: Counter[str] = Counter()
PAID: set[str] = set()


class Nothing(BaseModel):
    """No arguments."""


class Payment(BaseModel):
    """A payment by its reference."""

    reference: str


class Done(BaseModel):
    """What every tool returns."""

    reference: str = ""


@tool.read
async def blink(args: Nothing) -> Done:
    """Answer every second time."""
    CALLS["blink"] += 1
    if CALLS["blink"] % 2:
        raise Unreachable("Nobody answers.")
    return Done()


@tool.read
async def queue_up(args: Nothing) -> Done:
    """Be busy every second time."""
    CALLS["queue_up"] += 1
    if CALLS["queue_up"] % 2:
        raise Busy("Later.", retry_after=0.1)
    return Done()


@tool.read
async def look_up(args: Nothing) -> Done:
    """Find nothing."""
    raise Refused("There is no such article.", code="not_found")


@tool.read
async def unlock(args: Nothing) -> Done:
    """Lack a right."""
    raise NeedsPerson("The key was withdrawn.", code="unauthorized")


@tool.read(breaker=CircuitBreaker(failures=2, calls=1, recovery=3600))
async def knock(args: Nothing) -> Done:
    """Never answer."""
    raise Unreachable("Nobody answers.")


@tool.read
async def find_payment(args: Payment) -> Done:
    """Find a payment."""
    if args.reference not in PAID:
        raise Refused("There is none.", code="not_found")
    return Done(reference=args.reference)


@tool.unkeyed(reconcile=find_payment.using(reference="key"), settle=0.1, timeout=0.2)
async def pay(args: Nothing, key: Key) -> Done:
    """Pay, and answer too late."""
    PAID.add(key)
    await asyncio.sleep(30)
    return Done()


@tool.unkeyed(timeout=0.2)
async def send(args: Nothing) -> Done:
    """Send, and answer too late."""
    await asyncio.sleep(30)
    return Done()
