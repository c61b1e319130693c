"""Charges cards. The card company of this example is a file, `cards.txt` or CARDS, with what it has charged."""

import os
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel, Field

from replan import Refused, tool
from replan.forms import Form

WORDS = r"charge (?P<customer>\w+) (?P<amount>[0-9.]+) for order (?P<order>[0-9]+)"


class Charge(BaseModel):
    """Whom to charge, how much, and what for."""

    customer: str = Field(max_length=80)
    amount: Decimal = Field(gt=0, description="In EUR, e.g. 12.00")
    order: int


def _company() -> Path:
    return Path(os.environ.get("CARDS", "cards.txt"))


def _line(args: Charge) -> str:
    return f"order {args.order}: {args.customer} {args.amount:.2f} EUR"


@tool.read
async def find_charge(args: Charge) -> Charge:
    """Look whether an order was charged."""
    if not _company().exists() or _line(args) not in _company().read_text().splitlines():
        raise Refused(f"Order {args.order} was not charged.", code="not_found")
    return args


@tool.unkeyed(
    reconcile=find_charge,
    forms=[Form("charge NAME AMOUNT for order NUMBER", WORDS)],
    sentence=lambda paid, _: f"Charged {_line(paid)}.",
)
async def charge(args: Charge) -> Charge:
    """Charge a customer's card for an order."""
    with _company().open("a") as charged:
        print(_line(args), file=charged)
    return args
