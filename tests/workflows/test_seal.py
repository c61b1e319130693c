"""On a queue with a keyring, what was not encrypted for its use is refused; what is open already goes on.

Who attacks reaches the Temporal server, reads all histories, and has no key.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import (
    Client,
    HeaderCodecBehavior,
    Schedule,
    ScheduleActionExecutionStartWorkflow as Started,
    ScheduleActionStartWorkflow,
    ScheduleSpec,
    WorkflowExecutionStatus,
    WorkflowHistory,
    WorkflowUpdateFailedError,
    WorkflowUpdateStage,
)
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from client.incidents import find_incidents, follow_resolution, resolve
from client.people import answer
from client.replay import replayed
from replan import NeedsPerson, tool
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from runtime.keys import Keyring, add_key, encrypting, read_keys
from runtime.payloads import DATA_CONVERTER
from tests.harness import DONE, Stage, outcome, plan, staged, step
from tests.workflows.history import until
from tests.workflows.props import Said, Word
from workflows.account import search_attributes
from workflows.account.outcome import REFUSED, Outcome
from workflows.account.progress import Progress
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.people.requests import Choice
from workflows.seal import NOT_SEALED

CALLS = list[str]()
"""The words of all calls of `pay` that were not sent away."""
OPEN = set[str]()
"""The words for which the door is open."""


@tool.idempotent
async def pay(args: Word) -> Said:
    """Pay, if the door is open."""
    if args.word not in OPEN:
        raise NeedsPerson("The door is shut.", code="forbidden")
    CALLS.append(args.word)
    return Said(said=args.word)


@dataclass
class Place:
    """A server, a keyring, and clients with and without it."""

    address: str
    keys: Path
    program: Client
    """With the key."""
    thief: Client
    """Without the key."""
    older: Client
    """With the key, and of a version that names no use."""

    async def worker(self, *, accepts_clear: bool = False) -> Client:
        return await connect(address=self.address, plain=True, keys=self.keys, tells_use=not accepts_clear)

    async def history(self, id: str) -> WorkflowHistory:
        return await self.thief.get_workflow_handle(id).fetch_history()

    async def start_input(self, id: str) -> list[RawValue]:
        """The input of a task, as it stands in its history."""
        started = (await self.history(id)).events[0].workflow_execution_started_event_attributes
        return [RawValue(payload) for payload in started.input.payloads]

    async def mistakes_of_replay(self, id: str) -> list[str]:
        """How the history does not replay: with what a worker has, with `--accept-clear`, and in a console."""
        history, found = await self.history(id), list[str]()
        for tells_use in (True, False):
            ring = Keyring(read_keys(self.keys), "default", tells_use=tells_use)
            async for one in replayed(_alone(history), converter=encrypting(ring)):
                found += [f"{tells_use}: {one.reason}"] if one.cause else []
        return found


async def _alone(history: WorkflowHistory) -> AsyncIterator[WorkflowHistory]:
    yield history


@pytest.fixture
async def place(server: DevServer, tmp_path: Path) -> Place:
    CALLS.clear()
    OPEN.clear()
    return await place_at(server.address, tmp_path / "replan.keys")


async def place_at(address: str, keys: Path) -> Place:
    add_key(keys)
    converter = encrypting(Keyring(read_keys(keys), "default"))
    return Place(
        address=address,
        keys=keys,
        program=await connect(address=address, plain=True, keys=keys),
        thief=await Client.connect(address, data_converter=DATA_CONVERTER),
        older=await Client.connect(address, data_converter=converter, header_codec_behavior=HeaderCodecBehavior.CODEC),
    )


@asynccontextmanager
async def serving(place: Place, folder: Path, *, queue: str | None = None, **options: Any) -> AsyncIterator[Stage]:
    """A worker with the key; a task pays once."""
    client = await place.worker(**options)
    async with staged(client, folder, [pay], [plan(step("p", "pay", word="x")), DONE], queue=queue) as stage:
        yield stage


def task(word: str = "x", **more: Any) -> Task:
    """A task that pays, and waits for people."""
    steps = (step("p", "pay", word=word),)
    return Task(text=word, plan=steps, plan_only=True, on_escalation="wait", limits=Limits(replans=0), **more)


async def begin(client: Client, queue: str, given: Any = None, id: str = "", type: str = "AgentWorkflow") -> str:
    """Start a workflow, and return its id."""
    id = id or f"seal-{uuid.uuid4().hex[:12]}"
    given = task() if given is None else given
    args = given if isinstance(given, list) else [given]
    await client.start_workflow(type, args=args, id=id, task_queue=queue)
    return id


async def asked(place: Place, id: str, requests: int = 1) -> Progress:
    """The state of a task when it has asked a person so often."""
    handle = place.program.get_workflow_handle_for(AgentWorkflow.run, id)
    return await until(handle, lambda now: len(now.requests) >= requests and bool(now.open_requests))


async def ended(place: Place, id: str) -> Outcome:
    async with asyncio.timeout(30):
        return await outcome(place.program.get_workflow_handle_for(AgentWorkflow.run, id))


async def refusal(client: Client, id: str, choice: str, *arguments: Any, update_id: str | None = None) -> str:
    """Why an Update was refused, as its sender reads it."""
    async with asyncio.timeout(20):
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await client.get_workflow_handle(id).execute_update(choice, args=arguments, id=update_id)
    cause = refused.value.cause
    assert isinstance(cause, ApplicationError) and cause.type == NOT_SEALED, repr(cause)
    return cause.message


async def send(client: Client, id: str, choice: str, *arguments: Any, update_id: str | None = None) -> None:
    """Send an Update that is accepted; its sender may not be able to read the reply."""
    async with asyncio.timeout(20):
        await client.get_workflow_handle(id).start_update(
            choice, args=arguments, id=update_id, wait_for_stage=WorkflowUpdateStage.ACCEPTED
        )


def accepted_input(event: HistoryEvent) -> Sequence[Payload]:
    """The arguments of the Update that an event accepts; none of any other event."""
    return event.workflow_execution_update_accepted_event_attributes.accepted_request.input.args.payloads


async def test_an_answer_in_clear_is_refused(place: Place, tmp_path: Path) -> None:
    """Whatever it says, also without an argument. Its sender, who has no key, can read why."""
    forged: Mapping[str, Sequence[Any]] = {
        "provide": [{"result": {"said": "FORGED"}, "by": "boss"}],
        "retry": [],
        "abort": [{"reason": "because"}],
        "skip": [None],
        "replan": [{}],
        "extend": [{"tool_calls": 5}],
        "approve": [{}, {}],
    }
    async with serving(place, tmp_path) as stage:
        id = await begin(place.program, stage.queue)
        await asked(place, id)
        said = {choice: await refusal(place.thief, id, choice, *sent) for choice, sent in forged.items()}
        before = await asked(place, id)
        OPEN.add("x")
        await answer(place.program.get_workflow_handle_for(AgentWorkflow.run, id), Choice.RETRY)
        done = await ended(place, id)

    assert [request.answer for request in before.requests] == [None]
    assert (done.status, CALLS) == (TaskStatus.COMPLETED, ["x"])
    assert said["provide"] == (
        "The answer is refused: it was sent in clear, and this queue takes only what its key has encrypted for this."
        " Send it with this version of Replan and the workers' `--keys`, or start the workers with `--accept-clear`"
        " while you change over."
    )
    assert "it has no argument that could be encrypted" in said["retry"]
    assert await place.mistakes_of_replay(id) == []


async def test_an_answer_that_was_encrypted_for_another_use_is_refused(place: Place, tmp_path: Path) -> None:
    """For another task, another answer, another Update id, a query, or by an older version: all stand in a history."""
    async with serving(place, tmp_path) as stage:
        first, second = [await begin(place.program, stage.queue, task(word)) for word in ("x", "y")]
        await asked(place, first)
        await asked(place, second)
        handle = place.program.get_workflow_handle(first)
        await handle.execute_update("extend", {"tool_calls": 5}, id="more")
        sealed = [
            RawValue(payload) for event in (await place.history(first)).events for payload in accepted_input(event)
        ]
        [unnamed] = [RawValue(one) for one in await place.older.data_converter.encode([{"tool_calls": 5}])]
        said = [
            await refusal(place.thief, second, "extend", *sealed, update_id="more"),
            await refusal(place.thief, first, "abort", *sealed, update_id="more-2"),
            await refusal(place.thief, first, "extend", *sealed),
            await refusal(place.thief, first, "extend", *(await place.start_input(first))),
            await refusal(place.thief, first, "extend", unnamed),
        ]
        await send(place.thief, first, "extend", *sealed, update_id="more")  # the server has this Update already
        limits = (await asked(place, first)).budget.limits
        for id in (first, second):
            await place.program.get_workflow_handle(id).terminate()

    assert len(sealed) == 1
    assert limits.tool_calls == (task().limits.tool_calls or 0) + 5
    assert ["for another use" in one for one in said] == [True] * 4 + [False]
    assert "encrypted without a use, as older versions" in said[-1]


async def test_a_signal_in_clear_is_dropped(place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each one, and the log says why; the history replays the same everywhere. With the key, it is taken."""
    async with serving(place, tmp_path) as stage:
        id = await begin(place.program, stage.queue)
        now = await asked(place, id)
        thief, program = (client.get_workflow_handle(id) for client in (place.thief, place.program))
        cause = now.open_requests[0].cause
        await thief.signal("undo_when_cancelled")
        await thief.signal("undo_when_cancelled", {})
        await thief.signal("resolve", {"id": "1", "cause": cause})
        memo = (await thief.describe()).raw_info.memo.fields["request"]
        await thief.signal("resolve", RawValue(memo))  # it has an id and a cause, and workers have encrypted it
        await thief.signal("confirm_undo", {"p": "x"})
        await thief.signal("know_earlier_effects", [])
        await thief.signal("turn", {"key": "k"})
        after = await asked(place, id)
        held = (after.undo_when_cancelled, dict(after.confirmed), [one.answer for one in after.requests])
        await program.signal("undo_when_cancelled", {})
        seen = await until(
            place.program.get_workflow_handle_for(AgentWorkflow.run, id), lambda p: p.undo_when_cancelled
        )
        mistakes = await place.mistakes_of_replay(id)
        await program.cancel()
        await ended(place, id)

    dropped = [record for record in caplog.records if "signal_dropped" in record.getMessage()]
    assert cause and memo.data
    assert held == (False, {}, [None]) and seen.undo_when_cancelled
    assert len(dropped) == 7
    assert mistakes == [] and await place.mistakes_of_replay(id) == []


