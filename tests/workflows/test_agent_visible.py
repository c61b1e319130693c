"""What a person sees of a task in the web UI and in lists, on a real server."""

import asyncio
import uuid
from pathlib import Path

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowExecutionStatus

from activities.planning.activities import Planning
from activities.planning.planner import ScriptedPlanner
from activities.toolbox.registry import Registry
from replan import NeedsPerson, Refused, tool
from tests.harness import DONE, Proposals, Stage, outcome, plan, step, worker
from tests.workflows.history import Handle, calls, events, until
from tests.workflows.props import Said, Scripts, Stages, Word, echo, played
from tests.workflows.test_agent_reset import again
from workflows.account import search_attributes
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.plans.proposal import Answer, GiveUp, Question, Step

refuse = played("refuse", Refused("It is gone.", code="gone"))
without_key = played("without_key", NeedsPerson("The key was revoked.", code="unauthorized"))


@tool.read(timeout=600)
async def hang(args: Word) -> Said:
    """Hang until cancelled."""
    await asyncio.sleep(500)
    return Said(said="never")


async def found_as(handle: Handle) -> dict[str, object]:
    """The task's search attributes by name."""
    described = await handle.describe()
    return {pair.key.name: pair.value for pair in described.typed_search_attributes}


async def details_of(handle: Handle) -> str:
    """What the web UI asks for when somebody opens the task."""
    metadata: WorkflowMetadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return metadata.current_details


COMPLETED, FAILED = WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED
ENDINGS: dict[str, tuple[TaskStatus, WorkflowExecutionStatus, Proposals, str | None]] = {
    "completed": (TaskStatus.COMPLETED, COMPLETED, [plan(step("a", "echo")), DONE], None),
    "failed": (TaskStatus.FAILED, FAILED, [GiveUp(reason="No way.")], None),
    "asks": (TaskStatus.ESCALATED, FAILED, [Question(text="Which?")], None),
    "unauthorized": (TaskStatus.ESCALATED, FAILED, [plan(step("a", "without_key"))], "unauthorized"),
    "gone": (TaskStatus.OVER_BUDGET, FAILED, [plan(step("a", "refuse"))], "gone"),
    "hangs": (TaskStatus.CANCELLED, WorkflowExecutionStatus.CANCELED, [plan(step("a", "hang"))], None),
}


async def test_the_search_attributes_and_temporal_agree_with_the_outcome(stages: Stages) -> None:
    """A list, an alert or a colour never lies."""
    planner = Scripts({name: script for name, (_, _, script, _) in ENDINGS.items()})
    async with stages([echo, refuse, without_key, hang], planner) as stage:
        handles = {name: await stage.start(name, replans=0) for name in ENDINGS}
        await until(handles["hangs"], lambda progress: bool(progress.with_status(StepStatus.RUNNING)))
        await handles["hangs"].cancel()
        ended = {name: await outcome(handle) for name, handle in handles.items()}
        found = {name: await found_as(handle) for name, handle in handles.items()}
        statuses = {name: (await handle.describe()).status for name, handle in handles.items()}

    for name, (status, temporal, _, fault) in ENDINGS.items():
        assert (ended[name].status, statuses[name]) == (status, temporal), name
        assert {key: value for key, value in found[name].items() if key in search_attributes.TYPES} == {
            "ReplanStatus": status.value,
            "ReplanStrategy": "plan",
            "ReplanPlanner": "scripted",
            "ReplanReplans": 0,
            **({"ReplanLastFault": fault} if fault else {}),
        }, name


async def test_a_running_task_is_found_by_how_it_stands(stages: Stages) -> None:
    """While it runs: the status, the replans so far, and the last fault."""
    script: Proposals = [plan(step("a", "refuse")), plan(step("b", "hang")), DONE]
    async with stages([refuse, hang], script) as stage:
        handle = await stage.start()
        await until(handle, lambda progress: progress.revision == 2)
        found = await found_as(handle)
        await handle.cancel()
        await outcome(handle)

    assert (found["ReplanStatus"], found["ReplanReplans"], found["ReplanLastFault"]) == ("running", 1, "gone")


