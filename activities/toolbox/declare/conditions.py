"""What a tool ensures: a condition over its arguments and its result, e.g. `ensure="result.amount == args.amount"`.

An answer can have the promised shape and still be a lie: a charge of another amount, a booking for another day.
"""

import ast
import math
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from pydantic import JsonValue, TypeAdapter
from pydantic.errors import PydanticUserError

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
from workflows.plan import nearest

Schema = Mapping[str, Any]

_TYPES: Mapping[str, Type] = {
    "integer": Type.NUMBER,
    "number": Type.NUMBER,
    "string": Type.TEXT,
    "boolean": Type.TRUTH,
    "null": Type.NONE,
    "array": Type.LIST,
    "object": Type.OBJECT,
}


class NoField(LookupError):
    """There is no such field; the message says what is there instead."""


@dataclass(frozen=True)
class Fields:
    """What is known of a type."""

    written: Schema
    """The schema of its JSON."""
    read: Schema
    """The schema of what it is made of, which tells a decimal from a text."""

    @classmethod
    def of(cls, annotation: Any) -> "Fields":
        """Look at an annotation; of none, and of one that pydantic has no schema for, nothing is known."""
        if annotation in (None, type(None)):
            return cls({}, {})
        try:
            adapter = TypeAdapter[Any](annotation)
            return cls(adapter.json_schema(by_alias=False, mode="serialization"), adapter.json_schema(by_alias=False))
        except PydanticUserError:
            return cls({}, {})

    def type(self, dotted: str) -> Type | None:
        """The type of the value of `root.field.0.field` where `root` is of this type; None where it is not known.

        Raises:
            NoField: it has no such field.
        """
        type = _type(_at(self.written, dotted))
        try:
            return type if type is _type(_at(self.read, dotted)) else None
        except NoField:  # it is computed
            return None


def _at(whole: Schema, dotted: str) -> list[Schema]:
    """The schemas that a value may have; an empty one allows anything."""
    parts = dotted.split(".")
    places = _members(whole, whole)
    for number, part in enumerate(parts[1:], start=1):
        below = [schema for place in places for schema in _below(place, part)]
        if not below:
            raise NoField(_instead(".".join(parts[:number]), part, places))
        places = [member for schema in below for member in _members(schema, whole)]
    return places


