"""Cancelling a task, on a real server: it reaches the tool, it is quick, and nothing that was done is lost."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from temporalio.client import WorkflowExecutionStatus

from activities.toolbox.declare.kind import Kind
from replan import Busy, Refused, Tool, ToolError, Unreachable, tool
from tests.harness import DONE, Proposals, outcome, plan, step
from tests.workflows.history import Handle, kinds, until
from tests.workflows.props import Said, Stages, Word, echo, played
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.planning.situation import Situation
from workflows.plans.proposal import NewSteps


async def cancelled(handle: Handle) -> Outcome:
    """Cancel and wait for the end."""
    await handle.cancel()
    async with asyncio.timeout(20):
        return await outcome(handle)


class Held:
    """Hangs until it is cancelled, and then answers that with an error or a text, or lets it through."""

    def __init__(self, answer: BaseException | str | None = None) -> None:
        """Nothing was called yet."""
        self.answer, self.begun, self.called, self.noticed = answer, asyncio.Event(), list[str](), asyncio.Event()

    async def hang(self, word: str = "") -> Said:
        """Hang."""
        self.called.append(word)
        self.begun.set()
        try:
            await asyncio.sleep(25)
        except asyncio.CancelledError as error:
            self.noticed.set()
            if isinstance(self.answer, str):
                return Said(said=self.answer)
            raise (self.answer or error) from None
        return Said(said="never")

    def tool(self, **options: Any) -> Tool[..., Any]:
        """A tool that does so."""

        @tool.read(**options)
        async def hangs(args: Word) -> Said:
            """Hang until cancelled."""
            return await self.hang(args.word)

        return hangs


@pytest.mark.parametrize(
    ("answer", "became"),
    [
        (None, (StepStatus.CANCELLED, None)),
        ("finished all the same", (StepStatus.COMPLETED, {"said": "finished all the same"})),
    ],
)
async def test_a_cancel_reaches_the_tool_and_keeps_what_was_finished(
    stages: Stages, answer: str | None, became: tuple[StepStatus, Any]
) -> None:
    """Within seconds; the task closes as Canceled with its outcome in the memo, and nothing more is started.

    A tool that ends normally in spite of the cancel is completed: what was done was done.
    """
    held = Held(answer)
    steps = plan(step("a", "echo", word="kept"), step("b", "hangs", "a"), step("c", "echo", "b"))
    async with stages([echo, held.tool()], [steps, DONE]) as stage:
        handle = await stage.start()
        await held.begun.wait()
        ended = await cancelled(handle)
        status = (await handle.describe()).status

    assert held.noticed.is_set() and await kinds(handle) == ["catalogue", "plan", "echo", "hangs"]
    assert (status, ended.status, ended.code) == (WorkflowExecutionStatus.CANCELED, TaskStatus.CANCELLED, "cancelled")
    assert [(one.status, one.result) for one in ended.steps] == [
        (StepStatus.COMPLETED, {"said": "kept"}),
        became,
        (StepStatus.SKIPPED, None),
    ]


async def test_a_cancel_waits_neither_for_a_thread_that_blocks_nor_for_a_backoff(stages: Stages) -> None:
    """A plain def cannot be interrupted: the boundary lets go of it; between two attempts nothing runs."""

    @tool.read
    def blocks(args: Word) -> Said:
        """Block a thread."""
        time.sleep(6)
        return Said(said="late")

    called = list[str]()
    busy = played("busy", Busy("Not now.", retry_after=50), called=called)
    async with stages([blocks, busy], [plan(step("a", "blocks"), step("b", "busy")), DONE]) as stage:
        handle = await stage.start()
        await until(handle, lambda now: len(now.with_status(StepStatus.RUNNING)) == 2 and bool(called))
        began = time.monotonic()
        ended = await cancelled(handle)

    assert (ended.status, [one.status for one in ended.steps]) == (TaskStatus.CANCELLED, [StepStatus.CANCELLED] * 2)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("evasion", "retry"),
    [
        (Busy("Not now.", retry_after=3600), "standard"),
        pytest.param(Unreachable("The line is cut."), "standard", marks=pytest.mark.full),
        pytest.param(Unreachable("The line is cut."), "once", marks=pytest.mark.full),
    ],
)
async def test_a_tool_that_answers_a_cancel_with_a_fault_does_not_hold_up_the_end(
    stages: Stages, evasion: ToolError, retry: Literal["standard", "once"]
) -> None:
    """The cancel was delivered once: no timer that would run its full hour, and no fallback, is started after it."""
    held = Held(evasion)
    async with stages([held.tool(fallback=echo, retry=retry), echo], [plan(step("a", "hangs")), DONE]) as stage:
        handle = await stage.start()
        await held.begun.wait()
        ended = await cancelled(handle)

    assert (ended.status, ended.steps[0].status) == (TaskStatus.CANCELLED, StepStatus.CANCELLED)
    assert await kinds(handle) == ["catalogue", "plan", "hangs"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        pytest.param(Busy("Not now.", retry_after=3600), marks=pytest.mark.full),
        pytest.param("a plan", marks=pytest.mark.full),
    ],
    ids=repr,
)
async def test_a_cancel_reaches_the_planner(stages: Stages, answer: BaseException | str | None) -> None:
    """A model that thinks for minutes is an activity like any other; whatever it answers to the cancel is void."""
    held = Held(answer)

    class Thinking:
        name = "thinking"

        async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps:
            """Think until cancelled, then answer."""
            await held.hang()
            return plan(step("a", "echo"))

    async with stages([echo], Thinking()) as stage:
        handle = await stage.start()
        await held.begun.wait()
        ended = await cancelled(handle)

    assert (ended.status, ended.revisions, ended.steps) == (TaskStatus.CANCELLED, (), ())


@pytest.mark.parametrize("refusals", [1, pytest.param(2, marks=pytest.mark.full)])
async def test_a_cancel_ends_the_looking(stages: Stages, refusals: int) -> None:
    """A look that swallows the cancel is the last one: no second look, no replan."""
    held = Held("seen")
    look = held.tool()
    refuses = played("refuses", Refused("No."), declare=tool.read(observe=look))
    steps = plan(*(step(f"a{number}", "refuses", word=f"x{number}") for number in range(refusals)))
    async with stages([look, refuses], [steps, DONE]) as stage:
        handle = await stage.start()
        await held.begun.wait()
        ended = await cancelled(handle)

    assert (ended.status, held.called, "replan" in await kinds(handle)) == (TaskStatus.CANCELLED, ["x0"], False)


@pytest.mark.full
async def test_a_cancel_of_a_task_that_is_stopping_already_does_not_lose_the_outcome(stages: Stages) -> None:
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
    async with stages([echo, slow_to_stop], script) as stage:
        handle = await stage.start(deadline=1)
        await stopping.wait()
        ended = await cancelled(handle)

    assert (ended.status, ended.code) == (TaskStatus.OVER_BUDGET, "deadline")
    assert [one.status for one in ended.steps] == [StepStatus.COMPLETED, StepStatus.CANCELLED]
