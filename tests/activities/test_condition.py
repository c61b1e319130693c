"""Conditions over named values: what holds, what cannot be said, and what is refused before anything is asked."""

import time
import tracemalloc
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from activities.errors import Refused
from activities.toolbox.declare.condition_clauses import applies, clause_of
from activities.toolbox.declare.conditions import MAX_LENGTH, Condition, Undecided
from activities.toolbox.expressions.calculate import Expression, calculate
from activities.toolbox.expressions.expression import Unreadable

VALUES: dict[str, Any] = {
    "args": {"amount": Decimal("24.5"), "count": 7, "name": "Ada", "limit": None, "at": "2025-11-21T14:00:00Z"},
    "result": {
        "amount": Decimal("24.50"),
        "paid": True,
        "items": [{"price": 0.1}, {"price": 0.2}],
        "total": 0.3,
        "tags": ["new", "paid"],
        "mixed": [1, "a", None],
        "by_day": {"monday": 2, "2025": 1},
        "none": None,
        "größe_2": 4,
        "wide": 10**30,
    },
    "key": "run/pay",
    "empty": [],
}

TRUTHS = {
    # Numbers are decimals, whatever JSON they come from
    "result.amount == args.amount": True,
    "result.amount != args.amount": False,
    "0.1 + 0.2 == 0.3": True,
    "result.items.0.price + result.items.1.price == result.total": True,
    "result.total == 0.3": True,
    "result.wide + 1 > result.wide": True,
    "(1 / 3) * 3 == 1": True,
    "args.count / 3 * 3 == args.count": True,
    # The arithmetic is that of `calculate`
    "result.amount == args.amount + 10%": False,
    "args.amount + 10% == 26.95": True,
    "18% of 2,450 == 441": True,
    "7% == 0.07": True,
    "args.count % 2 == 1": True,
    "args.count x 2 == 14": True,
    "10 divided by 4 == 2.5": True,
    "2 ^ 3 == 8": True,
    "-args.count < 0": True,
    "round(result.total) == 0": True,
    "max(args.count, 9) - min(args.count, 9) == 2": True,
    # Comparisons
    "1 < 2": True,
    "2 <= 2": True,
    "2 > 2": False,
    "3 >= 4": False,
    "0 < args.count <= 7 < 8": True,
    "0 < args.count < 7 < 8": False,
    "args.name == 'Ada'": True,
    'args.name == "ada"': False,
    "args.name < 'Bob'": True,
    "args.at >= '2025-11-21'": True,
    "key == 'run/pay'": True,
    "'10 divided by 4 \u2013 of it' == \"10 divided by 4 \u2013 of it\"": True,
    "args.limit == none": True,
    "args.name != none": True,
    "result.none == 5": False,
    "args.name == none": False,
    "result.paid == true": True,
    "true != False": True,
    "result.tags == result.tags": True,
    "result.items == result.mixed": False,
    "result.items.0 == result.items.1": False,
    # Words
    "result.paid": True,
    "not result.paid": False,
    "not not result.paid": True,
    "result.paid and args.count == 7": True,
    "result.paid and not args.count == 7": False,
    "false or result.paid": True,
    "true or false and false": True,
    "(true or false) and false": False,
    "TRUE AND NOT FALSE": True,
    # Membership and length
    "'paid' in result.tags": True,
    "'late' not in result.tags": True,
    "'late' in empty": False,
    "1 in result.mixed": True,
    "'a' in result.mixed": True,
    "'b' in result.mixed": False,
    "none in result.mixed": True,
    "'d' in args.name": True,
    "'monday' in result.by_day": True,
    "len(result.tags) == 2": True,
    "len(args.name) + len(result.by_day) == 5": True,
    "len(empty) == 0": True,
    # Names
    "result.by_day.2025 == 1": True,
    "result.größe_2 == 4": True,
    "args.limit == none or args.limit.top > 1": True,
    "result.paid or result.nothing": True,
    "not result.paid and result.nothing > 1": False,
}


def test_a_condition_holds_or_does_not() -> None:
    """Arithmetic as in `calculate`, comparisons as in Python, but between values of one type only."""
    assert {source: Condition.read(source).holds(VALUES) for source in TRUTHS} == TRUTHS

    condition = Condition.read("result.amount == args.amount and (key != '' or args.amount > len(result.items))")
    again = Condition.read("result.id == args.id")

    assert condition.names == ("result.amount", "args.amount", "key", "result.items")
    assert again.holds({"args": {"id": 1}, "result": {"id": 1}})
    assert not again.holds({"args": {"id": 1}, "result": {"id": 2}})

    for value in (float("nan"), float("inf"), Decimal("NaN"), Decimal("-Infinity")):
        assert Condition.read("result == none").holds({"result": value}), value


