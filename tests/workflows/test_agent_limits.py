"""What a task may spend, on a real server: tool calls, replans, time, and how much at once."""

import asyncio
import uuid

import pytest

from client.start import build_task
from replan import Refused, Unreachable, tool
from tests.harness import DONE, Proposals, Stage, outcome, plan, step
from tests.workflows.history import events, kinds, timers
from tests.workflows.props import Recording, Said, Stages, Word, echo, played
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.calls.execution import MAX_PARALLEL

refuse = played("refuse", Refused("No."))
FRUITLESS = [plan(step(f"a{number}", "refuse", word=str(number))) for number in range(9)]


def statuses(ended: Outcome) -> dict[str, StepStatus]:
    """How each step ended."""
    return {one.id: one.status for one in ended.steps}


async def test_two_plans_in_a_row_that_finish_nothing_go_to_a_person(stages: Stages) -> None:
    """Replanning must get somewhere: two fruitless replans in a row end it, whatever is left."""
    ended = await stages.run([refuse], FRUITLESS, replans=8, fruitless=2)

    assert (ended.status, ended.code, ended.replans) == (TaskStatus.ESCALATED, "no_progress", 2)
    assert "the last fault was a2: No." in ended.reason


@pytest.mark.full
async def test_the_number_of_replans_is_the_limit_of_a_task_that_may_go_on(stages: Stages) -> None:
    """`--replans 4` alone allows four new plans, although none finishes a step; a finished step is progress.

    Without replans the first refusal ends the task: the planner is not even asked, nor the world looked at.
    """
    fruitful = [
        plan(step(f"done{number}", "echo"), step(f"b{number}", "refuse", f"done{number}", word=f"b{number}"))
        for number in range(9)
    ]
    script: Proposals = [proposal for pair in zip(fruitful, FRUITLESS, strict=True) for proposal in pair]
    given = await stages.run([refuse], FRUITLESS, build_task(text="a task", limits={"replans": 4}))
    progress = await stages.run([refuse, echo], script, replans=5)
    none, handle = await stages.ended(
        [refuse, echo], [plan(step("a", "echo", word="x"), step("b", "refuse", "a")), DONE], replans=0
    )

    assert [(one.status, one.code, one.replans) for one in (given, progress, none)] == [
        (TaskStatus.OVER_BUDGET, "replans", replans) for replans in (4, 5, 0)
    ]
    assert "the last fault was a4: No." in given.reason.replace("The", "the")
    assert await kinds(handle) == ["catalogue", "plan", "echo", "refuse"]


async def test_a_task_ends_when_its_tool_calls_are_used_up_and_keeps_what_it_has(stages: Stages) -> None:
    """Retries are tool calls: two for the first step, one for the second, none for the third."""
    steps = plan(step("a", "flaky", word="x"), step("b", "echo", "a", word="y"), step("c", "echo", "b"))
    flaky = played("flaky", Unreachable("The line is cut."), None)
    ended = await stages.run([flaky, echo], [steps, DONE], tool_calls=3)

    assert (ended.status, ended.code, ended.spent.tool_calls) == (TaskStatus.OVER_BUDGET, "tool_calls", 3)
    assert statuses(ended) == {"a": StepStatus.COMPLETED, "b": StepStatus.COMPLETED, "c": StepStatus.SKIPPED}


@pytest.mark.full
async def test_two_tool_calls_are_two(stages: Stages) -> None:
    """A step that was tried twice has failed, and is not called skipped; two steps may use both; three go back."""
    cut = played("cut", Unreachable("The line is cut."))
    tried = await stages.run([cut], [plan(step("a", "cut")), DONE], tool_calls=2)
    planner = Recording(
        plan(*(step(id, "echo") for id in "abc")), plan(step("d", "echo"), step("e", "echo", "d")), DONE
    )
    ended = await stages.run([echo], planner, tool_calls=2)

    assert (tried.status, tried.code, tried.spent.tool_calls) == (TaskStatus.OVER_BUDGET, "tool_calls", 2)
    assert (tried.steps[0].status, tried.steps[0].attempts) == (StepStatus.FAILED, 2)
    assert [one.text for one in planner.told[1].rejected] == ["3 steps, but only 2 tool calls are left"]
    assert statuses(ended) == dict.fromkeys("de", StepStatus.COMPLETED)
    assert (ended.status, ended.spent.tool_calls) == (TaskStatus.COMPLETED, 2)


async def test_parallel_steps_wait_for_tool_calls_that_a_sibling_gives_back(stages: Stages) -> None:
    """What is reserved and not needed is free again: no step is dropped while one may still come."""
    ended = await stages.run([echo], [plan(*(step(f"a{number}", "echo") for number in range(6))), DONE], tool_calls=6)

    assert (ended.status, ended.spent.tool_calls) == (TaskStatus.COMPLETED, 6)


async def test_a_deadline_ends_the_task_and_cancels_what_runs(stages: Stages) -> None:
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
    ended, handle = await stages.ended([hangs, echo], script, deadline=1)

    assert (ended.status, ended.code, ended.reason) == (
        TaskStatus.OVER_BUDGET,
        "deadline",
        "The deadline of 1 s passed before the task was done: give more, e.g. --deadline 2.",
    )
    assert list(statuses(ended).values()) == [StepStatus.COMPLETED, StepStatus.CANCELLED, StepStatus.SKIPPED]
    assert noticed.is_set() and [one.summary for one in await timers(handle)] == ["the task's deadline"]


@pytest.mark.full
async def test_the_deadline_counts_from_the_start_of_the_task(stages: Stages) -> None:
    """A task that no worker took in time is over, and calls nothing."""
    queue = f"late-{uuid.uuid4().hex}"
    handle = await Stage(stages.client, queue).start(deadline=0.5)
    await asyncio.sleep(1)
    async with stages([echo], [plan(step("a", "echo")), DONE], queue=queue):
        ended = await outcome(handle)

    assert (ended.status, ended.code, ended.steps) == (TaskStatus.OVER_BUDGET, "deadline", ())
    assert set(await kinds(handle)) <= {"catalogue"}


async def test_independent_steps_run_at_the_same_time(stages: Stages) -> None:
    """Both are scheduled before either is done."""
    both = asyncio.Barrier(2)

    @tool.read
    async def meet(args: Word) -> Said:
        """Wait for the other."""
        await both.wait()
        return Said(said="met")

    ended, handle = await stages.ended([meet], [plan(step("a", "meet"), step("b", "meet")), DONE])
    names = [(one.WhichOneof("attributes") or "").removesuffix("_event_attributes") for one in await events(handle)]
    order = [one for one in names if one in ("activity_task_scheduled", "activity_task_completed")]

    assert ended.status is TaskStatus.COMPLETED
    assert order[2:6] == ["activity_task_scheduled"] * 2 + ["activity_task_completed"] * 2


@pytest.mark.full
async def test_at_most_twenty_steps_run_at_once(stages: Stages) -> None:
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

    ended = await stages.run([count], [plan(*(step(f"a{number}", "count") for number in range(25))), DONE])

    assert (ended.status, most, len(ended.steps)) == (TaskStatus.COMPLETED, MAX_PARALLEL, 25)


@pytest.mark.full
async def test_parallel_steps_of_one_kind_share_its_retries_as_they_need_them(stages: Stages) -> None:
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
    ended = await stages.run([flaky], [steps, DONE])

    assert (ended.replans, set(statuses(ended).values())) == (0, {StepStatus.COMPLETED})
