"""How figures of benchmarks are read and judged."""

from pathlib import Path

import pytest

from benchmarks import ledger
from benchmarks.ledger import ALONE, CALL, ONCE
from benchmarks.long_task import Line, Tally, script
from benchmarks.observability import Added
from benchmarks.report import Figure, Verdict
from benchmarks.steps import GOALS
from benchmarks.turns import Side, TurnsReport
from workflows.plans.proposal import Answer, NewSteps

VERDICTS = {
    "met: fast: 1": Verdict(goal="fast", limit=1.1, value=1.0, met=True),
    "missed by 20%: fast: 1.32": Verdict(goal="fast", limit=1.1, value=1.32, met=False),
    "missed: none: 2": Verdict(goal="none", limit=0, value=2, met=False),
    "not measured: fast": Verdict(goal="fast", limit=1.1, value=None, met=False),
}


def test_a_verdict_says_by_how_much_a_goal_was_missed() -> None:
    assert [str(verdict) for verdict in VERDICTS.values()] == [*VERDICTS]


@pytest.mark.parametrize(
    ("ours", "met"),
    [
        ((2.2, 2.0, 2.5, 2.0), {"each additional step", "20 parallel steps", "events of a step"}),
        ((0.5, 0.2, 2.6, 2.1), {"each additional step", "a step", "what a retry adds to its backoff"}),
    ],
)
def test_goals_of_steps_are_judged_by_the_ratio_of_the_medians(ours: tuple[float, ...], met: set[str]) -> None:
    """Replan's median over the bare one's, against the limit of each goal; what was not measured is not met."""
    names = ("step_ms", "retry_added_ms", "parallel_ms", "events")
    bare = dict.fromkeys(names, Figure(median=2.0, low=1.0, high=3.0))
    replan = {name: Figure(median=one, low=one, high=one) for name, one in zip(names, ours, strict=True)}
    figures = {"bare_default": bare, "bare": bare, "replan": replan}

    assert {goal.text.partition(",")[0] for goal in GOALS if goal.judged(figures).met} == met


@pytest.mark.parametrize(
    ("change", "met"),
    [
        ({}, [True, True, True]),
        ({"most": 13}, [False, True, True]),
        ({"mean": 2800}, [True, False, True]),
        ({"first": 1700, "last": 1900}, [True, True, False]),
    ],
)
def test_goals_of_turns_are_judged_by_events_ratio_and_growth(change: dict[str, int], met: list[bool]) -> None:
    bare = Side(turns=100, fewest=12, most=12, first=1700, last=1710, mean=1705, parts={})

    assert [verdict.met for verdict in TurnsReport.of(bare.model_copy(update=change), bare).goals] == met


def test_figures_of_the_ledger_are_percentiles_and_two_milliseconds_more_are_allowed() -> None:
    """By nearest rank: a hundredth of the calls takes longer. The goal is at the median, over the effect alone."""
    alone, met, missed = (Figure.of([one]) for one in (2.4, 4.4, 4.41))
    many = ledger.Percentiles.of([*map(float, range(1, 201))])

    assert ledger.Percentiles.of([5.0]) == ledger.Percentiles(p50=5.0, p99=5.0)
    assert many == ledger.Percentiles(p50=100.5, p99=198.0)
    assert ledger.GOAL.judged({ALONE: {CALL: alone}, ONCE: {CALL: met}}).met
    assert not ledger.GOAL.judged({ALONE: {CALL: alone}, ONCE: {CALL: missed}}).met


def test_the_interval_of_what_observability_adds_is_that_of_the_sign_test() -> None:
    """Of twelve pairs, the third from below and the third from above."""
    added = Added.of([(1.0, 1.0 + share / 100) for share in range(1, 13)])

    assert (added.median, added.low, added.high) == (0.065, 0.03, 0.1)
    assert added.share == 0.04  # the fourth of the twelve, with a neighbour's noise in those above


def test_a_long_task_is_scripted_in_fifties_and_its_tally_read_as_it_grows(tmp_path: Path) -> None:
    """120 steps are three proposals and an answer; a second run of a step is no new step."""
    proposals = script(120, tmp_path / "none", 0.0)
    file = tmp_path / "tally"
    tally = Tally(file)
    counts = [tally.update()]
    for words in ("s1 1 10.0\n", "s1 2 11.0\ns2 1 12.0\n"):
        with file.open("a") as more:
            more.write(words)
        counts.append(tally.update())

    assert [len(one.steps) for one in proposals if isinstance(one, NewSteps)] == [50, 50, 20]
    assert isinstance(proposals[-1], Answer)
    assert counts == [0, 1, 2]
    assert tally.lines == [Line("s1", 1, 10.0), Line("s1", 2, 11.0), Line("s2", 1, 12.0)]


RUN = "Handle._run (asyncio/events.py:78)"
SAMPLES = [
    f"thread (8): MainThread;run (asyncio/x.py:1);{RUN};work (workflows/agent.py:5);show (workflows/agent.py:9) 3",
    f"thread (8): MainThread;{RUN};work (workflows/agent.py:7) 1",
    f"thread (9): tools;{RUN};call (activities/boundary/boundary.py:2) 2",
    "thread (8): MainThread;run (asyncio/runners.py:160) 5",
    f"thread (10): another;{RUN};work (workflows/agent.py:5) 7",
]


def test_flames_have_only_what_an_event_loop_of_a_worker_runs(tmp_path: Path) -> None:
    """By function, whatever the line; the picture fits the documentation."""
    pytest.importorskip("matplotlib")
    from benchmarks import flames

    tree = flames.read(SAMPLES)
    work = tree.called["the worker's loop"].called["work (workflows/agent.py)"]
    flames.draw(tree, tmp_path / "worker.png")

    assert (tree.samples, work.samples, work.called["show (workflows/agent.py)"].samples) == (6, 4, 3)
    assert 0 < (tmp_path / "worker.png").stat().st_size < 150_000
