"""The repeat guard: what failed persistently is refused until the world has changed."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import JsonValue

from workflows.plans.guards import RepeatGuard

ARGS: dict[str, JsonValue] = {"slot": "nine", "name": "Ada"}
LOOK: dict[str, JsonValue] = {"name": "Ada"}


def failed(*shown: JsonValue, effects: int = 0) -> RepeatGuard:
    """A guard that knows of one failed call and of what was seen after it, the oldest first."""
    guard = RepeatGuard()
    guard.remember("reserve", ARGS, effects)
    for one in shown:
        guard.observed("reserve", ARGS, "slots", LOOK, one)
    return guard


def test_a_call_that_never_failed_is_allowed() -> None:
    """Another kind, other arguments, or an empty memory: nothing to refuse."""
    guard = failed()

    assert not guard.refuses("cancel", ARGS, 0)
    assert not guard.refuses("reserve", {**ARGS, "slot": "ten"}, 0)


def test_a_failed_call_is_refused_whatever_the_order_of_its_arguments() -> None:
    """The digest of the canonical arguments decides, not their text."""
    assert failed().refuses("reserve", dict(reversed(ARGS.items())), 0)


def test_a_failed_call_is_allowed_once_an_effect_step_has_finished_since() -> None:
    """The task itself has changed the world, so the answer may be another one."""
    guard = failed(effects=2)

    assert guard.refuses("reserve", ARGS, 2)
    assert not guard.refuses("reserve", ARGS, 3)


def test_a_failed_call_is_refused_while_the_world_looks_as_it_did() -> None:
    """The same observation again is no reason to hope."""
    assert failed("none free", "none free").refuses("reserve", ARGS, 0)


def test_a_failed_call_is_allowed_when_the_world_looks_different() -> None:
    """A fresh observation that differs from the one at the fault lifts the ban."""
    assert not failed("none free", "nine free").refuses("reserve", ARGS, 0)


def test_a_call_is_refused_again_when_the_world_looks_as_it_did_at_the_fault() -> None:
    """What counts is the newest observation against the one at the fault, not whether it ever changed."""
    assert failed("none free", "nine free", "none free").refuses("reserve", ARGS, 0)


def refused_with(seen: JsonValue, shown: JsonValue) -> RepeatGuard:
    """A guard that knows what refused a call, and what was seen after it."""
    guard = RepeatGuard()
    guard.remember("reserve", ARGS, 0)
    guard.observed("reserve", ARGS, "slots", LOOK, shown, seen)
    return guard


def test_a_call_is_allowed_when_the_world_moved_between_the_refusal_and_the_look() -> None:
    """The price was too high when the call was refused, and is not any more."""
    assert not refused_with({"price": "26.00"}, {"price": "24.50"}).refuses("reserve", ARGS, 0)


def test_a_call_is_refused_when_the_look_shows_what_refused_it() -> None:
    """Nothing has changed since."""
    assert refused_with({"price": "26.00"}, {"price": "26.00"}).refuses("reserve", ARGS, 0)


def test_a_fault_may_say_more_than_the_look() -> None:
    """The body of an HTTP error has a sentence beside the state; only the fields of the look are compared."""
    seen: JsonValue = {"detail": "too dear", "price": "26.00"}

    assert refused_with(seen, {"price": "26.00"}).refuses("reserve", ARGS, 0)
    assert not refused_with(seen, {"price": "24.50"}).refuses("reserve", ARGS, 0)


@pytest.mark.parametrize("more", [{}, {"detail": "taken"}])
def test_an_effect_that_left_the_state_of_the_fault_is_no_change(more: dict[str, JsonValue]) -> None:
    """A parallel step finished after the call was refused, and the look shows what refused it."""
    guard = RepeatGuard()
    guard.remember("reserve", ARGS, 0)
    guard.observed("reserve", ARGS, "slots", LOOK, {"free": []}, {"free": [], **more}, 1)

    assert guard.refuses("reserve", ARGS, 1)
    assert not guard.refuses("reserve", ARGS, 2)


@pytest.mark.parametrize("more", [{}, {"detail": "taken"}])
def test_an_effect_that_changed_the_state_of_the_fault_is_a_change(more: dict[str, JsonValue]) -> None:
    """A parallel step freed a slot before the look; since a later effect, other things may differ than the slots."""
    guard = RepeatGuard()
    guard.remember("reserve", ARGS, 0)
    guard.observed("reserve", ARGS, "slots", LOOK, {"free": ["nine"]}, {"free": [], **more}, 1)
    guard.observed("cancel", {}, "slots", LOOK, {"free": []})

    assert not guard.refuses("reserve", ARGS, 1)


def test_a_refusal_in_other_words_than_the_look_is_no_change() -> None:
    """Two views with other fields differ although the world does not."""
    others: list[JsonValue] = [None, "taken", ["nine"], {}, {"free": [], "day": "Monday"}]
    for seen in others:
        assert refused_with(seen, {"free": []}).refuses("reserve", ARGS, 0)


def test_an_observation_for_another_call_counts_when_it_looks_at_the_same() -> None:
    """One read of the slots tells about every call that looks at these slots."""
    guard = failed("none free")
    guard.observed("cancel", {}, "slots", LOOK, "nine free")

    assert not guard.refuses("reserve", ARGS, 0)


def test_an_observation_of_something_else_changes_nothing() -> None:
    """Another read, or the same read with other arguments, says nothing about the failed call."""
    guard = failed("none free")
    guard.observed("cancel", {}, "slots", {"name": "Bob"}, "nine free")
    guard.observed("cancel", {}, "rooms", LOOK, "nine free")

    assert guard.refuses("reserve", ARGS, 0)


def test_a_call_that_failed_again_is_refused_again() -> None:
    """The second failure starts anew: what lifted the first ban does not lift the second."""
    guard = failed("none free", "nine free", effects=1)
    guard.remember("reserve", ARGS, 2)

    assert guard.refuses("reserve", ARGS, 2)


def test_the_memory_survives_the_border() -> None:
    """The guard is part of Progress, which a continued run starts from."""
    guard = failed("none free")

    assert RepeatGuard.model_validate_json(guard.model_dump_json()) == guard


CALLS = st.dictionaries(st.sampled_from("xy"), st.integers(0, 1), max_size=2)
VIEWS = st.integers(0, 2)


@dataclass
class Memory:
    """What a failed call should be judged by, kept by the test itself."""

    effects: int
    views: list[int] = field(default_factory=list)


class GuardMachine(RuleBasedStateMachine):
    """Failures, observations and finished effects in any order, against a model that keeps everything."""

    def __init__(self) -> None:
        """Begin with an empty memory; every call has a read of its own."""
        super().__init__()
        self.guard, self.effects, self.failed = RepeatGuard(), 0, dict[str, Memory]()

    @rule(args=CALLS)
    def fail(self, args: dict[str, JsonValue]) -> None:
        """A call fails persistently."""
        self.guard.remember("k", args, self.effects)
        self.failed[repr(sorted(args.items()))] = Memory(self.effects)

    @precondition(lambda self: self.failed)
    @rule(args=CALLS, view=VIEWS)
    def look(self, args: dict[str, JsonValue], view: int) -> None:
        """Somebody looks at what concerns a call."""
        self.guard.observed("k", args, "look", args, view)
        memory = self.failed.get(repr(sorted(args.items())))
        if memory is not None:
            memory.views.append(view)

    @rule()
    def finish_an_effect(self) -> None:
        """A step that changes the world is done."""
        self.effects += 1

    @invariant()
    def refuses_exactly_what_would_repeat(self) -> None:
        """Refused: failed, no effect since, and the newest view is the first one after the fault (or there is none)."""
        for x in (None, 0, 1):
            for y in (None, 0, 1):
                args: dict[str, JsonValue] = {key: value for key, value in (("x", x), ("y", y)) if value is not None}
                memory = self.failed.get(repr(sorted(args.items())))
                same = memory is not None and (not memory.views or memory.views[0] == memory.views[-1])
                expected = memory is not None and memory.effects == self.effects and same
                assert self.guard.refuses("k", args, self.effects) is expected


TestGuardMachine = GuardMachine.TestCase


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=6), st.integers(0, 5))
def test_every_failed_call_is_refused_at_first(args: dict[str, JsonValue], effects: int) -> None:
    """Whatever the call was, it is not repeated in the world that refused it."""
    guard = RepeatGuard()
    guard.remember("k", args, effects)

    assert guard.refuses("k", args, effects)
