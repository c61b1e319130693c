"""Providers that ask to wait long, or do not answer for minutes: the next one plans, or the task waits durably."""

from pathlib import Path

import pytest
from temporalio.client import Client

from activities.boundary.attempt import FaultRaised
from activities.offline.planner import OfflinePlanner
from activities.planning.fallback import FallbackPlanner
from activities.providers.fallback import FallbackModel
from activities.providers.messages import Request, UserTurn
from client.explain import explanation
from client.follow import View, fetch_state
from client.history import fetch
from client.undo import undo
from client.workers import ask
from console.render.live import running_frame
from evals.fakes.model_api import running
from evals.fakes.script import DROPPED, ModelError, ModelReply, Response, finishes
from tests.activities.situations import KINDS, asked
from tests.gate import sampled
from tests.harness import outcome, staged
from tests.providers.desk import TOOLS
from tests.providers.planning import api_of, model_of, other, planning
from tests.workflows.history import Timer, timers, until
from tests.workflows.test_agent_visible import details_of
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Code
from workflows.inquiries import PlanInquiry
from workflows.limits.budget import Limits
from workflows.plans.proposal import NewSteps

DAY = 86_400


def busy(seconds: int) -> ModelError:
    """Too many requests, with a time to wait."""
    return ModelError(429, "rate_limit_error", headers={"retry-after": str(seconds)})


OUT: dict[str, tuple[ModelError | None, int]] = {
    "for a day": (busy(DAY), 1),
    "overloaded": (ModelError(529, "overloaded_error"), 8),
    "refuses connections": (None, 0),
}
"""What the first provider answers, and how often it is asked; None stands for one that is not there."""


@pytest.mark.parametrize(("answer", "requests"), sampled(OUT, "for a day", "overloaded"))
async def test_a_provider_that_is_out_is_replaced(
    client: Client, tmp_path: Path, provider: str, answer: ModelError | None, requests: int
) -> None:
    """At once if it asks for a longer wait than a retry makes, else by the eighth attempt, before the task waits.

    The task says who it was.
    """
    async with planning(provider, finishes()) as (_, gone):
        pass
    async with (
        planning(provider, answer or finishes()) as (first, answers),
        planning(other(provider), finishes("there")) as (second, ready),
        staged(
            client, tmp_path, TOOLS, FallbackPlanner([answers if answer else gone, ready]), jitter=lambda: 0.01
        ) as stage,
    ):
        handle = await stage.start()
        ended = await outcome(handle)

    assert (ended.status, ended.result, ended.planner) == (TaskStatus.COMPLETED, "there", ready.name)
    assert [one.planner for one in ended.failovers] == [(answers if answer else gone).name]
    assert ended.failovers[0].code == {1: "rate_limited", 8: "overloaded", 0: "unreachable"}[requests]
    assert (len(first.bodies), len(second.bodies), await timers(handle)) == (requests, 1, [])


async def test_a_short_wait_is_not_a_reason_to_ask_another(client: Client, tmp_path: Path, provider: str) -> None:
    """Up to a minute, Temporal's retry waits."""
    async with (
        planning(provider, busy(1), finishes("the first")) as (_, late),
        planning(other(provider), finishes()) as (second, ready),
        staged(client, tmp_path, TOOLS, FallbackPlanner([late, ready])) as stage,
    ):
        ended = await stage.run()

    assert (ended.result, second.bodies) == ("the first", [])


NOBODY: dict[str, tuple[int, Response | None, int]] = {
    "one alone": (7200, None, 7200),
    "the second sooner": (7200, busy(3600), 3600),
    "the second later": (3600, busy(7200), 3600),
    "the second has no key": (7200, ModelError(401, "x", code="invalid_api_key"), 7200),
    "longer than a day": (10 * DAY, None, DAY),
}


