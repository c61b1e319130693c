"""A world for the tests of `report`: tasks whose texts say which faults they meet."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from temporalio import activity

from activities.toolbox.declare.kind import Kind
from replan import Busy, Key, NeedsPerson, Refused, Tool, Unreachable, tool
from tests.harness import DONE, plan, step
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, GiveUp, NewSteps


class Faults(BaseModel):
    """The codes of the faults that the attempts of a call meet, one after the other; then it succeeds."""

    codes: list[str] = []


class Done(BaseModel):
    """A result."""

    attempt: int


def act(args: Faults) -> Done:
    """Fail as it is told, else succeed."""
    attempt = activity.info().attempt
    if attempt > len(args.codes):
        return Done(attempt=attempt)
    match args.codes[attempt - 1]:
        case "busy":
            raise Busy("The line is busy.")
        case "unreachable":
            raise Unreachable("The line is cut.")
        case "unauthorized" | "needs_person" as code:
            raise NeedsPerson("The key was revoked.", code=code)
        case code:
            raise Refused("The world has changed.", code=code)


@tool.read(breaker=None)
async def get_price(args: Faults) -> Done:
    """Look a price up."""
    return act(args)


@tool.keyed(breaker=None)
async def charge(args: Faults, key: Key) -> Done:
    """Charge a card."""
    return act(args)


@tool.read(breaker=None)
async def old_price(args: Faults) -> Done:
    """Look a price up elsewhere."""
    return Done(attempt=1)


@tool.read(fallback=old_price, breaker=None)
async def list_price(args: Faults) -> Done:
    """Look a price up in a list."""
    return act(args)


TOOLS: Sequence[Tool[..., Any]] = (get_price, charge, old_price, list_price)
Plan = Sequence[tuple[str, Sequence[str]]]
"""The steps of a plan: a kind and the codes of its faults each."""


class ByText:
    """Plans what the text of a task says: a JSON list of plans, for one request each; then the task is done."""

    name = "by_text"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer | GiveUp:
        plans: list[Plan] = json.loads(situation.text)
        if situation.turn > len(plans):
            return DONE
        number = situation.turn
        return plan(
            *(step(f"p{number}s{at}", kind, codes=list(codes)) for at, (kind, codes) in enumerate(plans[number - 1]))
        )


def text(*plans: Plan) -> str:
    return json.dumps(plans)
