"""`evals.situations` with one run of each: what the table of docs/effects.md has is what comes out."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from evals.situations import functions, tasks
from evals.situations.functions import ARMS, TOLD, Arm, Names
from evals.situations.situation import SITUATIONS, Act, Call, End, Situation, end_of
from evals.situations.tasks import PLAYED, TASK_ARMS
from tests import documentation
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "effects.md").read_text(encoding="utf-8")
TOLD_ROW = "functions, each of these six with `raises=`"
ROWS = {row[0]: row[1:] for row in documentation.tables(PAGE)["arm"]}


@pytest.mark.parametrize(
    "arm", [ARMS[0], *(pytest.param(arm, marks=pytest.mark.full) for arm in [*ARMS[1:], *TOLD])], ids=str
)
def test_what_comes_out_is_in_the_table(arm: Arm, tmp_path: Path) -> None:
    """In each arm a situation comes to what the page says, and to nothing else."""
    template, row = functions.empty_store(tmp_path), TOLD_ROW if arm.is_told else str(arm)
    for number in [6] if arm.is_told else SITUATIONS:
        ends = functions.cell(number, arm, 1, tmp_path, template, seed=3)

        assert {str(end) for end in ends} <= {end for end in End if end in ROWS[row][number - 1]}, number


@pytest.mark.full
@pytest.mark.timeout(600)
async def test_tasks_come_to_what_is_in_the_table(tmp_path: Path) -> None:
    found = dict[tuple[int, str], Counter[End]]()
    async with tasks.serving(tmp_path) as (server, client):
        for number in PLAYED:
            for arm in TASK_ARMS:
                found[number, str(arm)] = await tasks.cell(number, arm, 1, tmp_path, server, client)

    assert {key: [*map(str, ends)] for key, ends in found.items()} == {
        (number, arm): [ROWS[arm][number - 1]] for number, arm in found
    }


def test_an_agent_without_the_floor_would_do_it_twice(tmp_path: Path) -> None:
    """The judge counts what the world has: a key that differs each time is as if there were none."""
    again = Situation("", (Call(Act.DIE_AFTER, "refund"), Call(Act.OK, "refund")), 1, in_new_process=True)
    arm, template = Arm(Names.KEYS, has_reconcile=True), functions.empty_store(tmp_path)

    draw = Random(1)  # noqa: S311  # a trial, no secret
    assert functions.play(again, arm, tmp_path / "run", template, draw) is End.WRONG


def test_the_end_of_a_run() -> None:
    """An effect too many is wrong whoever is asked; one that is missing is wrong if nobody is."""
    ends = {(count, is_asked): end_of(count, 1, is_asked=is_asked) for count in range(3) for is_asked in (False, True)}

    assert ends == {
        **{(1, False): End.WANTED, (1, True): End.PERSON, (0, True): End.PERSON},
        **{(0, False): End.WRONG, (2, False): End.WRONG, (2, True): End.WRONG},
    }