@pytest.mark.parametrize(("asks", "answer", "waits"), sampled(NOBODY, "the second sooner", "longer than a day"))
async def test_with_nobody_else_the_shortest_wait_is_waited_for(
    client: Client, tmp_path: Path, asks: int, answer: Response | None, waits: int
) -> None:
    """On a named timer, which the details and the progress tell, and which a cancel ends; at most for a day."""
    async with (
        planning("anthropic", busy(asks)) as (first, late),
        planning("openai", answer or finishes()) as (second, later),
        staged(client, tmp_path, TOOLS, FallbackPlanner([late, later]) if answer else late) as stage,
    ):
        handle = await stage.start()
        waiting = (await until(handle, lambda progress: progress.waiting is not None)).waiting
        shown, state = await details_of(handle), await fetch_state(client, handle)
        await handle.cancel()
        ended = await outcome(handle)

    assert await timers(handle) == [Timer(seconds=waits, summary="plan waits: rate_limited, then again")]
    assert waiting is not None and waiting.code == "rate_limited"
    assert f"Waits for the planner until {waiting.until:%Y-%m-%d %H:%M} UTC: " in shown
    assert state is not None and state.snapshot is not None
    frame = running_frame(state.snapshot, None, (), 100, 20)
    assert [line for line in frame if f"◷ waits for the planner until {waiting.until:%Y-%m-%d %H:%M}Z" in line]
    assert (ended.spent.model_calls, ended.spent.tokens, ended.spent.unpriced) == (0, 0, 0)
    assert (ended.status, ended.waiting) == (TaskStatus.CANCELLED, None)
    assert (len(first.bodies), len(second.bodies)) == (1, 1 if answer else 0)


async def test_the_deadline_ends_a_wait_and_says_what_was_waited_for(client: Client, tmp_path: Path) -> None:
    """More time alone would not help: the reason names the provider. No further request is sent, and none is paid."""
    async with planning("openai", busy(7200)) as (api, late), staged(client, tmp_path, TOOLS, late) as stage:
        ended = await stage.run(deadline=3)

    assert (ended.status, ended.code, len(api.bodies)) == (TaskStatus.OVER_BUDGET, "deadline", 1)
    assert " It waited for the planner: The model server at 127.0.0.1 " in ended.reason
    assert (ended.spent.model_calls, ended.spent.tokens, ended.spent.unpriced) == (0, 0, 0)


async def test_a_person_who_asks_for_a_draft_hears_of_a_long_wait_at_once(client: Client, tmp_path: Path) -> None:
    """A draft is for somebody at a terminal, so nothing is waited for that a retry does not wait for."""
    async with planning("openai", busy(3600)) as (api, late), staged(client, tmp_path, TOOLS, late) as stage:
        found = await ask(client, stage.queue, PlanInquiry(task=Task(text="x")))

    assert found.draft is not None and found.draft.ending is not None
    assert (found.draft.ending.status, found.draft.ending.code) == (TaskStatus.ESCALATED, "rate_limited")
    assert len(api.bodies) == 1


@pytest.mark.parametrize(
    ("tokens", "status", "decision", "follows"),
    [
        (30_000, TaskStatus.COMPLETED, "wait", ["So the planner was asked for a shorter reply at once."]),
        (5_000, TaskStatus.OVER_BUDGET, "end", []),
    ],
)
async def test_a_lost_reply_that_the_budget_cannot_cover_twice_is_explained_as_that(
    client: Client, tmp_path: Path, tokens: int, status: TaskStatus, decision: str, follows: list[str]
) -> None:
    """No time could cure it, and no person is needed: what was reserved for the reply is gone."""
    async with (
        planning("openai", DROPPED, finishes("done")) as (_, planner),
        staged(client, tmp_path, TOOLS, planner) as stage,
    ):
        handle = await stage.start(Task(text="x", limits=Limits(tokens=tokens)))
        ended = await outcome(handle)
        item = explanation.explain_task(await fetch.fetch_history(client, handle, journal=True)).items[0]

    assert "quota_exhausted once" in item.what.text and "could have succeeded before the last fault" in item.what.text
    assert item.why is not None and item.why.text.startswith("A lost reply counts as all that was reserved for it")
    assert (ended.status, item.decision, [one.text for one in item.then]) == (status, decision, follows)


