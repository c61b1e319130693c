"""Charges cards; the card company of this example is a file with what it has charged, `cards.txt` or CARDS."""

import os
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel, Field

from replan import Refused, tool
from replan.forms import Form

FORM = Form("charge NAME AMOUNT for order NUMBER", r"charge (?P<customer>\w+) (?P<amount>[0-9.]+) for order (?P<order>[0-9]+)")


class Charge(BaseModel):
    customer: str = Field(max_length=80)
    amount: Decimal = Field(gt=0, decimal_places=2)
    order: int


def company() -> Path:
    return Path(os.environ.get("CARDS", "cards.txt"))


@tool.read
async def find_charge(args: Charge) -> Charge:
    """Find the charge for an order."""
    line = f"{args.order} {args.customer} {args.amount}"
    if not company().exists() or line not in company().read_text().splitlines():
        raise Refused(f"Nothing was charged for order {args.order}.", code="not_found")
    return args


@tool.unkeyed(reconcile=find_charge, forms=[FORM], sentence=lambda paid, _: f"Charged {paid.customer} {paid.amount} for order {paid.order}.")
async def charge(args: Charge) -> Charge:
    """Charge a customer's card for an order."""
    with company().open("a") as charged:
        print(args.order, args.customer, args.amount, file=charged)
    return args
