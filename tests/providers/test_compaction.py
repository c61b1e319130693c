"""Conversations that grow beyond the model's window: summarised on the way, and nothing that matters is lost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.providers.messages import AssistantTurn, UserTurn
from evals.fakes.script import ModelError, ModelReply, ReceivedRequest, Response
from tests.gate import sampled
from tests.providers.acting import Acting, acting, reacting
from tests.providers.planning import PROVIDERS
from tests.providers.plates import GOAL, read_plate
from tests.providers.visitor import FOUND, visitor
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus

WINDOW = 12_200
"""Tokens: instructions, tools, a summary, and a dozen plates."""
Requests = Sequence[ReceivedRequest]


async def read_all(one: Acting) -> Outcome:
    """The whole task."""
    return await one.run(GOAL, tool_calls=100)


WINDOWS = {"known": (WINDOW, 0), "unknown": (None, 1)}
"""What the worker knows of the window, and how often, at the least, the provider must refuse a request for it."""


@pytest.fixture(scope="module", params=PROVIDERS)
async def requests(
    request: pytest.FixtureRequest, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Requests:
    """What a model that had to summarise was asked in the whole task."""
    options: dict[str, Any] = {"window": WINDOW, "known": WINDOW, "tools": [read_plate]}
    async with acting(client, tmp_path_factory.mktemp("plates"), request.param, visitor, **options) as one:
        await read_all(one)
    return one.api.requests


@pytest.mark.parametrize(("known", "refusals"), sampled(WINDOWS, "unknown"))
async def test_what_was_read_before_a_summary_is_used_after_it(
    client: Client, tmp_path: Path, provider: str, known: int | None, refusals: int
) -> None:
    """The strict server is never sent the page again, and the answer is right all the same."""
    async with acting(client, tmp_path, provider, visitor, window=WINDOW, known=known, tools=[read_plate]) as one:
        ended = await read_all(one)
    last = one.api.requests[-1]
    page = f"C-111. {'lorem ' * 20}"

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, FOUND), ended.reason
    assert ended.compactions and page not in last.all_text and FOUND in last.all_text
    assert (one.api.violations, one.api.too_long >= refusals, one.api.too_long > 0) == ([], True, bool(refusals))


def test_the_goal_and_the_newest_turns_stay_as_they_were(requests: Requests) -> None:
    """Word for word, after every summary; calls and results stay in pairs, which the server holds."""
    pairs = [(before.turns, after.turns) for before, after in summarised(requests)]

    assert pairs and all(GOAL in heard.all_text for heard in requests)
    assert all(before[-1] in after and len(after) < len(before) for before, after in pairs)
    assert all(isinstance(after[0], UserTurn) and isinstance(after[1], AssistantTurn) for _, after in pairs)


def test_a_fault_that_is_open_stays_as_it_was(requests: Requests) -> None:
    """Where the oldest turn that is kept was told of a refusal, the refusal is told again, word for word."""
    opened = list[bool]()
    for before, after in summarised(requests):
        kept = before.turns[before.turns.index(after.turns[1]) - 1]
        assert isinstance(kept, UserTurn) and isinstance(after.turns[0], UserTurn)
        refused = [result.text for result in kept.results if "locked" in result.text]
        opened += [text in after.turns[0].text for text in refused]

    assert opened and all(opened)


def summarised(requests: Requests) -> list[tuple[ReceivedRequest, ReceivedRequest]]:
    """The requests before and after each summary."""
    return [(requests[at - 1], requests[at + 1]) for at, heard in enumerate(requests) if not heard.tools]


@pytest.mark.full
async def test_a_summary_is_a_step_that_people_see(client: Client, tmp_path: Path, provider: str) -> None:
    """An activity of its own, and in the outcome; its tokens are counted."""
    async with acting(client, tmp_path, provider, visitor, window=WINDOW, known=WINDOW, tools=[read_plate]) as one:
        handle = await one.stage.start(reacting(GOAL, tool_calls=100))
        ended = await handle.result()
        history = await handle.fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events]
    summaries = sum(not heard.tools for heard in one.api.requests)

    assert scheduled.count("compact") == len(ended.compactions) == summaries > 0
    assert ended.spent.model_calls == len(one.api.bodies)


@pytest.mark.parametrize("whose", ["anthropic", "responses"])
@pytest.mark.full
async def test_thoughts_end_with_a_summary(client: Client, tmp_path: Path, whose: str) -> None:
    """Those of the turns before it are left out, those after it come back."""

    def thinker(heard: ReceivedRequest) -> Response:
        said = visitor(heard)
        assert isinstance(said, ModelReply)
        return ModelReply(said.calls, said.text, thinking=f"Turn {heard.turn}." if heard.tools else "")

    async with acting(client, tmp_path, whose, thinker, window=WINDOW, known=WINDOW, tools=[read_plate]) as one:
        ended = await read_all(one)

    assert (ended.result, one.api.violations) == (FOUND, [])
    assert len(ended.compactions) > 0


async def test_one_result_that_no_summary_makes_shorter_is_a_person_s(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Nobody asks for ever: what cannot be told is said."""
    async with acting(client, tmp_path, provider, visitor, window=900, tools=[read_plate]) as one:
        ended = await read_all(one)

    assert (ended.status, ended.code, one.api.violations) == (TaskStatus.ESCALATED, "too_large", [])
    assert len(one.api.bodies) < 10


@pytest.mark.full
async def test_a_summary_that_fails_for_a_moment_is_asked_for_again(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """As any other request: Temporal waits, and the task goes on."""
    failed = list[ReceivedRequest]()

    def shaky(heard: ReceivedRequest) -> Response:
        if not heard.tools and not failed:
            failed.append(heard)
            return ModelError(529, "overloaded_error")
        return visitor(heard)

    async with acting(client, tmp_path, provider, shaky, window=WINDOW, known=WINDOW, tools=[read_plate]) as one:
        ended = await read_all(one)

    assert (ended.result, len(failed), one.api.violations) == (FOUND, 1, [])
