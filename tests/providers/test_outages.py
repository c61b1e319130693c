"""Providers that ask to wait long, or do not answer for minutes: the next one plans, or the task waits durably."""

from pathlib import Path

import pytest
from temporalio.client import Client

from activities.planning.fallback import FallbackPlanner
from client.explain import explanation
from client.follow import View, fetch_state
from client.history import fetch
from client.undo import undo
from client.workers import ask
from console.render.live import running_frame
from evals.fakes.script import DROPPED, ModelError, Response, finishes
from replan import Busy
from tests.gate import sampled
from tests.harness import outcome, staged
from tests.providers.desk import TOOLS
from tests.providers.planning import PROVIDERS, planning
from tests.workflows.history import Timer, timers, until
from tests.workflows.test_agent_proposals import AttemptFailure
from tests.workflows.test_agent_visible import details_of
from workflows.account.task import Task, TaskStatus
from workflows.inquiries import PlanInquiry
from workflows.limits.budget import Limits

DAY = 86_400


def busy(seconds: int) -> ModelError:
    """Too many requests, with a time to wait."""
    return ModelError(429, "rate_limit_error", headers={"retry-after": str(seconds)})


async def test_a_provider_that_asks_for_a_day_is_replaced_at_once(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """A wait longer than a retry makes is no reason to wait if the list names another one; the task says who it was."""
    async with (
        planning(provider, busy(DAY)) as (first, late),
        planning(other(provider), finishes("on time")) as (_, ready),
        staged(client, tmp_path, TOOLS, FallbackPlanner([late, ready])) as stage,
    ):
        handle = await stage.start()
        ended = await outcome(handle)

    assert (ended.status, ended.result, ended.planner) == (TaskStatus.COMPLETED, "on time", ready.name)
    assert [(one.planner, one.code) for one in ended.failovers] == [(late.name, "rate_limited")]
    assert (len(first.bodies), await timers(handle)) == (1, [])


async def test_a_short_wait_is_not_a_reason_to_ask_another(client: Client, tmp_path: Path, provider: str) -> None:
    """Up to a minute, Temporal's retry waits."""
    async with (
        planning(provider, busy(1), finishes("the first")) as (_, late),
        planning(other(provider), finishes()) as (second, ready),
        staged(client, tmp_path, TOOLS, FallbackPlanner([late, ready])) as stage,
    ):
        ended = await stage.run()

    assert (ended.result, second.bodies) == ("the first", [])


KEY = {"anthropic": ModelError(401, "authentication_error"), "openai": ModelError(401, "x", code="invalid_api_key")}
NOBODY: dict[str, tuple[int, Response | None, int]] = {
    "one alone": (7200, None, 7200),
    "the second sooner": (7200, busy(3600), 3600),
    "the second later": (3600, busy(7200), 3600),
    "the second has no key": (7200, KEY["openai"], 7200),
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
    assert (ended.spent.model_calls, ended.spent.tokens) == (0, 0)
    assert (ended.status, ended.waiting, len(first.bodies), len(second.bodies)) == (
        TaskStatus.CANCELLED,
        None,
        1,
        1 if answer else 0,
    )


async def test_the_deadline_ends_a_wait_and_says_what_was_waited_for(client: Client, tmp_path: Path) -> None:
    """More time alone would not help: the reason names the provider."""
    planner = AttemptFailure(Busy("The provider wants fewer requests.", retry_after=DAY))
    async with staged(client, tmp_path, TOOLS, planner) as stage:
        ended = await stage.run(deadline=4)

    assert (ended.status, ended.code) == (TaskStatus.OVER_BUDGET, "deadline")
    assert ended.reason.endswith(" It waited for the planner: The provider wants fewer requests.")


async def test_a_person_who_asks_for_a_draft_hears_of_a_long_wait_at_once(client: Client, tmp_path: Path) -> None:
    """A draft is for somebody at a terminal, so nothing is waited for that a retry does not wait for."""
    async with planning("openai", busy(3600)) as (api, late), staged(client, tmp_path, TOOLS, late) as stage:
        found = await ask(client, stage.queue, PlanInquiry(task=Task(text="x")))

    assert found.draft is not None and found.draft.ending is not None
    assert (found.draft.ending.status, found.draft.ending.code) == (TaskStatus.ESCALATED, "rate_limited")
    assert len(api.bodies) == 1


OUT = {"overloaded": (ModelError(529, "overloaded_error"),), "refused": (None,)}


@pytest.mark.parametrize("answer", sampled(OUT, "overloaded"))
async def test_an_outage_that_outlasts_the_attempts_is_left_to_the_next_provider(
    client: Client, tmp_path: Path, provider: str, answer: ModelError | None
) -> None:
    """The eighth attempt asks the next of the list before the task waits."""
    async with planning(provider, answer or finishes()) as (first, out):
        pass
    async with (
        planning(provider, answer or finishes()) as (first, answers),
        planning(other(provider), finishes("there")) as (second, ready),
        staged(
            client, tmp_path, TOOLS, FallbackPlanner([answers if answer else out, ready]), jitter=lambda: 0.01
        ) as stage,
    ):
        handle = await stage.start()
        ended = await outcome(handle)

    assert (ended.status, ended.result, ended.planner) == (TaskStatus.COMPLETED, "there", ready.name)
    assert (len(first.bodies), len(second.bodies), await timers(handle)) == (8 if answer else 0, 1, [])


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


def other(provider: str) -> str:
    """The other provider."""
    return next(name for name in PROVIDERS if name != provider)


@pytest.mark.parametrize("is_cancelled", sampled({"cancelled": (True,), "its deadline passes": (False,)}, "cancelled"))
async def test_a_task_that_ends_while_it_waits_pays_for_no_further_request(
    client: Client, tmp_path: Path, *, is_cancelled: bool
) -> None:
    """The refused request costs nothing, and the next one was never sent."""
    async with planning("openai", busy(7200)) as (api, late), staged(client, tmp_path, TOOLS, late) as stage:
        handle = await stage.start(deadline=None if is_cancelled else 3)
        if is_cancelled:
            await until(handle, lambda progress: progress.waiting is not None)
            await handle.cancel()
        ended = await outcome(handle)

    assert (ended.code, len(api.bodies)) == ("cancelled" if is_cancelled else "deadline", 1)
    assert (ended.spent.model_calls, ended.spent.tokens, ended.spent.unpriced) == (0, 0, 0)


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