async def failure_in_clear(place: Place, id: str) -> str:
    """The message with which a workflow failed, as Temporal's web UI shows it without the key."""
    handle = place.thief.get_workflow_handle(id)
    async with asyncio.timeout(20):
        async for event in handle.fetch_history_events(wait_new_event=True):
            last = event
    return last.workflow_execution_failed_event_attributes.failure.message


FORGED_STARTS: Mapping[str, Any] = {
    "AgentWorkflow": {"text": "x", "plan": [{"id": "p", "kind": "pay", "args": {"word": "x"}}]},
    "UndoWorkflow": {"progress": {}},
    "InspectWorkflow": {"about": "tools"},
    "NotifyWorkflow": {"id": "n"},
    "ResolveWorkflow": {"cause": "pay:forbidden", "queue": "q"},
}


async def test_a_start_in_clear_is_refused(place: Place, tmp_path: Path) -> None:
    """At once, without a call; its sender, who has no key, reads why. So does every other workflow of Replan's."""
    OPEN.add("x")
    said = dict[str, str]()
    async with serving(place, tmp_path) as stage:
        for type, given in FORGED_STARTS.items():
            queue = stage.queue if type in ("AgentWorkflow", "UndoWorkflow") else f"{stage.queue}-control"
            id = await begin(place.thief, queue, given, type=type)
            said[type] = await failure_in_clear(place, id)
            if type == "AgentWorkflow":
                done, mistakes = await ended(place, id), await place.mistakes_of_replay(id)

    assert [text for text in said.values() if "is refused: it was sent in clear, and" not in text] == []
    assert (done.status, done.code, done.steps, CALLS) == (TaskStatus.FAILED, REFUSED, (), [])
    assert mistakes == []


