"""Whole tasks with models of vendors that add fields, or whose replies cannot be read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.planning import conversation
from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from activities.planning.planner import Exchange, RecordedTurn
from activities.providers.messages import AssistantTurn, StopReason, ToolCall, Usage, UserTurn
from evals.fakes.local_servers import THOUGHT, LocalServer, Quirk
from evals.fakes.model_api import Json, event_bytes, json_answer, running
from evals.fakes.script import ModelCall, ModelError, ModelReply, RawBytes, Response, calls
from tests.harness import outcome, staged
from tests.providers.acting import reacting
from tests.providers.desk import TOOLS
from tests.providers.planning import PROVIDERS, adapter_of, api_of, planning
from tests.providers.vendors import DEEPSEEK, WHOLE
from tests.workflows.history import timers
from workflows.account.task import TaskStatus
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Price
from workflows.plans.proposal import Answer, Proposed

BOOKS = calls(ModelCall("book", {"at": "14:30"}))
PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)


@dataclass
class DeepSeek(LocalServer):
    """Thinks before each reply, and wants each thought back."""

    quirks: frozenset[Quirk] = frozenset([Quirk.REASONING])

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        said = [one for one in body["messages"] if one["role"] == "assistant"]
        if any(one.get("reasoning_content") != THOUGHT for one in said):
            return ModelError(400, "invalid_request_error", DEEPSEEK)
        return super().answer(path, headers, body)


async def test_a_task_gives_each_thought_back(client: Client, tmp_path: Path) -> None:
    """In each request, also after a mistake of the model and after an empty reply."""
    api = DeepSeek([BOOKS, ModelReply(), calls(ModelCall("bok", {})), ModelReply(text="It is booked.")])
    async with running(api), staged(client, tmp_path, TOOLS, ModelPlanner(adapter_of("openai", api))) as stage:
        ended = await stage.run(reacting())

    assert (ended.status, ended.result, ended.spent.model_calls) == (TaskStatus.COMPLETED, "It is booked.", 4)
    assert (len(api.bodies), api.violations) == (4, [])


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_next_vendor_gets_no_thought_of_the_first(client: Client, tmp_path: Path, provider: str) -> None:
    """The rest of the conversation is the same, and holds its rules."""
    first = DeepSeek([BOOKS, ModelError(402, "insufficient_quota", code="insufficient_quota")])
    async with running(first), planning(provider, ModelReply(text="It is booked.")) as (second, ready):
        planners = FallbackPlanner([ModelPlanner(adapter_of("openai", first)), ready])
        async with staged(client, tmp_path, TOOLS, planners) as stage:
            ended = await stage.run(reacting())

    assert (ended.status, ended.result, ended.planner) == (TaskStatus.COMPLETED, "It is booked.", ready.name)
    assert second.violations == [] and THOUGHT not in str(second.bodies) and len(second.bodies) == 1


def test_a_message_keeps_its_fields_after_a_summary() -> None:
    """Those of Messages and Responses stay, too, where the adapter finds them valid."""
    now = Situation(turn=1, now=datetime(2026, 11, 1, tzinfo=UTC), text="x", strategy="react")
    call = ToolCall("c", "book", {})
    said = AssistantTurn("", (call,), ({"type": "x"},), "m", vendor={"reasoning_content": "I look."})

    def turn(number: int, upto: int = 0) -> RecordedTurn:
        exchange = Exchange(UserTurn("go on"), said, StopReason.CALLS, Usage())
        return RecordedTurn("t", 0, number, now, Proposed(proposal=Answer(result=None)), exchange, upto)

    found = conversation.turns([turn(1), turn(2), turn(3, upto=1)], now)
    kept = [one for one in found if isinstance(one, AssistantTurn)]

    assert kept == [replace(said, follows_summary=True)]


def unreadable(provider: str, *, is_counted: bool) -> RawBytes:
    """A stream that becomes unreadable, before or after its count."""
    events = [event_bytes(event) for event in WHOLE[provider] if isinstance(event, dict)]
    cut = [*events[:-1], b'data: {"type": \n\n'] if is_counted else [events[0], b'data: {"type": \n\n']
    return RawBytes(json_answer(200, b"".join(cut), **{"content-type": "text/event-stream"}))


@pytest.mark.parametrize("is_counted", [True, False])
async def test_an_unreadable_stream_is_asked_for_once_more_and_paid_twice(
    client: Client, tmp_path: Path, is_counted: bool
) -> None:
    """Then the next planner plans; what the two replies cost is a part of the task's."""
    raw = unreadable("openai", is_counted=is_counted)
    async with running(api_of("openai", raw)) as first, planning("anthropic", ModelReply(text="Done.")) as (_, ready):
        planners = FallbackPlanner([ModelPlanner(adapter_of("openai", first), price=PRICE), ready])
        async with staged(client, tmp_path, TOOLS, planners, jitter=lambda: 0.01) as stage:
            handle = await stage.start(reacting())
            ended = await outcome(handle)

    assert (ended.status, ended.result, len(first.bodies)) == (TaskStatus.COMPLETED, "Done.", 2)
    assert (ended.spent.model_calls, await timers(handle)) == (3, [])
    assert ended.spent.tokens == 2 * 120 + 130 if is_counted else ended.spent.tokens > 32_000


async def test_with_no_other_planner_an_unreadable_stream_goes_to_a_person(client: Client, tmp_path: Path) -> None:
    """It is no outage that ends by itself, so nothing waits."""
    async with running(api_of("openai", unreadable("openai", is_counted=False))) as api:
        planner = ModelPlanner(adapter_of("openai", api), price=PRICE)
        async with staged(client, tmp_path, TOOLS, planner, jitter=lambda: 0.01) as stage:
            handle = await stage.start(reacting(usd=5.0))
            ended = await outcome(handle)

    assert (ended.status, len(api.bodies), await timers(handle)) == (TaskStatus.ESCALATED, 2, [])
    assert "twice" in ended.reason and (ended.spent.usd or 0) > 0.4
