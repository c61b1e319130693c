"""What a person sees of a task in the web UI and in lists, on a real server."""

import asyncio
import uuid
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus

from activities.planning.activities import Planning
from activities.planning.planner import ScriptedPlanner
from activities.toolbox.registry import Registry
from replan import NeedsPerson, Refused, tool
from tests.gate import sampled
from tests.harness import DONE, Proposals, Stage, outcome, plan, step, worker
from tests.workflows.history import Handle, calls, events, until
from tests.workflows.props import Said, Stages, Word, echo
from workflows.account import search_attributes
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.plans.proposal import Answer, GiveUp, Question, Step


@tool.read
async def refuse(args: Word) -> Said:
    """Be refused."""
    raise Refused("It is gone.", code="gone")


@tool.read
async def without_key(args: Word) -> Said:
    """Be refused for a reason that only a person can mend."""
    raise NeedsPerson("The key was revoked.", code="unauthorized")


@tool.read(timeout=60)
async def hang(args: Word) -> Said:
    """Hang until cancelled."""
    await asyncio.sleep(50)
    return Said(said="never")


async def found_as(handle: Handle) -> dict[str, object]:
    """The task's search attributes by name."""
    described = await handle.describe()
    return {pair.key.name: pair.value for pair in described.typed_search_attributes}


async def details_of(handle: Handle) -> str:
    """What the web UI asks for when somebody opens the task."""
    metadata: WorkflowMetadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return metadata.current_details


ENDINGS: list[tuple[TaskStatus, WorkflowExecutionStatus, Proposals, str | None]] = [
    (TaskStatus.COMPLETED, WorkflowExecutionStatus.COMPLETED, [plan(step("a", "echo")), DONE], None),
    (TaskStatus.FAILED, WorkflowExecutionStatus.FAILED, [GiveUp(reason="No way.")], None),
    (TaskStatus.ESCALATED, WorkflowExecutionStatus.FAILED, [Question(text="Which?")], None),
    (TaskStatus.ESCALATED, WorkflowExecutionStatus.FAILED, [plan(step("a", "without_key"))], "unauthorized"),
    (TaskStatus.OVER_BUDGET, WorkflowExecutionStatus.FAILED, [plan(step("a", "refuse"))], "gone"),
    (TaskStatus.CANCELLED, WorkflowExecutionStatus.CANCELED, [plan(step("a", "hang"))], None),
]


@pytest.mark.parametrize(
    ("status", "temporal", "script", "fault"),
    sampled(
        {f"{case[0]} {case[3] or ''}".strip(): case for case in ENDINGS},
        "completed",
        "escalated unauthorized",
        "cancelled",
    ),
)
async def test_the_search_attributes_and_temporal_agree_with_the_outcome(
    stages: Stages, status: TaskStatus, temporal: WorkflowExecutionStatus, script: Proposals, fault: str | None
) -> None:
    """A list, an alert or a colour never lies."""
    async with stages([echo, refuse, without_key, hang], script) as stage:
        handle = await stage.start(replans=0)
        if status is TaskStatus.CANCELLED:
            await until(handle, lambda progress: bool(progress.with_status(StepStatus.RUNNING)))
            await handle.cancel()
        ended = await outcome(handle)
        found = await found_as(handle)
        described = await handle.describe()

    assert (ended.status, described.status) == (status, temporal)
    assert {name: value for name, value in found.items() if name in search_attributes.TYPES} == {
        "ReplanStatus": status.value,
        "ReplanStrategy": "plan",
        "ReplanPlanner": "scripted",
        "ReplanReplans": 0,
        **({"ReplanLastFault": fault} if fault else {}),
    }


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
    """One activity type per kind, and a summary that says which plan, what it does, and why it was made."""
    script: Proposals = [
        plan(Step(id="a", kind="refuse", title="Read the\n old page")),
        plan(step("b", "echo", word="hi")),
        DONE,
    ]
    _, handle = await stages.ended([refuse, echo], script)
    scheduled = await calls(handle)

    assert [(one.kind, one.id, one.summary) for one in scheduled] == [
        ("catalogue", "catalogue", "what this worker can do"),
        ("plan", "plan:1", "a plan"),
        ("refuse", "a", "plan 1: Read the old page"),
        ("replan", "plan:2", "a new plan, because a was rejected (gone)"),
        ("echo", "b", "plan 2: hi"),
        ("plan", "plan:3", "plan 2 is done: what next?"),
    ]


@pytest.mark.full
async def test_a_call_shows_its_arguments_and_nothing_else(stages: Stages) -> None:
    """Exactly what the tool gets, references resolved: the rest travels in a header."""
    steps = plan(step("a", "echo", word="hi"), step("b", "echo", word={"$from": "a", "path": "said"}))
    _, handle = await stages.ended([echo], [steps, DONE])
    scheduled = [one for one in await calls(handle) if one.kind == "echo"]

    assert [one.args for one in scheduled] == [{"word": "hi"}, {"word": "hi"}]


async def test_every_call_carries_the_key_of_its_step(stages: Stages) -> None:
    """`first_execution_run_id`/step id, with the revision and the digest of the spec that was decided by."""
    script: Proposals = [plan(step("a", "echo")), plan(step("b", "echo")), DONE]
    _, handle = await stages.ended([echo], script)
    headers = [one.header for one in await calls(handle)][1:5]
    run, digest = handle.first_execution_run_id, Registry([echo])["echo"].spec.digest

    assert run
    assert [(one["key"], one.get("revision", 1), one.get("digest", "")) for one in headers] == [
        (f"{run}/plan:1", 1, ""),
        (f"{run}/a", 1, digest),
        (f"{run}/plan:2", 2, ""),
        (f"{run}/b", 2, digest),
    ]


@pytest.mark.full
async def test_the_keys_stay_the_same_when_the_task_is_reset(client: Client, stages: Stages) -> None:
    """Somebody who sets a task back must not make its effects happen twice."""
    _, handle = await stages.ended([echo], [plan(step("a", "echo")), DONE])
    before = [one.header["key"] for one in await calls(handle) if one.header]
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.first_execution_run_id or ""),
        reason="a test",
        workflow_task_finish_event_id=4,  # the very first workflow task is done again
        request_id=uuid.uuid4().hex,
    )
    run = (await client.workflow_service.reset_workflow_execution(request)).run_id
    again: Handle = client.get_workflow_handle(handle.id, run_id=run, result_type=Outcome)
    await outcome(again)
    after = [one.header["key"] for one in await calls(again) if one.header]

    assert run != handle.first_execution_run_id
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
    _, handle = await stages.ended([echo], [plan(step("a", "echo")), Answer(result="the <end>")])
    shown = await details_of(handle)
    progress = await until(handle, lambda progress: progress.status is TaskStatus.COMPLETED)

    assert "**Completed**" in shown
    assert "**Result:** the \\<end\\>" in shown
    assert progress.results == {"a": {"said": ""}}
