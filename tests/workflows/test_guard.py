"""The repeat guard: what failed persistently is refused until the world has changed."""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import JsonValue

from workflows.plans.repeated_calls import RepeatGuard

ARGS: dict[str, JsonValue] = {"slot": "nine", "name": "Ada"}
LOOK: dict[str, JsonValue] = {"name": "Ada"}


def failed(*shown: JsonValue, seen: JsonValue = None, refused_at: int = 0, looked_at: int | None = None) -> RepeatGuard:
    """A guard that knows of one failed call, what refused it, and what was seen after it, the oldest first."""
    guard = RepeatGuard()
    guard.remember("reserve", ARGS, refused_at)
    for one in shown:
        about = () if seen is None else (seen,) if looked_at is None else (seen, looked_at)
        guard.observed("reserve", ARGS, "slots", LOOK, one, *about)
    return guard


def observed(guard: RepeatGuard, kind: str, args: dict[str, JsonValue]) -> RepeatGuard:
    """The same guard after another call whose look, of this kind and with these arguments, showed a free slot."""
    guard.observed("cancel", {}, kind, args, "nine free")
    return guard


FREE: dict[str, JsonValue] = {"free": ["nine"]}
NONE: dict[str, JsonValue] = {"free": []}
DEAR: JsonValue = {"price": "26.00"}
CHEAP: JsonValue = {"price": "24.50"}
SAID: JsonValue = {"detail": "too dear", "price": "26.00"}
"""The body of an HTTP error has a sentence beside the state; only the fields of the look are compared."""
CASES: dict[str, tuple[RepeatGuard, int, bool]] = {
    "as long as the world looks as it did": (failed("none free", "none free"), 0, True),
    "not when the world looks different": (failed("none free", "nine free"), 0, False),
    "again when it looks as it did at the fault": (failed("none free", "nine free", "none free"), 0, True),
    "not when the world moved between the refusal and the look": (failed(CHEAP, seen=DEAR), 0, False),
    "when the look shows what refused it": (failed(DEAR, seen=DEAR), 0, True),
    "when the fault says more than the look": (failed(DEAR, seen=SAID), 0, True),
    "not when the fault says more, and something else": (failed(CHEAP, seen=SAID), 0, False),
    "when an effect left the state of the fault": (failed(NONE, seen=NONE, looked_at=1), 1, True),
    "when an effect left it, in more words": (failed(NONE, seen={**NONE, "detail": "taken"}, looked_at=1), 1, True),
    "not when a later effect finished": (failed(NONE, seen=NONE, looked_at=1), 2, False),
    "not when an effect changed the state of the fault": (failed(FREE, seen=NONE, looked_at=1), 1, False),
    "not when it was changed, in more words": (failed(FREE, seen={**NONE, "detail": "taken"}, looked_at=1), 1, False),
    "not before an effect": (failed(refused_at=2), 2, True),
    "not after an effect": (failed(refused_at=2), 3, False),
    "not when another call looked at the same": (observed(failed("none free"), "slots", LOOK), 0, False),
    "when another call looked at something else": (observed(failed("none free"), "rooms", LOOK), 0, True),
    "when another call looked for another": (observed(failed("none free"), "slots", {"name": "Bob"}), 0, True),
}


def test_a_failed_call_is_refused_until_the_world_has_changed() -> None:
    """The newest observation counts against the one at the fault; an effect of the task itself lifts the ban, too."""
    found = {name: guard.refuses("reserve", ARGS, effects) for name, (guard, effects, _) in CASES.items()}

    assert found == {name: refused for name, (_, _, refused) in CASES.items()}


def test_a_call_is_known_by_its_kind_and_arguments_in_any_order() -> None:
    """A call that never failed is allowed."""
    assert not failed().refuses("cancel", ARGS, 0)
    assert not failed().refuses("reserve", {**ARGS, "slot": "ten"}, 0)
    assert failed().refuses("reserve", dict(reversed(ARGS.items())), 0)


def test_an_effect_that_changed_the_state_of_the_fault_is_a_change_whatever_is_seen_later() -> None:
    """A parallel step freed a slot before the look; since a later effect, other things may differ than the slots."""
    guard = failed(FREE, seen=NONE, looked_at=1)
    guard.observed("cancel", {}, "slots", LOOK, NONE)

    assert not guard.refuses("reserve", ARGS, 1)


def test_a_refusal_in_other_words_than_the_look_is_no_change() -> None:
    """Two views with other fields differ although the world does not."""
    others: list[JsonValue] = [None, "taken", ["nine"], {}, {"free": [], "day": "Monday"}]

    assert [seen for seen in others if not failed(NONE, seen=seen).refuses("reserve", ARGS, 0)] == []


def test_a_call_that_failed_again_is_refused_again() -> None:
    """The second failure starts anew: what lifted the first ban does not lift the second. So after the border."""
    guard = failed("none free", "nine free", refused_at=1)
    guard.remember("reserve", ARGS, 2)

    assert guard.refuses("reserve", ARGS, 2)
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
