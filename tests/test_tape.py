"""The world on a tape: its outcomes depend on the tape and the clock alone, and the journal has all of them."""

import asyncio
import itertools
import random
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from evals.tape.desk import DeskPlot, State
from evals.tape.player import playing
from evals.tape.tape import CERTAIN_CALLS, Call, Point, Tape, Trouble, Windows, draw
from evals.tape.world import Entry, World
from workflows.json_values import canonical

TASKS = [f"order-{number}" for number in range(40)]
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("find_slots", {}),
    ("get_price", {"item": "chair"}),
    ("book_slot", {"at": "09:00", "name": "ann"}),
    ("send_note", {"text": "hello"}),
]
CALLS = [(task, tool, args) for task in TASKS for tool, args in KINDS for _ in range(3)]


def journal(folder: Path, tape: Tape, calls: Iterable[tuple[str, str, dict[str, Any]]]) -> list[Entry]:
    folder.mkdir(exist_ok=True)
    with closing(World(folder / "world.db", DeskPlot(tape))) as world:
        for task, tool, args in calls:
            world.call(task, tool, args, at=7.0)
        entries = [entry.model_copy(update={"id": 0}) for entry in world.entries()]
    return sorted(entries, key=lambda entry: (entry.task, entry.tool, entry.number))


@contextmanager
def opened(folder: Path, tape: Tape) -> Iterator[World[State]]:
    with closing(World(folder / "world.db", DeskPlot(tape))) as world:
        yield world


def shuffled_between_tasks() -> list[tuple[str, str, dict[str, Any]]]:
    of_task = {task: [call for call in CALLS if call[0] == task] for task in TASKS}
    order = [task for task in TASKS for _ in of_task[task]]
    random.Random(1).shuffle(order)  # noqa: S311  # an order, no secret
    return [of_task[task].pop(0) for task in order]


def test_outcomes_depend_on_the_tape_and_not_on_the_order_of_tasks(tmp_path: Path) -> None:
    tape = Tape(seed=7, lying=0.15, denied=0.2, kills=0.2)
    one, other = journal(tmp_path / "a", tape, CALLS), journal(tmp_path / "b", tape, shuffled_between_tasks())

    assert one == other != journal(tmp_path / "c", tape.model_copy(update={"seed": 8}), CALLS)
    assert {entry.trouble for entry in one} >= {Trouble.NONE, Trouble.BLIP, Trouble.DENIED}
    assert {entry.point for entry in one} == set(Point)
    assert any(entry.is_lie for entry in one)


def test_draws_are_uniform_and_equal_numbers_are_one_key() -> None:
    drawn = [draw(1, "blip", task, number) for task in TASKS for number in range(150)]

    assert draw(1, "a") == draw(1.0, "a") != draw(1, "b")
    assert min(drawn) >= 0 and max(drawn) < 1
    assert abs(sum(drawn) / len(drawn) - 0.5) < 4 * (1 / 12 / len(drawn)) ** 0.5


@pytest.mark.parametrize("share", [0.0, 0.35, 1.0])
def test_windows_have_their_share_and_length(share: float) -> None:
    windows = Windows(share=share, period=20, seconds=6)
    times = [at / 10 for at in range(60_000)]
    open_at = [windows.end(3, "outage", "get_price", at) is not None for at in times]
    spans = [len(list(group)) / 10 for is_open, group in itertools.groupby(open_at) if is_open]

    assert sum(open_at) / len(open_at) == pytest.approx(share if share == 1 else share * 6 / 20, abs=0.02)
    assert all(5.9 <= span <= 12.1 for span in spans) or share == 1  # two windows may touch


def test_a_limit_says_how_long_it_lasts() -> None:
    tape = Tape(seed=3, outages=Windows(share=0), limits=Windows(share=0.9, seconds=3))
    calls = [Call("t", "get_price", {}, 1, at / 10) for at in range(2000)]
    limited = [call for call in calls if tape.trouble(call, is_effect=False) is Trouble.LIMIT]
    after = [call._replace(at=call.at + tape.retry_after(call) + 1e-6) for call in limited]

    assert len(limited) > 200
    assert {tape.retry_after(call) <= 3 for call in limited} == {True}
    assert sum(tape.trouble(call, is_effect=False) is Trouble.LIMIT for call in after) < len(after) / 10


