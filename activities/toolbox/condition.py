"""Conditions: expressions over named values that hold or do not, e.g. `result.amount == args.amount`.

Besides arithmetic they have dotted names, quoted texts, true, false and none, comparisons, `in`, `and`, `or`, `not` and
`len(...)`. They come from the authors of tools, never from a model. A name is looked up in plain data, so that no
attribute and no method of anything can be reached.
"""

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from activities.toolbox.arithmetic import bounded, evaluate
from activities.toolbox.comparison import FUNCTIONS, OPERATORS, TRUTH, Operation, Type, Value, type_of
from activities.toolbox.expression import Reader, Sign, Unreadable, named

MAX_LENGTH = 1000
"""Characters of a condition."""


class Undecided(Unreadable):
    """These values do not let it be said whether the condition holds; the message says why."""


@dataclass(frozen=True)
class Condition:
    """A condition that can be asked again and again."""

    source: str
    tree: ast.expr
    literals: Mapping[str, Value]
    """The values of those names in the tree that stand for numbers and words."""
    lookups: Mapping[str, str]
    """The dotted names that the others stand for."""

    @classmethod
    def read(cls, source: str) -> "Condition":
        """Read a condition.

        Raises:
            Unreadable: it is none; the message says what to change.
        """
        if len(source) > MAX_LENGTH:
            raise Unreadable(f"It is too long: at most {MAX_LENGTH} characters.")
        reader = _Reader({})
        try:
            tree = _Truths().visit(ast.BoolOp(ast.And(), [reader.read(source)]))
            condition = cls(source, tree, {**reader.numbers, **reader.words}, reader.lookups)
            condition.check({})
        except RecursionError:
            raise Unreadable("It is nested too deep: write it shorter.") from None
        return condition

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted names whose values it needs, each once."""
        return tuple(dict.fromkeys(self.lookups.values()))

    def check(self, types: Mapping[str, Type | None]) -> None:
        """See whether it can be decided at all, when its names have values of these types, as far as they are known.

        Raises:
            Unreadable: it cannot, like a comparison of a text with a number.
        """
        known: dict[str, Type | None] = {name: type_of(value) for name, value in self.literals.items()}
        _type(self.tree, known | {name: types.get(dotted) for name, dotted in self.lookups.items()})

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds for these values: JSON, in which decimals may stand for numbers.

        Raises:
            Undecided: a name has no value, or one of a type that cannot be compared in this way.
        """
        names = _Names(self, values)
        try:
            with bounded():
                return bool(evaluate(self.tree, names, OPERATORS, _FUNCTIONS, _Reader.nodes))
        except Undecided:
            raise
        except Unreadable as wrong:
            raise Undecided(str(wrong)) from None


class _Reader(Reader):
    """Reads what conditions have besides arithmetic."""

    signs: ClassVar = re.compile(
        r"(?P<text>'[^']*'|\"[^\"]*\")|(?P<name>[^\W\d]\w*(?:\.\w+)+|[^\W\d_]*_\w*)"
        r"|(?P<comparison>[=!<>]=|[<>])|" + Reader.signs.pattern
    )
    functions: ClassVar = {**Reader.functions, "len": 1}
    nodes: ClassVar = (*Reader.nodes, ast.Compare, ast.BoolOp)
    after_percentage: ClassVar = Reader.after_percentage | {"==", "!=", "<", "<=", ">", ">=", "and", "or", "not", "in"}
    usable: ClassVar = "names, numbers, 'texts', operators, == != < <= > >=, and, or, not, in, brackets and functions"
    joined: ClassVar = "values"
    example: ClassVar = "a condition, e.g. result.amount == args.amount"

    def __init__(self, numbers: Mapping[str, Decimal]) -> None:
        super().__init__(numbers)
        self.words = dict[str, Value]()
        self.lookups = dict[str, str]()

    def write(self, sign: Sign, after: str) -> str:
        if sign.what == "name":
            self._refuse_call(sign.text, after)
            return named(self.lookups, "v", sign.text)
        if sign.what != "text":
            return super().write(sign, after)
        if not sign.text.isprintable():
            raise Unreadable("There is a sign in a quoted text that cannot be printed: leave it out.")
        return named(self.words, "s", sign.text[1:-1])

    def word(self, word: str, after: str) -> str:
        if word not in (*_JOINING, "x"):
            self._refuse_call(word, after)
        return super().word(word, after)

    def unknown(self, word: str) -> str:
        if word in _JOINING:
            return word
        if word in _FOREIGN:
            raise Unreadable(f"There is `{word}` in it: {_FOREIGN[word]}.")
        if word in _VALUES:
            return named(self.words, "s", _VALUES[word])
        return named(self.lookups, "v", word)

    def _refuse_call(self, name: str, after: str) -> None:
        if after == "(" and name not in self.functions:
            what, _, method = name.rpartition(".")
            called = f"method {method!r}" if what else f"function {name!r}"
            raise Unreadable(f"There is no {called}: use comparisons, in, and {', '.join(sorted(self.functions))}.")


