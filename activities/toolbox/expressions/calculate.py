"""The kind `calculate`: exact arithmetic, written as people write it."""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field, PlainSerializer

from activities.errors import Refused
from activities.toolbox.declare.tool import tool
from activities.toolbox.expressions.evaluation import DIGITS, FUNCTIONS, OPERATORS, SHOWN, bounded, evaluate, settled
from activities.toolbox.expressions.expression import Reader, Unreadable


def plain(value: Decimal) -> str:
    """Write a number without an exponent if |number| is from 10^-`SHOWN` to below 10^`DIGITS`; else as `str` does."""
    return format(value, "f") if -SHOWN <= value.adjusted() < DIGITS else str(value)


class Expression(BaseModel):
    """What to calculate."""

    expression: str = Field(
        description="Arithmetic, e.g. 18% of 2450, 2450 + 18%, (3 + 4) * 2 ^ 3, 7 % 3, sqrt(2), round(2.675, 2), "
        "min(1, 2), max(1, 2), abs(-3)",
        max_length=1000,
    )
    it: Decimal | None = Field(
        default=None,
        max_digits=1000,
        description="The number that the word `it` in the expression stands for: an earlier result",
    )


class Calculation(BaseModel):
    """An expression and its value."""

    expression: str
    value: Annotated[Decimal, PlainSerializer(plain, return_type=str)]


@tool.pure
def calculate(args: Expression) -> Calculation:
    """Calculate an arithmetic expression exactly, in decimal numbers; knows percentages and a few functions."""
    try:
        value = _value(args)
    except Unreadable as wrong:
        raise Refused(f"The expression cannot be calculated. {wrong}", code="invalid_input") from None
    return Calculation(expression=_with_number_for_it(args), value=value)


def _value(args: Expression) -> Decimal:
    reader = Reader({} if args.it is None else {"it": args.it})
    tree = reader.read(args.expression)
    with bounded():
        names = {name: +number for name, number in reader.numbers.items()}
        value = settled(evaluate(tree, names, OPERATORS, FUNCTIONS, Reader.nodes))
        return value.normalize() if value else Decimal(0)


def _with_number_for_it(args: Expression) -> str:
    if args.it is None:
        return args.expression
    number = plain(args.it) if args.it >= 0 else f"({plain(args.it)})"
    return re.sub(r"\bit\b", number, args.expression, flags=re.IGNORECASE)