async def test_a_start_in_clear_is_refused_in_each_run(place: Place, tmp_path: Path) -> None:
    """Also in one that a cron schedule, a retry policy, or a reset has begun."""
    OPEN.add("x")
    queue, forged = f"queue-{uuid.uuid4().hex[:12]}", FORGED_STARTS["AgentWorkflow"]
    cron, retried = f"cron-{queue}", f"retried-{queue}"
    start = partial(place.thief.start_workflow, "AgentWorkflow", forged, task_queue=queue)
    await start(id=cron, cron_schedule="@every 2s")
    policy = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1)
    handle = await start(id=retried, run_timeout=timedelta(seconds=2), retry_policy=policy)
    while (await handle.describe()).run_id == handle.first_execution_run_id:
        await asyncio.sleep(0.2)
    async with serving(place, tmp_path, queue=queue):
        ends = [await ended(place, retried)]
        request = ResetWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=retried),
            workflow_task_finish_event_id=4,
            request_id=uuid.uuid4().hex,
        )
        await place.thief.workflow_service.reset_workflow_execution(request)
        ends.append(await ended(place, retried))
        runs = set[str | None]()
        while len(runs) < 3:
            runs.add((await place.thief.get_workflow_handle(cron).describe()).run_id)
            await asyncio.sleep(0.2)
        await place.thief.get_workflow_handle(cron).terminate()

    assert [end.code for end in ends] == [REFUSED] * 2
    assert CALLS == []


