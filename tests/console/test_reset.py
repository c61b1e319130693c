"""`reset`: a task goes on from before a step; nothing that is done is done again, nothing in the world twice."""

import asyncio
import gc
import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from client.effects import repeated_by_reset
from client.explain.explanation import explain_task
from client.history.decoder import calls_in
from client.history.fetch import fetch_history
from client.history.records import CallEnd
from client.history.story import Story
from client.problem import Problem
from console.commands.reset import reset
from console.commands.show import show
from console.options import Common
from tests.console.desk import QUIET, desk
from tests.console.histories import history
from tests.gate import sampled
from tests.harness import outcome, plan, step
from tests.workflows.history import until
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.calls.header import HEADER
from workflows.limits.budget import Limits
from workflows.plans.proposal import Question, Step

SIGNED = plan(step("a", "look"), step("b", "sign", "a"), step("c", "write", "b", word="later"))


async def test_a_task_goes_on_from_the_step_that_was_mended(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came before is kept and not called again; the step is done again, and then what needs it.

    The keys stay those of the first run, so that whatever a step did before counts as done for the new run too. So does
    the start, so the time since the reset stands beside it. It says how to follow, to people and to programs.
    """
    async with desk(client, tmp_path, SIGNED) as here:
        task = await here.run()
        first = (await task.describe()).run_id
        await asyncio.sleep(1.1)
        capsys.readouterr()
        done = await here.reset(task, "b")
        document = json.loads("".join(re.findall(r"(?ms)^\{.*?^\}", capsys.readouterr().out)))
        sent = [one.activity_task_scheduled_event_attributes for one in await events(client, task.id)]
        keys = {one.activity_id: json.loads(one.header.fields[HEADER].data)["key"] for one in sent if one.activity_id}
        summary = explain_task(await fetch_history(client, task, journal=True)).summary
        calls = dict(here.calls)
        await show(client, task, Common())
        shown = capsys.readouterr().out
        await reset(client, task, Common(), to="a", why=None)
        said = [line for line in capsys.readouterr().out.splitlines() if task.id in line and "kind=" not in line]
        await outcome(client.get_workflow_handle_for(AgentWorkflow.run, task.id))

    assert (done.status, [one.status for one in done.steps]) == ("completed", ["completed"] * 3)
    assert calls == {"look": 1, "sign": 2, "write later": 1}
    assert (document["task_id"], document["to"]) == (task.id, "b")
    assert keys["b"] == f"{first}/b" and keys["c"] == f"{first}/c"
    assert (await task.describe()).run_id != first
    took = re.search(r" completed after (\d+\.\d\d) s, (0\.\d\d) s after it was reset: ", summary)
    assert took is not None and float(took[1]) > 1.1 > float(took[2]), summary
    assert re.search(r"^It was reset at .*Z; its time counts from the start\.$", shown, re.MULTILINE)
    assert said[0].startswith(f"{task.id} goes on from before a (event ")
    assert said[1] == f"Follow: python starter.py show {task.id} --follow"


async def events(client: Client, id: str) -> Sequence[HistoryEvent]:
    """The history of the newest run."""
    return (await client.get_workflow_handle(id).fetch_history()).events


@pytest.mark.full
async def test_a_task_may_be_reset_more_than_once(client: Client, tmp_path: Path) -> None:
    """The newest run is meant, also to a step of an earlier plan, and to the planner's turn."""
    refused = plan(step("w", "write", word="taken"), step("a", "look"))
    async with desk(client, tmp_path, refused, plan(step("b", "look", word="2"))) as here:
        task = await here.run()
        again = [await here.reset(task, to) for to in ("plan:3", "b", "a", "w", "plan:1", "catalogue")]

    assert {one.status for one in again} == {TaskStatus.COMPLETED}
    assert here.calls == {"look": 5, "look 2": 6}


@pytest.mark.full
async def test_a_cancelled_task_goes_on(client: Client, tmp_path: Path) -> None:
    """The request to cancel belonged to the old run."""
    async with desk(client, tmp_path, plan(step("a", "look"), step("b", "linger", "a"))) as here:
        task = await here.begin()
        await here.called("linger")
        await task.cancel()
        assert (await outcome(task)).status is TaskStatus.CANCELLED
        done = await here.reset(task, "b")

    assert done.status is TaskStatus.COMPLETED


@pytest.mark.full
async def test_what_a_person_answered_after_the_point_is_asked_again(client: Client, tmp_path: Path) -> None:
    """The answer, and more of a budget, belonged to the old run."""
    question = Question(text="Which?", options=("this", "that"))
    async with desk(client, tmp_path, plan(step("a", "look")), question) as here:
        task = await here.begin(Task(text="a task", on_escalation="wait"))
        await until(task, lambda now: bool(now.open_requests))
        await task.execute_update("extend", {"tool_calls": 5, "by": "ann"})
        await task.execute_update("reply", {"text": "this", "by": "ann"})
        first = await outcome(task)
        assert await reset(client, task, QUIET, to="a", why=None) == 0
        again = await until(task, lambda now: bool(now.open_requests))
        await task.execute_update("reply", {"text": "that", "by": "bob"})
        ended = await outcome(task)

    assert (first.status, [one.by for one in first.extensions]) == (TaskStatus.COMPLETED, ["ann"])
    assert ([one.id for one in again.requests], again.extensions) == (["r1"], [])
    assert [(one.answer.by, one.answer.text) for one in ended.requests if one.answer] == [("bob", "that")]


async def test_a_running_task_goes_on_while_only_reads_run(client: Client, tmp_path: Path) -> None:
    """Its run is closed and a new one begins."""
    async with desk(client, tmp_path, plan(step("a", "look"), step("b", "stare", "a"))) as here:
        task = await here.begin()
        await here.called("stare")
        code = await reset(client, task, QUIET, to="b", why="it takes too long")
        asked = [one.workflow_task_failed_event_attributes.failure.message for one in await events(client, task.id)]
        await task.cancel()
        await outcome(task)

    gc.collect()
    assert (code, [why for why in asked if why]) == (0, ["it takes too long"])


CHANGED = r"would do 'b' again, which has changed the world"
LOOKED = step("a", "look")
SLOWLY = [LOOKED, step("b", "write", word="slowly"), step("c", "look", "a"), step("d", "look", "b")]
REFUSED: dict[str, tuple[list[Step], str, str]] = {
    "a finished effect": (
        [LOOKED, step("b", "write", "a"), step("c", "look", "b")],
        "b",
        rf"{CHANGED} \(write, event \d+\): reset to what came after it: c, ",
    ),
    "an effect after it": ([LOOKED, step("b", "write", "a")], "a", f"Going back to 'a' {CHANGED}"),
    "an effect that began before and ended after": (
        SLOWLY,
        "c",
        f"{CHANGED} .*: reset to what came after it: d, plan:2",
    ),
    "an effect with a result that is not right": ([LOOKED, step("b", "lie", "a")], "b", CHANGED),
    "an unknown step": (
        [step("price", "look")],
        "prise",
        "has no step 'prise': did you mean price: reset to one of ",
    ),
    "a step that never started": (
        [step("a", "lie"), step("b", "look", "a")],
        "b",
        "Step 'b' of task .* never started: reset to one that did: catalogue, plan:1, a",
    ),
}


@pytest.mark.parametrize(("steps", "to", "words"), sampled(REFUSED, "a finished effect", "an unknown step"))
async def test_what_cannot_be_gone_back_to_is_refused(
    client: Client, tmp_path: Path, steps: Sequence[Step], to: str, words: str
) -> None:
    """Which step is in the way, and what to do instead; the task stays as it is."""
    async with desk(client, tmp_path, plan(*steps)) as here:
        task = await here.run()
        before = (await task.describe()).run_id
        with pytest.raises(Problem, match=words):
            await reset(client, task, QUIET, to=to, why=None)

    assert (await task.describe()).run_id == before


async def test_an_effect_that_runs_is_in_the_way(client: Client, tmp_path: Path) -> None:
    """It would go on while its step begins anew."""
    async with desk(client, tmp_path, plan(step("a", "look"), step("b", "engrave"))) as here:
        task = await here.begin()
        await here.called("look")
        with pytest.raises(Problem, match=r"which runs and may change the world .*: wait until it has ended, or stop"):
            await reset(client, task, QUIET, to="a", why=None)
        await task.cancel()
        await outcome(task)


async def test_an_effect_whose_outcome_a_codec_hides_is_in_the_way(client: Client, tmp_path: Path) -> None:
    """What cannot be read is not taken for harmless."""
    async with desk(client, tmp_path, plan(step("a", "look"), step("b", "look", "a"))) as here:
        task = await here.run()
        run = await events(client, task.id)
        for found in calls_in(run):  # as a console without the codec's key sees it
            for payload in found.payloads if found.call.closed is CallEnd.COMPLETED else ():
                payload.metadata["encoding"] = b"binary/encrypted"
        story = Story(await history(run, client.data_converter))
    step_a = next(call for call in story.history.calls if call.id == "a")

    assert [one.id for one in repeated_by_reset(story, step_a)] == ["a", "b"]


@pytest.mark.full
async def test_a_task_that_is_past_its_deadline_is_refused(client: Client, tmp_path: Path) -> None:
    """It would end again at once: the deadline counts from the first start."""
    async with desk(client, tmp_path, plan(step("a", "stare"))) as here:
        task = await here.run(Task(text="a task", limits=Limits(deadline=1)))
        with pytest.raises(Problem, match=r"The deadline of task .*, 1 s after its start, has passed: start a new"):
            await reset(client, task, QUIET, to="a", why=None)


async def test_a_task_that_no_worker_has_taken_has_nothing_to_go_back_to(client: Client) -> None:
    """It has not begun."""
    task = await client.start_workflow(
        AgentWorkflow.run, Task(text="waits"), id=f"waits-{secrets.token_hex(6)}", task_queue="nobody-serves-this"
    )
    with pytest.raises(Problem, match="has no step 'a': it has not begun"):
        await reset(client, client.get_workflow_handle_for(AgentWorkflow.run, task.id), QUIET, to="a", why=None)
    await task.terminate()