def test_a_lost_answer_is_applied_and_a_key_gets_the_first_result(tmp_path: Path) -> None:
    tape = Tape.calm(1).model_copy(update={"lost": 1.0})
    with opened(tmp_path, tape) as world:
        for task, key in (("keyed", "k"), ("plain", None)):
            for _ in range(CERTAIN_CALLS + 2):
                last = world.call(task, "send_note", {"text": "hello"}, 0.0, key)
            assert last.reply is not None and last.reply.status == 200

        assert [len(world.state(task).notes) for task in ("keyed", "plain")] == [1, CERTAIN_CALLS + 2]
        assert [entry.shown for entry in world.entries()] == [None, 200, 200, 200, None, None, 200, 200]


def test_another_actor_takes_the_first_choice_before_the_first_call(tmp_path: Path) -> None:
    with opened(tmp_path, Tape.calm(1).model_copy(update={"taken": 1.0})) as world:
        choice = world.state("t").first_choice
        first = world.call("t", "book_slot", {"at": choice, "name": "ann"}, 0.0)
        again = world.call("t", "book_slot", {"at": choice, "name": "ann"}, 0.0)
        assert first.reply is not None and again.reply is not None
        other = world.call("t", "book_slot", {"at": first.reply.body["free"][0], "name": "ann"}, 0.0)

        assert (first.reply.status, again.reply.status) == (409, 409)
        assert other.reply is not None and other.reply.status == 200
        assert [entry.version for entry in world.entries()] == [1, 1, 1]
        assert [entry.is_transient for entry in world.entries()] == [False, False, False]


def test_nothing_fails_on_a_calm_tape_and_everything_on_one_that_is_down(tmp_path: Path) -> None:
    calm = journal(tmp_path / "calm", Tape.calm(3), [(task, "send_note", {"text": "x"}) for task in TASKS])
    down = journal(tmp_path / "down", Tape.down(3), CALLS)

    assert {entry.shown for entry in calm} == {200}
    assert {(entry.shown, entry.trouble) for entry in down} == {(503, Trouble.OUTAGE)}


async def test_a_process_of_its_own_plays_the_same_tape(tmp_path: Path) -> None:
    tape = Tape(seed=7, lying=0.15, kills=0, outages=Windows(share=0), limits=Windows(share=0))
    (tmp_path / "http").mkdir()
    async with playing(tmp_path / "http", tape) as played, httpx2.AsyncClient(trust_env=False) as http:

        async def calls_of(task: str) -> None:
            for _, tool, args in [call for call in CALLS if call[0] == task]:
                try:
                    await http.post(f"{played.url}/{tool}", json={"task": task, "args": args})
                except httpx2.TransportError:  # a lost answer
                    continue

        await asyncio.gather(*(calls_of(task) for task in TASKS[:20]))
        found = played.world.entries()
    expected = journal(tmp_path / "functions", tape, [call for call in CALLS if call[0] in TASKS[:20]])

    outcomes = [
        {canonical(entry.model_dump(mode="json", exclude={"id", "at", "worker"})) for entry in entries}
        for entries in (found, expected)
    ]

    assert outcomes[0] == outcomes[1] != set() and len(found) == len(expected)


def test_a_result_is_found_by_the_key_of_its_call(tmp_path: Path) -> None:
    """How a tool finds out whether a call without an answer was applied."""
    with opened(tmp_path, Tape.calm(1).model_copy(update={"lost": 1.0})) as world:
        before = world.call("t", "find_result", {"key": "k"}, 0.0)
        lost = world.call("t", "send_note", {"text": "hello"}, 0.0, "k")
        after = world.call("t", "find_result", {"key": "k"}, 0.0)

    assert lost.reply is None
    assert before.reply is not None and before.reply.status == 404
    assert after.reply == (200, {"number": 1})