async def test_an_input_is_for_one_task(place: Place, tmp_path: Path) -> None:
    """Under another id, or from what a worker has encrypted, or from an older version, it starts nothing."""
    async with serving(place, tmp_path) as stage:
        OPEN.add("x")
        first = await begin(place.program, stage.queue)
        done = await ended(place, first)
        sealed = await place.start_input(first)
        result = (await place.history(first)).events[-1].workflow_execution_completed_event_attributes.result.payloads
        [unnamed] = await place.older.data_converter.encode([task()])
        changed = Payload(metadata=sealed[0].payload.metadata, data=sealed[0].payload.data[:-1] + b"x")
        forged = [sealed, [RawValue(result[0])], [RawValue(unnamed)]]
        ends = [await ended(place, await begin(place.thief, stage.queue, one)) for one in forged]
        stuck = await begin(place.thief, stage.queue, [RawValue(changed)])
        await asyncio.sleep(2)
        seen = await place.thief.get_workflow_handle(stuck).describe()
        await place.thief.get_workflow_handle(stuck).terminate()

    assert done.status == TaskStatus.COMPLETED
    assert [(end.status, end.code) for end in ends] == [(TaskStatus.FAILED, REFUSED)] * 3
    assert ["another use" in end.reason for end in ends] == [True, False, False]
    assert seen.status is WorkflowExecutionStatus.RUNNING
    assert CALLS == ["x"]


async def test_a_schedule_starts_all_its_runs_with_one_input(place: Place, tmp_path: Path) -> None:
    """No start outside of the schedule can use it, and no other schedule."""
    OPEN.add("x")
    name = f"nightly-{uuid.uuid4().hex[:8]}"

    async def scheduled(client: Client, id: str, given: list[Any]) -> list[str]:
        action = ScheduleActionStartWorkflow("AgentWorkflow", args=given, id=f"{id}-run", task_queue=stage.queue)
        schedule = await client.create_schedule(id, Schedule(action=action, spec=ScheduleSpec()))
        for number in (1, 2):
            await schedule.trigger()  # the id of the run has the second
            await asyncio.sleep(1.5)
            while len(runs := (await schedule.describe()).info.recent_actions) < number:
                await asyncio.sleep(0.2)
            ids = [run.action.workflow_id for run in runs if isinstance(run.action, Started)]
            await ended(place, ids[-1])
        await schedule.delete()
        return ids

    async with serving(place, tmp_path) as stage:
        runs = await scheduled(place.program, name, [task()])
        ends = [await ended(place, id) for id in runs]
        sealed = await place.start_input(runs[0])
        copied = await ended(place, await begin(place.thief, stage.queue, sealed, id=f"{name}-run-copied"))
        other = await scheduled(place.thief, f"other-{name}", sealed)
        others = [await ended(place, id) for id in other]

    assert len({*runs}) == 2 and [end.status for end in ends] == [TaskStatus.COMPLETED] * 2
    assert [end.code for end in (copied, *others)] == [REFUSED] * 3
    assert CALLS == ["x", "x"]


