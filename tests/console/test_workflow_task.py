"""A task whose workflow task fails, as after a bad deploy: every command says so and names the way out."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause as Given
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.converter import PayloadCodec
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from client.follow import Follower, Silent, View
from client.problem import Problem
from client.remedy import as_command, render
from client.tasks import Handle
from client.workflow_task import Cause, FailingTask, failing, is_failure, of_streak
from console.commands import cancel, explain, list_tasks, show
from console.commands.reset import reset
from console.commands.undo import undo
from console.exits import OF_PROBLEM, Exit
from console.options import Common
from replan import Busy, Tool, tool
from runtime.dev_server import DevServer
from runtime.payloads import DATA_CONVERTER
from tests.broken_workflow import BrokenWorkflow
from tests.changed_workflow import ChangedWorkflow
from tests.console import server_lists
from tests.console.desk import Word
from tests.console.terminal import Terminal, starter
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.processes import ROOT, Processes
from tests.workflows.history import timers
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.faults.fault import Code, Fault
from workflows.ids import rollback_id

JSON = Common(json=True)
PATIENCE = 60.0
QUICK = timedelta(seconds=4)
"""The timeout of a workflow task: how long the SDK keeps each attempt after the first one."""
TERMINATE = "temporal workflow terminate -w"

Captured = pytest.CaptureFixture[str]


def tools() -> list[Tool[..., Any]]:
    """A read that works, one that works at the second call, 2 s after the first, and one that has to be waited for."""
    calls = Counter[str]()

    @tool.read
    async def look_up(args: Word) -> Word:
        """Look."""
        return args

    @tool.read
    async def retry(args: Word) -> Word:
        """Be busy at first."""
        calls[args.word] += 1
        if calls[args.word] == 1:
            raise Busy("Not now.", retry_after=2)
        return args

    @tool.read
    async def rest(args: Word) -> Word:
        """Be busy for an hour."""
        raise Busy("Not now.", retry_after=3600)

    return [look_up, retry, rest]


class Deploys:
    """One queue, and the workers that one deploy after the other brings."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client, self.queue = client, f"queue-{secrets.token_hex(6)}"
        self._folder, self._tools = folder, tools()

    def worker(
        self, workflow: type = AgentWorkflow, *, client: Client | None = None, kind: str = "look_up"
    ) -> AbstractAsyncContextManager[Any]:
        script: Proposals = [plan(step("first", "look_up"), step("second", kind, "first")), DONE]
        return staged(client or self.client, self._folder, self._tools, script, queue=self.queue, workflow=workflow)

    async def begin(self, id: str | None = None) -> Handle:
        id = id or f"task-{secrets.token_hex(4)}"
        await self.client.start_workflow(
            AgentWorkflow.run, Task(text="a task"), id=id, task_queue=self.queue, task_timeout=QUICK
        )
        return self.client.get_workflow_handle_for(AgentWorkflow.run, id)

    async def failing(self, handle: Handle, attempt: int = 2) -> FailingTask:
        """Wait until its workflow task fails and this attempt is under way."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await failing(self.client, await handle.describe())
                if found is not None and found.attempt >= attempt:
                    return found
                await asyncio.sleep(0.05)


@pytest.fixture
def deploys(client: Client, tmp_path: Path) -> Deploys:
    return Deploys(client, tmp_path)


@pytest.fixture
async def broken(deploys: Deploys) -> AsyncIterator[Handle]:
    """A task whose worker, which runs, raises an exception that nobody expects."""
    async with deploys.worker(BrokenWorkflow):
        handle = await deploys.begin()
        await deploys.failing(handle)
        yield handle
        await handle.terminate()


def printed(captured: Captured) -> Any:
    out = captured.readouterr().out
    return json.loads(out[out.index('{\n  "schema"') :])


async def test_every_command_says_it_and_names_the_way_out(deploys: Deploys, broken: Handle, capsys: Captured) -> None:
    """`show` does not ask for a worker beside one that runs: exit code 3, the cause, the attempt, what to do. What the
    worker said comes from outside: one line, no escape, 300 cells at most. `explain` has the way out as what is to be
    done; `list` says `running`, and below what is wrong. `cancel` asks, but only a person can bring it about."""
    with pytest.raises(Problem) as said:
        await show.show(deploys.client, broken, JSON)
    remedy = render(said.value.remedy, as_command)
    found = await deploys.failing(broken)
    assert await explain.explain(deploys.client, broken, JSON, None) == 0
    explained, query = printed(capsys), f"TaskQueue = '{deploys.queue}'"
    await server_lists.listed(deploys.client, query)
    await list_tasks.tasks(deploys.client, JSON, status=None, query=query, limit=20)
    [listed] = printed(capsys)["tasks"]
    await list_tasks.tasks(deploys.client, Common(), status=None, query=query, limit=20)
    line = capsys.readouterr().out.splitlines()[-1]
    code = await cancel.cancel(deploys.client, broken, JSON)
    asked = printed(capsys)
    await cancel.cancel(deploys.client, broken, Common(), undo=True)
    words = capsys.readouterr().out

    assert (said.value.code, OF_PROBLEM[said.value.kind]) == ("workflow_task_fails", Exit.NEEDS_PERSON)
    assert "no worker" not in str(said.value) and "its workflow task fails (attempt 2, since 20" in said.value.reason
    assert "run workers with the earlier code, or with code that is fixed" in remedy
    assert f"`{TERMINATE} {broken.id}` ends it" in remedy
    assert found.message.startswith("LookupError: a mistake [31m of many words many words")
    assert len(found.message) <= 300 and found.message.endswith("…")
    assert any("its workflow task fails (attempt " in text for text in explained["now"])
    assert any("run workers with the earlier code" in text.lower() for text in explained["todo"])
    assert (listed["status"], listed["failing"]["cause"]) == ("running", "unhandled_failure")
    assert line.startswith("    ! its workflow task fails (attempt ")
    assert line.endswith(f"`python starter.py show {broken.id}`")
    assert (code, asked["cancel_requested"]) == (Exit.NEEDS_PERSON, True)
    assert asked["failing"]["cause"] == "unhandled_failure" and TERMINATE in asked["failing"]["remedy"]
    assert "was asked to stop and to undo what it has done. It cannot do that yet." in words
    assert f"{TERMINATE} {broken.id}" in words and f"`python starter.py effects {broken.id}`" in words


class Heard(View):
    """Keeps what a follower tells of a workflow task."""

    def __init__(self) -> None:
        self.failing_tasks = list[FailingTask | None]()
        self.silent = list[Silent]()

    def silence(self, who: Silent) -> None:
        self.silent.append(who)

    def failing(self, task: FailingTask | None) -> None:
        self.failing_tasks.append(task)


async def test_a_follower_says_it_once_and_follows_on_when_a_worker_is_mended(
    deploys: Deploys, capsys: Captured
) -> None:
    """Attached before it begins: told after seconds, not as a worker's silence; then that it goes on, to the end.
    Afterwards nothing is said of it any more."""
    heard, handle = Heard(), await deploys.begin()
    following = asyncio.create_task(Follower(deploys.client, handle, heard).to_the_end())
    async with deploys.worker(BrokenWorkflow), asyncio.timeout(PATIENCE):
        while not heard.failing_tasks:
            await asyncio.sleep(0.02)
    async with deploys.worker():
        result = await following
    await explain.explain(deploys.client, handle, JSON, None)
    after = printed(capsys)

    assert [one and one.cause for one in heard.failing_tasks] == [Cause.UNHANDLED, None]
    assert result.status is TaskStatus.COMPLETED and not heard.silent
    assert (after["status"], after["now"], after["todo"]) == ("completed", [], [])
    assert await show.show(deploys.client, handle, JSON) == 0


@pytest.mark.full
async def test_without_a_worker_the_failure_is_told_and_a_worker_asked_for(deploys: Deploys) -> None:
    """Both are true when the failing worker was stopped: its failure, and that nobody has the task now."""
    async with deploys.worker(BrokenWorkflow):
        handle = await deploys.begin()
        await deploys.failing(handle)
    async with asyncio.timeout(PATIENCE):
        while (await deploys.failing(handle)).is_taken:  # the server gives the stopped worker its time
            await asyncio.sleep(0.1)
    with pytest.raises(Problem) as said:
        await show.show(deploys.client, handle, JSON)
    await handle.terminate()

    assert said.value.code == "workflow_task_fails"
    assert f"no worker has it now: `python worker.py --queue {deploys.queue}`" in render(said.value.remedy, as_command)


async def test_code_that_decides_otherwise_is_told_from_an_exception(deploys: Deploys) -> None:
    """By the server's own field; the remedy names a step that the task can be reset to, and that works."""
    async with deploys.worker(kind="retry"):
        handle = await deploys.begin()
        async with asyncio.timeout(PATIENCE):
            while "second" not in {
                one.activity_id for one in (await handle.describe()).raw_description.pending_activities
            }:
                await asyncio.sleep(0.02)
    async with deploys.worker(ChangedWorkflow):
        found = await deploys.failing(handle)
        with pytest.raises(Problem) as said:
            await show.show(deploys.client, handle, JSON)
    async with deploys.worker():
        assert await reset(deploys.client, handle, JSON, to="second", why=None) == 0
        result = await outcome(deploys.client.get_workflow_handle_for(AgentWorkflow.run, handle.id))

    assert found.cause is Cause.NONDETERMINISM
    assert f"`python starter.py reset {handle.id} --to second`" in render(said.value.remedy, as_command)
    assert result.status is TaskStatus.COMPLETED


