"""Writes conditions in words for the person who must approve: `args.amount > 500` is "the amount is above 500".

The words do not contain the values of a call: lists, notifications and logs show the words, but no arguments.
"""

import ast
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from activities.toolbox.declare.conditions import TRUTH_FUNCTION, Condition, Undecided, inside
from activities.toolbox.expressions.evaluation import Value
from workflows.text import visible

MAX_LITERAL = 60
"""The most characters that are shown of a quoted text in a condition."""

_SAYS: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Gt: ("is above", "is not above"),
    ast.GtE: ("is at least", "is below"),
    ast.Lt: ("is below", "is not below"),
    ast.LtE: ("is at most", "is above"),
    ast.Eq: ("is", "is not"),
    ast.NotEq: ("is not", "is"),
    ast.In: ("is in", "is not in"),
    ast.NotIn: ("is not in", "is in"),
}
_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "plus",
    ast.Sub: "minus",
    ast.Mult: "times",
    ast.Div: "divided by",
}


def clause_of(condition: Condition, values: Mapping[str, Any] | None = None) -> str:
    """The condition as a clause without a full stop.

    `values` must make the condition true: if they are given, parts joined by `or` that are not true are left out.
    """
    writer = _Clauses(condition, values)
    return writer.clause(condition.tree) or f"`{condition.source}` applies"


def applies(condition: Condition, args: Any) -> str | None:
    """Why a call with the arguments `args` needs an approval, as a clause; None if the condition is false.

    If a value is missing or has an unusable type, the call needs an approval, too, and the clause has that reason.
    """
    values = {"args": args}
    try:
        return clause_of(condition, values) if condition.holds(values) else None
    except Undecided as why:  # rather one approval too many
        return f"{clause_of(condition)}, which these arguments do not decide: {inside(why).rstrip('.')}"


class _Clauses:
    """Writes the parts of one condition in words; `values` are those of `clause_of`."""

    def __init__(self, condition: Condition, values: Mapping[str, Any] | None) -> None:
        self._condition = condition
        self._values = values

    def clause(self, node: ast.expr, *, is_true: bool = True) -> str:
        """A part of the condition in words, negated unless `is_true`; empty if there are no words for the part."""
        match node:
            case ast.BoolOp(op=operation, values=parts):
                is_and = isinstance(operation, ast.And) == is_true
                shown = parts if is_and else [part for part in parts if self._holds(part) is is_true] or parts
                clauses = [self.clause(part, is_true=is_true) for part in shown]
                return "" if "" in clauses else f" {'and' if is_and else 'or'} ".join(clauses)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.clause(operand, is_true=not is_true)
            case ast.Call(func=ast.Name(id=name), args=[operand]) if name == TRUTH_FUNCTION:
                return self.clause(operand, is_true=is_true)
            case ast.Name(id=name) if name in self._condition.lookups:
                noun = _name_text(self._condition.lookups[name]).removeprefix("the ")
                return f"{noun} is {'true' if is_true else 'false'}"
            case ast.Compare(left=left, ops=[operation], comparators=[right]):
                first, second = self._operand(left), self._operand(right)
                return f"{first} {_SAYS[type(operation)][not is_true]} {second}" if first and second else ""
        return ""

    def _operand(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name) if name in self._condition.literals:
                return _literal_text(self._condition.literals[name])
            case ast.Name(id=name) if name in self._condition.lookups:
                return _name_text(self._condition.lookups[name])
            case ast.Call(func=ast.Name(id="len"), args=[operand]):
                shown = self._operand(operand)
                return shown and f"the length of {shown}"
            case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
                first, second = self._operand(left), self._operand(right)
                return f"{first} {_OPERATORS[type(operation)]} {second}" if first and second else ""
        return ""

    def _holds(self, node: ast.expr) -> bool | None:
        """Whether a part of the condition is true; None if there are no values, or they do not decide the part."""
        if self._values is None:
            return None
        try:
            return bool(self._condition.value_of(node, self._values))
        except Undecided:
            return None


def _name_text(dotted: str) -> str:
    """`args.customer.country` in words: "the country of the customer"."""
    parts = [part.replace("_", " ") for part in dotted.split(".")]
    parts = parts[1:] if parts[0] in ("args", "result") and len(parts) > 1 else parts
    names = [f"item {int(part) + 1}" if part.isdecimal() else f"the {part}" for part in reversed(parts)]
    return " of ".join(names)


def _literal_text(literal: Value) -> str:
    match literal:
        case bool():
            return "true" if literal else "false"
        case None:
            return "nothing"
        case Decimal():
            return f"{literal:f}"
    text = " ".join(visible(str(literal)).split())
    return text if len(text) <= MAX_LITERAL else f"{text[:MAX_LITERAL]}…"
