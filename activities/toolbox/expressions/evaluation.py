"""Evaluates expressions in exact decimal arithmetic; for conditions it also checks the types of operands.

To compare a number with a text is an error: the result `False` would hide a mistake in the condition.
"""

import ast
import decimal
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from enum import StrEnum
from typing import Any, TypeAlias

from simpleeval import SimpleEval  # type: ignore[import-untyped]  # it ships no types

from activities.toolbox.expressions.expression import Unreadable

DIGITS = 50  # digits of intermediate results
SHOWN = 28  # digits of a result that had to be rounded
LARGEST = 999  # the largest power of ten


@contextmanager
def bounded() -> Iterator[None]:
    """Calculate with `DIGITS` digits in the block; raises Unreadable for 1/0, say, or an exponent beyond `LARGEST`."""
    traps = [decimal.DivisionByZero, decimal.InvalidOperation, decimal.Overflow, decimal.Underflow]
    with decimal.localcontext(Context(prec=DIGITS, rounding=ROUND_HALF_UP, Emin=-LARGEST, Emax=LARGEST, traps=traps)):
        try:
            yield
        except decimal.DivisionByZero:
            raise Unreadable("It divides by zero, which has no value: change the divisor.") from None
        except decimal.InvalidOperation:
            raise Unreadable("It has no value among the numbers, like 0/0 or the root of a negative number.") from None
        except (decimal.Overflow, decimal.Underflow):
            raise Unreadable(f"Its numbers leave 10^-{LARGEST} to 10^{LARGEST}: use smaller powers.") from None


def evaluate(
    tree: ast.expr,
    names: Any,
    operators: Mapping[type[ast.AST], Callable[..., Any]],
    functions: Mapping[str, Callable[..., Any]],
    nodes: tuple[type[ast.expr], ...],
) -> Any:
    """Evaluate a syntax tree in which only the types `nodes` may occur; `names` maps the names in the tree to values.

    Raises:
        Unreadable: the tree is nested too deep, or an operator or function has no value for its operands.
    """
    evaluator = SimpleEval(operators=operators, functions=functions, names=names)
    evaluator.nodes = {node: evaluator.nodes[node] for node in nodes}
    try:
        return evaluator.eval("", previously_parsed=tree)
    except RecursionError:
        raise Unreadable("It is nested too deep: write it shorter.") from None


def settled(value: Decimal) -> Decimal:
    """Round a value to `SHOWN` digits if a number in the current block of `bounded` was rounded; else leave it."""
    inexact = decimal.getcontext().flags[decimal.Inexact]
    return Context(prec=SHOWN, rounding=ROUND_HALF_UP).plus(value) if inexact else value


def _modulo(left: Decimal, right: Decimal) -> Decimal:
    """The remainder with the sign of the divisor, as Python's % for int; `Decimal` has the sign of the dividend."""
    rest = left % right
    return rest + right if rest and (rest < 0) != (right < 0) else rest


def _power(base: Decimal, exponent: Decimal) -> Decimal:
    if not base and exponent < 0:
        raise decimal.DivisionByZero  # `decimal` would return infinity without an error
    return base**exponent


def _round(value: Decimal, places: Decimal = Decimal(0)) -> Decimal:
    """Round a number; a half is rounded away from zero, as taught at school."""
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
    ast.FloorDiv: lambda left, right: (left - _modulo(left, right)) / right,
    ast.Mod: _modulo,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


Value: TypeAlias = "Decimal | str | bool | list[Value] | dict[str, Value] | None"  # JSON, with decimals


class Type(StrEnum):
    """The type of a value in a condition; messages show these texts."""

    NUMBER = "a number"
    TEXT = "a text"
    TRUTH = "a truth value"
    NONE = "none"
    LIST = "a list"
    OBJECT = "an object"


_TYPES: Mapping[type, Type] = {
    Decimal: Type.NUMBER,
    str: Type.TEXT,
    bool: Type.TRUTH,
    type(None): Type.NONE,
    list: Type.LIST,
    dict: Type.OBJECT,
}


def type_of(value: Value) -> Type:
    return _TYPES[type(value)]