_JOINING = ("and", "or", "not", "in")
_NO_LOOP = "nothing is repeated here; compare one value, like result.free.0, or len(...) of a list"
_FOREIGN: Mapping[str, str] = {
    "is": "write == or !=",
    "for": _NO_LOOP,
    "if": "join conditions by `and` and `or`",
    "else": "join conditions by `and` and `or`",
    "lambda": _NO_LOOP,
}
_VALUES: Mapping[str, Value] = {"true": True, "false": False, "none": None}
_TRUTH = "truth"
_FUNCTIONS = {**FUNCTIONS, _TRUTH: TRUTH}


class _Truths(ast.NodeTransformer):
    """Asks of every name that stands for a condition whether its value is true or false."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        node.values = [self._truth(value) for value in node.values]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) > 1 and any(isinstance(operation, ast.In | ast.NotIn) for operation in node.ops):
            raise Unreadable("`in` beside another comparison can be read in two ways: put brackets around one.")
        return self.generic_visit(node)

    def _truth(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Name):
            return ast.Call(ast.Name(_TRUTH), [node], [])
        visited: ast.expr = self.visit(node)
        return visited


def _type(node: ast.AST, known: Mapping[str, Type | None]) -> Type | None:
    """The type of a node's value, after a look at all below it."""
    match node:
        case ast.Name():
            return known.get(node.id)
        case ast.BoolOp():
            for value in node.values:
                TRUTH.rule(_type(value, known))
            return Type.TRUTH
        case ast.Compare():
            types = [_type(value, known) for value in (node.left, *node.comparators)]
            for operation, left, right in zip(node.ops, types, types[1:], strict=False):
                OPERATORS[type(operation)].rule(left, right)
            return Type.TRUTH
        case ast.Call(func=ast.Name(id=name)):
            return _checked(_FUNCTIONS[name], node.args, known)
        case ast.BinOp():
            return _checked(OPERATORS[type(node.op)], [node.left, node.right], known)
        case ast.UnaryOp():
            return _checked(OPERATORS[type(node.op)], [node.operand], known)
    return None


def _checked(operation: Operation, operands: Sequence[ast.expr], known: Mapping[str, Type | None]) -> Type:
    operation.rule(*(_type(operand, known) for operand in operands))
    return operation.gives


@dataclass(frozen=True)
class _Names:
    """The names of a condition's tree, looked up when they are needed."""

    condition: Condition
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Value:
        dotted = self.condition.lookups.get(name)
        return self.condition.literals[name] if dotted is None else plain(_found(self.values, dotted))


def _found(values: Mapping[str, Any], dotted: str) -> Any:
    found: Any = dict(values)
    parts = dotted.split(".")
    for place, part in enumerate(parts):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            since = f", since {'.'.join(parts[:place])!r} is {type_of(plain(found))} without {part!r}" if place else ""
            raise Undecided(f"The name {dotted!r} has no value{since}.")
    return found


def plain(value: Any) -> Value:
    """Let decimals stand for all numbers of JSON; a binary one is the number that it is written as."""
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)  # the text of an enumeration, not its name
        case Decimal():
            return value if value.is_finite() else None
        case int():
            return Decimal(value)
        case float():
            return Decimal(float.__repr__(value)) if math.isfinite(value) else None
        case list():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case _:
            raise Undecided(f"A {type(value).__name__} is no JSON: give plain values.")
