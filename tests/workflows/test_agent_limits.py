"""What a task may spend, on a real server: tool calls, replans, time, and how much at once."""

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from client.start import build_task
from replan import Refused, Tool, Unreachable, tool
from tests.harness import DONE, Proposals, Stage, outcome, plan, staged, step
from tests.workflows.history import events, kinds, timers
from tests.workflows.props import Recording, Said, Word, echo
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.calls.execution import MAX_PARALLEL


@tool.read
async def refuse(args: Word) -> Said:
    """Be refused."""
    raise Refused("No.")


def statuses(ended: Outcome) -> dict[str, StepStatus]:
    """How each step ended."""
    return {one.id: one.status for one in ended.steps}


def fails_first(times: int) -> Tool[..., Any]:
    """A tool whose first calls do not get through."""
    calls = list[Word]()

    @tool.read
    async def flaky(args: Word) -> Said:
        """Fail at first."""
        calls.append(args)
        if len(calls) <= times:
            raise Unreachable("The line is cut.")
        return Said(said=args.word)

    return flaky


async def test_two_plans_in_a_row_that_finish_nothing_go_to_a_person(client: Client, tmp_path: Path) -> None:
    """Replanning must get somewhere: two fruitless replans in a row end it, whatever is left."""
    script: Proposals = [plan(step(f"a{number}", "refuse", word=str(number))) for number in range(9)]
    async with staged(client, tmp_path, [refuse], script) as stage:
        ended = await stage.run(replans=8, fruitless=2)

    assert (ended.status, ended.code, ended.replans) == (TaskStatus.ESCALATED, "no_progress", 2)
    assert "the last fault was a2: No." in ended.reason


@pytest.mark.full
async def test_a_number_of_replans_that_the_user_gave_rules_alone(client: Client, tmp_path: Path) -> None:
    """`--replans 4` allows four new plans, although none of them finishes a step."""
    script: Proposals = [plan(step(f"a{number}", "refuse", word=str(number))) for number in range(9)]
    async with staged(client, tmp_path, [refuse], script) as stage:
        ended = await stage.run(build_task(text="a task", limits={"replans": 4}))

    assert (ended.status, ended.code, ended.replans) == (TaskStatus.OVER_BUDGET, "replans", 4)
    assert "the last fault was a4: No." in ended.reason.replace("The", "the")


@pytest.mark.full
async def test_a_plan_that_finishes_a_step_is_progress(client: Client, tmp_path: Path) -> None:
    """The count of fruitless replans starts anew with it; then the number of replans itself is the limit."""
    fruitless = [plan(step(f"a{number}", "refuse", word=f"a{number}")) for number in range(9)]
    fruitful = [
        plan(step(f"done{number}", "echo"), step(f"b{number}", "refuse", f"done{number}", word=f"b{number}"))
        for number in range(9)
    ]
    script: Proposals = [proposal for pair in zip(fruitful, fruitless, strict=True) for proposal in pair]
    async with staged(client, tmp_path, [refuse, echo], script) as stage:
        ended = await stage.run(replans=5)

    assert (ended.status, ended.code, ended.replans) == (TaskStatus.OVER_BUDGET, "replans", 5)


@pytest.mark.full
async def test_a_task_without_replans_ends_at_the_first_refusal(client: Client, tmp_path: Path) -> None:
    """The planner is not even asked, nor the world looked at."""
    script: Proposals = [plan(step("a", "echo", word="x"), step("b", "refuse", "a")), DONE]
    async with staged(client, tmp_path, [refuse, echo], script) as stage:
        handle = await stage.start(replans=0)
        ended = await outcome(handle)
        scheduled = await kinds(handle)

    assert (ended.status, ended.code, ended.replans) == (TaskStatus.OVER_BUDGET, "replans", 0)
    assert scheduled == ["catalogue", "plan", "echo", "refuse"]


async def test_a_task_ends_when_its_tool_calls_are_used_up_and_keeps_what_it_has(
    client: Client, tmp_path: Path
) -> None:
    """Retries are tool calls: two for the first step, one for the second, none for the third."""
    steps = plan(step("a", "flaky", word="x"), step("b", "echo", "a", word="y"), step("c", "echo", "b"))
    async with staged(client, tmp_path, [fails_first(1), echo], [steps, DONE]) as stage:
        ended = await stage.run(tool_calls=3)

    assert (ended.status, ended.code, ended.spent.tool_calls) == (TaskStatus.OVER_BUDGET, "tool_calls", 3)
    assert statuses(ended) == {"a": StepStatus.COMPLETED, "b": StepStatus.COMPLETED, "c": StepStatus.SKIPPED}


@pytest.mark.full
async def test_a_step_that_was_tried_is_not_called_skipped_when_the_tool_calls_run_out(
    client: Client, tmp_path: Path
) -> None:
    """It was called twice and got no result: that is a failure, with its faults, and the task is over its budget."""
    async with staged(client, tmp_path, [fails_first(9)], [plan(step("a", "flaky")), DONE]) as stage:
        ended = await stage.run(tool_calls=2)

    assert (ended.status, ended.code, ended.spent.tool_calls) == (TaskStatus.OVER_BUDGET, "tool_calls", 2)
    assert (ended.steps[0].status, ended.steps[0].attempts) == (StepStatus.FAILED, 2)


@pytest.mark.full
async def test_the_last_tool_call_may_be_used(client: Client, tmp_path: Path) -> None:
    """A limit is what may be spent, not what may almost be spent; the answer itself costs none."""
    script: Proposals = [plan(step("a", "echo"), step("b", "echo", "a")), DONE]
    async with staged(client, tmp_path, [echo], script) as stage:
        ended = await stage.run(tool_calls=2)

    assert (ended.status, ended.spent.tool_calls) == (TaskStatus.COMPLETED, 2)


