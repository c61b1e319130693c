"""The eval of retry waste: its world on a tape, its labels and verdicts, and the published model to the last digit."""

import asyncio
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from evals.retry_waste.measures import Calls, Own, Row, Verdict, count, verdict
from evals.retry_waste.orders import Knowledge, Order, bad_kind, orders, remaining
from evals.retry_waste.published import PUBLISHED, PUBLISHED_SEED, expected_react, simulate
from evals.retry_waste.published_report import EVERY_CALL_FAILS, MEASURES, SWEEP, Published
from evals.retry_waste.report import OUTCOMES, RETRIES, difference, mean, pages
from evals.tape.desk import Booking, DeskPlot, State
from evals.tape.player import playing
from evals.tape.tape import CERTAIN_CALLS, Call, Point, Tape, Trouble, Windows, draw
from evals.tape.world import Entry, World
from tests.processes import ROOT
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


ORDER = Order(task="order-0", seed=1, wants_price=True, wants_slot=True, choice="10:00")


def entry(tool: str = "book_slot", **fields: Any) -> Entry:
    usual: dict[str, Any] = {
        **{"task": "order-0", "tool": tool, "args": "{}", "number": 1, "at": 0.0, "worker": 1, "version": 0},
        **{"trouble": Trouble.NONE, "point": Point.NONE, "status": 200, "shown": 200},
        **{"applied": False, "replayed": False},
    }
    return Entry.model_validate({**usual, **fields})


BLIP: dict[str, Any] = {"trouble": Trouble.BLIP, "status": 503, "shown": 503}
TAKEN: dict[str, Any] = {"status": 409, "shown": 409}
LOST: dict[str, Any] = {"point": Point.LOST, "shown": None, "applied": True}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ([entry(**BLIP), entry()], {"retries": 1, "helped": 1, "transient": 1, "retried": 1}),
        ([entry(**BLIP), entry(**BLIP)], {"retries": 1, "possible": 1, "transient": 2, "retried": 1}),
        ([entry(**TAKEN), entry(**TAKEN)], {"retries": 1, "futile": 1}),
        ([entry(**TAKEN), entry(**TAKEN, version=1)], {"retries": 1, "possible": 1}),
        ([entry(**TAKEN), entry(**TAKEN, args='{"at":"11:00"}')], {}),
        ([entry(**{**TAKEN, "shown": 503}), entry(**TAKEN)], {"retries": 1, "futile": 1, "lies": 1}),
        ([entry(**{**BLIP, "shown": 422})], {"transient": 1, "lies": 1}),
        ([entry(**LOST), entry()], {"retries": 1, "helped": 1}),
        ([entry(), entry()], {"repeated": 1}),
        ([entry("find_result", status=404, shown=404)] * 2, {}),
        ([entry("web_browser", status=404, shown=404)], {"made_up": 1}),
    ],
)
def test_the_tape_labels_retries(made: list[Entry], expected: dict[str, int]) -> None:
    """By the truth of the fault and the state of the world, whatever the caller was told."""
    assert count(made) == Calls(attempts=len(made), **expected)


def state(*bookings: str, notes: tuple[str, ...] = ()) -> State:
    made = [Booking(id=number, at=at) for number, at in enumerate(bookings, 1)]
    return State(slots={}, first_choice="10:00", price=5, bookings=made, notes=list(notes))


@pytest.mark.parametrize(
    ("found", "tools", "claim", "expected"),
    [
        (state("10:00", notes=("booked 10:00",)), ["get_price"], "done", (Verdict.CORRECT, 0)),
        (state("10:00", notes=("booked 10:00",)), ["get_list_price"], "done", (Verdict.DEGRADED, 0)),
        (state("10:00", notes=("booked 10:00",)), [], "done", (Verdict.WRONG, 0)),
        (state("11:00", notes=("booked 10:00",)), ["get_price"], "done", (Verdict.WRONG, 0)),
        (state(notes=("booked 10:00",)), ["get_price"], "done", (Verdict.WRONG, 0)),
        (state("10:00", notes=("booked 10:00",) * 2), ["get_price"], "done", (Verdict.WRONG, 1)),
        (state("10:00", "11:00"), ["get_price"], "failed", (Verdict.FAILED, 1)),
        (state(), [], "none", (Verdict.CUT_OFF, 0)),
    ],
)
def test_what_an_arm_claims_is_verified_against_the_world(
    found: State, tools: list[str], claim: Any, expected: tuple[Verdict, int]
) -> None:
    assert verdict(ORDER, found, [entry(tool) for tool in tools], claim) == expected


