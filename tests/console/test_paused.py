"""Operators pause, resume and reset calls with `temporal activity`; every command tells the truth about it."""

import asyncio
import json
import subprocess
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import PauseActivityRequest
from temporalio.client import Client

from activities.planning.planner import Planner, ScriptedPlanner
from activities.toolbox.declare.kind import Kind
from client.tasks import Handle
from replan import Busy, Key, Refused, Tool, tool
from runtime.dev_server import DevServer
from runtime.temporal_cli import find_cli
from tests.console.terminal import Terminal, starter
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.processes import ROOT, Processes
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.planning.situation import Situation
from workflows.plans.proposal import Proposal

PATIENCE = 60
BACKOFF = 30.0
"""Seconds that a busy service asks to wait: longer than a test, which resumes the step before."""


class Word(BaseModel):
    word: str = ""


@dataclass
class Service:
    """What the tools call: it counts its calls, and is busy or hangs as often as a test says."""

    calls: Counter[str] = field(default_factory=Counter)
    busy: int = 0
    hangs: int = 0
    refuses: bool = False
    free: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by a test to let the calls that hang go on."""

    async def call(self, kind: str, word: str) -> Word:
        self.calls[kind] += 1
        if self.busy:
            self.busy -= 1
            raise Busy("The service is busy.", retry_after=BACKOFF)
        if self.hangs:
            self.hangs -= 1
            await self.free.wait()
        if self.refuses:
            raise Refused("It was charged already.", code="conflict")
        return Word(word=word)

    def tools(self) -> list[Tool[..., Any]]:
        """One tool of each effect that a pause treats in another way."""

        @tool.keyed(timeout=100)
        async def charge(args: Word, key: Key) -> Word:
            """Charge."""
            return await self.call("charge", args.word)

        @tool.unkeyed(timeout=100)
        async def send(args: Word) -> Word:
            """Send."""
            return await self.call("send", args.word)

        return [charge, send]


class Operator:
    """Somebody with both command lines, and one task."""

    def __init__(self, client: Client, service: Service, commands: Processes, handle: Handle, cli: Path) -> None:
        self.service, self.handle, self._client = service, handle, client
        self._commands, self._cli = commands, str(cli)

    async def temporal(self, *words: str, activity: str = "a") -> str:
        """Run a command of the Temporal CLI about an activity of the task."""
        where = ("--address", self._commands.address, "--workflow-id", self.handle.id, "--activity-id", activity)
        command = [self._cli, *words, *where]
        return await self._checked(lambda: self._commands.run(command))

    async def pause(self, reason: str) -> None:
        """Pause step `a` for a reason, which the Temporal CLI cannot give."""
        which = WorkflowExecution(workflow_id=self.handle.id)
        asked = PauseActivityRequest(namespace="default", execution=which, id="a", identity="ann", reason=reason)
        await self._client.workflow_service.pause_activity(asked)

    async def resume(self, line: str) -> str:
        command = ["sh", "-c", line.replace("temporal", self._cli, 1)]
        return await self._checked(lambda: self._commands.run(command))

    async def starter(self, *words: str) -> str:
        """What a command prints about the task."""
        return await self._checked(lambda: self._commands.starter(*words))

    async def document(self, *words: str) -> Any:
        """The JSON document of a command about the task."""
        return json.loads(await self.starter(words[0], self.handle.id, *words[1:], "--json"))

    async def _checked(self, run: Callable[[], subprocess.CompletedProcess[str]]) -> str:
        done = await asyncio.to_thread(run)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async def called(self, times: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.service.calls.total() < times:
                await asyncio.sleep(0.02)

    async def is_pending(self, state: str) -> None:
        """Wait until the server has the call of step `a` in this state, such as `PAUSED`."""
        async with asyncio.timeout(PATIENCE):
            while state not in str((await self.handle.describe()).raw_description.pending_activities):
                await asyncio.sleep(0.05)

    async def ended(self) -> Outcome:
        async with asyncio.timeout(PATIENCE):
            return await outcome(self.handle)


@asynccontextmanager
async def operator(
    client: Client,
    server: DevServer,
    folder: Path,
    kind: str = "charge",
    *,
    behind: bool = False,
    planner: Callable[[Service], Planner] | None = None,
    queue: str | None = None,
    handle: Handle | None = None,
    **service: Any,
) -> AsyncIterator[Operator]:
    """A task that calls `kind` in its step `a`, on a server where an operator is; `handle` is a task that runs already.

    With `behind`, the call waits behind one of an earlier task, which hangs in the only slot of the worker; where the
    service is busy, the task waits for its next attempt.
    """
    world, commands = Service(**service), Processes(server.address, folder)
    proposals: Planner | Proposals = planner(world) if planner else [plan(step("a", kind, word="x")), DONE]
    limits: Any = {"jitter": lambda: 1.0, "slots": 1 if behind else 9}
    async with staged(client, folder, world.tools(), proposals, queue=queue, **limits) as stage:
        task = handle or await stage.start()
        one = Operator(client, world, commands, task, await find_cli(lambda _: None))
        if not handle:
            await one.called()
        if behind:
            one.handle = await stage.start()
            await one.is_pending('activity_id: "a"')
        if "busy" in service:
            await one.is_pending("SCHEDULED")
        yield one
        world.free.set()


@pytest.fixture
def place(client: Client, server: DevServer, tmp_path: Path) -> tuple[Client, DevServer, Path]:
    return client, server, tmp_path


async def test_a_step_that_is_paused_before_its_retry_is_paused_everywhere(
    place: tuple[Client, DevServer, Path],
) -> None:
    """With since when, by whom and the command that resumes it; afterwards no attempt is missing. The call may still be
    made, so the task is not reset before."""
    async with operator(*place, busy=1) as one:
        id = one.handle.id
        await one.pause("the bank {is} down")
        shown, document, listed = await one.starter("show", id), await one.document("show"), await one.starter("list")
        explained, said = await one.starter("explain", id), await one.document("explain")
        [pause] = document["paused"]
        with pytest.raises(AssertionError, match="would do 'a' again") as refused:
            await one.starter("reset", id, "--to", "a", "--yes")
        await one.resume(pause["resume"])
        ended = await one.ended()
        after = await one.document("explain")

    assert "‖ a charge" in shown and "paused" in shown.split("‖ a charge")[1].split("\n")[0]
    since, resume = pause["since"][:10], pause["resume"]
    assert f"attempt 2 of 4 is next; paused since {since}" in shown
    assert f"by ann: the bank {{is}} down\n    Resume: {resume}" in shown
    assert resume.startswith(f"temporal activity unpause --workflow-id {id} --activity-id a --address")
    assert [(one["status"], one["attempts"]) for one in document["steps"]] == [("paused", 0)]
    assert (document["status"], pause["activity"], pause["by"], pause["is_running"]) == ("running", "a", "ann", False)
    assert f"‖ `python starter.py show {id}`: a paused since" in listed
    assert f"Now  a (charge) is paused since {since}" in explained
    assert "Attempt 2 of 4 is next; the one before was told to wait (busy)" in explained
    assert f"`{resume}` resumes it." in explained
    assert (said["steps"][0]["status"], said["paused"]) == ("paused", [pause])
    assert f"resume it with `{resume}`, wait until it has ended" in str(refused.value)
    assert (ended.steps[0].attempts, ended.spent.tool_calls, one.service.calls["charge"]) == (2, 2, 2)
    assert after["cost"]["waited"] < BACKOFF and after["cost"]["lost"] == 0  # it was resumed before the backoff ended


async def test_a_call_that_is_paused_while_it_runs_is_stopped_and_made_again(
    place: tuple[Client, DevServer, Path],
) -> None:
    """The pause is no bug: two calls count as two, and whether the first was applied stays unknown."""
    async with operator(*place, hangs=1) as one:
        await one.temporal("activity", "pause")
        await one.is_pending("STATE_PAUSED")
        shown = await one.starter("show", one.handle.id)
        await asyncio.sleep(1.5)  # a shorter pause is not told from the usual delays
        await one.temporal("activity", "unpause")
        ended = await one.ended()
        text, after = await one.starter("explain", one.handle.id), await one.document("explain")

    faults = [(fault.code, fault.applied, fault.attempt, fault.decision, fault.waited) for fault in ended.faults]
    assert faults == [("interrupted", "unknown", 1, "retry", None)]
    assert "attempt 2 of 4 is next; paused since" in shown and "after interrupted" in shown
    assert (ended.status, ended.steps[0].attempts, one.service.calls["charge"]) == (TaskStatus.COMPLETED, 2, 2)
    assert "failed once (interrupted): An operator paused the call of charge while it ran." in text
    assert "stopped by an operator, which is no fault of the call" in text and "held back by an operator" in text
    assert after["cost"]["held"] > 1 and (after["cost"]["lost"], after["cost"]["unattended"]) == (0, 0)


@pytest.mark.full
async def test_a_refusal_after_a_call_that_was_cut_off_is_no_proof(place: tuple[Client, DevServer, Path]) -> None:
    """The call may have been applied before it was cut off, so "charged already" is not planned around."""
    async with operator(*place, hangs=1) as one:
        await one.temporal("activity", "reset")
        one.service.refuses = True
        ended = await one.ended()

    assert [(fault.code, fault.applied, fault.attempt) for fault in ended.faults] == [
        ("interrupted", "unknown", 1),
        ("conflict", "unknown", 2),
    ]
    assert (ended.status, ended.steps[0].attempts, ended.replans) == (TaskStatus.ESCALATED, 2, 0)


async def test_a_call_that_may_not_be_repeated_runs_to_its_end(place: tuple[Client, DevServer, Path]) -> None:
    """Cut off, its outcome would be unknown: it goes on, and says so, and nothing follows the attempt that runs."""
    async with operator(*place, "send", hangs=1) as one:
        await one.temporal("activity", "pause")
        await asyncio.sleep(3)  # the worker hears of the pause with a heartbeat
        shown, document = await one.starter("show", one.handle.id), await one.document("show")
        one.service.free.set()
        ended = await one.ended()

    assert "attempt 1 of 4 runs; paused since" in shown and "as soon as the attempt that runs has ended" in shown
    assert document["paused"][0]["is_running"]
    assert (ended.status, ended.steps[0].attempts, ended.faults) == (TaskStatus.COMPLETED, 1, ())


@pytest.mark.full
async def test_calls_before_a_reset_count(place: tuple[Client, DevServer, Path]) -> None:
    """`temporal activity reset` begins to count anew, and a task does not."""
    async with operator(*place, busy=2) as one:
        for times in (1, 2):
            await one.called(times)
            await one.is_pending("SCHEDULED")
            await one.temporal("activity", "reset")
        ended = await one.ended()
        text = await one.starter("explain", one.handle.id)

    assert (ended.steps[0].attempts, ended.spent.tool_calls, one.service.calls["charge"]) == (3, 3, 3)
    assert [(fault.code, fault.attempt) for fault in ended.faults] == [("busy", 1), ("busy", 2)]
    assert "a (charge) was told to wait twice (busy): The service is busy." in text
    assert "without a worker" not in text


@pytest.mark.full
@pytest.mark.parametrize("moved", [False, True], ids=["expired", "moved"])
async def test_a_step_that_is_paused_beyond_its_deadline(place: tuple[Client, DevServer, Path], moved: bool) -> None:
    """It is said before, with the command that saves it; without that it fails, and its calls count as they were."""
    async with operator(*place, busy=1) as one:
        await one.temporal("activity", "pause")
        await one.temporal("activity", "update-options", "--schedule-to-close-timeout", "2s")
        await asyncio.sleep(3)
        shown, explained = await one.starter("show", one.handle.id), await one.starter("explain", one.handle.id)
        [pause] = (await one.document("show"))["paused"]
        if moved:
            await one.resume(pause["extend"])
        await one.resume(pause["resume"])
        ended = await one.ended()
        after = await one.starter("explain", one.handle.id)

    assert "its call fails (timeout). First: " + pause["extend"] in shown
    assert f"its call fails (timeout), unless `{pause['extend']}` comes first." in explained
    assert pause["extend"].startswith("temporal activity update-options --workflow-id")
    assert "--schedule-to-close-timeout 25h" in pause["extend"]
    expired = [(fault.attempt, fault.applied, fault.decision) for fault in ended.faults if fault.code != "busy"]
    assert expired == ([] if moved else [(1, "none", "wait")])
    assert ("The step's deadline passed before charge was called again: an operator had paused it" in after) != moved
    assert (ended.status, ended.steps[0].attempts, one.service.calls["charge"]) == (TaskStatus.COMPLETED, 2, 2)


@pytest.mark.full
@pytest.mark.parametrize("dies", [True, False], ids=["its deadline passes", "it is resumed"])
async def test_a_step_that_is_paused_before_its_first_call_was_never_called(
    place: tuple[Client, DevServer, Path], dies: bool
) -> None:
    """Its outcome is known although the call may not be repeated: it is made after all. The time of the pause is an
    operator's, and is not counted as a time without a worker."""
    async with operator(*place, "send", behind=True, hangs=1) as one:
        await one.temporal("activity", "pause")
        document = await one.document("show")
        if dies:
            await one.temporal("activity", "update-options", "--schedule-to-close-timeout", "2s")
        await asyncio.sleep(3)
        await one.temporal("activity", "unpause")
        await asyncio.sleep(1)
        one.service.free.set()
        ended = await one.ended()
        text, after = await one.starter("explain", one.handle.id), await one.document("explain")

    expired = [(one.code, one.attempt, one.applied, one.decision) for one in ended.faults]
    assert (document["steps"][0]["status"], expired) == ("paused", [("timeout", 0, "none", "wait")] * dies)
    assert (ended.status, ended.steps[0].attempts, one.service.calls["send"]) == (TaskStatus.COMPLETED, 1, 2)
    if not dies:
        assert after["cost"]["held"] > 3 and after["cost"]["unattended"] == 0
        assert "a (send) finished at its first attempt" in text and "an operator held it back for" in text


