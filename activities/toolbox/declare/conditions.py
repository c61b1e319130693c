"""The conditions of `ensure="result.amount == args.amount"` and `approve="args.amount > 500"`.

They are checked when a tool is loaded, and evaluated for each result, or for the arguments of each call. A result may
have the promised type and still be wrong: a charge of another amount, a booking for another day.
"""

import ast
import math
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from pydantic import JsonValue

from activities.toolbox.declare.fields import Fields, NoField
from activities.toolbox.expressions.evaluation import (
    TRUTH,
    TYPED_FUNCTIONS,
    TYPED_OPERATORS,
    Operation,
    Type,
    Value,
    bounded,
    evaluate,
    type_of,
)
from activities.toolbox.expressions.expression import Reader, Sign, Unreadable, named
from workflows.plans.catalogue import ALWAYS

MAX_LENGTH = 1000  # characters of a condition
NEVER = "never"
"""With ALWAYS, the values of `approve=` that are no conditions."""
SHOWN = 100  # characters of a condition that a message about its mistakes shows


class Undecided(Unreadable):
    """A condition has no truth value for the values of a call, e.g. since a value is missing; the message says why."""


@dataclass(frozen=True)
class Condition:
    """A condition, parsed; it can be evaluated for any number of results or arguments."""

    source: str
    tree: ast.expr
    literals: Mapping[str, Value]  # names in the tree that stand for numbers and texts, with their values
    lookups: Mapping[str, str]  # the other names in the tree, with the dotted names that they stand for

    @classmethod
    def read(cls, source: str) -> "Condition":
        """Parse a condition. Raises Unreadable if it is not valid; the message says what to change."""
        if len(source) > MAX_LENGTH:
            raise Unreadable(f"It is too long: at most {MAX_LENGTH} characters.")
        reader = _Reader({})
        try:
            tree = _Truths().visit(ast.BoolOp(ast.And(), [reader.read(source)]))
            condition = cls(source, tree, {**reader.numbers, **reader.literals}, reader.lookups)
            # Without types of names, this finds mistakes such as 1 == 'a' between literals.
            condition.check({})
        except RecursionError:
            raise Unreadable("It is nested too deep: write it shorter.") from None
        return condition

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted names that the condition reads, each once."""
        return tuple(dict.fromkeys(self.lookups.values()))

    def check(self, types: Mapping[str, Type | None]) -> None:
        """Raise Unreadable if the condition has no value for these types, e.g. if it compares a text with a number."""
        known: dict[str, Type | None] = {name: type_of(value) for name, value in self.literals.items()}
        _type_of(self.tree, known | {name: types.get(dotted) for name, dotted in self.lookups.items()})

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the condition is true for these values (JSON or decimals); raises Undecided if they do not decide."""
        return bool(self.value_of(self.tree, values))

    def value_of(self, part: ast.expr, values: Mapping[str, Any]) -> Any:
        """The value of a part of the tree for these values; raises Undecided as `holds` does."""
        names = _Names(self, values)
        try:
            with bounded():
                return evaluate(part, names, TYPED_OPERATORS, _FUNCTIONS, _Reader.nodes)
        except Unreadable as wrong:
            raise Undecided(str(wrong)) from None


def mistakes(name: str, ensure: object, args: Any, result: Any) -> list[str]:
    """The mistakes in `ensure`, the condition of the tool `name` over these two types, one sentence each."""
    if ensure is None:
        return []
    shown = _quoted_option(name, "ensure", ensure)
    if not isinstance(ensure, str):
        return [f"{shown} must be a str, e.g. 'result.amount == args.amount'."]
    names, wrong = mistakes_over(name, "ensure", ensure, {"args": Fields.of(args), "result": Fields.of(result)})
    if not wrong and not any(dotted.split(".")[0] == "result" for dotted in names):
        wrong.append(f"{shown} does not use the result: compare something of it, e.g. result.id != none.")
    return wrong