@pytest.mark.full
async def test_a_worker_that_cannot_replay_a_task_at_rest_is_named(deploys: Deploys) -> None:
    """No workflow task is due, so nothing failed yet: still not `no worker`, since one answers with an error."""
    async with deploys.worker(kind="rest"):
        handle = await deploys.begin()
        async with asyncio.timeout(PATIENCE):
            while not await timers(handle):
                await asyncio.sleep(0.02)
    async with deploys.worker(ChangedWorkflow):
        with pytest.raises(Problem) as said:
            await show.show(deploys.client, handle, JSON)
    await handle.terminate()

    assert said.value.code == "workflow_task_fails"
    assert "the worker's code cannot replay its history" in said.value.reason


@pytest.mark.full
async def test_undo_of_a_task_that_a_worker_cannot_replay_is_no_missing_worker(deploys: Deploys) -> None:
    """What the closed task did is asked of a worker, which answers that its code cannot tell."""
    async with deploys.worker():
        handle = await deploys.begin()
        await outcome(handle)
    async with deploys.worker(ChangedWorkflow):
        with pytest.raises(Problem, match="cannot replay task") as said:
            await undo(deploys.client, handle, JSON)

    assert (said.value.code, OF_PROBLEM[said.value.kind]) == ("workflow_task_fails", Exit.NEEDS_PERSON)


