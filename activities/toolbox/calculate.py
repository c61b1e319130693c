"""The kind `calculate`: arithmetic on decimal numbers, bounded in time and memory."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from decimal import (
    ROUND_HALF_UP,
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    Underflow,
    localcontext,
)
from typing import Annotated

from pydantic import BaseModel, Field, PlainSerializer
from simpleeval import InvalidExpression, SimpleEval  # type: ignore[import-untyped]  # it ships no types

from activities.toolbox.errors import Refused
from activities.toolbox.expression import MAX_SIGNS, Parsed, Unreadable, parse
from activities.toolbox.tool import tool

DIGITS = 50
"""Digits that are computed with."""
SHOWN = 28
"""Digits of a result that was rounded on the way."""
LARGEST = 999
"""The largest power of ten."""


def plain(value: Decimal) -> str:
    """Write a number without an exponent, unless it is longer than what is computed with."""
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


@tool.read
def calculate(args: Expression) -> Calculation:
    """Calculate an arithmetic expression exactly, in decimal numbers; knows percentages and a few functions."""
    with localcontext(_context()) as context:
        try:
            value = _evaluate(parse(args.expression, args.it))
        except Unreadable as wrong:
            raise _refused(str(wrong)) from None
        except DivisionByZero:
            raise _refused("It divides by zero, which has no value: change the divisor.") from None
        except InvalidOperation:
            raise _refused("It has no value among the numbers, like 0/0 or the root of a negative number.") from None
        except (Overflow, Underflow):
            raise _refused(f"Its numbers leave 10^-{LARGEST} to 10^{LARGEST}: use smaller powers.") from None
        except (InvalidExpression, RecursionError):
            raise _refused("A comma, star or bracket stands where none can: write 2 * (3), 0.5, 2450.") from None
        value = _tidy(value, exact=not context.flags[Inexact])
    return Calculation(expression=_with_it(args), value=value)


def _context() -> Context:
    """Decimal arithmetic that stays small, and says so instead of returning infinity."""
    traps = [DivisionByZero, InvalidOperation, Overflow, Underflow]
    return Context(prec=DIGITS, rounding=ROUND_HALF_UP, Emin=-LARGEST, Emax=LARGEST, traps=traps)


def _evaluate(parsed: Parsed) -> Decimal:
    names = {name: +number for name, number in parsed.numbers.items()}
    evaluator = SimpleEval(operators=_OPERATORS, functions=_FUNCTIONS, names=names)
    evaluator.nodes = {node: evaluator.nodes[node] for node in (ast.Name, ast.BinOp, ast.UnaryOp, ast.Call)}
    value: Decimal = evaluator.eval("", previously_parsed=parsed.tree)
    return value


def _tidy(value: Decimal, *, exact: bool) -> Decimal:
    """Drop what rounding left over, and trailing zeros."""
    shown = value if exact else Context(prec=SHOWN, rounding=ROUND_HALF_UP).plus(value)
    return shown.normalize() if shown else Decimal(0)


def _with_it(args: Expression) -> str:
    if args.it is None:
        return args.expression
    number = plain(args.it) if args.it >= 0 else f"({plain(args.it)})"
    return re.sub(r"\bit\b", number, args.expression, flags=re.IGNORECASE)


def _modulo(left: Decimal, right: Decimal) -> Decimal:
    """The remainder with the sign of the divisor, as in Python."""
    rest = left % right
    return rest + right if rest and (rest < 0) != (right < 0) else rest


def _floor_divide(left: Decimal, right: Decimal) -> Decimal:
    return (left - _modulo(left, right)) / right


def _round(value: Decimal, places: Decimal = Decimal(0)) -> Decimal:
    """Half away from zero, as taught at school."""
    if abs(places) > SHOWN or places != int(places):
        raise _refused(f"round(number, places) takes a whole number of places, at most {SHOWN}.")
    return value.quantize(Decimal(1).scaleb(-int(places)), rounding=ROUND_HALF_UP)


def _taking(most: int, function: Callable[..., Decimal]) -> Callable[..., Decimal]:
    def checked(*numbers: Decimal) -> Decimal:
        if not 1 <= len(numbers) <= most:
            raise _refused(f"A function got {len(numbers)} numbers: sqrt and abs take 1, round takes 1 or 2.")
        return function(*numbers)

    return checked


def _refused(reason: str) -> Refused:
    return Refused(f"The expression cannot be calculated. {reason}", code="invalid_input")


_FUNCTIONS: Mapping[str, Callable[..., Decimal]] = {
    "sqrt": _taking(1, Decimal.sqrt),
    "round": _taking(2, _round),
    "min": _taking(MAX_SIGNS, lambda *numbers: min(numbers)),
    "max": _taking(MAX_SIGNS, lambda *numbers: max(numbers)),
    "abs": _taking(1, abs),
}
_OPERATORS: Mapping[type[ast.AST], Callable[..., Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.MatMult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
