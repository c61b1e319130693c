"""Charges cards. The card company of this example is a file, `cards.txt` or CARDS, with what it has charged."""

import os
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel, Field

from replan import Refused, tool

CARDS = Path(os.environ.get("CARDS", "cards.txt"))


class Charge(BaseModel):
    """Whom to charge, how much, and what for."""

    customer: str = Field(max_length=80)
    amount: Decimal = Field(gt=0, description="In EUR, e.g. 12.00")
    order: int


def line(args: Charge) -> str:
    return f"order {args.order}: {args.customer} {args.amount:.2f} EUR"


def charged() -> list[str]:
    return CARDS.read_text().splitlines() if CARDS.exists() else []


def pay(entry: str) -> None:
    with CARDS.open("a") as company:
        print(entry, file=company)


@tool.read
async def find_charge(args: Charge) -> Charge:
    """Look whether an order was charged."""
    if line(args) not in charged():
        raise Refused(f"Order {args.order} was not charged.", code="not_found")
    return args  # found: this is the result


@tool.unkeyed(reconcile=find_charge)
async def charge(args: Charge) -> Charge:
    """Charge a customer's card for an order."""
    pay(line(args))
    return args
