"""How a tool differs from the version that a call was planned for, as far as the call does not fit any more."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from activities.toolbox.declare.arguments import misfits
from activities.toolbox.registry import Registry
from replan import tool
from workflows.inquiries import Misfit, NextCall
from workflows.plans.catalogue import Effect


class Buyer(BaseModel):
    name: str
    country: str


class Order(BaseModel):
    article: str
    number: Annotated[int, Field(le=10)] = 1
    buyer: Buyer | None = None


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")

    article: str


class Free(BaseModel):
    model_config = ConfigDict(extra="allow")


class Done(BaseModel):
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
SEVEN = dict.fromkeys("abcdefg", 1)
CASES: Sequence[tuple[str, Mapping[str, JsonValue], str]] = [
    ("order", LAMP, ""),
    ("order", {}, "'article' is new and required"),
    ("order", {**LAMP, "buyer": {"name": "Ann"}}, "'buyer.country' is new and required"),
    ("order", {**LAMP, "number": "many"}, "'number' has another type: input should be a valid integer"),
    ("order", {**LAMP, "number": 11}, "'number' has another rule: input should be less than or equal to 10"),
    ("order", {**LAMP, "note": "soon"}, "'note' is gone"),  # which pydantic would ignore
    ("order_strictly", {**LAMP, "note": "soon"}, "'note' is gone"),  # which pydantic forbids
    ("order_freely", {"note": "soon"}, ""),
    ("order", {"note": "soon"}, "'note' is gone; 'article' is new and required"),
    ("order", {**LAMP, "number": {"$from": "a", "path": "number"}}, ""),
    ("order", {"number": {"$from": "a"}}, "'article' is new and required"),
    ("buy", LAMP, "the tool is gone"),
    # The reason of a fault stays a sentence
    ("order", {**LAMP, **SEVEN}, "'a' is gone; 'b' is gone; 'c' is gone; 'd' is gone; 'e' is gone and 2 more"),
]


def test_the_difference_is_named() -> None:
    """Which argument is new and required, gone, or has another type or rule, or another effect; never a value."""
    for kind, args, difference in CASES:
        call = NextCall(task="t", step="s", kind=kind, effect=Effect.IDEMPOTENT, args=dict(args))

        expected = [Misfit(task="t", step="s", kind=kind, difference=difference)] if difference else []
        assert misfits(KINDS, [call]) == expected

    call = NextCall(task="t", step="s", kind="order", effect=Effect.READ, args=dict(LAMP))

    assert [misfit.difference for misfit in misfits(KINDS, [call])] == ["its effect was read and is idempotent now"]