def approval_mistakes(name: str, approve: object, args: Any) -> list[str]:
    """The mistakes in `approve`, the option of the tool `name` with arguments of the type `args`, one sentence each."""
    if approve in (NEVER, ALWAYS):
        return []
    shown = _quoted_option(name, "approve", approve)
    if not isinstance(approve, str):
        return [f"{shown} must be 'never', 'always' or a condition, e.g. 'args.amount > 500'."]
    names, wrong = mistakes_over(name, "approve", approve, {"args": Fields.of(args)})
    if not wrong and not names:
        wrong.append(f"{shown} does not use the arguments: write 'always', 'never', or compare something of args.")
    return wrong


def mistakes_over(name: str, option: str, source: str, known: Mapping[str, Fields]) -> tuple[Sequence[str], list[str]]:
    """Check the condition `source` of a tool's option: the names that it reads, and its mistakes, one sentence each.

    `name` is the tool's name. `known` has the fields of each name that may begin a dotted name, e.g. `args`.
    """
    try:
        condition = Condition.read(source)
        types, wrong = _look_up(name, option, condition, known)
        if not wrong:
            condition.check(types)
    except Unreadable as unreadable:
        return (), [f"{_quoted_option(name, option, source)} is no condition: {inside(unreadable)}"]
    return condition.names, wrong


def _quoted_option(name: str, option: str, value: object) -> str:
    return f"{name}: {option}={value!r:.{SHOWN}}"


def _look_up(
    name: str, option: str, condition: Condition, known: Mapping[str, Fields]
) -> tuple[Mapping[str, Type | None], list[str]]:
    """The types of the names that a condition reads (None if unknown), and a mistake for each unknown name."""
    types, wrong = dict[str, Type | None](), list[str]()
    for dotted in condition.names:
        root = dotted.split(".")[0]
        if root not in known:
            written = " or ".join(f"{prefix}.{dotted}" for prefix in known)
            wrong.append(f"{name}: {option} reads {dotted!r}: write {written}.")
            continue
        try:
            types[dotted] = known[root].type(dotted)
        except NoField as missing:
            wrong.append(f"{name}: {option} reads {dotted!r}{missing}.")
    return types, wrong


def violation(kind: str, condition: Condition, values: Mapping[str, Any]) -> str | None:
    """The sentence that tells the planner why a result is rejected; None if the condition is true for `values`."""
    try:
        if condition.holds(values):
            return None
    except Undecided as why:
        return f"The result of {kind} does not decide its condition {condition.source!r}: {inside(why)}"
    return f"The result of {kind} violates {condition.source!r}: do not use it, make a new plan from what was observed."


def condition_value(dump: Callable[..., Any]) -> Any:
    """Convert a value to JSON for a condition, with the value's pydantic method `dump`; a Decimal stays a Decimal."""
    # JSON writes a Decimal as text, and as texts 24.5 and 24.50 would differ.
    return _exact(dump(mode="json", by_alias=False, warnings=False), dump(by_alias=False, warnings=False))


def _exact(written: JsonValue, value: Any) -> Any:
    """The JSON `written` of a value, with the value's decimals in place of their texts."""
    match written, value:
        case str(), Decimal():
            return value
        case dict(), Mapping() if len(written) == len(value):
            return {
                name: _exact(item, element)
                for (name, item), element in zip(written.items(), value.values(), strict=True)
            }
        case list(), list() | tuple() | set() | frozenset() | deque() if len(written) == len(value):
            return [_exact(item, element) for item, element in zip(written, value, strict=True)]
        case _:
            return written


def inside(sentence: object) -> str:
    """The sentence with a small first letter, so that it can follow a colon."""
    return f"{str(sentence)[:1].lower()}{str(sentence)[1:]}"


