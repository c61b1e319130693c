"""A reset of a task that a model drives and that changed the world: effects stay single, the turns are found."""

from pathlib import Path

import pytest
from sqlalchemy import delete
from sqlalchemy.ext.asyncio import create_async_engine
from temporalio.client import Client

from activities.planning.transcript import TURNS
from client.reset import Fate
from console.commands.reset import reset
from console.options import Common
from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, calls, finishes, proposes, step
from tests.activities.payments import payments
from tests.gate import sampled
from tests.harness import outcome
from tests.providers.acting import acting, reacting
from tests.providers.test_react_reset import newest
from tests.workflows.test_agent_reset import again, lines, tools
from workflows.account.task import Task, TaskStatus

BEFORE = {name: (name,) for name in ("catalogue", "plan:1", "t1.c0", "t2.c0", "plan:3")}


@pytest.mark.parametrize("before", sampled(BEFORE, "catalogue", "t2.c0"))
async def test_an_effect_that_is_replayed_is_the_same_news(
    client: Client, tmp_path: Path, provider: str, before: str
) -> None:
    """The ledger knows the calls, and answers as before; so the next turn is found as it was recorded."""
    with payments() as service:
        charge, pay = (ModelCall(kind, {"url": service.url}) for kind in ("charge", "pay"))

        def writer(heard: ReceivedRequest) -> Response:
            turns = [calls(ModelCall("write", {"word": "a"}), charge), calls(ModelCall("write", {"word": "b"}), pay)]
            return turns[heard.turn] if heard.turn < 2 else ModelReply(text="Done.")

        async with acting(client, tmp_path, provider, writer, tools=tools(service)) as one:
            handle = await one.stage.start(reacting())
            await outcome(handle)
            second = await again(one.stage, newest(client, handle.id), before)

    assert (second.status, [step.id for step in second.steps]) == (
        TaskStatus.COMPLETED,
        ["t1.c0", "t1.c1", "t2.c0", "t2.c1"],
    )
    assert (len(service.charges), await lines(tmp_path), len(one.api.bodies), one.api.violations) == (2, 2, 3, [])


async def test_a_plan_that_is_another_one_after_a_reset_repeats_no_call(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """The same id with other arguments belongs to the life before: it is refused, and the model takes another id."""
    lives = list[str]()

    def planner(heard: ReceivedRequest) -> Response:
        if heard.turn and not lives:
            return finishes("first")
        if "conflict" in heard.all_text:
            return finishes("second") if "a2 is finished" in heard.all_text else proposes(step("a2", "write", word="y"))
        return proposes(step("a", "write", word=lives[0] if lives else "x"))

    with payments() as service:
        async with acting(client, tmp_path, provider, planner, tools=tools(service)) as one:
            handle = await one.stage.start(Task(text="write", documents=None))
            await outcome(handle)
            lives.append("y")
            engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'store.db'}")
            async with engine.begin() as tx:
                await tx.execute(delete(TURNS))  # the model is asked anew, as after a change of what it is told
            await engine.dispose()
            second = await again(one.stage, newest(client, handle.id), "plan:1")

    assert (second.status, second.result, one.api.violations) == (TaskStatus.COMPLETED, "second", [])
    assert (await lines(tmp_path), [fault.code for fault in second.faults]) == (2, ["conflict"])


@pytest.mark.full
async def test_a_model_is_told_what_a_reset_keeps(client: Client, tmp_path: Path, provider: str) -> None:
    """Once, in a turn of a new branch, with ids, arguments and results; it makes the call no second time."""

    def writer(heard: ReceivedRequest) -> Response:
        if "was applied and stands" in heard.all_text or heard.turn > 1:
            return ModelReply(text="Done.")
        return calls(ModelCall("write", {"word": "ab"[heard.turn]}))

    with payments() as service:
        async with acting(client, tmp_path, provider, writer, tools=tools(service)) as one:
            handle = await one.stage.start(reacting())
            await outcome(handle)
            task = newest(client, handle.id)
            assert await reset(client, task, Common(json=True), to="t1.c0", why=None, fate=Fate.KEEP) == 0
            second = await outcome(task)
    told = one.api.requests[-1].all_text

    assert (second.result, [step.id for step in second.steps], one.api.violations) == ("Done.", ["t1.c0", "t2.c0"], [])
    assert all(f"{id} (write with" in told for id in ("t1.c0", "t2.c0")) and await lines(tmp_path) == 2
