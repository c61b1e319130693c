"""What follows a transient fault, and one that the deployment caused, on a real server."""

import asyncio
import time
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from activities.boundary.attempt import FaultRaised
from activities.planning.prompts import closing_lines
from replan import Busy, NeedsPerson, Refused, Tool, tool
from tests.harness import DONE, Proposals, outcome, plan, step
from tests.workflows.history import Timer, kinds, timers, until
from tests.workflows.props import Recording, Said, Scripts, Stages, Word, echo, played
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code, Fault

busy_for_an_hour = played("busy_for_an_hour", Busy("Not now.", retry_after=3600))
# as the boundary does
behind_a_breaker = played("behind_a_breaker", FaultRaised(Fault.of(Code.CIRCUIT_OPEN, "The breaker is open.")))
without_key = played("without_key", NeedsPerson("The key was revoked: make a new one.", code="unauthorized"))
leaky = played("leaky", KeyError("password=hunter2"))
DAYS = FaultRaised(Fault.of(Code.CIRCUIT_OPEN, "It is left alone.", retry_after=2 * 86_400))
"""The breaker is open for longer than a step may wait."""
down_for_days = played("down_for_days", DAYS)
down_or_echo = played("down_or_echo", DAYS, declare=tool.read(fallback=echo))


async def test_a_short_retry_after_is_honoured_by_the_backoff(stages: Stages) -> None:
    """Busy for half a second: the same activity runs again, not sooner than the world asked for."""
    busy_once = played("busy_once", Busy("Not now.", retry_after=0.5), "now")
    ended = await stages.run([busy_once], [plan(step("a", "busy_once")), DONE])

    assert (ended.steps[0].attempts, ended.replans) == (2, 0)
    assert [(one.code, one.decision, (one.waited or 0) >= 0.5) for one in ended.faults] == [("busy", "retry", True)]


WAITED: dict[str, tuple[Tool[..., Any], Timer, int]] = {
    "busy": (busy_for_an_hour, Timer(seconds=3600, summary="a waits: busy, then again"), 1),
    "an open breaker": (behind_a_breaker, Timer(seconds=5, summary="a waits: circuit_open, then again"), 0),
}


@pytest.mark.parametrize(("kind", "timer", "attempts"), WAITED.values(), ids=WAITED)
async def test_what_takes_long_is_waited_for_on_a_named_timer_that_a_cancel_ends(
    stages: Stages, kind: Tool[..., Any], timer: Timer, attempts: int
) -> None:
    """The workflow waits, which survives every worker; the web UI says what for; nobody has to wait to the end.

    Behind an open breaker nothing was called, so neither an attempt nor a tool call is burned; a refusal is a call.
    """
    async with stages([kind], [plan(step("a", kind.__name__)), DONE]) as stage:
        handle = await stage.start()
        progress = await until(handle, lambda progress: bool(progress.with_status(StepStatus.WAITING)))
        started = await timers(handle)
        await handle.cancel()
        ended = await outcome(handle)

    assert started == [timer]
    assert (progress.records[0].attempts, progress.budget.spent.tool_calls) == (attempts, attempts)
    assert (ended.status, ended.steps[0].status) == (TaskStatus.CANCELLED, StepStatus.CANCELLED)


async def test_a_breaker_that_stays_open_leads_to_the_fallback(stages: Stages) -> None:
    """With the same arguments, and marked as what it is. Without a fallback and a further plan a person is asked."""
    scripts: dict[str, Proposals] = {
        "fallback": [plan(step("a", "down_or_echo", word="hi")), DONE],
        "alone": [plan(step("a", "down_for_days"))],
    }
    ended = await stages.each([down_or_echo, down_for_days, echo], scripts, replans=0)
    [done] = ended["fallback"].steps

    assert (done.attempts, done.kind, done.is_fallback, done.result) == (1, "echo", True, {"said": "hi"})
    assert (ended["alone"].status, ended["alone"].code) == (TaskStatus.ESCALATED, "circuit_open")


async def test_without_a_fallback_the_planner_is_told_that_the_tool_is_down(stages: Stages) -> None:
    """It plans around the tool, and knows why."""
    planner = Recording(plan(step("a", "down_for_days")), plan(step("b", "echo", word="hi")), DONE)
    ended = await stages.run([down_for_days, echo], planner)
    told = planner.told[1]

    assert (ended.status, [one.attempts for one in ended.steps]) == (TaskStatus.COMPLETED, [0, 1])
    assert (told.down, [fault.reason for fault in told.faults]) == (("down_for_days",), ["It is left alone."])
    assert "These kinds are down and may not be used: down_for_days." in closing_lines(told)


