"""Before which planned calls a person is asked: a condition is evaluated as far as the arguments are known."""

from decimal import Decimal
from typing import Annotated, Any, Self

import pytest
from pydantic import AfterValidator, BaseModel, Field, model_validator

from activities.toolbox.declare.arguments import approvals
from activities.toolbox.registry import Registry
from replan import Key, tool
from workflows.inquiries import ApprovalNeed, PlannedStep


def doubled(value: Decimal) -> Decimal:
    return value * 2


class Payment(BaseModel):
    amount: Annotated[Decimal, AfterValidator(doubled)]
    to: str = "ann"
    currency: str = Field(default="EUR", alias="in")

    @model_validator(mode="after")
    def is_whole(self) -> Self:
        """What a model without its fields cannot do."""
        assert f"{self.amount} {self.to}"
        return self


@tool.keyed(approve="args.amount > 500 or args.to == 'bob'")
async def pay(args: Payment, key: Key) -> Payment:
    """Pay."""
    return args


@tool.keyed(approve="always")
async def wire(args: Payment, key: Key) -> Payment:
    """Wire."""
    return args


@tool.keyed
async def give(args: Payment, key: Key) -> Payment:
    """Give."""
    return args


KINDS = Registry([pay, wire, give])
TRUE, WHY = "the amount is above 500", "the amount is above 500 or the to is bob"
LATER = {"$from": "price", "path": "amount"}
CALLS = {
    "false": ("pay", {"amount": "5.00"}, ApprovalNeed(asks="no")),
    "true as a text": ("pay", {"amount": "250.01"}, ApprovalNeed(asks="yes", why=TRUE)),
    "true as a number": ("pay", {"amount": 250.5}, ApprovalNeed(asks="yes", why=TRUE)),
    "unknown and needed": ("pay", {"amount": LATER}, ApprovalNeed(asks="may", why=WHY)),
    "decided without it": ("pay", {"amount": "400", "to": LATER}, ApprovalNeed(asks="yes", why=TRUE)),
    "not decided without it": ("pay", {"amount": "4", "to": LATER}, ApprovalNeed(asks="may", why=WHY)),
    "not needed": ("pay", {"amount": "4", "in": LATER}, ApprovalNeed(asks="no")),
    "always": ("wire", {"amount": LATER}, ApprovalNeed(asks="yes", why="the tool asks before each call")),
    "never": ("give", {"amount": LATER}, ApprovalNeed(asks="no")),
}


@pytest.mark.parametrize(("kind", "args", "found"), CALLS.values(), ids=CALLS)
def test_a_condition_is_evaluated_as_far_as_its_arguments_are_known(
    kind: str, args: dict[str, Any], found: ApprovalNeed
) -> None:
    """With the tool's own types and validators of fields."""
    assert approvals(KINDS, [PlannedStep(step="a", kind=kind, args=args)]) == {"a": found}
