"""Streams that break or are slow while a whole task runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.planning.model_planner import ModelPlanner
from client.client import TaskHandle
from client.events import RequestRetried, Thinking
from client.follow import fetch_state
from console.render.live import running_frame
from evals.fakes.model_api import running
from evals.fakes.script import ModelCall, ModelReply, Streamed, calls, finishes
from tests.harness import outcome, staged
from tests.providers.acting import reacting
from tests.providers.desk import TOOLS
from tests.providers.planning import api_of, model_of
from tests.providers.test_streams import IDLE, number_of_events
from workflows.account.task import TaskStatus


@pytest.mark.parametrize("then", ["drop", "stall"])
async def test_half_a_call_is_never_executed(client: Client, tmp_path: Path, provider: str, then: Any) -> None:
    """The attempt is repeated once, with one request, and only the whole call is made."""
    price = calls(ModelCall("get_price", {"sku": "A-17"}))
    half = number_of_events(provider, price) // 2
    broken = Streamed(price, events=half, then=then)
    async with running(api_of(provider, broken, price, ModelReply(text="24.50"))) as api:
        planner = ModelPlanner(model_of(provider, api, idle_timeout=IDLE))
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            ended = await outcome(await stage.start(reacting()))

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "24.50")
    assert [step.args for step in ended.steps] == [{"sku": "A-17"}]
    assert (len(api.bodies), api.violations) == (3, [])
    assert ended.spent.model_calls == 3
    assert ended.spent.tokens > 260


@pytest.mark.parametrize("then", ["drop", "stall"])
async def test_a_reader_is_told_that_an_attempt_is_the_second(
    client: Client, tmp_path: Path, provider: str, then: Any
) -> None:
    """With why it is made, and with what comes of its reply."""
    answer = finishes("Rome is warmer, " * 40)
    half = number_of_events(provider, answer) // 2  # a stall before the first word is a slow server's right
    lost, slow = Streamed(answer, events=half, then=then), Streamed(answer, pause=0.1)
    async with running(api_of(provider, lost, slow)) as api:
        planner = ModelPlanner(model_of(provider, api, idle_timeout=IDLE))
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            handle = await stage.start()
            told = [event async for event in TaskHandle(client, handle.id).follow()]
    retried = [event for event in told if isinstance(event, RequestRetried)]
    thinking = [event for event in told if isinstance(event, Thinking) and event.tokens]

    assert {(event.activity, event.attempt.number) for event in retried} == {("plan:1", 2)}
    assert retried[0].attempt.code in ("unreachable", "timeout", "server_error")
    assert thinking and {event.attempt for event in thinking} <= {1, 2} and thinking[-1].attempt == 2


async def test_the_tokens_that_came_are_shown_and_nothing_else(client: Client, tmp_path: Path, provider: str) -> None:
    """The count grows in the live view, and no text of the reply is in a heartbeat."""
    slow = Streamed(finishes("Rome is warmer, " * 40), pause=0.1)
    async with (
        running(api_of(provider, slow)) as api,
        staged(client, tmp_path, TOOLS, ModelPlanner(model_of(provider, api))) as stage,
    ):
        handle = await stage.start()
        counts, frames, heartbeats = list[int](), list[str](), b""
        while len({*counts} - {0}) < 2:
            state, seen = await fetch_state(client, handle), await handle.describe()
            heartbeats += b"".join(
                one.heartbeat_details.SerializeToString() for one in seen.raw_description.pending_activities
            )
            if state and state.snapshot and state.snapshot.thinking:
                counts += state.snapshot.thinking.values()
                frames += running_frame(state.snapshot, None, (), 100, 20)
            await asyncio.sleep(0.2)
        ended = await outcome(handle)

    assert ended.status is TaskStatus.COMPLETED
    assert counts == sorted(counts) and b"Rome" not in heartbeats
    assert any(line.endswith(f": thinking, {counts[-1]} tokens") for line in frames), frames
