"""Pure kinds, on a real server: their steps are local activities, which no task queue sees."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import BaseModel, Field
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from activities.boundary.boundary import MAX_LOCAL_RESULT
from client.history.decoder import calls_in
from replan import Refused, tool
from tests.harness import DONE, Proposals, outcome, plan, step
from tests.workflows.history import events, until
from tests.workflows.props import Stages
from tests.workflows.test_agent_missing import outdated
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus


class Number(BaseModel):
    value: int = Field(ge=0)


class Text(BaseModel):
    text: str


@tool.pure
def double(args: Number) -> Number:
    """Double a number."""
    return Number(value=2 * args.value)


@tool.pure(ensure="result.value > args.value")
def shrink(args: Number) -> Number:
    """Return a smaller number, which its condition forbids."""
    return Number(value=args.value - 1)


@tool.pure
def refuse(args: Number) -> Number:
    """Reject every number."""
    raise Refused("No such number.", code="invalid_input")


@tool.pure
def crash(args: Number) -> Number:
    """Raise what no table knows."""
    raise ZeroDivisionError


@tool.pure
def lengthen(args: Number) -> Text:
    """Return a text of that length."""
    return Text(text="a" * args.value)


@tool.read
async def echo(args: Number) -> Number:
    """Return the number."""
    return args


def chain(kind: str, count: int) -> Proposals:
    """A plan of steps `s1`, `s2` and so on; each takes the result of the step before."""
    steps = [step("s1", kind, value=1)]
    steps += [step(f"s{i}", kind, value={"$from": f"s{i - 1}", "path": "value"}) for i in range(2, count + 1)]
    return [plan(*steps), DONE]


def recorded(found: Sequence[HistoryEvent], kind: str) -> list[int]:
    """For each local activity of a kind, the completed workflow task that recorded it."""
    return [one.call.task for one in calls_in(found) if one.call.is_local and one.call.kind == kind]


def scheduled(found: Sequence[HistoryEvent], kind: str) -> int:
    """How many ordinary activities of a kind were scheduled."""
    return sum(one.activity_task_scheduled_event_attributes.activity_type.name == kind for one in found)


async def test_pure_steps_in_sequence_are_one_workflow_task(stages: Stages) -> None:
    """Each is one event, and none is scheduled; like every other step it costs a tool call, and has its result."""
    ended, handle = await stages.ended([double], chain("double", 20))
    found = await events(handle)

    tasks = recorded(found, "double")
    assert (len(tasks), len(set(tasks)), scheduled(found, "double")) == (20, 1, 0)
    assert [(one.status, one.attempts) for one in ended.steps] == [(StepStatus.COMPLETED, 1)] * 20
    last = ended.steps[-1]  # its arguments are in no event, so the client makes them from the plan
    assert (last.args, last.result, ended.spent.tool_calls) == ({"value": 2**19}, {"value": 2**20}, 20)


@pytest.mark.full
async def test_pure_and_other_steps_run_side_by_side(stages: Stages) -> None:
    """A step that needs both starts when both are completed."""
    both = step("c", "double", "b", value={"$from": "a", "path": "value"})
    script: Proposals = [plan(step("a", "double", value=1), step("b", "echo", value=1), both), DONE]
    ended = await stages.run([double, echo], script)

    assert [one.result for one in ended.steps] == [{"value": 2}, {"value": 1}, {"value": 4}]


FAULTS = {
    "refuse": ("invalid_input", "replan", TaskStatus.COMPLETED),
    "shrink": ("unexpected_result", "replan", TaskStatus.COMPLETED),
    "crash": ("bug", "escalate", TaskStatus.ESCALATED),
}


async def test_a_fault_of_a_pure_step_is_a_fault_like_others(stages: Stages) -> None:
    """After one attempt a rejection leads to a new plan, and a bug to a person."""
    then = plan(step("b", "double", value=1))
    ended = await stages.each(
        [double, refuse, shrink, crash], {kind: [plan(step("a", kind, value=1)), then, DONE] for kind in FAULTS}
    )

    for kind, one in ended.items():
        [fault] = one.faults
        assert (fault.code, fault.decision, one.status) == FAULTS[kind]
        assert (one.steps[0].attempts, fault.attempt) == (1, 1)


async def test_a_pure_step_whose_worker_was_too_slow_is_repeated_as_an_ordinary_activity(stages: Stages) -> None:
    """It has retries, and can reach another worker; the step counts the attempts of this activity alone."""
    ended_waits = threading.Semaphore(0)
    ran = list[int]()

    @tool.pure
    def stall(args: Number) -> Number:
        """Wait for a permit, the first two times."""
        ran.append(args.value)
        if len(ran) < 3:
            ended_waits.acquire(timeout=60)
        return args

    ended, handle = await stages.ended([stall], [plan(step("a", "stall", value=1)), DONE])
    found = await events(handle)
    ended_waits.release(2)

    assert (len(recorded(found, "stall")), scheduled(found, "stall"), len(ran)) == (1, 1, 3)
    assert (ended.status, ended.steps[0].attempts, ended.spent.tool_calls) == (TaskStatus.COMPLETED, 2, 2)
    assert [(one.code, one.decision) for one in ended.faults] == [("timeout", "retry")]


@pytest.mark.full
async def test_a_pure_step_that_always_waits_is_a_fault_and_no_stuck_workflow_task(stages: Stages) -> None:
    """The task goes on with a new plan, and no later plan may use the kind."""
    opened = threading.Event()

    @tool.pure
    def hang(args: Number) -> Number:
        """Wait for an event."""
        opened.wait(60)
        return args

    script: Proposals = [plan(step("a", "hang", value=1)), plan(step("b", "double", value=1)), DONE]
    ended, handle = await stages.ended([double, hang], script)
    found = await events(handle)
    opened.set()

    assert (len(recorded(found, "hang")), scheduled(found, "hang"), ended.status) == (1, 1, TaskStatus.COMPLETED)
    assert [(one.code, one.decision) for one in ended.faults] == [("timeout", "retry")] * 3 + [("timeout", "replan")]
    assert ended.faults[-1].reason.startswith("hang gave no answer within 1 s: a @tool.pure must only compute.")


@pytest.mark.full
async def test_a_result_above_the_limit_comes_from_an_ordinary_activity(stages: Stages) -> None:
    """The step completes all the same; it counts one attempt and one tool call."""
    script: Proposals = [plan(step("a", "lengthen", value=MAX_LOCAL_RESULT + 1)), DONE]
    ended, handle = await stages.ended([lengthen], script)
    found = await events(handle)

    assert (len(recorded(found, "lengthen")), scheduled(found, "lengthen")) == (1, 1)
    assert (ended.status, ended.faults, ended.steps[0].attempts, ended.spent.tool_calls) == (
        TaskStatus.COMPLETED,
        (),
        1,
        1,
    )


@pytest.mark.full
async def test_a_worker_without_the_kind_leaves_the_step_to_others(client: Client, tmp_path: Path) -> None:
    """A local activity stays on its worker, so an ordinary one follows at once; then the step waits for a worker."""
    script: Proposals = [plan(step("a", "double", value=1)), DONE]
    async with outdated(client, tmp_path, [double, echo], ["echo"], script, patience=1) as stage:
        handle = await stage.start()
        ended = await outcome(handle)
        found = await events(handle)

    assert (len(recorded(found, "double")), scheduled(found, "double")) == (2, 2)
    assert [one.decision for one in ended.faults] == ["wait", "escalate"]
    assert (ended.code, ended.steps[0].attempts) == ("missing_tool", 0)


@pytest.mark.parametrize("deadline", [None, pytest.param(1, marks=pytest.mark.full)])
async def test_a_cancel_stops_between_pure_steps(stages: Stages, deadline: float | None) -> None:
    """The server passes it on when the workflow task ends, or asks for more time; so the timer of a deadline fires."""
    begun = threading.Event()

    @tool.pure
    def slow(args: Number) -> Number:
        """Take long."""
        begun.set()
        threading.Event().wait(0.9)
        return args

    async with stages([slow], chain("slow", 30)) as stage:
        handle = await stage.start(deadline=deadline)
        await asyncio.to_thread(begun.wait)
        if deadline is None:
            await handle.cancel()
        async with asyncio.timeout(25):
            ended = await outcome(handle)

    statuses = [one.status for one in ended.steps]
    assert (ended.status, ended.code) == (
        (TaskStatus.OVER_BUDGET, "deadline") if deadline else (TaskStatus.CANCELLED, "cancelled")
    )
    assert statuses[0] is StepStatus.COMPLETED
    assert statuses[-1] in (StepStatus.CANCELLED, StepStatus.PENDING, StepStatus.SKIPPED)


async def test_a_person_can_provide_the_result_of_a_pure_tool(stages: Stages) -> None:
    """The tool is not called again, which would fail again."""
    task = Task(text="a task", on_escalation="wait")
    async with stages([crash], [plan(step("a", "crash", value=1)), DONE]) as stage:
        handle = await stage.start(task)
        await until(handle, lambda now: bool(now.open_requests))
        await handle.execute_update("provide", {"result": {"value": 4}})
        ended = await outcome(handle)

    assert (ended.status, ended.steps[0].result) == (TaskStatus.COMPLETED, {"value": 4})
