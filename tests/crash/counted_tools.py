"""Tools whose calls meet every quadrant of faults: which one follows from the arguments."""

from collections import Counter
from typing import Literal

from pydantic import BaseModel
from sqlalchemy import text

from replan import Busy, CircuitBreaker, Key, NeedsPerson, Refused, Transaction, Unreachable, tool

Case = Literal["good", "down", "stays_down", "busy", "gone", "shut"]
ATTEMPTS = Counter[str]()
"""By call, how many attempts were made; one worker process runs them all."""
PAID = set[str]()


class Wanted(BaseModel):
    """What is wanted, and what happens to it."""

    name: str
    case: Case = "good"


class Found(BaseModel):
    """What was found."""

    name: str


def _attempt(args: Wanted, kind: str) -> int:
    ATTEMPTS[f"{kind} {args.name}"] += 1
    return ATTEMPTS[f"{kind} {args.name}"]


@tool.read(breaker=None)
async def look(args: Wanted) -> Found:
    """Look something up."""
    attempt = _attempt(args, "look")
    if args.case == "stays_down" or (args.case == "down" and attempt < 3):
        raise Unreachable("Nobody answers.")
    if args.case == "busy" and attempt < 2:
        raise Busy("Too many at once.", retry_after=0.05)
    if args.case == "gone":
        raise Refused("It is gone.", code="gone", observed={"left": 0})
    if args.case == "shut":
        raise NeedsPerson("The key was revoked.", code="unauthorized")
    return Found(name=args.name)


@tool.read
async def elsewhere(args: Wanted) -> Found:
    """Look it up where it always is."""
    return Found(name=args.name)


@tool.read(fallback=elsewhere, breaker=None)
async def nearby(args: Wanted) -> Found:
    """Look it up where nobody answers."""
    raise Unreachable("Nobody answers.")


@tool.read(breaker=CircuitBreaker(failures=3, calls=1, recovery=8.0))
async def shaky(args: Wanted) -> Found:
    """Look it up at a service that is down for the first four calls."""
    ATTEMPTS["shaky"] += 1
    if ATTEMPTS["shaky"] <= 4:
        raise Unreachable("Nobody answers.")
    return Found(name=args.name)


@tool.read
async def find_payment(args: Wanted) -> Found:
    """Find a payment."""
    if args.name not in PAID:
        raise Refused("There is none.", code="not_found")
    return Found(name=args.name)


@tool.keyed(reconcile=find_payment.using(name="args.name"), retry="standard", breaker=None)
async def pay(args: Wanted, key: Key) -> Found:
    """Pay; the answer of the first attempt is lost, and the second is told that it is paid."""
    if args.name in PAID:
        raise Refused("It is paid already.", code="conflict")
    PAID.add(args.name)
    raise TimeoutError


@tool.transactional
async def book(args: Wanted, tx: Transaction) -> Found:
    """Book in the worker's own store."""
    await tx.execute(text("CREATE TABLE IF NOT EXISTS booked (name TEXT)"))
    await tx.execute(text("INSERT INTO booked VALUES (:name)"), {"name": args.name})
    return Found(name=args.name)


@tool.read(approve="always")
async def ask_first(args: Wanted) -> Found:
    """Look up what is looked up only with an approval."""
    return Found(name=args.name)


TOOLS = [look, elsewhere, nearby, shaky, find_payment, pay, book, ask_first]