@activity.defn(name="catalogue")
async def catalogue(wanted: dict[str, JsonValue]) -> None:
    """Be there: the SDK replays a local activity only in a worker that has it."""


@pytest.mark.full
async def test_a_rollback_that_cannot_go_on_is_begun_anew(deploys: Deploys, capsys: Captured) -> None:
    """On a worker that is too old to know rollbacks; the way out is not that of a task."""
    async with deploys.worker():
        handle = await deploys.begin()
        await outcome(handle)
    rollback: Handle = deploys.client.get_workflow_handle_for(AgentWorkflow.run, rollback_id(handle.id))
    async with Worker(
        deploys.client,
        task_queue=deploys.queue,
        workflows=[AgentWorkflow],
        activities=[catalogue],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        undoing = asyncio.create_task(undo(deploys.client, handle, JSON))
        said = ""
        async with asyncio.timeout(PATIENCE):
            while "still waiting" not in said:
                await asyncio.sleep(0.1)
                said += capsys.readouterr().err
        undoing.cancel()
        await asyncio.wait([undoing])
    await rollback.terminate()

    assert f"Task {rollback.id!r} cannot go on, since its workflow task fails" in said
    assert f"`{TERMINATE} {rollback.id}` ends it, and `python starter.py undo {handle.id}` begins anew" in said


class Away(PayloadCodec):
    """Reads nothing, as a worker does whose store is away; it says so as the vault does."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        fault = Fault.of(Code.STORE_UNAVAILABLE, "The store does not answer.")
        raise ApplicationError(fault.reason, fault, type=fault.quadrant.value)


@pytest.mark.full
async def test_a_payload_that_cannot_be_read_is_waited_for(deploys: Deploys, client: Client) -> None:
    """A store that is away needs no other code: the task goes on when it is back, and that is what is said."""
    config = client.config()
    config["data_converter"] = replace(DATA_CONVERTER, payload_codec=Away())
    handle = await deploys.begin()
    async with deploys.worker(client=Client(**config)):
        found = await deploys.failing(handle)
    async with deploys.worker():
        result = await outcome(handle)

    assert (found.cause, found.message) == (Cause.PAYLOAD, "The store does not answer.")
    assert "it goes on by itself" in found.remedy and "when the store is back" in found.remedy
    assert result.status is TaskStatus.COMPLETED


@pytest.mark.full
async def test_a_document_is_not_waited_for_for_ever(deploys: Deploys, commands: Processes) -> None:
    """Where nobody watches: after the third attempt an error document, exit code 3; the task goes on existing. With
    --jsonl: an event with the cause, then the error. So also if a program starts a task."""
    handle, follow = await deploys.begin(), ("show", "--follow")
    words = ("start", "--task", "a task", "--id", deploys.queue, "--queue", deploys.queue, "--json")
    asked = ((*follow, handle.id, "--json"), (*follow, handle.id, "--jsonl"), words)
    async with deploys.worker(BrokenWorkflow):
        done = await asyncio.gather(*(asyncio.to_thread(commands.starter, *one) for one in asked))
        seen = await handle.describe()
    for id in (handle.id, deploys.queue):
        await deploys.client.get_workflow_handle(id).terminate()
    error, events = json.loads(done[0].stdout)["error"], [json.loads(line) for line in done[1].stdout.splitlines()]

    assert (done[0].returncode, error["code"], done[2].returncode) == (3, "workflow_task_fails", 3)
    assert f"`python starter.py show {handle.id} --follow` follows it again" in error["remedy"]
    assert seen.status is WorkflowExecutionStatus.RUNNING
    assert [one["event"] for one in events] == ["workflow_task", "error"]
    assert (events[0]["fails"], events[0]["cause"]) == (True, "unhandled_failure")
    assert json.loads(done[2].stdout)["error"]["code"] == "workflow_task_fails"


@pytest.mark.full
async def test_at_a_terminal_it_is_said_and_followed_on(deploys: Deploys, server: DevServer) -> None:
    """A person who watches is told, and the command stays until the worker is mended and the task ends."""
    handle = await deploys.begin()
    with Terminal(
        starter(ROOT, "show", handle.id, "--follow"), {"TEMPORAL_ADDRESS": server.address}, ROOT, (300, 24)
    ) as window:
        async with deploys.worker(BrokenWorkflow):
            await window.until("its workflow task fails (attempt ")
        async with deploys.worker():
            code = await window.ended()

    assert code == 0
    assert "its workflow task fails" not in " ".join(window.shown.text)


@pytest.mark.full
async def test_doctor_counts_such_tasks(deploys: Deploys, broken: Handle, commands: Processes) -> None:
    """A failed check with how many of how many, which and why, and the way out."""
    await server_lists.listed(deploys.client, f"TaskQueue = '{deploys.queue}'")
    done = await asyncio.to_thread(commands.starter, "doctor", "--queue", deploys.queue, "--json")
    [check] = [one for one in json.loads(done.stdout)["checks"] if one["name"] == "workflow tasks"]
    fails = f"1 cannot go on, since their workflow task fails: {broken.id} (unhandled failure)"

    assert (done.returncode, check["status"]) == (1, "fail")
    assert check["found"].startswith(fails) and "run workers with the earlier code" in check["remedy"]


def failed(number: int, cause: int, *, message: str = "") -> HistoryEvent:
    event = HistoryEvent(event_id=number, event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED)
    event.event_time.FromDatetime(datetime(2026, 1, 2, 3, 4, number, tzinfo=UTC))
    event.workflow_task_failed_event_attributes.cause = cause  # type: ignore[assignment]  # an enum's number
    event.workflow_task_failed_event_attributes.failure.message = message
    return event


CAUSES = {
    Given.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR: Cause.NONDETERMINISM,
    Given.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE: Cause.UNHANDLED,
    Given.WORKFLOW_TASK_FAILED_CAUSE_EXTERNAL_STORAGE_FAILURE: Cause.PAYLOAD,
    Given.WORKFLOW_TASK_FAILED_CAUSE_PAYLOADS_TOO_LARGE: Cause.LIMIT,
    Given.WORKFLOW_TASK_FAILED_CAUSE_PENDING_ACTIVITIES_LIMIT_EXCEEDED: Cause.LIMIT,
    Given.WORKFLOW_TASK_FAILED_CAUSE_BAD_SCHEDULE_ACTIVITY_ATTRIBUTES: Cause.UNHANDLED,
}
BEGUN_ANEW = (
    Given.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
    Given.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    Given.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
)


async def test_a_cause_is_read_from_the_servers_field() -> None:
    """Whatever the message says, which may be anybody's words; what the server begins anew by itself is no failure."""
    for given, cause in CAUSES.items():
        streak = [failed(9, given, message="[TMPRL1100] Nondeterminism error"), failed(5, given)]
        found = await of_streak(streak, DATA_CONVERTER, "a-task", "replan", 1)

        assert found is not None and (found.cause, found.is_sure) == (cause, False), given
        assert found.since == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert [given for given in BEGUN_ANEW if is_failure(failed(5, given))] == []


async def test_signals_do_not_hide_that_it_fails_for_long() -> None:
    """Each begins the count of attempts anew; the failures that are written down count, too. One workflow task that
    timed out is given to the next worker; three are worth a word."""
    given = Given.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
    found = await of_streak([failed(number, given) for number in (13, 9, 5)], DATA_CONVERTER, "a-task", "replan", 2)
    event = HistoryEvent(event_id=5, event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT)
    once, thrice = [await of_streak([event], DATA_CONVERTER, "a-task", "replan", times) for times in (2, 3)]

    assert found is not None and found.is_sure
    assert (once, thrice and thrice.cause) == (None, Cause.TIMEOUT)
