"""A task that continues the conversation of an ended one: `Client.start(continues=...)`, and `--continue`."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client as TemporalClient

from activities.toolbox.expressions.calculate import calculate
from client.client import Client
from client.continuing import MAX_REMAINS, continued, remains
from client.problem import Problem
from client.start import start
from console.exits import OF_PROBLEM
from evals.fakes import script
from evals.fakes.script import finishes, proposes
from tests.console.outcomes import fault, outcome, step
from tests.harness import staged
from tests.providers.planning import planning
from workflows.account.outcome import Outcome
from workflows.account.records import Revision, StepStatus
from workflows.account.task import Task, TaskStatus

ASKED = Task(text="go on")


async def ended(client: TemporalClient, id: str) -> str:
    """Start a task that nobody takes and close it; its run."""
    handle = await start(client, Task(text="before"), id=id, queue="nobody-serves-this", again=True)
    await handle.terminate()
    return str(handle.first_execution_run_id)


async def test_the_newest_task_of_that_id_is_carried_on(client: TemporalClient) -> None:
    """An id that was used twice means the later task, and the beginning of an id is enough; `newest` needs no id."""
    id = f"carried-{uuid.uuid4().hex}"
    await ended(client, id)
    newest = await ended(client, id)

    assert (await continued(client, ASKED, id)).continues == newest
    async with asyncio.timeout(20):  # once the server lists it, which takes it a moment
        while (await continued(client, ASKED, "newest")).continues != newest:
            await asyncio.sleep(0.05)


async def test_a_program_continues_a_conversation(client: TemporalClient, tmp_path: Path) -> None:
    """The model was told the earlier task and its result, by a program that knows no more than the id."""
    plan = proposes(script.step("sum", "calculate", expression="6 * 7"))
    async with (
        planning("anthropic", plan, finishes("42"), finishes("still 42")) as (api, planner),
        staged(client, tmp_path, [calculate], planner) as stage,
    ):
        replan = Client(client, queue=stage.queue)
        first = await replan.run("what is 6 * 7?", id="first")
        second = await replan.run("is that so?", continues=first.task_id)

    assert (first.result, second.result, api.violations) == ("42", "still 42", [])
    assert "what is 6 * 7?" in json.dumps(api.bodies[-1])


async def test_a_task_that_runs_is_refused(client: TemporalClient) -> None:
    """What it will have said is not known yet; bad usage, with what to do, as one that is not there."""
    id = f"runs-{uuid.uuid4().hex}"
    handle = await start(client, Task(text="before"), id=id, queue="nobody-serves-this", again=False)

    with pytest.raises(Problem, match="is running: its conversation is not over: wait for its end with") as wrong:
        await continued(client, ASKED, id)
    await handle.terminate()
    with pytest.raises(Problem, match="There is no task 'never-was' here") as unknown:
        await continued(client, ASKED, "never-was")
    assert wrong.value.code == "still_running"
    assert [OF_PROBLEM[one.value.kind] for one in (wrong, unknown)] == [2, 2]


PLANS = (Revision(number=1), Revision(number=2))


def cut_short(*steps: Any, **more: Any) -> Outcome:
    """A task that ended while its second plan was carried out."""
    plain = {"status": TaskStatus.CANCELLED, "code": "cancelled", "revisions": PLANS, "result": None}
    return outcome(**{**plain, "steps": steps, **more})


def test_what_the_planner_was_not_told_is_told_to_the_next_task() -> None:
    """The steps of the last plan and their faults: else a model would do once more what was done before the end."""
    refused = fault(step_id="b", revision=2)
    paid = step("a", kind="charge", args={"amount": 1}, needs=("x",), revision=2, result={"id": 7})
    left = remains(
        cut_short(step("x"), paid, step("b", revision=2, status=StepStatus.FAILED), faults=(fault(), refused))
    )

    assert left is not None and [record.step.id for record in left.records] == ["a", "b"] and left.faults == (refused,)
    first = left.records[0]
    assert (first.step.kind, first.step.args, first.step.needs) == ("charge", {"amount": 1}, ("x",))
    assert (first.status, first.result, first.effect) == (StepStatus.COMPLETED, {"id": 7}, paid.effect)


TOLD: dict[str, dict[str, Any]] = {
    "completed": {"status": TaskStatus.COMPLETED, "code": None, "result": "42"},
    "last answer": {"status": TaskStatus.OVER_BUDGET, "code": "tool_calls", "result": "so far 42"},
    "question": {"status": TaskStatus.ESCALATED, "code": "question"},
    "gave up": {"status": TaskStatus.FAILED, "code": "gave_up"},
}


@pytest.mark.parametrize("more", TOLD.values(), ids=TOLD)
def test_what_the_planner_was_told_is_not_told_twice(more: dict[str, Any]) -> None:
    """It answered after its last plan; only whether it read anything untrusted is said. Of a task that was closed from
    outside nobody knows what it did, or read."""
    left = remains(cut_short(step("a", revision=2), is_tainted=True, **more))

    assert left is not None and (left.records, left.is_tainted) == ((), True)
    assert remains(cut_short(step("a", revision=2), code="closed")) is None


def test_large_results_are_left_out_and_named() -> None:
    """The largest first, until the rest fits; one that the outcome had left out already stays so."""
    steps = [step(id, revision=2, result=id * size) for id, size in (("a", 200_000), ("b", 100_000), ("c", 9))]
    left = remains(cut_short(*steps, step("d", revision=2, result_omitted=True, result_bytes=700_000)))

    assert left is not None and len(left.model_dump_json()) < MAX_REMAINS
    assert [record.left_out for record in left.records] == [200_002, 0, 0, 700_000]
    assert [record.result for record in left.records] == [None, "b" * 100_000, "c" * 9, None]


@pytest.mark.parametrize("code", ["question", "unauthorized", "cancelled"])
def test_what_was_undone_at_the_end_is_told_whichever_plan_it_was_of(code: str) -> None:
    """The planner was told that it is finished, and whatever it did is gone; the steps that undo are of no plan."""
    steps = step("a", revision=1, status=StepStatus.UNDONE), step("b", revision=1), step("undo:a", revision=2)
    left = remains(cut_short(*steps, status=TaskStatus.ESCALATED, code=code))

    assert left is not None and [(one.step.id, one.status) for one in left.records] == [("a", StepStatus.UNDONE)]