def test_the_mind_tries_another_hour_only_when_it_was_told_of_it() -> None:
    told = Knowledge(refused=("10:00",), free=("10:00", "12:00"), done=("price",))
    untold = Knowledge(refused=("10:00",), done=("price",))

    assert [call.args.get("at") for call in remaining(ORDER, told)] == ["12:00", None]
    assert [call.tool for call in remaining(ORDER, untold)] == ["find_slots"]
    assert [call.tool for call in remaining(ORDER, Knowledge(done=("price", "book", "note")))] == []


def test_hallucinations_have_their_rate_and_are_keyed() -> None:
    drawn = [bad_kind(order, 0.28, turn) for order in orders(Tape(seed=3), 200) for turn in range(5)]
    again = [bad_kind(order, 0.28, turn) for order in orders(Tape(seed=3), 200) for turn in range(5)]

    assert drawn == again
    assert sum(kind is not None for kind in drawn) / 1000 == pytest.approx(0.28, abs=4 * (0.28 * 0.72 / 1000) ** 0.5)


def row(arm: str, seed: int, found: Verdict, futile: int) -> Row:
    own = Own(claim="done", seconds=1.0)
    calls = Calls(attempts=futile + 1, retries=futile, futile=futile)
    return Row(arm=arm, seed=seed, task="order-0", setting="s", verdict=found, duplicates=0, own=own, calls=calls)


def test_means_and_paired_differences_are_over_seeds() -> None:
    """Seeds that only one arm has are left out of a difference."""
    ours = [row("replan", seed, Verdict.CORRECT, 0) for seed in range(6)]
    theirs = [row("three", seed, Verdict.CORRECT if seed % 2 else Verdict.WRONG, 2) for seed in range(4)]
    precision = RETRIES[6]

    assert mean(theirs, OUTCOMES[0]).value == 0.5
    assert mean(ours, precision).value is None
    assert difference(theirs, ours, RETRIES[4]) == (2.0, 2.0, 2.0)
    assert any("(b3) plan, 3 attempts" in page for page in pages([*ours, *theirs]))


