"""Reads arithmetic as people and planners write it: `18% of 2450`, `2450 + 18%`, `3 x 4`.

The reader translates the text to a Python expression and parses it with `ast`. In this expression each number is a
name (`n0`, `n1`), so only names, operators, brackets and known functions reach the evaluator. `18%` is written as
`n0[p]`, because a subscript is Python's only postfix operator, and then replaced by plain arithmetic.
`declare/conditions.py` extends the reader with comparisons and dotted names.
"""

import ast
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar, NamedTuple, TypeVar

MAX_SIGNS, MAX_NESTING = 250, 30
FUNCTIONS: Mapping[str, int] = {"sqrt": 1, "round": 2, "min": MAX_SIGNS, "max": MAX_SIGNS, "abs": 1}
"""For each function, its maximum number of arguments; the minimum is always one."""

T = TypeVar("T")


class Unreadable(ValueError):
    """The text is no expression, or the expression has no value; the message says what to change."""


def unknown_words(expression: str) -> list[str]:
    """The words of a text that are no operators, functions or other words of the arithmetic language."""
    names = re.findall(r"[^\W\d_]+", _SPELLED.sub(_respelled, expression.lower()))
    return [word for word in names if word not in {*_SPELLED_SIGNS, *FUNCTIONS, "x", "e", "it"}]


class Sign(NamedTuple):
    """One token: a number, a word, an operator or a bracket."""

    text: str
    what: str  # its kind: the name of the group in `Reader.signs` that matched
    glued: bool  # whether there is no space before it


_PASTED = {"\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-", "\u2013": "-"}
_SPELLED = re.compile(rf"'[^']*'|\"[^\"]*\"|\bdivided\s+by\b|[{''.join(_PASTED)}]", re.IGNORECASE)
"""Matches `divided by` and signs such as the division sign, to replace them by Python's signs. It also matches quoted
texts, so that they can be kept unchanged."""
_MISPLACED = "A comma, star or bracket stands where none can: write 2 * (3), 0.5, 2450."
_SPELLED_SIGNS = {"plus": "+", "minus": "-", "times": "*", "percent": "%", "of": "@", "^": "**"}


