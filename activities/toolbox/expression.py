"""The language of expressions: what people and planners write as arithmetic, read sign by sign.

Reading makes an expression of our own, in which every number is a name, so that nothing a caller wrote reaches an
evaluator but operators, brackets and known functions. `18%` is written `n0[p]` there, the one postfix that Python's
grammar has, and then becomes plain arithmetic.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

FUNCTIONS = ("sqrt", "round", "min", "max", "abs")
MAX_SIGNS, MAX_NESTING = 250, 30


class Unreadable(ValueError):
    """It is no expression; the message says what to change."""


@dataclass(frozen=True)
class Parsed:
    """An expression that can be evaluated: its tree holds names, operators and calls of `FUNCTIONS`, nothing else."""

    tree: ast.AST
    numbers: Mapping[str, Decimal]
    """The value of each name."""


def parse(expression: str, it: Decimal | None = None) -> Parsed:
    """Read an expression; `it` is what the word of that name stands for.

    Raises:
        Unreadable: it is no expression, or has too many signs.
    """
    numbers = {} if it is None else {"it": it}
    signs = _signs(expression)
    if not signs:
        raise Unreadable("It is empty: write some arithmetic, e.g. 18% of 2450.")
    source = _translate(signs, numbers)
    try:
        tree = _Percentages().visit(ast.parse(source, mode="eval").body)
    except (SyntaxError, RecursionError):
        raise Unreadable("It is not complete: check that brackets close and that operators join numbers.") from None
    return Parsed(tree, numbers | {"one": Decimal(1), "hundred": Decimal(100)})


def unknown_words(expression: str) -> list[str]:
    """The words of a text that no expression can hold."""
    words = re.findall(r"[^\W\d_]+", _DIVIDED_BY.sub("/", expression.lower()))
    return [word for word in words if word not in {*_WORDS, *FUNCTIONS, "x", "e", "it"}]


class _Sign(NamedTuple):
    text: str
    glued: bool
    """Whether nothing stands between it and the sign before."""


_DIVIDED_BY = re.compile(r"\bdivided\s+by\b", re.IGNORECASE)
_WORDS = {"plus": "+", "minus": "-", "times": "*", "percent": "%", "of": "@", "^": "**"}
_PASTED = str.maketrans({"\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-", "\u2013": "-"})
_TEXT = re.compile(
    r"(?P<space>\s+)|(?P<hex>0[xX][0-9a-fA-F]+)"
    r"|(?P<grouped>[1-9][0-9]{0,2}(?:,[0-9]{3})+(?!,?[0-9])(?:\.[0-9]+)?)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?)"
    r"|(?P<word>[^\W\d_]+)|(?P<sign>\*\*|//|[-+*/%^(),])"
)
_AFTER_PERCENTAGE = ("", "+", "-", ")", ",", "@", "*", "**", "/", "//", "%")


def _signs(expression: str) -> list[_Sign]:
    """Cut an expression into signs, in one spelling each."""
    text = _DIVIDED_BY.sub("/", expression).translate(_PASTED)
    signs, calls, glued, position = list[_Sign](), list[bool](), True, 0
    while position < len(text):
        found = _TEXT.match(text, position)
        if found is None:
            raise Unreadable(f"There is {text[position]!r} in it: use numbers, operators, brackets and functions.")
        sign, what = found.group().lower(), found.lastgroup
        if what == "hex" or (what == "grouped" and any(calls)):
            raise Unreadable(
                f"{sign!r} can be read in two ways: use plain digits, and a space after a comma in a call."
            )
        if sign == "(":
            calls.append(bool(signs) and signs[-1].text in FUNCTIONS)
        elif sign == ")" and calls:
            calls.pop()
        if what != "space":
            signs.append(_Sign(_WORDS.get(sign, sign), glued))
        glued, position = what != "space", found.end()
        if len(signs) > MAX_SIGNS or len(calls) > MAX_NESTING:
            raise Unreadable(f"It is too long: at most {MAX_SIGNS} signs, nested {MAX_NESTING} deep.")
    return signs


def _translate(signs: Sequence[_Sign], numbers: dict[str, Decimal]) -> str:
    """Write the signs for the parser; numbers go into `numbers`."""
    parts = []
    for sign, after in zip(signs, [*(sign.text for sign in signs[1:]), ""], strict=True):
        if sign.text[0] in ".0123456789":
            parts.append(f"n{len(numbers)}")
            numbers[parts[-1]] = Decimal(sign.text.replace(",", ""))
        elif sign.text == "%":
            parts.append(_percentage_or_modulo(sign, after))
        elif sign.text[0].isalpha():
            parts.append(_word(sign.text, after, numbers))
        else:
            parts.append(sign.text)
    return " ".join(parts)


def _percentage_or_modulo(sign: _Sign, after: str) -> str:
    if after in ("+", "-") and not sign.glued:
        raise Unreadable(
            f"' % {after}' can be read in two ways: write 7% {after} 3 for a percentage, 7 % ({after}3) else."
        )
    return "[p]" if after in _AFTER_PERCENTAGE else "%"


def _word(word: str, after: str, numbers: Mapping[str, Decimal]) -> str:
    if word == "x":
        return "*"
    if word == "it" and "it" not in numbers:
        raise Unreadable("It says `it`, but no number was given for that: set the argument `it`.")
    if word == "it" or (word in FUNCTIONS and after == "("):
        return word
    if word in FUNCTIONS:
        raise Unreadable(f"The function {word} needs brackets: {word}(...).")
    raise Unreadable(f"The word {word[:40]!r} is unknown: use numbers, operators, {', '.join(FUNCTIONS)}, of.")


class _Percentages(ast.NodeTransformer):
    """Puts plain arithmetic in the place of percentages: `a + p%` is `a * (1 + p / 100)`, as on a calculator."""

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
    """Whether it may stand before `of`: a percentage, a sum of percentages, or a percentage of one."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.MatMult):
        node = node.left
    return _is_percentage(node)
