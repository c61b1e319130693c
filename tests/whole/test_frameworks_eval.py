"""How `evals.frameworks` judges the runs of agents with function tools."""

from collections import Counter
from collections.abc import Sequence

import pytest

from evals.frameworks.bank import MOMENTS
from evals.frameworks.function_tools import CALLS, End, Kill, drawn


@pytest.mark.parametrize(
    ("book", "said", "end"),
    [
        (["pay 1", "mail 2", "pay 3"], "pay 1; mail 2; pay 3", End.ONCE),
        (["pay 1", "mail 2", "pay 3"], "pay 1; mail 2; pay 1", End.LOST),
        (["pay 1", "mail 2"], "pay 1; mail 2; pay 1", End.LOST),
        (["pay 1", "mail 2", "pay 3", "pay 4"], "pay 1; mail 2; pay 4", End.TWICE),
        (["pay 1", "mail 2", "mail 3", "pay 4"], "OutcomeUnknown", End.TWICE),
        (["pay 1", "mail 2"], "DoubtfulCall: it may be the call", End.PERSON),
    ],
)
def test_the_end_of_a_run(book: Sequence[str], said: str, end: End) -> None:
    assert Kill("langgraph", 1, "returned", 0.0, book=book, said=said).end is end


def test_the_moments_of_the_kills_come_equally_often() -> None:
    kills = drawn("langgraph", 5 * len(MOMENTS), seed=1)

    assert Counter(kill.moment for kill in kills) == dict.fromkeys(MOMENTS, 5)
    assert {kill.number for kill in kills} == {*range(1, CALLS + 1)}
    assert [*map(str, kills)] == [*map(str, drawn("langgraph", 5 * len(MOMENTS), seed=1))]
