"""Loops: the same call again is told once, then refused."""

from collections.abc import Sequence

import pytest
from pydantic import JsonValue

from workflows.plans.catalogue import Effect
from workflows.plans.guards import LoopGuard

ARGS: dict[str, JsonValue] = {"query": "refund", "limit": 3}
Made = tuple[int, JsonValue, int]
"""The turn of a call, its result, and the effects that were finished then."""


def made(*calls: Made, effect: Effect = Effect.READ) -> tuple[LoopGuard, list[bool]]:
    """A guard that saw these calls with the same arguments, and what it said of each."""
    guard = LoopGuard()
    said = [guard.note("find", ARGS, seen, effect, revision=turn, changes=changes) for turn, seen, changes in calls]
    return guard, said


CASES: list[tuple[str, Sequence[Made], list[bool], bool]] = [
    ("once", [(1, "x", 0)], [False], False),
    ("twice", [(1, "x", 0), (2, "x", 0)], [False, True], True),
    ("another result", [(1, "x", 0), (2, "y", 0)], [False, False], False),
    ("another result at last", [(1, "x", 0), (2, "x", 0), (3, "y", 0)], [False, True, False], False),
    ("an effect between", [(1, "x", 0), (2, "x", 1)], [False, False], False),
    ("not in a row", [(1, "x", 0), (3, "x", 0)], [False, False], False),
    ("twice in one turn", [(1, "x", 0), (1, "x", 0)], [False, True], True),
    ("a whole number is the same number", [(1, 2, 0), (2, 2.0, 0)], [False, True], True),
]


@pytest.mark.parametrize(
    ("calls", "unchanged", "refused"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_call_that_shows_the_same_twice_in_a_row_is_refused(
    calls: Sequence[Made], unchanged: list[bool], refused: bool
) -> None:
    """The second is told that nothing has changed; the third is not made."""
    guard, said = made(*calls)
    turn, _, changes = calls[-1]

    assert said == unchanged
    assert guard.refuses("find", ARGS, revision=turn, changes=changes) is refused


def test_it_may_be_made_again_after_something_else() -> None:
    """An effect finished since, or a turn did something else: then the world may be another one."""
    guard, _ = made((1, "x", 0), (2, "x", 0))

    assert not guard.refuses("find", ARGS, revision=2, changes=1)
    assert not guard.refuses("find", ARGS, revision=3, changes=0)


def test_other_arguments_are_another_call() -> None:
    """And so is another kind."""
    guard, _ = made((1, "x", 0), (2, "x", 0))

    assert not guard.refuses("find", {**ARGS, "limit": 4}, revision=2, changes=0)
    assert not guard.refuses("look", ARGS, revision=2, changes=0)


EFFECTS = [(Effect.IDEMPOTENT, True), (Effect.KEYED, False), (Effect.TRANSACTIONAL, False), (Effect.UNKEYED, False)]


@pytest.mark.parametrize(("effect", "unchanged"), EFFECTS)
def test_an_effect_changes_something_unless_it_is_idempotent(effect: Effect, unchanged: bool) -> None:
    """To write the same file again changes nothing; to buy the same again does."""
    _, said = made((1, "x", 1), (2, "x", 2), effect=effect)

    assert said == [False, unchanged]


def test_the_memory_stays_small() -> None:
    """Of a long task the calls of two turns are kept."""
    guard = LoopGuard()
    for turn in range(1, 500):
        guard.note("find", {"query": turn}, "x", Effect.READ, revision=turn, changes=0)

    assert len(guard.calls) == 2