async def test_one_answer_of_an_incident_reaches_all_its_tasks(place: Place, tmp_path: Path) -> None:
    """The canary by a Signal of a workflow, and the others by one payload of a batch."""
    async with serving(place, tmp_path) as stage:
        ids = [await begin(place.program, stage.queue) for _ in range(3)]
        cause = next(iter({(await asked(place, id)).open_requests[0].cause for id in ids}))
        while not [one for one in await find_incidents(place.program) if (one.queue, one.waiting) == (stage.queue, 3)]:
            await asyncio.sleep(0.2)
        OPEN.add("x")
        running = await resolve(place.program, cause, stage.queue, by="ann", note="")
        said = [now async for now in follow_resolution(place.program, running)][-1]
        ends = [await ended(place, id) for id in ids]
        mistakes = [one for id in ids for one in await place.mistakes_of_replay(id)]

    assert (said.tasks, said.went_on) == (3, 3)
    assert [end.status for end in ends] == [TaskStatus.COMPLETED] * 3
    assert mistakes == []


@pytest.mark.parametrize("began", ["thief", "older"])
async def test_a_task_that_was_begun_before_goes_on(place: Place, tmp_path: Path, began: str) -> None:
    """One that was begun in clear takes answers in clear, and one that an older version encrypted does not.

    The first worker accepts all, also a Signal; the second one replays it.
    """
    queue = f"queue-{uuid.uuid4().hex[:12]}"
    client: Client = getattr(place, began)
    async with serving(place, tmp_path, queue=queue, accepts_clear=True):
        id = await begin(client, queue)
        await asked(place, id)
        thief = place.thief.get_workflow_handle(id)
        await thief.signal("undo_when_cancelled")
        await send(place.thief, id, "retry")
        await asked(place, id, 2)
    async with serving(place, tmp_path, queue=queue):
        mistakes = await place.mistakes_of_replay(id)
        if began == "older":
            await refusal(place.thief, id, "retry")
            await thief.signal("resolve", {"id": "1", "cause": (await asked(place, id)).open_requests[0].cause})
        OPEN.add("x")
        await send(place.program if began == "older" else place.thief, id, "retry", {})
        done = await ended(place, id)

    assert mistakes == [] and await place.mistakes_of_replay(id) == []
    assert (done.status, CALLS, len(done.requests)) == (TaskStatus.COMPLETED, ["x"], 2)


async def test_what_a_worker_refused_another_one_does_not_take(place: Place, tmp_path: Path) -> None:
    """Workers with and without `--accept-clear` take turns in one task: each replays what the other one decided."""
    queue = f"queue-{uuid.uuid4().hex[:12]}"
    seen = list[tuple[bool, int]]()
    for accepts_clear in (False, True, False, True):
        async with serving(place, tmp_path, queue=queue, accepts_clear=accepts_clear):
            if not seen:
                id = await begin(place.program, queue)
            now = await asked(place, id)
            cause = now.open_requests[0].cause
            await place.thief.get_workflow_handle(id).signal("resolve", {"id": f"s{len(seen)}", "cause": cause})
            await send(place.program, id, "retry", {})
            after = await asked(place, id, len(now.requests) + 1)
            texts = [request.answer.resolution for request in after.requests if request.answer]
            seen.append((accepts_clear, sum(text.startswith("s") for text in texts)))
            mistakes = await place.mistakes_of_replay(id)
            assert mistakes == []
    async with serving(place, tmp_path, queue=queue):
        OPEN.add("x")
        await place.program.get_workflow_handle(id).execute_update("retry", {})
        done = await ended(place, id)

    assert (done.status, CALLS) == (TaskStatus.COMPLETED, ["x"])
    assert [count for _, count in seen] == [0, 1, 1, 2]


@workflow.defn(name="Order")
class Order:
    """A workflow of a user's that has a task as a child."""

    @workflow.run
    async def run(self, queue: str) -> str:
        """Run the task."""
        child = await workflow.start_child_workflow(
            "AgentWorkflow", task(), id=f"{workflow.info().workflow_id}-child", task_queue=queue
        )
        await child
        return "done"