def _members(schema: Schema, whole: Schema) -> list[Schema]:
    """What a union consists of, references followed."""
    if "$ref" in schema:
        return _members(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    union = schema.get("anyOf") or schema.get("oneOf")
    return [member for one in union for member in _members(one, whole)] if union else [schema]


def _below(schema: Schema, part: str) -> list[Schema]:
    """The schema of a part of a value; nothing when it has no such part."""
    match _TYPES.get(schema.get("type", "")):
        case Type.OBJECT:
            named = schema.get("properties", {})
            others = schema.get("additionalProperties", "properties" not in schema)
            found = named.get(part, others)
        case Type.LIST:
            first = schema.get("prefixItems", [])
            others = schema.get("items", not first)
            found = part.isdecimal() and (first[int(part)] if int(part) < len(first) else others)
        case None:
            found = True
        case _:
            found = False
    return [{} if found is True else found] if found is not False else []


def _instead(where: str, part: str, places: Sequence[Schema]) -> str:
    """What is there instead of a part, as the end of a sentence."""
    models = [place for place in places if "properties" in place]
    if models:
        near = nearest(part, {field for model in models for field in model["properties"]})
        there = [f"{model.get('title', where)} has {sorted(model['properties'])}" for model in models]
        return f"{near}: {', '.join(there)}"
    if Type.LIST in map(_type, ([place] for place in places)):
        return f": {where!r} is a list, so write {where}.0 for its first item"
    return f": {where!r} has no fields"


def _type(places: Sequence[Schema]) -> Type | None:
    """The type of all these schemas; whether there may be none does not matter."""
    types = {_TYPES.get(place.get("type", "")) for place in places}
    types = types - {Type.NONE} or types
    return types.pop() if len(types) == 1 else None


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
        _type_of(self.tree, known | {name: types.get(dotted) for name, dotted in self.lookups.items()})

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds for these values: JSON, in which decimals may stand for numbers.

        Raises:
            Undecided: a name has no value, or one of a type that cannot be compared in this way.
        """
        names = _Names(self, values)
        try:
            with bounded():
                return bool(evaluate(self.tree, names, TYPED_OPERATORS, _FUNCTIONS, _Reader.nodes))
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
_FUNCTIONS = {**TYPED_FUNCTIONS, _TRUTH: TRUTH}


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


def _type_of(node: ast.AST, known: Mapping[str, Type | None]) -> Type | None:
    """The type of a node's value, after a look at all below it."""
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
            return _checked(_FUNCTIONS[name], node.args, known)
        case ast.BinOp():
            return _checked(TYPED_OPERATORS[type(node.op)], [node.left, node.right], known)
        case ast.UnaryOp():
            return _checked(TYPED_OPERATORS[type(node.op)], [node.operand], known)
    return None


def _checked(operation: Operation, operands: Sequence[ast.expr], known: Mapping[str, Type | None]) -> Type:
    operation.rule(*(_type_of(operand, known) for operand in operands))
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


SHOWN = 100
"""Characters of a condition that a message about its mistakes repeats."""


def mistakes(name: str, ensure: object, args: Any, result: Any) -> list[str]:
    """Say in one sentence per mistake what is wrong with what a tool ensures; `args` and `result` are annotations."""
    if ensure is None:
        return []
    shown = f"{name}: ensure={ensure!r:.{SHOWN}}"
    if not isinstance(ensure, str):
        return [f"{shown} must be a condition in quotes, e.g. 'result.amount == args.amount'."]
    try:
        condition = Condition.read(ensure)
        types, wrong = _look_up(name, condition, {"args": Fields.of(args), "result": Fields.of(result)})
        if not wrong:
            condition.check(types)
    except Unreadable as unreadable:
        return [f"{shown} is no condition: {_inside(unreadable)}"]
    if not wrong and not any(_root(dotted) == "result" for dotted in condition.names):
        wrong.append(f"{shown} says nothing of the result: compare something of it, e.g. result.id != none.")
    return wrong


def broken(kind: str, condition: Condition, values: Mapping[str, Any]) -> str | None:
    """Why what a tool returned is not what it ensures, in a sentence of ours; None when it is."""
    try:
        if condition.holds(values):
            return None
    except Undecided as why:
        return f"It cannot be said whether what {kind} returned keeps {condition.source!r}: {_inside(why)}"
    return f"What {kind} returned breaks {condition.source!r}: do not rely on it, plan anew from what was observed."


def seen(dump: Callable[..., Any]) -> Any:
    """What a condition sees of the value that pydantic's `dump` writes: JSON under the names of the fields, but with
    decimals as numbers, since 24.5 and 24.50 are two texts.
    """
    return _exact(dump(mode="json", by_alias=False, warnings=False), dump(by_alias=False, warnings=False))


def _exact(written: JsonValue, value: Any) -> Any:
    match written, value:
        case str(), Decimal():
            return value
        case dict(), Mapping() if len(written) == len(value):
            return {name: _exact(item, one) for (name, item), one in zip(written.items(), value.values(), strict=True)}
        case list(), list() | tuple() | set() | frozenset() | deque() if len(written) == len(value):
            return [_exact(item, one) for item, one in zip(written, value, strict=True)]
        case _:
            return written


def _look_up(
    name: str, condition: Condition, known: Mapping[str, Fields]
) -> tuple[Mapping[str, Type | None], list[str]]:
    types, wrong = dict[str, Type | None](), list[str]()
    for dotted in condition.names:
        if _root(dotted) not in known:
            wrong.append(f"{name}: ensure reads {dotted!r}: write {' or '.join(f'{root}.{dotted}' for root in known)}.")
            continue
        try:
            types[dotted] = known[_root(dotted)].type(dotted)
        except NoField as missing:
            wrong.append(f"{name}: ensure reads {dotted!r}{missing}.")
    return types, wrong


def _root(dotted: str) -> str:
    return dotted.partition(".")[0]


def _inside(sentence: object) -> str:
    """A sentence as the end of another."""
    return f"{str(sentence)[:1].lower()}{str(sentence)[1:]}"
