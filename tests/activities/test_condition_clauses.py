"""Conditions in words: what a person reads who is asked to approve a call."""

from typing import Any

import pytest

from activities.toolbox.declare.condition_clauses import applies, clause_of
from activities.toolbox.declare.conditions import Condition

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


@pytest.mark.parametrize("source", WORDS)
def test_a_condition_is_a_clause(source: str) -> None:
    """Every one of these is true for the arguments, so it is also why a call needs an approval."""
    condition = Condition.read(source)

    assert clause_of(condition) == WORDS[source]
    assert applies(condition, ARGS) == WORDS[source]


def test_only_what_is_true_of_a_call_is_why() -> None:
    """Of two reasons, the one that does not hold is left out; no value of a call is in the words."""
    condition = Condition.read("args.amount > 900 or args.country not in 'FR DE'")

    assert applies(condition, ARGS) == "the country is not in FR DE"
    assert clause_of(condition) == "the amount is above 900 or the country is not in FR DE"
    assert applies(condition, ARGS | {"country": "FR"}) is None


def test_what_cannot_be_decided_is_asked() -> None:
    """Rather one approval too many, with the reason."""
    why = applies(Condition.read("args.amount > 500"), {"amount": None})

    assert why is not None and why.startswith("the amount is above 500, which these arguments do not decide: it asks")
