"""Cancelling a task, on a real server: it reaches the tool, it is quick, and nothing that was done is lost."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from activities.toolbox.declare.kind import Kind
from replan import Busy, Refused, ToolError, Unreachable, tool
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.workflows.history import Handle, kinds, until
from tests.workflows.props import Said, Word, echo
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.planning.situation import Situation
from workflows.plans.proposal import NewSteps


async def cancelled(handle: Handle) -> Outcome:
    """Cancel and wait for the end."""
    await handle.cancel()
    async with asyncio.timeout(20):
        return await outcome(handle)


class Running:
    """A condition on progress: a step runs."""

    def __init__(self, id: str) -> None:
        """Wait for the step `id`."""
        self._id = id

    def __call__(self, progress: Progress) -> bool:
        """Look."""
        return any(record.step.id == self._id for record in progress.with_status(StepStatus.RUNNING))


async def test_a_cancel_reaches_the_tool_and_keeps_what_was_finished(client: Client, tmp_path: Path) -> None:
    """The tool gets a CancelledError within seconds; the task closes as Canceled with its outcome in the memo."""
    begun, noticed = asyncio.Event(), asyncio.Event()

    @tool.read
    async def hangs(args: Word) -> Said:
        """Hang until cancelled."""
        begun.set()
        try:
            await asyncio.sleep(25)
        except asyncio.CancelledError:
            noticed.set()
            raise
        return Said(said="never")

    script: Proposals = [
        plan(step("a", "echo", word="kept"), step("b", "hangs", "a"), step("c", "echo", "b")),
        DONE,
    ]
    async with staged(client, tmp_path, [echo, hangs], script) as stage:
        handle = await stage.start()
        await begun.wait()
        ended = await cancelled(handle)
        status = (await handle.describe()).status

    assert noticed.is_set()
    assert (status, ended.status, ended.code) == (WorkflowExecutionStatus.CANCELED, TaskStatus.CANCELLED, "cancelled")
    assert [(one.status, one.result) for one in ended.steps] == [
        (StepStatus.COMPLETED, {"said": "kept"}),
        (StepStatus.CANCELLED, None),
        (StepStatus.SKIPPED, None),
    ]


async def test_a_cancel_does_not_wait_for_a_thread_that_blocks(client: Client, tmp_path: Path) -> None:
    """A plain def cannot be interrupted: the boundary lets go of it, and the task ends."""

    @tool.read
    def blocks(args: Word) -> Said:
        """Block a thread."""
        time.sleep(6)
        return Said(said="late")

    async with staged(client, tmp_path, [blocks], [plan(step("a", "blocks")), DONE]) as stage:
        handle = await stage.start()
        await until(handle, Running("a"))
        ended = await cancelled(handle)

    assert (ended.status, ended.steps[0].status) == (TaskStatus.CANCELLED, StepStatus.CANCELLED)


async def test_a_tool_that_ends_normally_in_spite_of_the_cancel_is_completed(client: Client, tmp_path: Path) -> None:
    """What was done was done: the step counts, nothing more is started, and the task is still cancelled."""
    begun = asyncio.Event()

    @tool.read
    async def stubborn(args: Word) -> Said:
        """Swallow the cancel."""
        begun.set()
        try:
            await asyncio.sleep(25)
        except asyncio.CancelledError:
            return Said(said="finished all the same")
        return Said(said="never")

    script: Proposals = [plan(step("a", "stubborn"), step("b", "echo", "a")), DONE]
    async with staged(client, tmp_path, [stubborn, echo], script) as stage:
        handle = await stage.start()
        await begun.wait()
        ended = await cancelled(handle)
        scheduled = await kinds(handle)

    assert ended.status is TaskStatus.CANCELLED
    assert [(one.status, one.result) for one in ended.steps] == [
        (StepStatus.COMPLETED, {"said": "finished all the same"}),
        (StepStatus.SKIPPED, None),
    ]
    assert scheduled == ["catalogue", "plan", "stubborn"]


@pytest.mark.parametrize(
    ("evasion", "retry"),
    [
        (Busy("Not now.", retry_after=3600), "standard"),
        pytest.param(Unreachable("The line is cut."), "standard", marks=pytest.mark.full),
        pytest.param(Unreachable("The line is cut."), "once", marks=pytest.mark.full),
    ],
)
async def test_a_tool_that_answers_a_cancel_with_a_fault_does_not_hold_up_the_end(
    client: Client, tmp_path: Path, evasion: ToolError, retry: Literal["standard", "once"]
) -> None:
    """The cancel was delivered once: no timer that would run its full hour, and no fallback, is started after it."""
    begun = asyncio.Event()

    @tool.read(fallback=echo, retry=retry)
    async def evasive(args: Word) -> Said:
        """Turn the cancel into something else."""
        begun.set()
        try:
            await asyncio.sleep(25)
        except asyncio.CancelledError:
            raise evasion from None
        return Said(said="never")

    async with staged(client, tmp_path, [evasive, echo], [plan(step("a", "evasive")), DONE]) as stage:
        handle = await stage.start()
        await begun.wait()
        ended = await cancelled(handle)
        scheduled = await kinds(handle)

    assert (ended.status, ended.steps[0].status) == (TaskStatus.CANCELLED, StepStatus.CANCELLED)
    assert scheduled == ["catalogue", "plan", "evasive"]


async def test_a_cancel_ends_the_backoff_of_a_retry(client: Client, tmp_path: Path) -> None:
    """Nothing runs between two attempts, so there is nothing to wait for."""

    @tool.read
    async def busy(args: Word) -> Said:
        """Be busy for less than what a timer is for."""
        tried.set()
        raise Busy("Not now.", retry_after=50)

    tried = asyncio.Event()
    async with staged(client, tmp_path, [busy], [plan(step("a", "busy")), DONE]) as stage:
        handle = await stage.start()
        await tried.wait()
        ended = await cancelled(handle)

    assert (ended.status, ended.steps[0].status) == (TaskStatus.CANCELLED, StepStatus.CANCELLED)


@pytest.mark.parametrize(
    "answer",
    [
        asyncio.CancelledError(),
        pytest.param(Busy("Not now.", retry_after=3600), marks=pytest.mark.full),
        pytest.param(None, marks=pytest.mark.full),
    ],
    ids=repr,
)
async def test_a_cancel_reaches_the_planner(client: Client, tmp_path: Path, answer: BaseException | None) -> None:
    """A model that thinks for minutes is an activity like any other; whatever it answers to the cancel is void."""
    begun = asyncio.Event()

    class Thinking:
        name = "thinking"

        async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps:
            """Think until cancelled, then answer."""
            begun.set()
            try:
                await asyncio.sleep(25)
            except asyncio.CancelledError:
                if answer is not None:
                    raise answer from None
            return plan(step("a", "echo"))

    async with staged(client, tmp_path, [echo], Thinking()) as stage:
        handle = await stage.start()
        await begun.wait()
        ended = await cancelled(handle)

    assert (ended.status, ended.revisions, ended.steps) == (TaskStatus.CANCELLED, (), ())


@pytest.mark.parametrize("refusals", [1, pytest.param(2, marks=pytest.mark.full)])
async def test_a_cancel_ends_the_looking(client: Client, tmp_path: Path, refusals: int) -> None:
    """A look that swallows the cancel is the last one: no second look, no replan."""
    looked = list[str]()
    begun = asyncio.Event()

    @tool.read
    async def look(args: Word) -> Said:
        """Swallow the cancel."""
        looked.append(args.word)
        begun.set()
        try:
            await asyncio.sleep(25)
        except asyncio.CancelledError:
            return Said(said="seen")
        return Said(said="never")

    @tool.read(observe=look)
    async def refuses(args: Word) -> Said:
        """Be refused."""
        raise Refused("No.")

    steps = plan(*(step(f"a{number}", "refuses", word=f"x{number}") for number in range(refusals)))
    async with staged(client, tmp_path, [look, refuses], [steps, DONE]) as stage:
        handle = await stage.start()
        await begun.wait()
        ended = await cancelled(handle)
        scheduled = await kinds(handle)

    assert (ended.status, looked) == (TaskStatus.CANCELLED, ["x0"])
    assert "replan" not in scheduled


@pytest.mark.full
async def test_a_cancel_of_a_task_that_is_stopping_already_does_not_lose_the_outcome(
    client: Client, tmp_path: Path
) -> None:
    """The deadline has passed, a tool takes its time to stop, somebody cancels: the account is closed all the same."""
    stopping = asyncio.Event()

    @tool.read
    async def slow_to_stop(args: Word) -> Said:
        """Clean up for a while when cancelled."""
        try:
            await asyncio.sleep(25)
        except asyncio.CancelledError:
            stopping.set()
            await asyncio.sleep(1.5)
            raise
        return Said(said="never")

    script: Proposals = [plan(step("a", "echo", word="kept"), step("b", "slow_to_stop", "a")), DONE]
    async with staged(client, tmp_path, [echo, slow_to_stop], script) as stage:
        handle = await stage.start(deadline=1)
        await stopping.wait()
        ended = await cancelled(handle)

    assert (ended.status, ended.code) == (TaskStatus.OVER_BUDGET, "deadline")
    assert [one.status for one in ended.steps] == [StepStatus.COMPLETED, StepStatus.CANCELLED]