@pytest.mark.full
@pytest.mark.parametrize("kind", ["charge", "send"])
async def test_a_task_with_a_paused_call_can_be_stopped(place: tuple[Client, DevServer, Path], kind: str) -> None:
    """At once where no attempt runs; a call that goes on during the pause is waited for."""
    async with operator(*place, kind, hangs=1) as one:
        await one.temporal("activity", "pause")
        await asyncio.sleep(3)
        await one.starter("cancel", one.handle.id)
        await asyncio.sleep(2)
        one.service.free.set()
        ended = await one.ended()

    status = StepStatus.COMPLETED if kind == "send" else StepStatus.CANCELLED
    assert (ended.status, ended.steps[0].status) == (TaskStatus.CANCELLED, status)


@pytest.mark.full
async def test_who_follows_a_task_sees_the_pause(place: tuple[Client, DevServer, Path]) -> None:
    """In the live view, and as an event; both go on when the step is resumed."""
    async with operator(*place, busy=1) as one:
        id, address = one.handle.id, {"TEMPORAL_ADDRESS": place[1].address}
        events = asyncio.create_task(one.starter("show", id, "--follow", "--jsonl"))
        with Terminal(starter(ROOT, "show", id, "--follow"), address, ROOT) as window:
            await window.until("attempt 2 of 4")
            await one.temporal("activity", "pause")
            await window.until("Resume: temporal activity unpause")
            await asyncio.sleep(1)  # a follower looks once a second
            await one.temporal("activity", "unpause")
            code = await window.ended()
        lines = [json.loads(line) for line in (await events).splitlines()]

    assert code == 0 and "Completed" in "\n".join(window.shown.text)
    assert [line["activity"] for line in lines if line["event"] == "pause"] == ["a"]
    statuses = [line["status"] for line in lines if line["event"] == "step"]
    assert statuses.index("paused") < statuses.index("completed")