class _Reader(Reader):
    """Reads conditions: comparisons, texts, `and`, `or`, `not`, `in`, dotted names, and arithmetic.

    A part of a dotted name that is no word stands in quotes: `args."First Name"`.
    """

    signs: ClassVar = re.compile(
        r"(?P<text>'[^']*'|\"[^\"]*\")|(?P<name>[^\W\d]\w*(?:\.(?:\w+|'[^'.]+'|\"[^\".]+\"))+|[^\W\d_]*_\w*)"
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
        self.literals = dict[str, Value]()
        self.lookups = dict[str, str]()

    def write(self, sign: Sign, after: str) -> str:
        if sign.what == "name":
            self._reject_unknown_call(sign.text, after)
            return named(self.lookups, "v", re.sub("['\"]", "", sign.text))
        if sign.what != "text":
            return super().write(sign, after)
        if not sign.text.isprintable():
            raise Unreadable("There is a sign in a quoted text that cannot be printed: leave it out.")
        return named(self.literals, "s", sign.text[1:-1])

    def word(self, word: str, after: str) -> str:
        if word not in (*_JOINING, "x"):
            self._reject_unknown_call(word, after)
        return super().word(word, after)

    def unknown(self, word: str) -> str:
        if word in _JOINING:
            return word
        if word in _FOREIGN:
            raise Unreadable(f"There is `{word}` in it: {_FOREIGN[word]}.")
        if word in _VALUES:
            return named(self.literals, "s", _VALUES[word])
        return named(self.lookups, "v", word)

    def _reject_unknown_call(self, name: str, after: str) -> None:
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
TRUTH_FUNCTION = "truth"
_FUNCTIONS = {**TYPED_FUNCTIONS, TRUTH_FUNCTION: TRUTH}


class _Truths(ast.NodeTransformer):
    """Replaces a name that is a whole condition, or an operand of `and` or `or`, by `truth(name)`, a check of types."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        node.values = [self._truth(value) for value in node.values]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) > 1 and any(isinstance(operation, ast.In | ast.NotIn) for operation in node.ops):
            raise Unreadable("`in` beside another comparison can be read in two ways: put brackets around one.")
        return self.generic_visit(node)

    def _truth(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Name):
            return ast.Call(ast.Name(TRUTH_FUNCTION), [node], [])
        visited: ast.expr = self.visit(node)
        return visited


def _type_of(node: ast.AST, known: Mapping[str, Type | None]) -> Type | None:
    """The type of a node's value, None if unknown; raises Unreadable if an operator does not take such operands."""
    match node:
        case ast.Name():
            return known.get(node.id)
        case ast.BoolOp():
            for value in node.values:
                TRUTH.rule(_type_of(value, known))
            return Type.TRUTH
        case ast.Compare():
            types = [_type_of(value, known) for value in (node.left, *node.comparators)]
            for operation, left, right in zip(node.ops, types, types[1:], strict=False):
                TYPED_OPERATORS[type(operation)].rule(left, right)
            return Type.TRUTH
        case ast.Call(func=ast.Name(id=name)):
            return _type_of_operation(_FUNCTIONS[name], node.args, known)
        case ast.BinOp():
            return _type_of_operation(TYPED_OPERATORS[type(node.op)], [node.left, node.right], known)
        case ast.UnaryOp():
            return _type_of_operation(TYPED_OPERATORS[type(node.op)], [node.operand], known)
    return None


def _type_of_operation(operation: Operation, operands: Sequence[ast.expr], known: Mapping[str, Type | None]) -> Type:
    operation.rule(*(_type_of(operand, known) for operand in operands))
    return operation.gives


@dataclass(frozen=True)
class _Names:
    """The values of the names in a condition's tree. A name is looked up only when the evaluation reaches it."""

    condition: Condition
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Value:
        dotted = self.condition.lookups.get(name)
        return self.condition.literals[name] if dotted is None else plain(_found(self.values, dotted))


def _found(values: Mapping[str, Any], dotted: str) -> Any:
    """The value at a dotted path. Raises Undecided if there is none."""
    found: Any = dict(values)
    parts = dotted.split(".")
    for index, part in enumerate(parts):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            since = f", since {'.'.join(parts[:index])!r} is {type_of(plain(found))} without {part!r}" if index else ""
            raise Undecided(f"The name {dotted!r} has no value{since}.")
    return found


def plain(value: Any) -> Value:
    """Convert every number in a JSON value to Decimal; a float is converted by its text: 0.1 is Decimal("0.1")."""
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)  # for a StrEnum, its plain text
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
