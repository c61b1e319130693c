"""How a tool differs from the version that a call was planned for, as far as the call does not fit any more."""

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from activities.toolbox.declare.arguments import misfits
from activities.toolbox.registry import Registry
from replan import tool
from workflows.inquiries import Misfit, NextCall
from workflows.plans.catalogue import Effect


class Buyer(BaseModel):
    """A part of an order."""

    name: str
    country: str


class Order(BaseModel):
    """The arguments of today's version."""

    article: str
    number: Annotated[int, Field(le=10)] = 1
    buyer: Buyer | None = None


class Strict(BaseModel):
    """Arguments that forbid unknown names, as pydantic does."""

    model_config = ConfigDict(extra="forbid")

    article: str


class Free(BaseModel):
    """Arguments with any names."""

    model_config = ConfigDict(extra="allow")


class Done(BaseModel):
    """A result."""

    ok: bool = True


@tool.idempotent
async def order(args: Order) -> Done:
    """Order an article."""
    return Done()


@tool.idempotent
async def order_strictly(args: Strict) -> Done:
    """Order an article."""
    return Done()


@tool.idempotent
async def order_freely(args: Free) -> Done:
    """Order an article."""
    return Done()


KINDS = Registry([order, order_strictly, order_freely])
LAMP: Mapping[str, Any] = {"article": "a lamp"}
CASES: Mapping[str, tuple[str, Mapping[str, JsonValue], str]] = {
    "it fits": ("order", LAMP, ""),
    "a required field": ("order", {}, "'article' is new and required"),
    "a required field inside": (
        "order",
        {**LAMP, "buyer": {"name": "Ann"}},
        "'buyer.country' is new and required",
    ),
    "a type": (
        "order",
        {**LAMP, "number": "many"},
        "'number' has another type: input should be a valid integer",
    ),
    "a rule": (
        "order",
        {**LAMP, "number": 11},
        "'number' has another rule: input should be less than or equal to 10",
    ),
    "a field that pydantic would ignore": ("order", {**LAMP, "note": "soon"}, "'note' is gone"),
    "a field that pydantic forbids": ("order_strictly", {**LAMP, "note": "soon"}, "'note' is gone"),
    "any name": ("order_freely", {"note": "soon"}, ""),
    "two": ("order", {"note": "soon"}, "'note' is gone; 'article' is new and required"),
    "a reference": ("order", {**LAMP, "number": {"$from": "a", "path": "number"}}, ""),
    "a reference beside": ("order", {"number": {"$from": "a"}}, "'article' is new and required"),
    "the tool": ("buy", LAMP, "the tool is gone"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_difference_is_named(case: str) -> None:
    """Which argument is new and required, gone, or has another type or rule; never its value."""
    kind, args, difference = CASES[case]
    call = NextCall(task="t", step="s", kind=kind, effect=Effect.IDEMPOTENT, args=dict(args))

    expected = [Misfit(task="t", step="s", kind=kind, difference=difference)] if difference else []
    assert misfits(KINDS, [call]) == expected


def test_another_effect_is_a_difference_although_the_arguments_fit() -> None:
    """A call that was planned as a read must not change anything."""
    call = NextCall(task="t", step="s", kind="order", effect=Effect.READ, args=dict(LAMP))

    assert [misfit.difference for misfit in misfits(KINDS, [call])] == ["its effect was read and is idempotent now"]


def test_no_more_than_five_differences_are_named() -> None:
    """The reason of a fault stays a sentence."""
    args: dict[str, JsonValue] = {**LAMP, **dict.fromkeys("abcdefg", 1)}
    call = NextCall(task="t", step="s", kind="order", effect=Effect.IDEMPOTENT, args=args)
    [misfit] = misfits(KINDS, [call])

    assert misfit.difference == "'a' is gone; 'b' is gone; 'c' is gone; 'd' is gone; 'e' is gone and 2 more"