class Thinker(ScriptedPlanner):
    """A planner that thinks for long at its first request."""

    def __init__(self, service: Service) -> None:
        super().__init__([plan(step("a", "charge")), DONE])
        self._service = service

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposal:
        await self._service.call("plan", "")
        return await super().propose(situation, kinds)


@pytest.mark.full
async def test_the_planner_can_be_paused(place: tuple[Client, DevServer, Path]) -> None:
    """No step is running then; the pause and the commands are told as those of a step."""
    async with operator(*place, planner=Thinker, hangs=1) as one:
        await one.temporal("activity", "pause", activity="plan:1")
        await one.is_pending("STATE_PAUSED")
        shown, document = await one.starter("show", one.handle.id), await one.document("show")
        explained = await one.starter("explain", one.handle.id)
        await one.resume(document["paused"][0]["resume"])
        ended = await one.ended()
        after = await one.starter("explain", one.handle.id)

    assert "‖ plan is paused since" in shown and "asking the planner" not in shown
    assert [pause["activity"] for pause in document["paused"]] == ["plan:1"]
    assert "The planner is paused since" in explained
    assert "The planner (request 1) failed once (interrupted): An operator paused the call of plan" in after
    assert (ended.status, one.service.calls["plan"]) == (TaskStatus.COMPLETED, 3)


@pytest.mark.full
async def test_a_pause_outlasts_the_worker(place: tuple[Client, DevServer, Path]) -> None:
    """It is kept by the server: with another worker, or after a reset of the task, all is as before."""
    client, server, folder = place
    async with operator(*place, busy=1, queue=(queue := f"queue-{uuid.uuid4().hex[:12]}")) as one:
        await one.temporal("activity", "pause")
        handle = one.handle
    async with operator(client, server, folder, queue=queue, handle=handle) as other:
        document = await other.document("show")
        await other.temporal("activity", "unpause")
        ended = await other.ended()

    assert [step["status"] for step in document["steps"]] == ["paused"]
    assert (ended.status, ended.steps[0].attempts) == (TaskStatus.COMPLETED, 2)