async def test_a_workflow_of_a_user_starts_tasks(place: Place, tmp_path: Path) -> None:
    """Its worker has the key; the server says that a workflow has started the task."""
    OPEN.add("x")
    async with serving(place, tmp_path) as stage:
        own, runner = f"{stage.queue}-own", UnsandboxedWorkflowRunner()
        async with Worker(place.program, task_queue=own, workflows=[Order], workflow_runner=runner):
            done = await place.program.execute_workflow("Order", stage.queue, id=f"order-{own}", task_queue=own)

    assert (done, CALLS) == ("done", ["x"])


@pytest.mark.full
async def test_a_signal_in_clear_is_dropped_by_a_worker_that_was_asked_before(place: Place, tmp_path: Path) -> None:
    """Signals come while no worker runs, and queries before the workflow tasks: the next worker drops them all."""
    queue = f"queue-{uuid.uuid4().hex[:12]}"
    async with serving(place, tmp_path, queue=queue):
        ids = [await begin(place.program, queue) for _ in range(8)]
        cause = next(iter({(await asked(place, id)).open_requests[0].cause for id in ids}))

    async def follow(id: str) -> None:
        while True:
            with suppress(RPCError):
                await place.program.get_workflow_handle(id).query("progress", rpc_timeout=timedelta(seconds=3))

    followers = [asyncio.create_task(follow(id)) for id in ids for _ in range(2)]
    await asyncio.sleep(2)
    for id in ids:
        await place.thief.get_workflow_handle(id).signal("resolve", {"id": "1", "cause": cause})
    try:
        async with serving(place, tmp_path, queue=queue):
            await asyncio.sleep(8)
            seen = [await asked(place, id) for id in ids]
    finally:
        for follower in followers:
            follower.cancel()
    mistakes = [one for id in ids for one in await place.mistakes_of_replay(id)]
    for id in ids:
        await place.thief.get_workflow_handle(id).terminate()

    assert [request.answer for now in seen for request in now.requests] == [None] * len(ids)
    assert mistakes == []


@pytest.mark.full
async def test_a_later_run_takes_what_the_first_one_took(tmp_path: Path) -> None:
    """A worker encrypts its input. One of a task that was begun in clear takes answers in clear, and no other does."""
    CALLS.clear()
    OPEN.clear()
    (tmp_path / "server").mkdir()
    early = {"limit.historyCount.suggestContinueAsNew": "20"}
    spec = ServerSpec(
        tmp_path / "server",
        port=free_port(),
        ui_port=free_port(),
        attributes=search_attributes.TYPES,
        dynamic=early,
    )
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        place = await place_at(server.address, tmp_path / "replan.keys")
        OPEN.update("abcdef")
        plans = [plan(step(word, "pay", word=word)) for word in "abcdefx"]

        async def asked_in_a_later_run(client: Client) -> str:
            async with staged(worker, tmp_path, [pay], [*plans, DONE], queue=queue):
                given, id = Task(text="x", on_escalation="wait"), f"later-{uuid.uuid4().hex[:8]}"
                await client.start_workflow("AgentWorkflow", given, id=id, task_queue=queue, memo={"task": "x"})
                await asked(place, id)
            started = (await place.history(id)).events[0].workflow_execution_started_event_attributes
            assert started.continued_execution_run_id
            return id

        worker, queue = await place.worker(accepts_clear=True), f"queue-{uuid.uuid4().hex[:12]}"
        in_clear, sealed = await asked_in_a_later_run(place.thief), await asked_in_a_later_run(place.program)
        async with staged(await place.worker(), tmp_path, [pay], [*plans, DONE], queue=queue):
            said = await refusal(place.thief, sealed, "retry", {})
            OPEN.add("x")
            await send(place.thief, in_clear, "retry", {})
            await send(place.program, sealed, "retry", {})
            ends = [await ended(place, id) for id in (in_clear, sealed)]

    assert "sent in clear" in said
    assert [end.status for end in ends] == [TaskStatus.COMPLETED] * 2, [end.reason for end in ends]
