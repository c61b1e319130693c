"""Temporal's own reset of a task that a model drives: the same turn is not asked for again, another one is a branch."""

from pathlib import Path

import pytest
from pydantic import BaseModel
from temporalio.client import Client, WorkflowHandle

from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, calls
from replan import tool
from tests.gate import sampled
from tests.harness import outcome
from tests.providers.acting import acting, reacting
from tests.workflows.test_agent_reset import again
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.agent import AgentWorkflow


def newest(client: Client, id: str) -> WorkflowHandle[AgentWorkflow, Outcome]:
    """The newest run of a task."""
    return client.get_workflow_handle_for(AgentWorkflow.run, id)


def buyer(heard: ReceivedRequest) -> Response:
    """Three prices, one a turn, then the answer."""
    return calls(ModelCall("get_price", {"sku": f"A-{heard.turn}"})) if heard.turn < 3 else ModelReply(text="Done.")


BEFORE = {name: (name,) for name in ("catalogue", "plan:1", "t1.c0", "plan:2", "t3.c0", "plan:4")}


@pytest.mark.parametrize("before", sampled(BEFORE, "t1.c0"))
async def test_the_same_turns_are_not_asked_for_again(
    client: Client, tmp_path: Path, provider: str, before: str
) -> None:
    """To before each of them: no request, the same steps, the same result."""
    async with acting(client, tmp_path, provider, buyer) as one:
        handle = await one.stage.start(reacting())
        first = await outcome(handle)
        second = await again(one.stage, newest(client, handle.id), before)

    assert (second.status, second.result) == (TaskStatus.COMPLETED, first.result)
    assert [step.id for step in second.steps] == [step.id for step in first.steps] == ["t1.c0", "t2.c0", "t3.c0"]
    assert (len(one.api.bodies), one.api.violations) == (4, [])


class Nothing(BaseModel):
    """No arguments."""


class Count(BaseModel):
    """How often something was called."""

    calls: int


async def test_another_turn_is_a_branch(client: Client, tmp_path: Path, provider: str) -> None:
    """A result that is another one this time leads to a request, and to steps with ids of their own."""
    called = list[None]()

    @tool.read
    async def count(args: Nothing) -> Count:
        """Count its own calls."""
        called.append(None)
        return Count(calls=len(called))

    def counter(heard: ReceivedRequest) -> Response:
        return calls(ModelCall("count", {})) if heard.turn < 2 else ModelReply(text=f"{heard.turn} turns")

    async with acting(client, tmp_path, provider, counter, tools=[count]) as one:
        handle = await one.stage.start(reacting())
        first, resets = await outcome(handle), ("t1.c0", "t1.c0", "t2.c0.b2")
        lives = [first, *[await again(one.stage, newest(client, handle.id), before) for before in resets]]
    ids = [[step.id for step in life.steps] for life in lives]

    assert ids == [["t1.c0", "t2.c0"], ["t1.c0", "t2.c0.b1"], ["t1.c0", "t2.c0.b2"], ["t1.c0", "t2.c0.b2"]]
    assert [heard.turn for heard in one.api.requests] == [0, 1, 2, 1, 2, 1, 2, 2]
    assert one.api.violations == [] and {life.status for life in lives} == {TaskStatus.COMPLETED}


async def test_what_a_branch_tells_is_its_own(client: Client, tmp_path: Path, provider: str) -> None:
    """Nothing of the life before is in it, and all of what both share is."""
    called = list[None]()

    @tool.read
    async def count(args: Nothing) -> Count:
        """Count its own calls."""
        called.append(None)
        return Count(calls=len(called) * 11)

    def counter(heard: ReceivedRequest) -> Response:
        return calls(ModelCall("count", {})) if heard.turn < 3 else ModelReply(text="Done.")

    async with acting(client, tmp_path, provider, counter, tools=[count]) as one:
        handle = await one.stage.start(reacting())
        await outcome(handle)
        await again(one.stage, newest(client, handle.id), "t2.c0")
    told = one.api.requests[-1].all_text

    assert [f'{{"calls":{number}}}' in told for number in (11, 22, 33, 44, 55)] == [True, False, False, True, True]