UNDECIDED = {
    "result.nothing == 1": "The name 'result.nothing' has no value, since 'result' is an object without 'nothing'.",
    "result.none.amount == 1": "since 'result.none' is none without 'amount'",
    "result.items.2.price == 1": "The name 'result.items.2.price' has no value, since 'result.items' is a list",
    "result.items.first == 1": "since 'result.items' is a list without 'first'",
    "result.amount.value == 1": "since 'result.amount' is a number without 'value'",
    "nobody == 1": "The name 'nobody' has no value.",
    "args.name.__class__ == 1": "since 'args.name' is a text without '__class__'",
    "args.name == 5": "It compares a text with a number: compare like with like.",
    "args.name != 5": "It compares a text with a number",
    "args.count == '7'": "It compares a number with a text",
    "result.paid == 1": "It compares a truth value with a number",
    "result.tags == 'new'": "It compares a list with a text",
    "args.limit > 5": "It asks whether none is smaller or larger: only numbers and texts have an order.",
    "result.tags < result.items": "It asks whether a list is smaller or larger",
    "args.name < 5": "It compares a text with a number",
    "args.count": "There is a number where a condition must stand: compare it with something.",
    "not args.name": "There is a text where a condition must stand",
    "true and result.none": "There is none where a condition must stand",
    "args.name + 1 > 0": "It calculates with a text: use numbers.",
    "args.name * 9 == 27": "It calculates with a text",
    "-args.name == 1": "It calculates with a text",
    "sqrt(result.tags) == 1": "It calculates with a list",
    "len(args.count) == 1": "It asks for the length of a number: use len(...) of a list or a text.",
    "1 in args.count": "It looks for something in a number: look in a list or a text.",
    "args.count in args.name": "It looks for a number in a text",
    "args.count in result.tags": "It looks for a number among others: compare like with like.",
    "1 / (args.count - 7) == 1": "It divides by zero",
    "0 ^ -args.count == 1": "It divides by zero",
    "sqrt(-args.count) == 1": "It has no value among the numbers",
    "args.count ^ 9999 == 1": "Its numbers leave 10^-999 to 10^999",
    "round(args.count, 0.5) == 1": "takes a whole number of places",
}


def test_what_cannot_be_said_is_not_false() -> None:
    """A missing value or a comparison of unlike things is a mistake that somebody has to see."""
    said = dict[str, str]()
    for source in UNDECIDED:
        with pytest.raises(Undecided) as undecided:
            Condition.read(source).holds(VALUES)
        said[source] = str(undecided.value)

    assert {one: words for one, words in said.items() if UNDECIDED[one] not in words or not words.endswith(".")} == {}


