"""The transcript: a turn is recorded once, and found again by what it answered; a reset to something else branches."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.planning.planner import Exchange, RecordedTurn
from activities.planning.transcript import Transcript, situation_digest
from activities.providers.messages import AssistantTurn, StopReason, ToolCall, ToolResult, Usage, UserTurn
from activities.storage.store import open_store
from tests.activities.situations import NOW, fault, record, seen, step
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, Proposed

LATER = datetime.now(UTC) + timedelta(days=1)
CALL = ToolCall("call_1", "book_slot", {"at": "14:00"})


@pytest.fixture
async def transcript(store_url: str) -> AsyncIterator[Transcript]:
    engine = await open_store(store_url)
    yield Transcript(engine, "ours")
    await engine.dispose()


def told(turn: int, what: str = "", **more: Any) -> Situation:
    """What is new at a turn; the first tells the task."""
    rejected = ({"text": what},) if what else ()
    text = "book a slot" if turn == 1 else ""
    return Situation.model_validate(
        {"turn": turn, "text": text, "now": NOW, "converses": True, "rejected": rejected, **more}
    )


def turn(situation: Situation, *, task: str = "run", branch: int = 0, says: str = "done", **more: Any) -> RecordedTurn:
    said = AssistantTurn(says, (CALL,), ({"type": "thinking", "signature": "x"},), "anthropic:m")
    exchange = Exchange(UserTurn("do", (ToolResult("call_0", "it"),)), said, StopReason.CALLS, Usage(1, 2, 3, 4))
    return RecordedTurn(
        task, branch, situation.turn, situation, Proposed(proposal=Answer(result=says)), exchange=exchange, **more
    )


async def test_a_turn_is_recorded_once_and_read_as_it_was_written(transcript: Transcript) -> None:
    """With the provider's own blocks; clocks and the number of calls left do not change what was asked."""
    past = turn(told(1), says="first")
    first = await transcript.write(past, before=0)
    second = await transcript.write(turn(told(1), says="second"), before=0)
    turns = await transcript.load("run")
    again = told(1, now=NOW + timedelta(days=1), calls_left=3, max_output=500)

    assert second == first and turns.before(2, 0) == turns.newest() == [past]
    assert turns.recorded(again) == past


SAME: dict[str, Any] = {
    "how often it was tried": lambda at: {
        "records": (record(step("a"), "completed", attempts=at.hour, replayed=at.hour > NOW.hour),)
    },
    "when a step ran": lambda at: {"records": (record(step("a"), "completed").model_copy(update={"ended": at}),)},
    "when a fault was": lambda at: {"faults": (fault("a").model_copy(update={"at": at}),)},
    "when it was looked": lambda at: {"observations": (seen("a", 1).model_copy(update={"at": at}),)},
}


def test_clocks_are_no_news() -> None:
    """A reset runs the same steps at another time."""
    for parts in SAME.values():
        now, later = (situation_digest(told(2, **parts(at))) for at in (NOW, NOW + timedelta(hours=1)))
        assert now == later


OTHER: dict[str, dict[str, Any]] = {
    "result": {"records": (record(step("a"), "completed", result=2),)},
    "rejection": {"rejected": ({"text": "another"},)},
    "down": {"down": ("search",)},
    "seen": {"observations": (seen("a", 2),)},
    "last": {"is_last": True},
}


def test_other_news_is_another_question() -> None:
    """Whatever a planner could answer differently to."""
    asked = situation_digest(told(2, records=(record(step("a"), "completed", result=1),)))

    assert [name for name, news in OTHER.items() if situation_digest(told(2, **news)) == asked] == []


async def test_a_turn_that_is_told_something_else_begins_a_branch(transcript: Transcript) -> None:
    """The old branch stays as it was, and the new one shares the turns before it."""
    for past in (turn(told(1)), turn(told(2, "a"), says="old"), turn(told(3), says="older")):
        await transcript.write(past, before=0)
    turns = await transcript.load("run")
    other = told(2, "b")
    branch = turns.branch_for(other)
    await transcript.write(turn(other, branch=branch, says="new"), before=0)
    after = await transcript.load("run")

    assert (turns.recorded(other), branch, turns.branch_for(told(4))) == (None, 1, 0)
    assert [past.proposed.proposal for past in after.before(3, branch)] == [
        Answer(result=one) for one in ("done", "new")
    ]
    assert [past.branch for past in after.before(4, 0)] == [0, 0, 0] and after.newest() == after.before(3, branch)