async def test_the_rollback_of_a_task_that_was_terminated_while_it_waited_waits_for_nobody(
    client: Client, tmp_path: Path
) -> None:
    """A rollback asks no planner, whatever the task did when it was stopped."""
    async with planning("openai", busy(7200)) as (_, late), staged(client, tmp_path, TOOLS, late) as stage:
        handle = await stage.start()
        await until(handle, lambda progress: progress.waiting is not None)
        await handle.terminate()
        rollback = await undo(client, handle, View())

    assert rollback.outcome.waiting is None


# A planner or a model of steps alone: the next one is asked, and a failure names everybody who was asked


NO_KEY = ModelError(401, "invalid_request_error", code="invalid_api_key")
UNUSABLE = [
    ("anthropic", ModelError(401, "authentication_error")),
    ("anthropic", ModelError(404, "not_found_error")),
    ("openai", NO_KEY),
    ("openai", ModelError(429, "insufficient_quota", code="insufficient_quota")),
    ("responses", NO_KEY),
]
QUESTION = Request("Answer.", (), (UserTurn("What is it?"),))


@pytest.mark.parametrize(("whose", "move"), UNUSABLE)
async def test_the_next_model_answers(whose: str, move: ModelError) -> None:
    """One request to the one that cannot be used; each time, so that a key which was mended is used at once."""
    async with running(api_of(whose, move)) as first, running(api_of(other(whose), ModelReply(text="Noon."))) as second:
        model = FallbackModel([model_of(whose, first), model_of(other(whose), second)])
        replies = [(await model.reply(QUESTION)).turn.text for _ in range(2)]
    async with planning(whose, move) as (third, broken), planning(other(whose), finishes()) as (fourth, whole):
        proposed = await FallbackPlanner([broken, whole]).propose(asked("book a slot"), KINDS)

    assert (replies, proposed.planner) == (["Noon.", "Noon."], whole.name)
    assert [len(api.bodies) for api in (first, second, third, fourth)] == [2, 2, 1, 1]


async def test_the_last_planner_may_be_the_one_without_a_model() -> None:
    async with planning("openai", NO_KEY) as (_, broken):
        proposed = await FallbackPlanner([broken, OfflinePlanner()]).propose(asked("calculate 1 + 1"), KINDS)

    assert proposed.planner == "offline" and isinstance(proposed.proposal, NewSteps)


async def test_what_time_cures_is_waited_for(provider: str) -> None:
    """That is Temporal's work; nobody else is asked."""
    move = ModelError(503, "server_error")
    async with planning(provider, move) as (first, busy), planning("anthropic", finishes()) as (second, whole):
        with pytest.raises(Exception, match="503"):
            await FallbackModel([model_of(provider, first), model_of("anthropic", second)]).reply(QUESTION)
        with pytest.raises(Exception, match="503"):
            await FallbackPlanner([busy, whole]).propose(asked("book a slot"), KINDS)

    assert (len(first.bodies), len(second.bodies)) == (2, 0)


LATER: dict[str, tuple[ModelError, Code, float | None]] = {
    "busy": (ModelError(429, "rate_limit_error", headers={"retry-after": "7"}), Code.RATE_LIMITED, 7.0),
    "not allowed": (ModelError(403, "permission_error"), Code.FORBIDDEN, None),
}


@pytest.mark.parametrize(("move", "code", "wait"), LATER.values(), ids=LATER)
async def test_a_failure_names_who_could_not_be_used_before(move: ModelError, code: Code, wait: float | None) -> None:
    """Else a person would mend the second key and never hear of the first; alone, a planner fails as it does."""
    async with planning("openai", NO_KEY) as (_, broken), planning("anthropic", move) as (_, late):
        with pytest.raises(FaultRaised) as raised:
            await FallbackPlanner([broken, late]).propose(asked("book a slot"), KINDS)
        with pytest.raises(Exception) as alone:  # which class is the SDK's business
            await FallbackPlanner([late]).propose(asked("book a slot"), KINDS)
    fault = raised.value.fault

    assert (fault.code, fault.retry_after) == (code, wait) and not isinstance(alone.value, FaultRaised)
    assert f"Also {broken.name} could not be used (unauthorized)" in fault.reason
