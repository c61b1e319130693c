"""The tools of the situations with tasks: `worker.py --tools FILE`; the variable `SITUATION` names their folder.

What befalls the next calls stands in the file `acts`, one line each.
"""

import os
import signal
import sqlite3
from pathlib import Path

from pydantic import BaseModel

from evals.situations.situation import Act
from replan import Refused, tool

FOLDER = Path(os.environ["SITUATION"])
ACTS, BOOK = FOLDER / "acts", FOLDER / "book"


class Customer(BaseModel):
    """Whose charges."""

    customer: str
    note: str


class Order(Customer):
    """What to charge."""

    amount: int


class Charged(BaseModel):
    """A charge."""

    charged: int


class Price(BaseModel):
    """What the world says now."""

    rejections: int


@tool.read
async def price(args: Customer) -> Price:
    """Look at the world, which changes with each rejection."""
    return Price(rejections=_rejections())


@tool.read
async def find_charge(args: Customer) -> Charged:
    """Find a charge."""
    with _book() as book:
        query = "SELECT amount FROM charges WHERE customer = ? AND note = ?"
        row = book.execute(query, (args.customer, args.note)).fetchone()
    if row is None:
        raise Refused("There is no such charge.", code="not_found")
    return Charged(charged=row[0])


@tool.unkeyed(
    observe=price,
    reconcile=find_charge.using(customer="args.customer", note="args.note"),
    settle=0.1,
    timeout=5,
)
async def charge(args: Order) -> Charged:
    """Charge, and look it up if nobody knows."""
    return _charged(args)


@tool.unkeyed(observe=price, timeout=5)
async def charge_blindly(args: Order) -> Charged:
    """Charge; nothing can look it up."""
    return _charged(args)


def _charged(args: Order) -> Charged:
    act, *later = [*ACTS.read_text().splitlines(), Act.OK] if ACTS.exists() else [Act.OK]
    ACTS.write_text("\n".join(later[:-1]))
    if act == Act.DIE_BEFORE:
        os.kill(os.getpid(), signal.SIGKILL)
    if act == Act.REJECT:
        before = _rejections()
        (FOLDER / f"rejected-{before}").touch()
        raise Refused("The price moved.", code="conflict", observed=Price(rejections=before).model_dump())
    with _book() as book:
        book.execute("INSERT INTO charges VALUES (?, ?, ?)", (args.customer, args.amount, args.note))
    if act == Act.DIE_AFTER:
        os.kill(os.getpid(), signal.SIGKILL)
    if act == Act.LOSE_ANSWER:
        raise TimeoutError("no answer")
    return Charged(charged=args.amount)


def _book() -> sqlite3.Connection:
    book = sqlite3.connect(BOOK, timeout=30)
    book.execute("CREATE TABLE IF NOT EXISTS charges (customer TEXT, amount INTEGER, note TEXT)")
    return book


def _rejections() -> int:
    return len(list(FOLDER.glob("rejected-*")))
