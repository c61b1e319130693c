"""`calculate`: what people write as arithmetic, exactly; and what hostile callers write, at once refused."""

import time
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from activities.errors import Refused
from activities.toolbox.expressions.calculate import Expression, calculate


def value_of(expression: str, it: Decimal | None = None) -> str:
    value: str = calculate(Expression(expression=expression, it=it)).model_dump(mode="json")["value"]
    return value


def refusal_of(expression: str) -> Refused:
    with pytest.raises(Refused) as caught:
        calculate(Expression(expression=expression))
    return caught.value


VALUES = {
    # Numbers are decimals, as people count, and operators bind as in Python
    "1 + 2 * 3": "7",
    "(1 + 2) * 3": "9",
    "-2 ^ 2": "-4",
    "2 ** 3 ** 2": "512",
    "7 / 2": "3.5",
    "7 // 2": "3",
    "-7 // 2": "-4",
    "7 % 3": "1",
    "-7 % 3": "2",
    "7 % (-3)": "-2",
    "0.1 + 0.2": "0.3",
    "1 / 3": "0.3333333333333333333333333333",
    "(1 / 3) * 3": "1",
    "2 ^ 100": "1267650600228229401496703205376",
    "1e3": "1000",
    # `p%` is a hundredth, and after plus or minus a part of what stands to the left, as on a calculator
    "18% of 2450": "441",
    "2450 + 18%": "2891",
    "2450 - 18%": "2009",
    "2450 + -18%": "2009",
    "2450 * 18%": "441",
    "18%": "0.18",
    "18 %": "0.18",
    "18 percent of 2450": "441",
    "2450 + 18% of 100": "2468",
    "10% of 20% of 500": "10",
    "(10% + 10%) of 200": "22",
    "100 + 10% + 10%": "121",
    "18% - 3": "-2.82",
    # Thousands separators and the signs of handwriting are read where they mean one thing only
    "2,450 + 1": "2451",
    "1,234,567.5": "1234567.5",
    "3 x 4": "12",
    "3x4": "12",
    "3 \u00d7 4": "12",
    "10 \u00f7 4": "2.5",
    "10 \u2212 4": "6",
    "2^3": "8",
    "10 divided by 4": "2.5",
    "7 times 6 minus 2 plus 1": "41",
    # Roots, rounding half away from zero, extremes and absolute values
    "sqrt(2) ^ 2": "2",
    "round(2.675, 2)": "2.68",
    "round(2.5)": "3",
    "round(1234, -2)": "1200",
    "min(3, 1, 2)": "1",
    "max(2, 450)": "450",
    "abs(-3.50)": "3.5",
    # No exponent and no trailing zeros in what people read
    "441.50": "441.5",
    "100 * 45": "4500",
    "0.0000001": "0.0000001",
    "-0": "0",
    "9 ^ 9 ^ 3 * 0": "0",
}


def test_arithmetic_is_what_people_mean() -> None:
    """Exact, in their signs and words, and written plainly; `it` stands for an earlier result."""
    assert {expression: value_of(expression) for expression in VALUES} == VALUES

    calculation = calculate(Expression(expression="10% of it", it=Decimal("441")))

    assert calculation.model_dump(mode="json") == {"expression": "10% of 441", "value": "44.1"}


HOSTILE = [
    "9**9**9",
    "9^9^9^9^9",
    "1e999999 * 10",
    "0.5 ^ 99999",
    "9" * 990 + "^ 999",
    "2**" * 120 + "2",
    "-" * 900 + "1",
    "(" * 400 + "1" + ")" * 400,
    "((((" * 90 + "1",
    "+".join(["1"] * 400),
    "sqrt(" * 100 + "2" + ")" * 100,
    "().__class__.__bases__[0].__subclasses__()",
    "(1).real",
    "__import__('os').system('id')",
    "open",
    "max",
    "exec(1)",
    "a",
    "x",
    "it",
    "[n for n in (1, 2)]",
    "{1: 2}",
    "'a' * 9",
    '"a" + "b"',
    "f'{1}'",
    "lambda: 1",
    "1 if 1 else 2",
    "n := 1",
    "1; 2",
    "max(*1)",
    "max(**1)",
    "round(number=1)",
    "sqrt(1)(2)",
    "2(3)",
    "1 / 0",
    "5 % 0",
    "5 // 0",
    "0 / 0",
    "0 ^ 0",
    "sqrt(-1)",
    "(-8) ^ (1 / 3)",
    "sqrt()",
    "abs(1, 2)",
    "round(1, 0.5)",
    "round(1, 99)",
    "",
    "   ",
    "1 +",
    "(1",
    "1)",
    "1.2.3",
    "1_000",
    "\x00",
    "\u0661 + \u0661",
    "\U0001f4a3",
]


@pytest.mark.parametrize("expression", HOSTILE)
def test_what_is_no_arithmetic_is_refused_at_once(expression: str) -> None:
    """Nothing but bounded arithmetic is evaluated, in a second and two megabytes; the refusal says what to change."""
    tracemalloc.start()
    began = time.process_time()
    refused = refusal_of(expression)
    seconds, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert refused.fault.code == "invalid_input"
    assert refused.fault.reason.startswith("The expression cannot be calculated. ")
    assert seconds < 1
    assert peak < 2_000_000


AMBIGUOUS = ["max(2,450)", "0,450", "2.450,50", "0x10", "1 % - 3", "50 of 100", "100 / 10% of 50", "2 450", "12,34"]


def test_what_can_be_read_in_two_ways_or_is_too_large_is_refused() -> None:
    """A guess would be a wrong number that nobody notices; length is bounded before anything reads the text."""
    assert [refusal_of(expression).fault.code for expression in AMBIGUOUS] == ["invalid_input"] * len(AMBIGUOUS)

    with pytest.raises(ValidationError, match="at most 1000 characters"):
        Expression(expression="9" * 1_000_000)
    for it in ("NaN", "Infinity", "1E+5000"):
        with pytest.raises(ValidationError):
            Expression.model_validate({"expression": "it + 1", "it": it})


@given(st.text(alphabet="0123456789.,+-*/%^() xofitmaxsqr\u00d7", max_size=60))
def test_any_text_gives_a_value_or_a_refusal(expression: str) -> None:
    """No text raises anything else, and a value is a finite number."""
    try:
        value = calculate(Expression(expression=expression)).value
    except Refused:
        return

    assert value.is_finite()
