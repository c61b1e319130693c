"""The schema that a model's plan is held to: made from the catalogue, with a reference wherever a value may be."""

from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types
from pydantic import BaseModel

from activities.planning.strategies import propose_plan
from activities.toolbox.registry import Registry
from evals.fakes.script import step
from replan import tool
from tests.activities.situations import KINDS

BOOK = step("book", "book_slot", day="2025-11-21", at="14:00", name="team")
SCHEMA = propose_plan(KINDS).schema
FITS = {
    "values": (BOOK, True),
    "a reference": (step("a", "calculate", expression={"$from": "price", "path": "price"}), True),
    "unknown kind": (step("a", "teleport"), False),
    "missing argument": (step("a", "book_slot", day="2025-11-21"), False),
    "another kind's": (step("a", "calculate", sku="A-17"), False),
    "no id": ({"kind": "calculate", "args": {"expression": "1"}}, False),
    "a number": (step("a", "calculate", expression=3), False),
}


@pytest.mark.parametrize(("one", "fits"), FITS.values(), ids=FITS)
def test_the_schema_allows_what_can_be_planned(one: dict[str, Any], fits: bool) -> None:
    """Kinds of the catalogue, the arguments of each, and a reference wherever a value is."""
    assert Draft202012Validator(SCHEMA).is_valid({"steps": [one]}) is fits


class Line(BaseModel):
    """Part of an order."""

    sku: str
    pieces: int


class Order(BaseModel):
    """Arguments of every shape."""

    lines: list[Line]
    prices: dict[str, float]
    first: Line | None = None
    size: Literal["small", "large"]


@tool.read
async def check_order(args: Order) -> Order:
    """Check an order."""
    return args


REFERENCE = {"$from": "a", "path": "b.0"}
LINE = {"sku": "A-17", "pieces": 2}
NESTED: list[tuple[dict[str, Any], bool]] = [
    ({"lines": [LINE], "prices": {"A-17": 2}, "size": "small"}, True),
    ({"lines": REFERENCE, "prices": REFERENCE, "first": REFERENCE, "size": REFERENCE}, True),
    ({"lines": [REFERENCE, {**LINE, "sku": REFERENCE}], "prices": {"A-17": REFERENCE}, "size": "large"}, True),
    ({"lines": [LINE], "prices": {}, "first": {**LINE, "pieces": REFERENCE}, "size": "small"}, True),
    ({"lines": [{"sku": "A-17"}], "prices": {}, "size": "small"}, False),
    ({"lines": [LINE], "prices": {"A-17": "dear"}, "size": "small"}, False),
    ({"lines": [LINE], "prices": {}, "size": "huge"}, False),
]


@pytest.mark.parametrize(("args", "fits"), NESTED)
def test_a_reference_may_stand_for_any_part_of_the_arguments(args: dict[str, Any], fits: bool) -> None:
    """In lists, in dictionaries, in models inside models; everything else keeps its own shape."""
    schema = propose_plan(Registry([check_order])).schema

    assert Draft202012Validator(schema).is_valid({"steps": [step("order", "check_order", **args)]}) is fits