async def test_a_namespace_without_our_search_attributes_is_no_obstacle(client: Client, tmp_path: Path) -> None:
    """Setting an unknown attribute would hold up the workflow, so nothing is set where the worker said so."""
    queue = f"queue-{uuid.uuid4().hex}"
    planning = Planning(ScriptedPlanner([DONE]), Registry([echo]), searchable=False)
    async with worker(client, queue, planning.activities()):
        handle = await Stage(client, queue).start()
        ended = await outcome(handle)
        upserts = [one for one in await events(handle) if "search" in str(one.WhichOneof("attributes"))]

    assert (ended.status, upserts) == (TaskStatus.COMPLETED, [])


async def test_the_timeline_reads_like_the_plan(stages: Stages) -> None:
    """One activity type per kind, and a summary that says which plan, what it does, and why it was made.

    A call shows its arguments, references resolved, and nothing else. The rest travels in a header: the key of the
    step with the first run, the revision, and the digest of the spec that was decided by.
    """
    script: Proposals = [
        plan(Step(id="a", kind="refuse", title="Read the\n old page")),
        plan(step("b", "echo", word="hi"), step("c", "echo", word={"$from": "b", "path": "said"})),
        DONE,
    ]
    _, handle = await stages.ended([refuse, echo], script)
    scheduled, run = await calls(handle), handle.first_execution_run_id
    digests = [Registry([one])[one.__name__].spec.digest for one in (refuse, echo)]

    assert [(one.kind, one.id, one.summary) for one in scheduled] == [
        ("catalogue", "catalogue", "what this worker can do"),
        ("plan", "plan:1", "a plan"),
        ("refuse", "a", "plan 1: Read the old page"),
        ("replan", "plan:2", "a new plan, because a was rejected (gone)"),
        ("echo", "b", "plan 2: hi"),
        ("echo", "c", "plan 2: <b.said>"),
        ("plan", "plan:3", "plan 2 is done: what next?"),
    ]
    assert [one.args for one in scheduled if one.kind == "echo"] == [{"word": "hi"}, {"word": "hi"}]
    assert run
    headers = [one.header for one in scheduled[1:6]]
    assert [(one["key"], one.get("revision", 1), one.get("digest", "")) for one in headers] == [
        (f"{run}/plan:1", 1, ""),
        (f"{run}/a", 1, digests[0]),
        (f"{run}/plan:2", 2, ""),
        (f"{run}/b", 2, digests[1]),
        (f"{run}/c", 2, digests[1]),
    ]


@pytest.mark.full
async def test_the_keys_stay_the_same_when_the_task_is_reset(stages: Stages) -> None:
    """Somebody who sets a task back must not make its effects happen twice."""
    async with stages([echo], [plan(step("a", "echo")), DONE]) as stage:
        handle = await stage.start()
        await outcome(handle)
        before = [one.header["key"] for one in await calls(handle) if one.header]
        await again(stage, handle, "catalogue")
        newest: Handle = stage.client.get_workflow_handle(handle.id, result_type=Outcome)
        after = [one.header["key"] for one in await calls(newest) if one.header]

    assert (await newest.describe()).run_id != handle.first_execution_run_id
    assert after == before


async def test_the_current_details_are_the_plan_as_it_stands(stages: Stages) -> None:
    """Somebody who opens a running task sees what is done, what runs, and what waits for what."""
    steps = plan(step("a", "echo", word="<b>"), step("b", "hang", "a"), step("c", "echo", "b", word="x"))
    async with stages([echo, hang], [steps, DONE]) as stage:
        handle = await stage.start()
        await until(
            handle, lambda progress: progress.records[1].status is StepStatus.RUNNING if progress.records else False
        )
        shown = await details_of(handle)
        await handle.cancel()
        await outcome(handle)

    assert shown.splitlines() == [
        "**Running**. Plan 1, 0 of 2 replans, 1 of 100 tool calls. Planner: scripted.",
        "",
        "- ✓ **a** echo \\<b\\> → said \\<b\\>",
        "- ● **b** hang",
        "- ○ **c** echo x needs b",
        "",
        "",
        "---",
    ]


@pytest.mark.full
async def test_a_closed_task_still_says_what_it_did(stages: Stages) -> None:
    """Details and progress can be asked for after the end, while a worker can replay it."""
    async with stages([echo], [plan(step("a", "echo")), Answer(result="the <end>")]) as stage:
        handle = await stage.start()
        await outcome(handle)
        shown = await details_of(handle)
        progress = await until(handle, lambda progress: progress.status is TaskStatus.COMPLETED)

    assert "**Completed**" in shown
    assert "**Result:** the \\<end\\>" in shown
    assert progress.results == {"a": {"said": ""}}
