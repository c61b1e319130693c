"""`python -m evals.retry_waste`: labels and verdicts come from the tape, and real arms do what is known of them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evals.retry_waste.measures import Calls, Own, Row, Verdict, count, verdict
from evals.retry_waste.orders import Knowledge, Order, bad_kind, orders, remaining
from evals.retry_waste.report import OUTCOMES, RETRIES, difference, mean, pages
from evals.tape.desk import Booking, State
from evals.tape.tape import Point, Tape, Trouble
from evals.tape.world import Entry
from tests.processes import ROOT

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
