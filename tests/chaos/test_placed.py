"""The table of placed kills, and the order of the kills."""

from itertools import pairwise

import pytest

from evals.chaos.placed import KINDS, POINTS, TIMES, Cell, Expected, expected, placed_kills

ONCE = Expected(statuses=("completed",), effects=(1,))


@pytest.mark.parametrize(
    ("ended", "counts", "is_right"),
    [
        (["completed"] * 3, [1, 1, 1], True),
        (["completed"] * 3, [1, 2, 1], False),
        (["completed"] * 3, [1, 0, 1], False),
        (["completed", "escalated"], [1, 1], False),
        ([], [], False),
    ],
)
def test_a_cell_is_right_when_all_its_tasks_are(ended: list[str], counts: list[int | None], is_right: bool) -> None:
    cell = Cell(effect="keyed", point="after_claim", expected=ONCE, ended=ended, effects=counts)

    assert cell.is_right is is_right


def test_every_effect_is_killed_three_times_at_every_point() -> None:
    """And no kind follows itself, since the next victim serves the task before its own."""
    kinds = [hit.kind for hit in placed_kills(7)]

    assert len(kinds) == len(KINDS) * len(POINTS) * TIMES
    assert all(kind != following for kind, following in pairwise(kinds))


def test_what_nobody_can_find_out_is_left_to_a_person() -> None:
    """The only kind that may end as escalated, and only where its answer was lost."""
    escalated = {(kind, point) for kind in KINDS for point in POINTS if expected(kind, point).statuses != ONCE.statuses}

    assert escalated == {("pay_blindly", point) for point in POINTS if point not in ("after_answer", "after_commit")}