class Reader:
    """Reads arithmetic; a subclass may add signs (tokens) and words."""

    signs: ClassVar = re.compile(
        r"(?P<space>\s+)|(?P<hex>0[xX][0-9a-fA-F]+)"
        r"|(?P<grouped>[1-9][0-9]{0,2}(?:,[0-9]{3})+(?!,?[0-9])(?:\.[0-9]+)?)"
        r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?)"
        r"|(?P<word>[^\W\d_]+)|(?P<sign>\*\*|//|[-+*/%^(),])"
    )
    functions: ClassVar = FUNCTIONS
    nodes: ClassVar[tuple[type[ast.expr], ...]] = (ast.Name, ast.BinOp, ast.UnaryOp, ast.Call)
    after_percentage: ClassVar = frozenset({"", "+", "-", ")", ",", "@", "*", "**", "/", "//", "%"})
    usable: ClassVar = "numbers, operators, brackets and functions"
    joined: ClassVar = "numbers"
    example: ClassVar = "some arithmetic, e.g. 18% of 2450"

    def __init__(self, numbers: Mapping[str, Decimal]) -> None:
        """`numbers` has the values of words that may occur in the expression, e.g. `it`."""
        self.numbers = dict(numbers)  # by name in the parsed tree: the value of each number

    def read(self, expression: str) -> ast.expr:
        """Parse an expression; raises Unreadable if the text is no expression, or is too long."""
        signs = self._cut(expression)
        if not signs:
            raise Unreadable(f"It is empty: write {self.example}.")
        after = [*(sign.text for sign in signs[1:]), ""]
        source = " ".join(self.write(sign, next) for sign, next in zip(signs, after, strict=True))
        self.numbers |= {"one": Decimal(1), "hundred": Decimal(100)}
        try:
            tree: ast.expr = _Percentages().visit(ast.parse(source, mode="eval").body)
        except (SyntaxError, RecursionError):
            raise Unreadable(
                f"It is not complete: check that brackets close and that operators join {self.joined}."
            ) from None
        self._check(tree)
        return tree

    def write(self, sign: Sign, after: str) -> str:
        """The Python text for a sign; `after` is the text of the next sign, empty at the end."""
        if sign.what in ("number", "grouped"):
            return named(self.numbers, "n", Decimal(sign.text.replace(",", "")))
        if sign.text == "%":
            return self._percentage_or_modulo(sign, after)
        return self.word(sign.text, after) if sign.what == "word" and sign.text[0].isalpha() else sign.text

    def word(self, word: str, after: str) -> str:
        """The Python text for a word; raises Unreadable for an unknown one, or a function without a bracket."""
        if word == "x":
            return "*"
        if word in self.numbers or (word in self.functions and after == "("):
            return word
        if word in self.functions:
            raise Unreadable(f"The function {word} needs brackets: {word}(...).")
        return self.unknown(word)

    def unknown(self, word: str) -> str:
        """The Python text for a word that is no operator and no function; raises Unreadable if it has no meaning."""
        if word == "it":
            raise Unreadable("It says `it`, but no number was given for that: set the argument `it`.")
        raise Unreadable(f"The word {word[:40]!r} is unknown: use numbers, operators, {', '.join(self.functions)}, of.")

    def _cut(self, expression: str) -> list[Sign]:
        """Split an expression into signs (tokens). Raises Unreadable for unknown, ambiguous or too many signs."""
        text = _SPELLED.sub(_respelled, expression)
        signs, calls, glued, position = list[Sign](), list[bool](), True, 0
        while position < len(text):
            found = self.signs.match(text, position)
            if found is None:
                raise Unreadable(f"There is {text[position]!r} in it: use {self.usable}.")
            sign, what = found.group(), found.lastgroup or ""
            # In max(1,200) the comma may separate two numbers or group the digits of one.
            if what == "hex" or (what == "grouped" and any(calls)):
                raise Unreadable(
                    f"{sign.lower()!r} can be read in two ways: use plain digits, and a space after a comma in a call."
                )
            if sign == "(":
                calls.append(bool(signs) and signs[-1].text in self.functions)
            elif sign == ")" and calls:
                calls.pop()
            if what != "space":
                text_of_sign = sign if what in ("name", "text") else _SPELLED_SIGNS.get(sign.lower(), sign.lower())
                signs.append(Sign(text_of_sign, what, glued))
            glued, position = what != "space", found.end()
            if len(signs) > MAX_SIGNS or len(calls) > MAX_NESTING:
                raise Unreadable(f"It is too long: at most {MAX_SIGNS} signs, nested {MAX_NESTING} deep.")
        return signs

    def _percentage_or_modulo(self, sign: Sign, after: str) -> str:
        """The Python text for `%`: `[p]` for a percentage, `%` for modulo. Raises Unreadable if it can be either."""
        if after in ("+", "-") and not sign.glued:
            raise Unreadable(
                f"' % {after}' can be read in two ways: write 7% {after} 3 for a percentage, 7 % ({after}3) else."
            )
        return "[p]" if after in self.after_percentage else "%"

    def _check(self, tree: ast.expr) -> None:
        """Raise Unreadable for a node that `nodes` does not allow, and for a call with a wrong number of arguments."""
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=name), args=values, keywords=[]) if name in self.functions:
                    if not 1 <= len(values) <= self.functions[name]:
                        raise Unreadable(f"{name}(...) got {len(values)} values: round takes 1 or 2, sqrt and abs 1.")
                case ast.Call() | ast.keyword():
                    raise Unreadable(_MISPLACED)
                case ast.expr() if not isinstance(node, self.nodes):
                    raise Unreadable(_MISPLACED)


def named(values: dict[str, T], letter: str, value: T) -> str:
    """Add `value` to `values` under a new name, e.g. `n0` with the letter `n`, and return the name."""
    name = f"{letter}{len(values)}"
    values[name] = value
    return name


def _respelled(found: re.Match[str]) -> str:
    """The Python sign for a match of `_SPELLED`; a quoted text stays as it is."""
    text = found.group()
    return text if text[0] in "'\"" else _PASTED.get(text, "/")


class _Percentages(ast.NodeTransformer):
    """Replaces percentages by arithmetic: `a + p%` is `a * (1 + p / 100)`, as on a calculator."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return ast.BinOp(self.visit(node.value), ast.Div(), ast.Name("hundred"))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if isinstance(node.op, ast.MatMult) and not _is_share(node.left):
            raise Unreadable("Before `of` must stand a percentage, as in 18% of 2450; bracket what is longer.")
        is_relative = isinstance(node.op, ast.Add | ast.Sub) and _is_percentage(node.right)
        left, right = self.visit(node.left), self.visit(node.right)
        if is_relative:
            return ast.BinOp(left, ast.Mult(), ast.BinOp(ast.Name("one"), node.op, right))
        return ast.BinOp(left, node.op, right)


def _is_percentage(node: ast.AST) -> bool:
    while isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Subscript)


def _is_share(node: ast.AST) -> bool:
    """Whether a node may be before `of`: a percentage, a sum of percentages, or a percentage of a percentage."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.MatMult):
        node = node.left
    return _is_percentage(node)
