"""Whole tasks of a worker with more kinds than a model is shown."""

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from activities.toolbox.find_tools import MAX_SHOWN, NAME
from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, calls, finishes, proposes, step
from replan import Tool, tool
from tests.harness import outcome
from tests.providers import desk
from tests.providers.acting import acting
from workflows.account.task import Task, TaskStatus


class Gauge(BaseModel):
    """What is measured."""

    bar: float = 0


def gauge(number: int) -> Tool[..., Any]:
    """A tool that nobody asks for."""

    async def read(args: Gauge) -> Gauge:
        """Read one gauge of the boiler."""
        return args

    read.__name__ = f"gauge_{number}"
    return tool.read(read)


TOOLS = [*map(gauge, range(40)), *desk.TOOLS]
ASKED = "read the gauges of the boiler"
FIND = ModelCall(NAME, {"query": "book a slot"})


def mover(heard: ReceivedRequest) -> Response:
    """A model that makes one move at a time, and looks for what it is not shown."""
    if not heard.turn:
        return calls(FIND)
    return ModelReply(text="Booked.") if heard.turn == 2 else calls(ModelCall("book", {"at": "14:30"}))


def planner(heard: ReceivedRequest) -> Response:
    """A model that plans, and looks for what it is not shown before it does."""
    if not heard.turn:
        return calls(FIND)
    return finishes("Booked.") if heard.turn == 2 else proposes(step("slot", "book", at="14:30"))


@pytest.mark.parametrize(
    ("strategy", "model"), [("react", mover), pytest.param("plan", planner, marks=pytest.mark.full)]
)
async def test_a_model_finds_what_it_is_not_shown(
    client: Client, tmp_path: Path, provider: str, strategy: Literal["plan", "react"], model: Any
) -> None:
    """It is shown as many kinds as it can look at, and from then on what it found as well."""
    async with acting(client, tmp_path, provider, model, tools=TOOLS) as one:
        ended = await outcome(await one.stage.start(Task(text=ASKED, strategy=strategy)))
    before, after = (str(one.api.bodies[turn].get("tools")) for turn in (0, 1))

    assert (ended.status, ended.result, one.api.violations) == (TaskStatus.COMPLETED, "Booked.", [])
    assert [record.kind for record in ended.steps] == [NAME, "book"]
    assert "'book'" not in before and "'book'" in after


async def test_no_more_kinds_are_offered_than_can_be_looked_at(client: Client, tmp_path: Path, provider: str) -> None:
    """The kinds, with the one that finds others, and the ends of a task."""
    async with acting(client, tmp_path, provider, mover, tools=TOOLS) as one:
        await one.run(ASKED)
    kinds = [[name for name in heard.tools if name not in ("ask", "give_up")] for heard in one.api.requests]

    assert [len(offered) for offered in kinds] == [MAX_SHOWN] * 3
    assert kinds[1] == kinds[2] and all(NAME in offered for offered in kinds)
