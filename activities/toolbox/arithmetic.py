"""Arithmetic on decimal numbers, bounded in time and memory, and the evaluator that knows nothing else."""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import (
    ROUND_HALF_UP,
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    Underflow,
    getcontext,
    localcontext,
)
from typing import Any

from simpleeval import SimpleEval  # type: ignore[import-untyped]  # it ships no types

from activities.toolbox.expression import Unreadable

DIGITS = 50
"""Digits that are computed with."""
SHOWN = 28
"""Digits of a result that was rounded on the way."""
LARGEST = 999
"""The largest power of ten."""


@contextmanager
def bounded() -> Iterator[None]:
    """Let decimal arithmetic stay small in this block, and say what has no value.

    Raises:
        Unreadable: a result is no number, or too large or too small.
    """
    traps = [DivisionByZero, InvalidOperation, Overflow, Underflow]
    with localcontext(Context(prec=DIGITS, rounding=ROUND_HALF_UP, Emin=-LARGEST, Emax=LARGEST, traps=traps)):
        try:
            yield
        except DivisionByZero:
            raise Unreadable("It divides by zero, which has no value: change the divisor.") from None
        except InvalidOperation:
            raise Unreadable("It has no value among the numbers, like 0/0 or the root of a negative number.") from None
        except (Overflow, Underflow):
            raise Unreadable(f"Its numbers leave 10^-{LARGEST} to 10^{LARGEST}: use smaller powers.") from None


def evaluate(
    tree: ast.expr,
    names: Any,
    operators: Mapping[type[ast.AST], Callable[..., Any]],
    functions: Mapping[str, Callable[..., Any]],
    nodes: tuple[type[ast.expr], ...],
) -> Any:
    """The value of a tree that holds nothing but `nodes`; `names` are looked up as they are needed.

    Raises:
        Unreadable: it has none.
    """
    evaluator = SimpleEval(operators=operators, functions=functions, names=names)
    evaluator.nodes = {node: evaluator.nodes[node] for node in nodes}
    try:
        return evaluator.eval("", previously_parsed=tree)
    except RecursionError:
        raise Unreadable("It is nested too deep: write it shorter.") from None


def settled(value: Decimal) -> Decimal:
    """Drop what rounding left over since the bounded block began."""
    inexact = getcontext().flags[Inexact]
    return Context(prec=SHOWN, rounding=ROUND_HALF_UP).plus(value) if inexact else value


def _modulo(left: Decimal, right: Decimal) -> Decimal:
    """The remainder with the sign of the divisor, as in Python."""
    rest = left % right
    return rest + right if rest and (rest < 0) != (right < 0) else rest


def _floor_divide(left: Decimal, right: Decimal) -> Decimal:
    return (left - _modulo(left, right)) / right


def _power(base: Decimal, exponent: Decimal) -> Decimal:
    if not base and exponent < 0:
        raise DivisionByZero  # decimal itself would give infinity, without a signal
    return base**exponent


def _round(value: Decimal, places: Decimal = Decimal(0)) -> Decimal:
    """Half away from zero, as taught at school."""
    if abs(places) > SHOWN or places != int(places):
        raise Unreadable(f"round(number, places) takes a whole number of places, at most {SHOWN}.")
    return value.quantize(Decimal(1).scaleb(-int(places)), rounding=ROUND_HALF_UP)


FUNCTIONS: Mapping[str, Callable[..., Decimal]] = {
    "sqrt": Decimal.sqrt,
    "round": _round,
    "min": lambda *numbers: min(numbers),
    "max": lambda *numbers: max(numbers),
    "abs": abs,
}
OPERATORS: Mapping[type[ast.AST], Callable[..., Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.MatMult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
