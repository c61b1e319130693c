"""Drawn sequences of agents at the gateway: a few in each run of the tests, many by `sequences.py`."""

import pytest

from extras.gateway.tests.oracle import Attempt, Done, judge
from extras.gateway.tests.sequences import play_all
from tests.effects.oracle import Meant
from tests.effects.tally import Tally

PAY = {"who": "a", "amount": "5", "note": "ok"}
MEANT = [Meant("m0", "pay", PAY), Meant("m1", "pay", PAY)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", [1, pytest.param(10_000, marks=pytest.mark.full)])
def test_no_sequence_breaks_what_the_page_says(first: int) -> None:
    """No effect twice that the page does not name, none lost, and no meant one swallowed in silence."""
    tally = Tally(24 if first == 1 else 150)
    play_all(range(first, first + tally.total), 4, tally)

    assert (tally.done, tally.broken) == (tally.total, []), "\n".join(tally.lines())


def attempt(meant: str, begin: float, result: str | None = None, **more: object) -> Attempt:
    """A request of an agent that was answered after a second."""
    made = Attempt(meant, "pay", "a", 5.0, "ok", None, 1, begin, False)
    made.result, made.end = result, begin + 1
    for name, value in more.items():
        setattr(made, name, value)
    return made


def done(name: str, at: float) -> Done:
    return Done(name, "pay", "a", 5.0, "ok", at)


PLANTED: dict[str, tuple[list[Done], list[Attempt]]] = {
    "double": ([done("x", 1), done("y", 3)], [attempt("m0", 0.5, end=float("inf")), attempt("m0", 2.5, "y")]),
    "swallowed": ([done("x", 1)], [attempt("m0", 0.5, "x"), attempt("m1", 2.5, "x")]),
    "lost": ([], [attempt("m0", 0.5, "x")]),
    "stuck": ([], [attempt("m0", 0.5, code="doubtful", applied="none")]),
    "untrue": ([done("x", 1)], [attempt("m0", 0.5, applied="none")]),
    "unasked": ([done("x", 9)], [attempt("m0", 0.5, "z")]),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_the_judge_finds_what_is_planted(kind: str) -> None:
    """A judge that sees nothing is no judge."""
    verdict = judge(MEANT, *PLANTED[kind], is_calm=False)

    assert kind in [found for found, _, _ in verdict.violations]


def test_the_judge_finds_nothing_where_nothing_is_wrong() -> None:
    """Two that are meant, one that was said to be the earlier one, and one that was settled."""
    calls = [attempt("m0", 0.5, "x"), attempt("m1", 2.5, "x", was_said=True), attempt("m1", 4.0, "y")]

    assert judge(MEANT, [done("x", 1), done("y", 4.5)], calls, is_calm=False).violations == []