UNREADABLE = {
    "": "It is empty: write a condition, e.g. result.amount == args.amount.",
    "   ": "It is empty",
    "args.a = 1": "There is '=' in it: use names, numbers, 'texts', operators, == != < <= > >=, and, or, not, in",
    "args.a & args.b": "There is '&' in it",
    "args.a[0] == 1": "There is '[' in it",
    "args.a == 'open": 'There is "\'" in it',
    "args.a == 'x\ny'": "There is a sign in a quoted text that cannot be printed: leave it out.",
    "args.a == '\ud800'": "There is a sign in a quoted text that cannot be printed",
    "args. == 1": "There is '.' in it",
    "args..a == 1": "There is '.' in it",
    "args.a ==": "It is not complete: check that brackets close and that operators join values.",
    "(args.a == 1": "It is not complete",
    "args.a args.b": "It is not complete",
    "args.a == 1 and": "It is not complete",
    "args.a is none": "There is `is` in it: write == or !=.",
    "args.a if args.b else args.c": "There is `if` in it: join conditions by `and` and `or`.",
    "all(n > 1 for n in args.a)": "There is no function 'all': use comparisons, in, and abs, len",
    "len(n for n in args.a) > 1": "There is `for` in it: nothing is repeated here; compare one value, like result.free",
    "lambda: 1": "There is ':' in it",
    "args.a.lower() == 'a'": "There is no method 'lower': use comparisons, in, and abs, len, max, min, round, sqrt.",
    "args.a(1) == 1": "There is no method 'a': use comparisons, in, and abs, len",
    "foo(args.a) > 0": "There is no function 'foo': use comparisons, in, and abs, len",
    "my_own(args.a) > 0": "There is no function 'my_own': use comparisons, in, and abs, len",
    "args.a, args.b": "A comma, star or bracket stands where none can",
    "open('a') == 1": "There is no function 'open'",
    "truth(args.a)": "There is no function 'truth'",
    "max(*args.a) == 1": "A comma, star or bracket stands where none can",
    "len == 1": "The function len needs brackets: len(...).",
    "len(args.a, args.b) == 1": "len(...) got 2 values",
    "1 < 2 in args.a": "`in` beside another comparison can be read in two ways: put brackets around one.",
    "args.a % - 3 == 1": "can be read in two ways",
    "args.a == 0x10": "can be read in two ways",
    "1 + 1": "There is a number where a condition must stand: compare it with something.",
    "'a'": "There is a text where a condition must stand",
    "none": "There is none where a condition must stand",
    "args.a and 5": "There is a number where a condition must stand",
    "not args.a + 1": "There is a number where a condition must stand",
    "'a' == 1": "It compares a text with a number",
    "args.a + 1 == 'b'": "It compares a number with a text",
    "(args.a == 1) > 2": "It asks whether a truth value is smaller or larger",
    "'a' * 9 == args.a": "It calculates with a text",
    "1 in 5": "It looks for something in a number",
    "len(5) == 1": "It asks for the length of a number",
    "a" * (MAX_LENGTH + 1): "It is too long: at most 1000 characters.",
    "1 == 1 and " * 80 + "true": "It is too long: at most 250 signs, nested 30 deep.",
    "(" * 31 + "true" + ")" * 31: "It is too long: at most 250 signs, nested 30 deep.",
}


def test_what_is_no_condition_is_refused_when_it_is_read() -> None:
    """Nothing is evaluated to find a mistake; what a model may write is arithmetic alone."""
    said = dict[str, str]()
    for source in UNREADABLE:
        with pytest.raises(Unreadable) as unreadable:
            Condition.read(source)
        said[source] = str(unreadable.value)

    assert {one: words for one, words in said.items() if UNREADABLE[one] not in words or not words.endswith(".")} == {}

    for expression in CONDITIONS:
        with pytest.raises(Refused, match="cannot be calculated"):
            calculate(Expression(expression=expression))


HOSTILE = [
    "9**9**9 == 1",
    "9^9^9^9^9 > args.count",
    "1e999999 * 10 == 1",
    "0.5 ^ 99999 == 0",
    "9" * 980 + "^ 999 == 1",
    "2**" * 120 + "2 == 1",
    "-" * 245 + "args.name == 1",
    "not " * 240 + "args.name",
    "(" * 400 + "true" + ")" * 400,
    "sqrt(" * 40 + "2" + ")" * 40,
    "<" * 200,
    "'" * 999,
    "'a' * 99999999 == 'b'",
    "args.name * 99999999 == 'b'",
    "'a' + 'b' == 'ab'",
    "result.items.99999999999999999999 == 1",
    "result.items.-1 == 1",
    "().__class__.__bases__[0].__subclasses__() == 1",
    "args.__class__.__mro__ == 1",
    "args.name.format == 1",
    "__import__('os').system('id') == 1",
    "f'{1}' == 1",
    "b'a' == 1",
    "[n for n in args.items] == 1",
    "{1: 2} == 1",
    "(n := 1) == 1",
    "1; 2",
    "True == 1",
    "\x00",
    "\ud800 == 1",
    "\u0661 == 1",
    "\U0001f4a3 == 1",
]


@pytest.mark.parametrize("source", HOSTILE, ids=lambda text: ascii(text)[:40])
def test_a_refusal_costs_neither_time_nor_memory(source: str) -> None:
    """Each hostile input ends within a second and two megabytes, in a sentence."""
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(Unreadable, match=r"\.$"):
        Condition.read(source).holds(VALUES)
    seconds, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert seconds < 1
    assert peak < 2_000_000


def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    return [nested(depth - 1)] if depth else []


LARGE: list[tuple[str, Any]] = [
    ("'x' in result", "a" * 250_000),
    ("'x' in result", ["a"] * 60_000),
    ("result != args", [{"n": 0.1}] * 20_000),
    ("result * result / 3 > 1", 10**4000),
    ("result + 1 > 1", Decimal("1E+999999")),
    ("result == 0", Decimal("1E-999999")),
    ("result == args", nested(900)),
]


