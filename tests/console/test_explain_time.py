"""`explain` of changed histories, and of real tasks that run, were ended from outside, or met everything."""

import asyncio
import base64
import dataclasses
import json
import signal
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, RetryState, TimeoutType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import PayloadCodec
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from client.explain import explanation, page
from client.explain.explanation import Explanation
from client.history import fetch
from client.tasks import Handle
from replan import Busy, Refused, Unreachable, tool
from runtime.dev_server import DevServer
from runtime.payloads import DATA_CONVERTER
from tests.console import histories
from tests.console.histories import NAMES, change_payloads, event_type, explained
from tests.crash.test_crash import Workers, chain
from tests.gate import sampled
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.processes import Processes
from tests.record import Said, Word, tools
from tests.workflows.history import until
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import GiveUp, Mistake


async def told(events: Sequence[HistoryEvent]) -> Explanation:
    return explanation.explain_task(await histories.history(events))


async def explained_lines(events: Sequence[HistoryEvent]) -> list[str]:
    """What is said of these events, in whole lines."""
    return page.page_lines(await told(events), None)


def killed(last: TimeoutType.ValueType) -> list[HistoryEvent]:
    """A task whose first step was called three times: nobody told of the first two attempts."""
    events = histories.events("straight")
    ids = [event.event_id for event in events if event.activity_task_scheduled_event_attributes.activity_id == "a"]
    for event in events:
        started = event.activity_task_started_event_attributes
        if started.scheduled_event_id in ids:
            started.attempt = 3
            started.last_failure.message = "activity timeout"
            started.last_failure.timeout_failure_info.timeout_type = last
            event.event_time.FromDatetime(event.event_time.ToDatetime() + timedelta(seconds=20))
    return events


@pytest.mark.parametrize(
    ("last", "code"),
    [(TimeoutType.TIMEOUT_TYPE_HEARTBEAT, "worker_lost"), (TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE, "timeout")],
    ids=["no heartbeat", "no answer"],
)
async def test_attempts_that_left_no_word_have_a_code_of_the_taxonomy(last: TimeoutType.ValueType, code: str) -> None:
    """What the server says of the last of them is all that is known; a code that docs/errors.md has not got is none.
    The kind of timeout stands outside of the payloads, and their running time is no waiting."""
    explained, hidden = await told(killed(last)), killed(last)
    for event in hidden:
        details = event.activity_task_started_event_attributes.last_failure.timeout_failure_info
        if details.timeout_type:
            details.last_heartbeat_details.payloads.add(metadata={"encoding": b"binary/encrypted"}, data=b"x")
        change_payloads(event, lambda payload: payload.metadata.update({"encoding": b"binary/encrypted"}))
    said, [item] = "\n".join(await explained_lines(hidden)), explained.items

    assert item.what.text.startswith(f"a (say) failed twice ({code}): ")
    assert f"({code})" in said and "unknown" not in said
    assert (explained.cost.waited, round(explained.cost.lost)) == (0.0, 20)


async def test_a_lost_call_with_an_unknown_outcome_is_not_blamed_for_its_worker() -> None:
    """One worker died: that says nothing of the call, whose effect may have been applied."""
    events, effect = histories.events("escalated"), b'"kind":"broken","effect":"%s"'
    for event in events:
        for payloads in event.marker_recorded_event_attributes.details.values():
            for payload in payloads.payloads:
                payload.data = payload.data.replace(effect % b"read", effect % b"unkeyed")
        if event_type(event) == "ACTIVITY_TASK_FAILED":
            failed = event.activity_task_failed_event_attributes
            lost = event.activity_task_timed_out_event_attributes
            lost.scheduled_event_id, lost.started_event_id = failed.scheduled_event_id, failed.started_event_id
            lost.retry_state = RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE
            lost.failure.timeout_failure_info.timeout_type = TimeoutType.TIMEOUT_TYPE_HEARTBEAT
            event.event_type = EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT
    explained = await told(events)
    [item] = explained.items

    assert item.why is not None
    assert item.why.text == "Nobody knows whether it was applied: a person has to act."
    assert item.cost.failed_attempts == 0 and item.cost.lost > 0
    assert "Retries of tools: 0; wasted attempts: 0." in page.page_lines(explained, None)