async def test_parallel_steps_wait_for_tool_calls_that_a_sibling_gives_back(client: Client, tmp_path: Path) -> None:
    """What is reserved and not needed is free again: no step is dropped while one may still come."""
    steps = plan(*(step(f"a{number}", "echo") for number in range(6)))
    async with staged(client, tmp_path, [echo], [steps, DONE]) as stage:
        ended = await stage.run(tool_calls=6)

    assert (ended.status, ended.spent.tool_calls) == (TaskStatus.COMPLETED, 6)


@pytest.mark.full
async def test_a_plan_of_more_steps_than_tool_calls_goes_back(client: Client, tmp_path: Path) -> None:
    """A plan that cannot be finished is not begun."""
    planner = Recording(plan(step("a", "echo"), step("b", "echo"), step("c", "echo")), plan(step("d", "echo")), DONE)
    async with staged(client, tmp_path, [echo], planner) as stage:
        ended = await stage.run(tool_calls=2)

    assert [one.text for one in planner.told[1].rejected] == ["3 steps, but only 2 tool calls are left"]
    assert statuses(ended) == {"d": StepStatus.COMPLETED}


async def test_a_deadline_ends_the_task_and_cancels_what_runs(client: Client, tmp_path: Path) -> None:
    """What was finished stays; the tool is told; the timer says in the web UI what it is."""
    noticed = asyncio.Event()

    @tool.read
    async def hangs(args: Word) -> Said:
        """Hang until cancelled."""
        try:
            await asyncio.sleep(25)
        except asyncio.CancelledError:
            noticed.set()
            raise
        return Said(said="never")

    script: Proposals = [plan(step("a", "echo", word="x"), step("b", "hangs", "a"), step("c", "echo", "b")), DONE]
    async with staged(client, tmp_path, [hangs, echo], script) as stage:
        handle = await stage.start(deadline=1)
        ended = await outcome(handle)
        started = await timers(handle)

    assert (ended.status, ended.code, ended.reason) == (
        TaskStatus.OVER_BUDGET,
        "deadline",
        "The deadline of 1 s passed before the task was done: give more, e.g. --deadline 2.",
    )
    assert list(statuses(ended).values()) == [StepStatus.COMPLETED, StepStatus.CANCELLED, StepStatus.SKIPPED]
    assert noticed.is_set()
    assert [one.summary for one in started] == ["the task's deadline"]


@pytest.mark.full
async def test_the_deadline_counts_from_the_start_of_the_task(client: Client, tmp_path: Path) -> None:
    """A task that no worker took in time is over, and calls nothing."""
    queue = f"late-{uuid.uuid4().hex}"
    handle = await Stage(client, queue).start(deadline=0.5)
    await asyncio.sleep(1)
    async with staged(client, tmp_path, [echo], [plan(step("a", "echo")), DONE], queue=queue):
        ended = await outcome(handle)
        scheduled = await kinds(handle)

    assert (ended.status, ended.code, ended.steps) == (TaskStatus.OVER_BUDGET, "deadline", ())
    assert set(scheduled) <= {"catalogue"}


async def test_independent_steps_run_at_the_same_time(client: Client, tmp_path: Path) -> None:
    """Both are scheduled before either is done."""
    both = asyncio.Barrier(2)

    @tool.read
    async def meet(args: Word) -> Said:
        """Wait for the other."""
        await both.wait()
        return Said(said="met")

    async with staged(client, tmp_path, [meet], [plan(step("a", "meet"), step("b", "meet")), DONE]) as stage:
        handle = await stage.start()
        ended = await outcome(handle)
        order = [name for event in await events(handle) if (name := _about(event.WhichOneof("attributes")))]

    assert ended.status is TaskStatus.COMPLETED
    assert order[2:6] == ["scheduled", "scheduled", "completed", "completed"]


def _about(attributes: str | None) -> str:
    """What happened to an activity: `scheduled` or `completed`; nothing for other events."""
    found = (attributes or "").removeprefix("activity_task_").removesuffix("_event_attributes")
    return found if found in ("scheduled", "completed") else ""


@pytest.mark.full
async def test_at_most_twenty_steps_run_at_once(client: Client, tmp_path: Path) -> None:
    """Of 25 ready steps, 20 are started; the others follow as those end."""
    running, most = 0, 0
    full = asyncio.Event()

    @tool.read
    async def count(args: Word) -> Said:
        """Count how many are here at once, and leave when the room is full."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == MAX_PARALLEL:
            full.set()
        await full.wait()
        await asyncio.sleep(0.2)
        running -= 1
        return Said(said="x")

    steps = plan(*(step(f"a{number}", "count") for number in range(25)))
    async with staged(client, tmp_path, [count], [steps, DONE]) as stage:
        ended = await stage.run()

    assert (ended.status, most) == (TaskStatus.COMPLETED, MAX_PARALLEL)
    assert len(statuses(ended)) == 25


@pytest.mark.full
async def test_parallel_steps_of_one_kind_share_its_retries_as_they_need_them(client: Client, tmp_path: Path) -> None:
    """Six retries are needed and twelve are there: that siblings might need all of them is no reason to give up."""
    called = set[str]()

    @tool.read
    async def flaky(args: Word) -> Said:
        """Fail the first time for each word."""
        if args.word not in called:
            called.add(args.word)
            raise Unreachable("The line is cut.")
        return Said(said=args.word)

    steps = plan(*(step(f"a{number}", "flaky", word=str(number)) for number in range(6)))
    async with staged(client, tmp_path, [flaky], [steps, DONE]) as stage:
        ended = await stage.run()

    assert (ended.replans, set(statuses(ended).values())) == (0, {StepStatus.COMPLETED})
