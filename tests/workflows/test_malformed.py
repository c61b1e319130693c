"""What another program sends in a form that nobody can read: it ends with the reason, and no workflow task fails."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import ApplicationError

from client.replay import replayed
from replan import tool
from tests import malformed
from tests.gate import sampled
from tests.harness import DONE, outcome, plan, staged, step
from tests.malformed import FORMS, ROLLBACKS, TASKS, as_json
from tests.workflows.props import Said, Stages, Word, echo
from workflows.account.outcome import REFUSED, Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.inquiries import UNKNOWN_INQUIRY

WITHOUT_OUTCOME = {"InspectWorkflow": UNKNOWN_INQUIRY, "NotifyWorkflow": REFUSED}
"""By type of the workflows that are neither a task nor its rollback, the type of their failure."""


async def ended(client: Client, type: str, arguments: Sequence[Payload], queue: str) -> tuple[str, WorkflowHistory]:
    """What is wrong with how this workflow ended, "" if nothing is; and its history."""
    id = await malformed.start(client, type, arguments, queue)
    failure: object = None
    try:
        async with asyncio.timeout(20):
            await client.get_workflow_handle(id).result()
    except WorkflowFailureError as error:
        failure = error.cause
    except TimeoutError:
        failure = "it does not end"
    history = await client.get_workflow_handle(id).fetch_history()
    if any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED for event in history.events):
        return "its workflow task failed", history
    return "" if isinstance(failure, ApplicationError) and _is_refusal(failure, type) else repr(failure), history


def _is_refusal(failure: ApplicationError, type: str) -> bool:
    """Whether the failure says why nobody can read the argument and, for a task, has its Outcome."""
    if type in WITHOUT_OUTCOME:
        return failure.type == WITHOUT_OUTCOME[type] and " cannot be read: " in failure.message
    told = Outcome.model_validate(failure.details[0])
    return (
        (failure.type, told.status, told.code, told.steps) == (TaskStatus.FAILED, TaskStatus.FAILED, REFUSED, ())
        and told.reason == failure.message
        and " cannot be read: " in told.reason
    )


async def mistakes(client: Client, folder: Path, type: str, forms: Mapping[str, Sequence[Payload]]) -> dict[str, str]:
    """The forms with which a workflow does not end as it should, or does not replay, and how."""
    async with staged(client, folder, [echo], [DONE]) as stage:
        found = await asyncio.gather(*(ended(client, type, sent, stage.queue) for sent in forms.values()))
    wrong = {name: why for name, (why, _) in zip(forms, found, strict=True) if why}
    for name, (_, history) in zip(forms, found, strict=True):
        async for one in replayed(_alone(history)):
            if type not in WITHOUT_OUTCOME and one.cause:
                wrong[name] = f"it does not replay: {one.reason}"
    return wrong


async def _alone(history: WorkflowHistory) -> AsyncIterator[WorkflowHistory]:
    yield history


@pytest.mark.parametrize(
    ("type", "forms"),
    sampled(
        {
            "task": ("AgentWorkflow", {**FORMS, **TASKS}),
            "rollback": ("UndoWorkflow", {**FORMS, **ROLLBACKS}),
            "inquiry": ("InspectWorkflow", FORMS),
            "notification": ("NotifyWorkflow", FORMS),
        },
        "task",
    ),
)
async def test_a_task_that_cannot_be_read_fails_with_the_reason(
    client: Client, tmp_path: Path, type: str, forms: Mapping[str, Sequence[Payload]]
) -> None:
    """Whatever another client sends, it ends as failed, a task with an Outcome, and its history replays.

    So do the workflows that undo a task, answer the console, and tell a receiver.
    """
    assert await mistakes(client, tmp_path, type, forms) == {}


@pytest.mark.full
async def test_the_reason_names_the_field_and_what_it_takes(stages: Stages) -> None:
    """An engineer who wrote the client finds the mistake in it."""
    async with stages([echo], [DONE]) as stage:
        id = await malformed.start(stages.client, "AgentWorkflow", TASKS["no tool call"], stage.queue)
        told = await outcome(stages.client.get_workflow_handle_for(AgentWorkflow.run, id))

    said = "The task cannot be read: 'limits.tool_calls': Input should be greater than or equal to 1."
    assert (told.task_id, told.reason) == (id, said)


async def test_a_signal_that_cannot_be_read_is_dropped(stages: Stages) -> None:
    """The task goes on as if it had not come."""
    signalled = asyncio.Event()

    @tool.read
    async def wait(args: Word) -> Said:
        """Wait until all signals have come."""
        await signalled.wait()
        return Said(said=args.word)

    async with stages([wait], [plan(step("a", "wait", word="x")), DONE]) as stage:
        handle = await stage.start()
        for sent in {**FORMS, "a list of numbers": [as_json([7])], "no record": [as_json([{}])]}.values():
            for name in ("know_earlier_effects", "undo_when_cancelled"):
                await stages.client.workflow_service.signal_workflow_execution(
                    SignalWorkflowExecutionRequest(
                        namespace=stages.client.namespace,
                        workflow_execution=WorkflowExecution(workflow_id=handle.id),
                        signal_name=name,
                        input=Payloads(payloads=sent),
                        request_id=uuid.uuid4().hex,
                    )
                )
        signalled.set()
        async with asyncio.timeout(30):
            told = await outcome(handle)
        history = await handle.fetch_history()

    failed = [one for one in history.events if one.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
    assert (told.status, failed) == (TaskStatus.COMPLETED, [])


@workflow.defn(name="AgentWorkflow")
class Newer:
    """A later version, whose tasks continue with a state that this version cannot read."""

    @workflow.run
    async def run(self, given: Task) -> None:
        """Continue as new, on the queue of workers of this version."""
        workflow.continue_as_new({"state": 2}, task_queue=given.text)


async def test_a_later_run_that_cannot_be_read_waits_for_a_worker_that_can(stages: Stages) -> None:
    """A worker wrote it, after effects: during a rolling deploy an older one must not end the task."""
    async with (
        stages([echo], [DONE]) as older,
        staged(stages.client, stages.folder / "newer", [echo], [DONE], workflow=Newer) as newer,
    ):
        handle = stages.client.get_workflow_handle((await newer.start(older.queue)).id)
        async with asyncio.timeout(20):
            while not (seen := await handle.describe()).raw_description.pending_workflow_task.attempt > 1:
                await asyncio.sleep(0.1)
        last = (await handle.fetch_history()).events[-1]

    message = last.workflow_task_failed_event_attributes.failure.message
    assert (seen.status, message) == (WorkflowExecutionStatus.RUNNING, "'text': Field required")