async def test_a_call_that_was_not_made_is_no_failed_attempt() -> None:
    """So the failed attempts of a task are among its tool calls."""
    events = histories.events("escalated")
    for event in events:
        if event_type(event) == "ACTIVITY_TASK_FAILED":
            failed = event.activity_task_failed_event_attributes.failure.application_failure_info
            failed.type = "transient_infrastructural"
            for payload in failed.details.payloads:
                payload.data = payload.data.replace(b'"code":"bug"', b'"code":"circuit_open"')
    [item] = (await told(events)).items

    assert item.what.text.startswith("a (broken) failed (circuit_open)")
    assert item.cost.failed_attempts == 0


@pytest.mark.parametrize(("minutes", "costs"), [(10, ["Beyond the plan this cost 10 min without a worker."]), (0, [])])
@pytest.mark.parametrize("kind", ["WORKFLOW_TASK_STARTED", "ACTIVITY_TASK_STARTED"])
async def test_time_in_which_nobody_worked_is_a_cost(kind: str, minutes: float, costs: list[str]) -> None:
    """From when something was to be done until a worker took it; the moments that a worker needs are none."""
    events = histories.events("straight")
    first = next(event.event_id for event in events if event_type(event) == kind)
    for event in events[first - 1 :]:
        event.event_time.FromDatetime(event.event_time.ToDatetime() + timedelta(minutes=minutes))

    assert [line for line in await explained_lines(events) if line.startswith("Beyond")] == costs


async def test_a_reset_is_told_in_its_place_with_its_time_and_reason() -> None:
    """Not at the end, where nobody knows what came before it."""
    events = histories.events("escalated")
    at = next(event for event in events if event_type(event) == "WORKFLOW_TASK_COMPLETED" and event.event_id > 11)
    at.workflow_task_failed_event_attributes.cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
    at.workflow_task_failed_event_attributes.failure.message = "the key is\x1b mended"
    said = await explained_lines(events)
    [number] = [number for number, line in enumerate(said) if "was reset here at 2026-" in line]

    assert "Z: the key is mended. What its earlier run did after" in said[number]
    assert said[number - 1].startswith("Plan 1") and "b (say) finished" in said[number + 1]


async def test_all_reasons_of_a_refused_plan_are_told() -> None:
    """A long first one does not hide the others, nor do those that the planner's activity found."""
    story = (await explained("plan_refused")).story
    reasons = [f"step 's{number}': {'long ' * 50}reason {number}" for number in range(4)]
    told = story.account.model_copy(update={"reasons": tuple(Mistake(text=reason) for reason in reasons)})
    story.history.replayed = told
    said = explanation.explain_task(story.history).items[0].what.text

    assert [reason for reason in reasons if reason not in said] == []


async def test_a_call_that_runs_may_change_the_world_and_has_not_yet() -> None:
    """What is sure stands without a doubt beside it."""
    events = histories.events("fallback")
    scheduled = [event.event_id for event in events if event_type(event) == "ACTIVITY_TASK_SCHEDULED"]
    first = next(id for id in scheduled if events[id - 1].activity_task_scheduled_event_attributes.activity_id == "a")
    said = await explained_lines(events[:first])

    assert f"Runs, and may change the world: a (down).  [event {first}]" in said
    assert "Changed in the world: nothing for certain." in said


@pytest.mark.parametrize("name", ["straight", "replanned", "fallback", "retried"])
async def test_a_running_task_counts_the_calls_that_have_ended(name: str) -> None:
    """As `show` does: a call that runs is counted when it has ended, and the whole is what the task itself counted."""
    whole, without = await explained(name), await explained(name, -1)
    events = histories.events(name)
    first = next(event for event in events if event.activity_task_scheduled_event_attributes.activity_id == "a")
    begun = await explained(name, first.event_id)

    assert without.story.account.spent.tool_calls == whole.story.account.spent.tool_calls
    assert begun.story.account.spent.tool_calls == 0


