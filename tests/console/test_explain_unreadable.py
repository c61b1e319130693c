"""What `explain` makes of payloads that it cannot read, and of a task that went on in another run."""

import base64
import dataclasses
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import PayloadCodec
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from client.explain import explanation, page
from client.history import fetch
from client.tasks import Handle
from runtime.payloads import DATA_CONVERTER
from tests.console import histories
from tests.console.histories import NAMES, explained
from tests.gate import sampled
from tests.harness import DONE, outcome, plan, staged, step
from tests.record import tools
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.plans.catalogue import Effect


def encrypt(payload: Payload) -> None:
    """As a codec of somebody else writes it."""
    payload.metadata["encoding"] = b"binary/encrypted"
    payload.data = b"\x00secret"


def store_elsewhere(payload: Payload) -> None:
    """As external storage leaves it."""
    payload.metadata["encoding"] = b"json/external-storage-reference"
    payload.data = b'{"driver_name": "x", "driver_claim": {"claim_data": {}}}'


def damage(payload: Payload) -> None:
    """Cut in the middle."""
    payload.data = payload.data[:5]


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (encrypt, "is encrypted; explained without it."),
        (store_elsewhere, "is stored elsewhere; explained without it."),
        (damage, "cannot be decoded; explained without it."),
    ],
    ids=["encrypted", "stored elsewhere", "damaged"],
)
@pytest.mark.parametrize(
    "name", sampled({name: [name] for name in NAMES}, "deployed", "rejected", "replanned", "undone")
)
async def test_any_event_that_cannot_be_read_is_a_sentence(
    name: str, change: Callable[[Payload], None], note: str
) -> None:
    """One event after the other: never a traceback, and the note names the event."""
    for index, event in enumerate(histories.events(name)):
        before = event.SerializeToString()
        histories.change_payloads(event, change)
        if event.SerializeToString() == before:
            continue
        events = histories.events(name)
        events[index] = event
        lines = page.page_lines(explanation.explain_task(await histories.history(events)), None)

        assert [line for line in lines if f"vent {event.event_id}'s" in line and line.endswith(note)]


async def test_a_history_that_nobody_can_read_still_tells_the_order() -> None:
    """Ids, kinds, cells of the taxonomy and reasons stand outside of the payloads."""
    events = histories.events("replanned")
    for event in events:
        histories.change_payloads(event, encrypt)
    lines = page.page_lines(explanation.explain_task(await histories.history(events)), None)

    assert " 1.  a (pick) was rejected (persistent semantic): This word is taken.  [event 22]" in lines
    assert [line for line in lines if line.startswith("Note") and "are encrypted; explained without them." in line]
    assert not [line for line in lines if "secret" in line]


async def test_a_call_whose_effect_cannot_be_told_may_have_changed_the_world() -> None:
    """A step that may write and was stopped in the middle is named."""
    story = await explained("cancelled")
    catalogue = story.story.history.catalogue
    assert catalogue is not None
    spec = catalogue.specs["slow"].model_copy(update={"effect": Effect.UNKEYED})
    story.story.history.catalogue = catalogue.model_copy(update={"specs": {**catalogue.specs, "slow": spec}})

    lines = page.page_lines(explanation.explain_task(story.story.history), None)

    assert "     b was stopped while running; whether b changed the world is not known.  [events 15, 26-27]" in lines
    assert "May have changed the world, nobody knows: b (slow).  [event 27]" in lines


class Secret(PayloadCodec):
    """A codec whose key the console does not have."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Hide."""
        hidden = [base64.b64encode(payload.SerializeToString()) for payload in payloads]
        return [Payload(metadata={"encoding": b"binary/encrypted"}, data=data) for data in hidden]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Show."""
        return [Payload.FromString(base64.b64decode(payload.data)) for payload in payloads]


async def said(client: Client, handle: Handle) -> list[str]:
    """What is said of a task, in whole lines."""
    return page.page_lines(explanation.explain_task(await fetch.fetch_history(client, handle, journal=True)), None)


async def test_an_encrypted_task_is_explained_without_its_payloads(client: Client, tmp_path: Path) -> None:
    """A sentence says what is missing; with the codec nothing is."""
    config = client.config()
    config["data_converter"] = dataclasses.replace(DATA_CONVERTER, payload_codec=Secret())
    knowing = Client(**config)
    async with staged(knowing, tmp_path, tools(), [plan(step("a", "flaky", word="x")), DONE]) as stage:
        handle = await stage.start()
        await outcome(handle)
    blind, seeing = await said(client, handle), await said(knowing, handle)

    assert [line for line in blind if line.startswith("Note  Event 1's input") and "are encrypted" in line]
    assert not [line for line in seeing if line.startswith("Note")]


@workflow.defn(name="AgentWorkflow")
class Continues:
    """A task that goes on in a second run."""

    @workflow.run
    async def run(self, task: Task) -> Outcome | None:
        """Continue as new once."""
        if workflow.info().continued_run_id is None:
            workflow.continue_as_new(task)
        return None


@pytest.fixture
async def continued(client: Client) -> AsyncIterator[Handle]:
    """The handle of a task with two runs."""
    queue = f"continues-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=queue, workflows=[Continues], workflow_runner=UnsandboxedWorkflowRunner()):
        handle = await client.start_workflow("AgentWorkflow", Task(text="go on"), id=queue, task_queue=queue)
        await handle.result()
        yield client.get_workflow_handle_for(AgentWorkflow.run, queue)


async def test_the_runs_of_a_task_are_read_as_one(client: Client, continued: Handle) -> None:
    """From the first on, although the newest is the one that is found."""
    history = await fetch.fetch_history(client, continued, journal=True)

    assert (history.runs, history.task and history.task.text) == (2, "go on")
    assert history.end and history.end.event.run == 2