async def test_a_branch_goes_on_under_its_number(transcript: Transcript) -> None:
    """A third life after two resets has a number of its own."""
    await transcript.write(turn(told(1)), before=0)
    for number, what in enumerate(("a", "b", "c")):
        turns = await transcript.load("run")
        assert turns.branch_for(told(2, what)) == number
        await transcript.write(turn(told(2, what), branch=number), before=0)
    last = await transcript.load("run")

    assert last.branch_for(told(3, branch=2)) == 2
    assert last.recorded(told(2, "b")) == turn(told(2, "b"), branch=1)


async def test_a_conversation_is_carried_on(transcript: Transcript) -> None:
    """Over several tasks, the oldest turns first; one that carries itself on has an end, and hangs nobody."""
    for task, earlier in (("one", None), ("two", "one"), ("a", "b"), ("b", "a")):
        await transcript.write(turn(told(1, continues=earlier), task=task), before=0)
    new = await transcript.load("three", "two")  # before the first turn, by what the task says
    await transcript.write(turn(told(1, continues="two"), task="three"), before=0)
    found = [[past.task for past in (await transcript.load(task)).newest()] for task in ("three", "a", "b")]

    assert [past.task for past in new.before(1, 0)] == ["one", "two"]
    assert found == [["one", "two", "three"], ["a"], ["a", "b"]]


async def test_what_is_carried_on_stays_as_it_was(transcript: Transcript) -> None:
    """A reset of the earlier task leads it elsewhere, but not the task that has begun with its end."""
    await transcript.write(turn(told(1), task="one"), before=0)
    await transcript.write(turn(told(2), task="one", says="the end"), before=0)
    await transcript.write(turn(told(1, continues="one"), task="two"), before=0)
    before = (await transcript.load("two")).newest()
    await transcript.write(turn(told(2, "reset"), task="one", branch=1, says="another end"), before=0)

    assert (await transcript.load("two")).newest() == before
    assert (await transcript.load("three", "one")).newest()[-1].branch == 1


async def test_people_read_all_of_it(transcript: Transcript) -> None:
    """What was told, what was said, with its calls, and which turns a summary stands for."""
    await transcript.write(turn(told(1)), before=0)
    await transcript.write(turn(told(2, compact=1), says="So far: nothing.", upto=1), before=0)
    first, summary = await transcript.cards("run")

    assert (first.told, first.results[0].text, first.said, first.calls[0].args) == ("do", "it", "done", CALL.args)
    assert (first.turn, summary.said, summary.upto) == (1, "So far: nothing.", 1)


async def test_only_conversations_that_are_over_are_pruned(store_url: str) -> None:
    """None that a younger one or an open task carries on, nor what that one carries on; none of another namespace."""
    engine = await open_store(store_url)
    ours, theirs = Transcript(engine, "ours"), Transcript(engine, "theirs")
    await theirs.write(turn(told(1), task="foreign"), before=0, workflow="foreign")
    await ours.write(turn(told(1), task="first"), before=0, workflow="first")
    await ours.write(turn(told(1, continues="first"), task="second"), before=0, workflow="second")
    for task in ("old", "carried on"):
        await ours.write(turn(told(1), task=task), before=0, workflow=task)
    between = datetime.now(UTC)
    await ours.write(turn(told(1, continues="carried on"), task="young"), before=0, workflow="young")
    tasks = await ours.tasks(LATER, "", 9)
    pruned = await ours.prune([*tasks, "foreign"], between, carried=["second"])
    newest = {name: [past.task for past in (await ours.load(name)).newest()] for name in ("old", "young", "second")}
    foreign = await theirs.prune([], LATER)
    left = [past.task for past in (await theirs.load("foreign")).newest()]
    await engine.dispose()

    assert ({*tasks}, pruned, foreign) == ({"first", "second", "old", "carried on", "young"}, 1, 0)
    assert newest == {"old": [], "young": ["carried on", "young"], "second": ["first", "second"]}
    assert left == ["foreign"]