def encrypt(payload: Payload) -> None:
    """As a codec of somebody else writes it."""
    payload.metadata["encoding"] = b"binary/encrypted"
    payload.data = b"\x00secret"


def store_elsewhere(payload: Payload) -> None:
    """As external storage leaves it."""
    payload.metadata["encoding"] = b"json/external-storage-reference"
    payload.data = b'{"driver_name": "x", "driver_claim": {"claim_data": {}}}'


def damage(payload: Payload) -> None:
    payload.data = payload.data[:5]


CHANGES: dict[Callable[[Payload], None], str] = {
    encrypt: "is encrypted",
    store_elsewhere: "is stored elsewhere",
    damage: "cannot be decoded",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize(
    "name", sampled({name: [name] for name in NAMES}, "deployed", "rejected", "replanned", "undone")
)
async def test_any_event_that_cannot_be_read_is_a_sentence(name: str, change: Callable[[Payload], None]) -> None:
    """One event after the other: never a traceback, and the note names the event."""
    note = f"{CHANGES[change]}; explained without it."
    for index, event in enumerate(histories.events(name)):
        before = event.SerializeToString()
        change_payloads(event, change)
        if event.SerializeToString() != before:
            events = histories.events(name)
            events[index] = event
            said = [line for line in await explained_lines(events) if f"vent {event.event_id}'s" in line]
            assert any(line.endswith(note) for line in said)


async def test_a_history_that_nobody_can_read_still_tells_the_order() -> None:
    """Ids, kinds, cells of the taxonomy and reasons stand outside of the payloads."""
    events = histories.events("replanned")
    for event in events:
        change_payloads(event, encrypt)
    lines = await explained_lines(events)

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
        hidden = [base64.b64encode(payload.SerializeToString()) for payload in payloads]
        return [Payload(metadata={"encoding": b"binary/encrypted"}, data=data) for data in hidden]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(base64.b64decode(payload.data)) for payload in payloads]


async def test_an_encrypted_task_is_explained_without_its_payloads(client: Client, tmp_path: Path) -> None:
    """A sentence says what is missing; with the codec nothing is."""
    config = client.config()
    config["data_converter"] = dataclasses.replace(DATA_CONVERTER, payload_codec=Secret())
    knowing = Client(**config)
    async with staged(knowing, tmp_path, tools(), [plan(step("a", "flaky", word="x")), DONE]) as stage:
        handle = await stage.start()
        await outcome(handle)
    blind, seeing = [said(await told_now(one, handle)) for one in (client, knowing)]

    assert [line for line in blind if line.startswith("Note  Event 1's input") and "are encrypted" in line]
    assert not [line for line in seeing if line.startswith("Note")]


@workflow.defn(name="AgentWorkflow")
class Continues:
    """A task that goes on in a second run."""

    @workflow.run
    async def run(self, task: Task) -> Outcome | None:
        if workflow.info().continued_run_id is None:
            workflow.continue_as_new(task)
        return None


async def test_the_runs_of_a_task_are_read_as_one(client: Client) -> None:
    """From the first on, although the newest is the one that is found."""
    queue = f"continues-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=queue, workflows=[Continues], workflow_runner=UnsandboxedWorkflowRunner()):
        handle = await client.start_workflow("AgentWorkflow", Task(text="go on"), id=queue, task_queue=queue)
        await handle.result()
    newest = client.get_workflow_handle_for(AgentWorkflow.run, queue)
    history = await fetch.fetch_history(client, newest, journal=True)

    assert (history.runs, history.task and history.task.text) == (2, "go on")
    assert history.end and history.end.event.run == 2


async def told_now(client: Client, handle: Handle) -> Explanation:
    return explanation.explain_task(await fetch.fetch_history(client, handle, journal=True))


def said(explained: Explanation) -> list[str]:
    return page.page_lines(explained, None)


@tool.read
async def busy(args: Word) -> Said:
    """Be busy for an hour."""
    raise Busy("Not now.", retry_after=3600)