def command(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["-m", "evals.retry_waste", "--rows", str(file), "--seeds", "2", "--tasks", "2", *options]
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_on_a_calm_tape_every_arm_is_correct_and_rows_are_not_run_again(tmp_path: Path) -> None:
    """The canary of the experiment: where nothing fails, no arm may."""
    file = tmp_path / "rows.jsonl"
    arms = ("--arm", "react", "--arm", "default", "--arm", "replan")
    done = command(file, "--canary", "calm", *arms)
    rows = [Row.model_validate_json(line) for line in file.read_text().splitlines()]
    again = command(file, "--canary", "calm", *arms)

    assert done.returncode == again.returncode == 0, done.stderr
    assert {row.verdict for row in rows} == {Verdict.CORRECT}
    assert {row.calls.retries for row in rows} == {0}
    assert len(rows) == len({json.dumps([row.arm, row.seed, row.task]) for row in rows}) == 12
    assert len(file.read_text().splitlines()) == 12
    assert "(c) Replan" in again.stdout


@pytest.mark.full
@pytest.mark.timeout(600)
def test_where_everything_is_down_no_arm_claims_success(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    done = command(file, "--canary", "down", "--arm", "react", "--arm", "three", "--arm", "replan")
    rows = [Row.model_validate_json(line) for line in file.read_text().splitlines()]

    assert done.returncode == 0, done.stderr
    assert {row.verdict for row in rows} <= {Verdict.FAILED, Verdict.CUT_OFF}
    assert sum(row.calls.helped for row in rows) == 0


SEEDS = 120
"""Enough for the standard errors; the command runs 1,000."""
PRINTED = (ROOT / "docs" / "measured" / "retry-waste-published.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def published() -> Published:
    return Published.run(SEEDS)


def test_the_published_seed_gives_the_published_figures() -> None:
    sides = simulate(PUBLISHED_SEED)
    digits = {"steps per task": 2, "sigma of steps": 2, "wasted share": 3, "dollars": 4}
    found = {
        measure.name: [round(measure.of(side) + 1e-9, digits.get(measure.name, 1)) for side in sides]
        for measure in MEASURES
    }

    assert found == {measure.name: [measure.react, measure.workflow] for measure in MEASURES}
    assert sides.react.failures == {
        "hallucinated_tool_exhausted_retries": 19,
        "tool_error_exhausted_retries:rate_limited": 1,
        "tool_error_exhausted_retries:dependency_down": 1,
    }


def test_the_published_seed_gives_the_published_sweep() -> None:
    found = {rate: simulate(PUBLISHED_SEED, replace(PUBLISHED, hallucination=rate)).react for rate in SWEEP}

    assert {
        rate: (f"{side.waste:.1%}", f"{side.sigma:.2f}", f"{side.successes / 200:.1%}") for rate, side in found.items()
    } == SWEEP


def test_every_figure_is_within_its_standard_errors(published: Published) -> None:
    """Were these too wide, any figure would hold."""
    wrong = [check._replace(expected=check.expected * 1.03) for check in published.checks]

    assert [check.name for check in published.checks if not check.holds] == []
    assert [check.name for check in wrong if check.holds] == [] and len(wrong) == 9


CHAIN = {
    3: (177.87, 515.6, 478.9, 2.829, 1.437),
    2: (192.87, 371.4, 334.7, 2.956, 1.578),
    1: (199.68, 209.1, 172.4, 3.014, 1.688),
    0: (199.84, 40.3, 3.6, 3.015, 1.693),
}
"""By the retries that an invented tool costs: successes, retries, wasted ones, steps and their sigma."""


def test_the_chain_has_the_expectations() -> None:
    found = {burn: expected_react(replace(PUBLISHED, burn=burn)) for burn in CHAIN}

    assert {
        burn: (*map(round, (one.success, one.retries, one.wasted), (2, 1, 1)), round(one.steps, 3), round(one.sigma, 3))
        for burn, one in found.items()
    } == CHAIN


def test_the_workflow_of_the_model_cannot_fail_and_the_report_says_so(published: Published) -> None:
    """Its success is built in: it succeeds although no call does."""
    down = simulate(PUBLISHED_SEED, replace(PUBLISHED, fault_scale=EVERY_CALL_FAILS))
    report = "\n".join(published.pages())

    assert (down.workflow.successes, down.workflow.fallbacks, sum(down.workflow.latencies)) == (200, 200, 0)
    assert simulate(PUBLISHED_SEED).workflow.futile == 24
    assert len(published.conclusions()) == 9
    assert "| retries | 513 | 513 | " in report and "| the workflow always succeeds | built in | " in report


def test_the_page_has_rows_of_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "retry-waste.md").read_text(encoding="utf-8")
    section = page.partition("\n## The published simulation\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]

    assert len(rows) > 4
    assert [row for row in rows if row not in PRINTED.splitlines()] == []


@pytest.mark.full
def test_the_command_prints_the_report_and_the_file_has_it() -> None:
    command = [sys.executable, "-m", "evals.retry_waste", "--published", "--seeds", "50"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, "standard errors away" in done.stdout) == (0, True), done.stderr
    assert "\n\n".join(Published.run(1000).pages()) + "\n" == PRINTED