def test_large_values_take_less_than_a_second() -> None:
    """What a tool returned is foreign; it may be as large as a result can be."""
    for source, value in LARGE:
        condition, began, holds = Condition.read(source), time.process_time(), False
        with suppress(Undecided):
            holds = condition.holds({"result": value, "args": value})

        assert not holds, source
        assert time.process_time() - began < 1, source


PIECES = ["args.a", "result.b.0", "key", "1", "0.5", "18%", "'t'", '"', "'", "true", "none", "and", "or", "not", "in"]
PIECES += [
    "==",
    "!=",
    "<",
    ">=",
    "=",
    "+",
    "-",
    "*",
    "/",
    "^",
    "%",
    "of",
    "x",
    "(",
    ")",
    ",",
    "len(",
    "max(",
    ".",
    "is",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.decimals(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0"]), inner, max_size=3),
    max_leaves=6,
)


@given(st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join), JSON, JSON)
def test_any_text_and_any_values_give_an_answer_or_a_refusal(source: str, args: Any, result: Any) -> None:
    """No text and no value raises anything else."""
    try:
        answer: bool | str = Condition.read(source).holds({"args": args, "result": result, "key": "k"})
    except Unreadable as refused:
        answer = str(refused)

    assert answer in (True, False) or str(answer).endswith(".")


NUMBERS = st.decimals(allow_nan=False, allow_infinity=False)


@given(st.floats(allow_nan=False, allow_infinity=False), NUMBERS, NUMBERS)
def test_numbers_are_compared_exactly(value: float, left: Decimal, right: Decimal) -> None:
    """However long they are; a binary number is the decimal that it is written as, which is what people compare."""
    values = {"args": left, "result": right}

    assert Condition.read(f"result == {value!r}").holds({"result": value})
    assert Condition.read("args < result").holds(values) is (left < right)
    assert Condition.read("args == result").holds(values) is (left == right)


CONDITIONS = ["args.amount", "1 < 2", "1 == 1", "'a'", "true", "none", "len(1)", "not 1", "1 and 1", "1 in 1"]


ARGS: dict[str, Any] = {
    "amount": 840,
    "limit": 3,
    "country": "US",
    "urgent": False,
    "to": ["ann", "bob"],
    "unit_price": 2,
    "lines": [{"sku": "A"}],
    "customer": {"country": "DE"},
}
WORDS = {
    "args.amount > 500": "the amount is above 500",
    "args.amount >= 500": "the amount is at least 500",
    "args.limit < 5": "the limit is below 5",
    "args.limit <= 5": "the limit is at most 5",
    "args.country == 'US'": "the country is US",
    "args.customer.country != 'FR'": "the country of the customer is not FR",
    "args.lines.0.sku == 'A'": "the sku of item 1 of the lines is A",
    "args.country not in 'FR DE'": "the country is not in FR DE",
    "'ann' in args.to": "ann is in the to",
    "len(args.to) > 1": "the length of the to is above 1",
    "args.unit_price * 2 > args.limit": "the unit price times 2 is above the limit",
    "not args.urgent": "urgent is false",
    "not (args.amount <= args.limit)": "the amount is above the limit",
    "args.amount > 500 and args.country != 'FR'": "the amount is above 500 and the country is not FR",
    "not (args.amount > 900 or args.limit > 9)": "the amount is not above 900 and the limit is not above 9",
    "args.amount != none": "the amount is not nothing",
    # What has no words is shown as it is
    "18% of args.amount > 3": "`18% of args.amount > 3` applies",
    "1 < args.limit < 9": "`1 < args.limit < 9` applies",
}


def test_a_condition_is_a_clause() -> None:
    """Each of these is true for the arguments, so it is also why a call needs an approval."""
    conditions = {source: Condition.read(source) for source in WORDS}

    assert {source: clause_of(condition) for source, condition in conditions.items()} == WORDS
    assert {source: applies(condition, ARGS) for source, condition in conditions.items()} == WORDS

    condition = Condition.read("args.amount > 900 or args.country not in 'FR DE'")
    undecided = applies(Condition.read("args.amount > 500"), {"amount": None})

    assert applies(condition, ARGS) == "the country is not in FR DE"
    assert clause_of(condition) == "the amount is above 900 or the country is not in FR DE"
    assert applies(condition, ARGS | {"country": "FR"}) is None
    assert undecided and undecided.startswith("the amount is above 500, which these arguments do not decide: it asks")