@tool.read
async def full(args: Word) -> Said:
    """Be full."""
    raise Refused("There is no room.", code="conflict")


async def test_a_running_task_says_what_it_waits_for(client: Client, tmp_path: Path) -> None:
    """A step on a timer: why, how long, and that it goes on; nothing is made up about its end."""
    async with staged(client, tmp_path, [busy], [plan(step("a", "busy"))]) as stage:
        handle = await stage.start()
        await until(handle, lambda progress: bool(progress.with_status(StepStatus.WAITING)))
        explained = await told_now(client, handle)
        await handle.cancel()
        await outcome(handle)

    assert [(item.decision, item.steps) for item in explained.items] == [("wait", ("a",))]
    assert explained.items[0].then[0].text == (
        "It waited 60 min on a timer (it is still waiting), then the same call is to be made again."
    )
    assert explained.now[0].text.startswith("A timer of 60 min runs: a waits: busy, then again.")


@tool.read
async def down(args: Word) -> Said:
    """Fail each time."""
    raise Unreachable("It failed.", code="server_error")


@pytest.mark.parametrize(("kind", "is_later"), [("down", True), ("full", False)])
async def test_what_may_work_later_is_to_be_tried_later(
    client: Client, tmp_path: Path, kind: str, is_later: bool
) -> None:
    """The planner knows no way round a service that is down: that is no fault of the task's text."""
    proposals: Proposals = [plan(step("a", kind)), GiveUp(reason="There is no other way.")]
    async with staged(client, tmp_path, [down, full], proposals) as stage:
        handle = await stage.start()
        await outcome(handle)
        explained = await told_now(client, handle)

    todo = [sentence.text for sentence in explained.todo]
    later = ["Start it again later: what failed last may work by then."] * is_later
    assert todo == [*later, "Say it in other words, or ask for less."]
    assert is_later == any("The retries are used up" in line for line in said(explained))


async def test_a_step_that_is_being_retried_is_told_by_the_server(client: Client, tmp_path: Path) -> None:
    """No event tells of attempts before the last one has ended; the server's list of pending calls does."""
    called = asyncio.Event()

    @tool.read
    async def hangs(args: Word) -> Said:
        """Fail once, then hang."""
        if not called.is_set():
            called.set()
            raise Unreachable("The line is cut.")
        await asyncio.sleep(60)
        return Said(said="")

    async with staged(client, tmp_path, [hangs], [plan(step("a", "hangs"))]) as stage:
        handle = await stage.start()
        await called.wait()
        await asyncio.sleep(1.5)
        explained = await told_now(client, handle)
        await handle.cancel()
        await outcome(handle)

    assert [one.text for one in explained.now] == [
        "a (hangs): attempt 2 of 4 runs; the one before failed (unreachable): The line is cut."
    ]
    assert "is running: 1 plan, 0 of 1 step finished" in explained.summary


async def start_alone(client: Client, **more: Any) -> Handle:
    """A task on a queue that nobody serves."""
    id = f"alone-{uuid.uuid4().hex[:8]}"
    return await client.start_workflow(AgentWorkflow.run, Task(text="wait"), id=id, task_queue="nobody", **more)


async def test_a_task_without_a_worker_says_so(client: Client) -> None:
    """It was asked, and nobody has begun; to stop, and nobody has acted on it yet; then it was ended from outside. With
    the reason that was given, as data. So is one that the server timed out."""
    handle, limited = await start_alone(client), await start_alone(client, execution_timeout=timedelta(seconds=1))
    lines = said(await told_now(client, handle))
    await handle.cancel()
    cancelled = await told_now(client, handle)
    await handle.terminate(reason="no longer\x1b[31m needed")
    item = (await told_now(client, handle)).items[0]
    async with asyncio.timeout(20):
        while (timed_out := await told_now(client, limited)).status == "running":
            await asyncio.sleep(0.1)

    assert lines[0].startswith(f"{handle.id} is running: no plan in force, 0 tool calls. No faults. Started 20")
    assert "Now  No worker has taken the task up yet.  [event 2]" in lines
    assert "The task was asked to stop." in [one.text for one in cancelled.now]
    ended = "The task was terminated from outside, so it could neither clean up nor write an outcome "
    assert (item.decision, item.what.text) == ("end", f"{ended}(no longer [31m needed.).")
    assert (timed_out.status, timed_out.items[0].decision) == ("failed", "end")