@dataclass(frozen=True)
class Operation:
    """An operator or a function that checks the types of its operands."""

    rule: Callable[..., None]  # checks the operands' types (None if unknown); raises Unreadable
    function: Callable[..., Any]
    gives: Type = Type.TRUTH

    def __call__(self, *values: Value) -> Value:
        """Calculate the result. Raises Unreadable if the values have types that the operation does not take."""
        self.rule(*map(type_of, values))
        result: Value = self.function(*values)
        return result


def _check_numbers(*types: Type | None) -> None:
    for type in types:
        if type not in (Type.NUMBER, None):
            raise Unreadable(f"It calculates with {type}: use numbers.")


def _check_comparable(left: Type | None, right: Type | None) -> None:
    if left is not right and not {left, right} & {Type.NONE, None}:
        raise Unreadable(f"It compares {left} with {right}: compare like with like.")


def _check_ordered(left: Type | None, right: Type | None) -> None:
    for type in (left, right):
        if type not in (Type.NUMBER, Type.TEXT, None):
            raise Unreadable(f"It asks whether {type} is smaller or larger: only numbers and texts have an order.")
    _check_comparable(left, right)


def _check_contains(item: Type | None, among: Type | None) -> None:
    if among not in (Type.LIST, Type.TEXT, Type.OBJECT, None):
        raise Unreadable(f"It looks for something in {among}: look in a list or a text.")
    if among in (Type.TEXT, Type.OBJECT) and item not in (Type.TEXT, None):
        raise Unreadable(f"It looks for {item} in {among}: look for a text there.")


def _check_has_length(type: Type | None) -> None:
    if type not in (Type.LIST, Type.TEXT, Type.OBJECT, None):
        raise Unreadable(f"It asks for the length of {type}: use len(...) of a list or a text.")


def _check_truth_value(type: Type | None) -> None:
    if type not in (Type.TRUTH, None):
        raise Unreadable(f"There is {type} where a condition must stand: compare it with something.")


def _equal(left: Value, right: Value) -> bool:
    """Whether two values are equal, lists and objects part by part; raises Unreadable as `_check_comparable` does."""
    _check_comparable(type_of(left), type_of(right))
    match left, right:
        case list(), list():
            return len(left) == len(right) and all(map(_equal, left, right))
        case dict(), dict():
            return left.keys() == right.keys() and all(_equal(value, right[name]) for name, value in left.items())
        case _:
            return bool(_settled_if_number(left) == _settled_if_number(right))


def _is_in(item: Value, among: "list[Value] | str | dict[str, Value]") -> bool:
    """Whether `among` contains `item`. Raises Unreadable if a list has only items of other types."""
    if not isinstance(among, list):
        return item in among
    type = type_of(item)
    alike = [element for element in among if type is Type.NONE or type_of(element) in (Type.NONE, type)]
    if among and not alike:
        raise Unreadable(f"It looks for {type} among others: compare like with like.")
    return any(_equal(element, item) for element in alike)


def _settled_if_number(value: Value) -> Any:
    return settled(value) if isinstance(value, Decimal) else value


def _arithmetic(function: Callable[..., Decimal]) -> Operation:
    return Operation(_check_numbers, lambda *numbers: function(*(+number for number in numbers)), Type.NUMBER)


def _order(function: Callable[[Any, Any], bool]) -> Operation:
    return Operation(_check_ordered, lambda left, right: function(_settled_if_number(left), _settled_if_number(right)))


TRUTH = Operation(_check_truth_value, bool)
TYPED_OPERATORS: Mapping[type[ast.AST], Operation] = {
    **{node: _arithmetic(function) for node, function in OPERATORS.items()},
    ast.Eq: Operation(_check_comparable, _equal),
    ast.NotEq: Operation(_check_comparable, lambda left, right: not _equal(left, right)),
    ast.Lt: _order(operator.lt),
    ast.LtE: _order(operator.le),
    ast.Gt: _order(operator.gt),
    ast.GtE: _order(operator.ge),
    ast.In: Operation(_check_contains, _is_in),
    ast.NotIn: Operation(_check_contains, lambda item, among: not _is_in(item, among)),
    ast.Not: Operation(_check_truth_value, operator.not_),
}
TYPED_FUNCTIONS: Mapping[str, Operation] = {
    **{name: _arithmetic(function) for name, function in FUNCTIONS.items()},
    "len": Operation(_check_has_length, lambda value: Decimal(len(value)), Type.NUMBER),
}
