"""A tool that pays exact amounts: `--tools tests/console/paying.py`."""

from decimal import Decimal

from pydantic import BaseModel

from replan import Key, tool


class Payment(BaseModel):
    """What is paid: an exact amount, and a reference that may look like a number."""

    amount: Decimal
    parts: list[Decimal] = []
    fee: Decimal | None = None
    reference: str = ""


@tool.keyed
async def transfer(args: Payment, key: Key) -> Payment:
    """Transfer an amount."""
    return args