@pytest.mark.full
async def test_a_crash_is_told_as_a_lost_worker(server: DevServer, client: Client, tmp_path: Path) -> None:
    """A killed worker leaves no fault behind: the server's own record of the attempt says what happened, and that it is
    made again without being counted."""
    workers = Workers(server.address, tmp_path, [chain(tmp_path / "notes", "a", seconds=3), DONE])
    handle: Handle = await client.start_workflow(
        AgentWorkflow.run, Task(text="x"), id=f"crash-{uuid.uuid4().hex[:8]}", task_queue=workers.queue
    )
    with workers.one() as first:
        while not (tmp_path / "notes").exists():
            await asyncio.sleep(0.05)
        first.send_signal(signal.SIGKILL)
        first.wait()
    with workers.one():
        await outcome(handle)
    explained = await told_now(client, handle)
    shown = workers.starter("explain", handle.id, "--step", "a")

    told_first = explained.items[0]
    assert (told_first.decision, told_first.cost.waited) == ("wait", 1)
    assert "(worker_lost): The worker that ran note went" in told_first.what.text
    assert told_first.why is not None and "does not count as an attempt" in told_first.why.text
    assert told_first.cost.lost > 3
    assert (shown.returncode, shown.stderr) == (0, "") and "worker_lost" in shown.stdout


EVERYTHING: Proposals = [
    plan(step("a", "pick", word="taken"), step("b", "flaky", word="hello"), step("c", "say", "a", word="later")),
    plan(step("a-2", "prick", word="free")),
    plan(step("a-2", "pick", word="free"), step("d", "down", word="wide"), because="free is free"),
    plan(step("e", "broken", "d", word="x")),
]
"""A replan and a retry; a rejected proposal; a fallback; an escalation."""


FIVE = ["replan", "retry", "send_back", "fallback", "escalate"]


async def test_the_command_tells_of_a_run_with_all_five(server: DevServer, client: Client, tmp_path: Path) -> None:
    """In order, without any worker; 0 when explained, whatever became of the task; 2 for what is not there. With --json
    one document: the items, the differences of the plans, what was kept and changed, what it cost."""
    async with staged(client, tmp_path, tools(), EVERYTHING) as stage:
        handle = await stage.start("say everything")
        ended = await outcome(handle)
    explain = Processes(server.address, tmp_path).starter
    whole, step, unknown = (explain("explain", handle.id, *more) for more in ([], ["--step", "d"], ["--step", "dd"]))
    document = json.loads(explain("explain", handle.id, "--json").stdout)
    items = {(step, item["decision"]) for item in document["items"] for step in item["steps"]}
    recorded = {(fault.step_id, fault.decision) for fault in ended.faults}

    assert [done.returncode for done in (whole, step, unknown)] == [0, 0, 2]
    assert "escalated after" in whole.stdout and "3 plans, 3 of 6 steps finished" in whole.stdout
    assert "d (down, then say) of " in step.stdout
    assert "has no step 'dd': did you mean d? It has a, b, c, a-2, d and e." in unknown.stderr
    assert (document["schema"], document["task_id"], document["status"]) == (1, handle.id, "escalated")
    assert [item["decision"] for item in document["items"]] == FIVE
    assert {one for one in items if one[1] != "send_back"} == recorded - {("d", "retry")}
    assert {"what", "why", "decision", "cost", "events"} <= document["items"][0].keys()
    assert [item["cost"]["waited"] > 0 for item in document["items"]] == [False, True, False, True, False]
    assert (document["kept"], [one["step_id"] for one in document["changed"]]) == ({"1": ["b"]}, ["a-2"])