@pytest.mark.full
async def test_a_step_keeps_waiting_although_a_sibling_holds_all_tool_calls(stages: Stages) -> None:
    """What a sibling has reserved comes back, so it does not make another step give up."""
    go_on = asyncio.Event()

    @tool.read(timeout=60)
    async def slow(args: Word) -> Said:
        """Hold a reservation until the test has seen enough."""
        await go_on.wait()
        return Said(said="done")

    steps = plan(step("holds", "slow"), step("a", "busy_for_an_hour"))
    async with stages([busy_for_an_hour, slow], [steps, DONE]) as stage:
        handle = await stage.start(tool_calls=5)
        progress = await until(handle, lambda progress: bool(progress.faults))
        go_on.set()
        await handle.cancel()
        await outcome(handle)

    assert [(fault.code, fault.decision) for fault in progress.faults] == [("busy", "wait")]


async def test_what_the_deployment_caused_goes_to_a_person_after_one_attempt(stages: Stages) -> None:
    """No retry, no look, no replan; and an exception that no table knows is such a fault.

    Its message may hold secrets or instructions: only what our tables wrote crosses the border. A sibling's refusal
    alone would lead to a new plan; together with a revoked key it waits for a person, too.
    """
    refuse = played("refuse", Refused("No."))
    scripts: dict[str, Proposals] = {
        "a key": [plan(step("a", "without_key")), DONE],
        "a bug": [plan(step("a", "leaky")), DONE],
        "both": [plan(step("b", "refuse"), step("a", "without_key")), DONE],
    }
    async with stages([without_key, leaky, refuse], Scripts(scripts)) as stage:
        handles = [await stage.start(text) for text in scripts]
        ended = [await outcome(handle) for handle in handles]

    assert [(one.status, one.code, one.steps[-1].attempts) for one in ended] == [
        (TaskStatus.ESCALATED, code, 1) for code in ("unauthorized", "bug", "unauthorized")
    ]
    assert [await kinds(handle) for handle in handles[:2]] == [
        ["catalogue", "plan", "without_key"],
        ["catalogue", "plan", "leaky"],
    ]
    assert "replan" not in await kinds(handles[2])
    history = (await handles[1].fetch_history()).to_json()
    assert "leaky" in history and "hunter2" not in history


async def test_an_escalated_task_is_closed_as_failed_with_its_status_as_the_type(stages: Stages) -> None:
    """Temporal's own status never lies, and the failure carries the outcome."""
    _, handle = await stages.ended([without_key], [plan(step("a", "without_key"))])
    with pytest.raises(WorkflowFailureError) as raised:
        await handle.result()

    assert (await handle.describe()).status is WorkflowExecutionStatus.FAILED
    assert isinstance(raised.value.cause, ApplicationError)
    assert (raised.value.cause.type, raised.value.cause.message) == (
        "escalated",
        "a: The key was revoked: make a new one.",
    )


@pytest.mark.parametrize("blocking", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_an_attempt_that_takes_too_long_is_a_timeout_and_retried(stages: Stages, blocking: bool) -> None:
    """The boundary gives up after the tool's own timeout, also when a plain def holds its thread."""
    calls = []

    async def sleeps(args: Word) -> Said:
        """Sleep too long, once."""
        calls.append(args)
        await asyncio.sleep(5 if len(calls) == 1 else 0)
        return Said(said="in time")

    def blocks(args: Word) -> Said:
        """Block a thread too long, once."""
        calls.append(args)
        time.sleep(1 if len(calls) == 1 else 0)
        return Said(said="in time")

    slow = tool.read(timeout=0.3)(blocks) if blocking else tool.read(timeout=0.3)(sleeps)
    ended = await stages.run([slow], [plan(step("a", slow.__name__)), DONE])

    assert (ended.steps[0].result, ended.steps[0].attempts) == ({"said": "in time"}, 2)
    assert [(one.code, one.decision) for one in ended.faults] == [("timeout", "retry")]


async def test_a_plain_function_does_not_hold_up_the_others(stages: Stages) -> None:
    """It runs in a thread: while it blocks, a sibling begins and ends."""
    order = []

    @tool.read
    def blocking(args: Word) -> Said:
        """Block until the sibling has ended, or for long."""
        order.append("begun")
        for _ in range(200):
            if "sibling" in order:
                break
            time.sleep(0.05)
        order.append("ended")
        return Said(said="x")

    @tool.read
    async def sibling(args: Word) -> Said:
        """Note that it ran, once the other has begun."""
        while not order:  # the other side is a thread
            await asyncio.sleep(0.01)
        order.append("sibling")
        return Said(said="y")

    both = plan(step("a", "blocking"), step("b", "sibling"))
    await stages.run([blocking, sibling, echo], [both, DONE])

    assert order == ["begun", "sibling", "ended"]
