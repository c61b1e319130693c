"""Progress: the same call again is told once, then refused, unless the task has made progress."""

from collections.abc import Sequence

import pytest
from pydantic import JsonValue

from workflows.plans.catalogue import Effect
from workflows.plans.repeated_calls import MAX_REMEMBERED, ProgressGuard

ARGS: dict[str, JsonValue] = {"query": "refund", "limit": 3}
Made = tuple[int, JsonValue, int]
"""The turn of a call, its result, and the effects that were finished then."""


def made(*calls: Made, effect: Effect = Effect.READ) -> tuple[ProgressGuard, list[bool]]:
    """A guard that saw these calls with the same arguments, and what it said of each."""
    guard = ProgressGuard()
    said = [guard.note("find", ARGS, seen, effect, revision=turn, changes=changes) for turn, seen, changes in calls]
    return guard, said


CASES: list[tuple[str, Sequence[Made], list[bool], bool]] = [
    ("once", [(1, "x", 0)], [False], False),
    ("twice", [(1, "x", 0), (2, "x", 0)], [False, True], True),
    ("another result", [(1, "x", 0), (2, "y", 0)], [False, False], False),
    ("another result at last", [(1, "x", 0), (2, "x", 0), (3, "y", 0)], [False, True, False], False),
    ("an effect between", [(1, "x", 0), (2, "x", 1)], [False, False], False),
    ("not in a row", [(1, "x", 0), (3, "x", 0)], [False, True], True),
    ("twice in one turn", [(1, "x", 0), (1, "x", 0)], [False, True], False),
    ("twice in one turn, and again", [(1, "x", 0), (1, "x", 0), (2, "x", 0)], [False, True, True], True),
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
    changes = calls[-1][2]

    assert said == unchanged
    assert guard.refuses("find", ARGS, changes=changes) is refused


def test_it_may_be_made_again_after_something_else() -> None:
    """An effect finished since, or a turn did something else: then the world may be another one.

    Other arguments, or another kind, are another call.
    """
    guard, _ = made((1, "x", 0), (2, "x", 0))

    assert not guard.refuses("find", {**ARGS, "limit": 4}, changes=0)
    assert not guard.refuses("look", ARGS, changes=0)
    assert not guard.refuses("find", ARGS, changes=1)
    guard.note("look", ARGS, "y", Effect.READ, revision=3, changes=0)
    assert not guard.refuses("find", ARGS, changes=0)


@pytest.mark.parametrize("effect", [effect for effect in Effect if effect is not Effect.READ])
def test_an_effect_changes_something_unless_it_is_idempotent(effect: Effect) -> None:
    """To write the same file again changes nothing; to buy the same again does."""
    _, said = made((1, "x", 1), (2, "x", 2), effect=effect)

    assert said == [False, effect is Effect.IDEMPOTENT]


def test_the_memory_stays_small() -> None:
    """Of a long task few calls are kept, but all of the two newest turns."""
    guard = ProgressGuard()
    for turn in range(1, 500):
        guard.note("find", {"query": turn}, "x", Effect.READ, revision=turn, changes=0)
    assert len(guard.calls) == MAX_REMEMBERED
    for call in range(60):
        guard.note("look", {"query": call}, "x", Effect.READ, revision=500, changes=0)

    assert len(guard.calls) == 61


Named = tuple[str, JsonValue]
"""The kind of a call, and its result."""


class Told:
    """A task whose planner takes one turn after another, in its guard."""

    def __init__(self) -> None:
        """Begin."""
        self.guard, self.turn, self.effects, self.words = ProgressGuard(), 0, 0, 0

    def take(self, *calls: Named, waits: str = "", model: str = "", idempotent: str = "", keyed: str = "") -> bool:
        """Take a turn with these calls, and return True; or make no call, if one of them is refused."""
        now = {"changes": self.effects, "sent": self.words}
        if any(self.guard.refuses(kind, ARGS, **now) for kind, _ in calls):
            return False
        self.turn += 1
        for kind, result in calls:
            effect = Effect.IDEMPOTENT if kind == idempotent else Effect.KEYED if kind == keyed else Effect.READ
            self.effects += effect is not Effect.READ
            self.guard.note(
                kind,
                ARGS,
                result,
                effect,
                revision=self.turn,
                changes=self.effects,
                sent=self.words,
                has_waited=kind == waits,
                is_by_model=kind == model,
            )
        return True

    def turns(self, most: int, *plans: Sequence[Named], **kinds: str) -> int:
        """How many turns the task takes, with these plans in turn, until a call is refused."""
        return next((turn for turn in range(most) if not self.take(*plans[turn % len(plans)], **kinds)), most)


A, B, C = ("a", 1), ("b", 2), ("c", 3)
CYCLES: list[tuple[str, Sequence[Sequence[Named]], dict[str, str], int]] = [
    ("a call", [[A]], {}, 2),
    ("a plan", [[A, B]], {}, 2),
    ("two plans", [[A], [B]], {}, 4),
    ("three plans", [[A], [B], [C]], {}, 6),
    ("a plan of what was found", [[A], [B], [A, B]], {}, 3),
    ("a write that changes nothing", [[A], [B]], {"idempotent": "a"}, 4),
    ("a text of a model, which differs", [[A], [("b", 3)], [A], [("b", 4)]], {"model": "b"}, 4),
    ("a slow call", [[A]], {"waits": "a"}, 2),
    ("long plans in turn", [[(f"a{n}", n) for n in range(20)], [(f"b{n}", n) for n in range(20)]], {}, 4),
]


@pytest.mark.parametrize(("plans", "kinds", "turns"), [case[1:] for case in CYCLES], ids=[case[0] for case in CYCLES])
def test_plans_in_turn_end_before_they_are_made_a_third_time(
    plans: Sequence[Sequence[Named]], kinds: dict[str, str], turns: int
) -> None:
    """Each call of a cycle is made twice."""
    assert Told().turns(50, *plans, **kinds) == turns


ALLOWED: list[tuple[str, Sequence[Sequence[Named]], dict[str, str]]] = [
    ("a state that changes", [[("a", turn)] for turn in range(50)], {}),
    ("a read after each write", [[A], [B]], {"keyed": "b"}),
    ("an effect, again", [[A]], {"keyed": "a"}),
    ("a look after each wait", [[A], [B]], {"waits": "b"}),
    ("a wait and a look in one plan", [[B, A]], {"waits": "b"}),
    ("a read at the start of each new plan", [[A, ("b", turn)] for turn in range(50)], {}),
    ("a look between new ones", [[A] if turn % 2 else [("b", turn)] for turn in range(50)], {}),
]


@pytest.mark.parametrize(("plans", "kinds"), [case[1:] for case in ALLOWED], ids=[case[0] for case in ALLOWED])
def test_a_task_that_makes_progress_may_repeat_its_calls(
    plans: Sequence[Sequence[Named]], kinds: dict[str, str]
) -> None:
    """To poll a state, or to read after a write, is no repeat."""
    assert Told().turns(50, *plans, **kinds) == 50


def test_what_a_person_says_is_progress() -> None:
    """After it the planner may look again; then the count begins anew."""
    task = Told()
    assert task.turns(9, [A]) == 2
    task.words += 1

    assert task.turns(9, [A]) == 2


def test_another_fault_is_progress_and_the_same_fault_is_none() -> None:
    """A plan whose last step fails in another way has found something out."""
    for faults, turns in ((["taken", "gone", "late", "cold"], 5), (["taken", "taken", "taken", "taken"], 4)):
        task = Told()
        for turn, fault in enumerate(faults, 1):
            taken = task.take(("a", 0) if turn % 2 else ("b", 0))
            if taken:
                task.guard.note_fault("book", ARGS, fault, revision=task.turn, changes=0, sent=0)
        assert task.turn + task.take(("a", 0)) == turns, faults
