"""The oracle finds what is planted, and nothing where nothing is wrong."""

import pytest

from tests.effects.oracle import Call, Effect, Excuse, Kind, Meant, judge

PAY = {"to": "a", "body": "x"}
FIRST, SECOND, OTHER = (
    Meant("first", "pay", PAY),
    Meant("second", "pay", PAY),
    Meant("other", "pay", {"to": "b", "body": "x"}),
)
ONE, TWO = Effect("e1", "first", PAY), Effect("e2", "first", PAY)
SECOND_EFFECT, OTHER_EFFECT = Effect("e3", "second", PAY), Effect("e4", "other", OTHER.arguments)


def kinds(meant: list[Meant], effects: list[Effect], calls: list[Call], *recorded: str) -> list[Kind]:
    """What the oracle finds."""
    return [found.kind for found in judge(meant, effects, calls, recorded)]


GOOD = {
    "made": ([FIRST], [ONE], [Call("first", "e1")]),
    "repeated in silence": ([FIRST], [ONE], [Call("first"), Call("first", "e1", is_repetition=True)]),
    "two that are meant": ([FIRST, SECOND], [ONE, SECOND_EFFECT], [Call("first", "e1"), Call("second", "e3")]),
    "told": ([FIRST, SECOND], [ONE], [Call("first"), Call("second", "e1", was_said=True)]),
    "told, and the first made again": (
        [FIRST, SECOND],
        [ONE, TWO],
        [Call("first"), Call("second", "e1", was_said=True), Call("first", "e2", is_repetition=True)],
    ),
    "an idempotent call twice": ([Meant("first", "pay", PAY, is_idempotent=True)], [ONE, TWO], [Call("first", "e2")]),
    "a person says the same": ([FIRST, OTHER], [ONE], [Call("first"), Call("other", "e1", by_person=True)]),
}


@pytest.mark.parametrize("sequence", GOOD.values(), ids=GOOD)
def test_nothing_is_found_where_nothing_is_wrong(sequence: tuple[list[Meant], list[Effect], list[Call]]) -> None:
    """A judge that cries wolf is not read."""
    assert kinds(*sequence) == []


BAD = {
    "applied twice": (Kind.DOUBLE, [FIRST], [ONE, TWO], [Call("first"), Call("first", "e2", is_repetition=True)]),
    "applied once more than it was taken": (
        Kind.DOUBLE,
        [FIRST, SECOND],
        [ONE, TWO, Effect("e5", "first", PAY)],
        [Call("first"), Call("second", "e1", was_said=True), Call("first", "e5", is_repetition=True)],
    ),
    "returned without an effect": (Kind.LOST, [FIRST], [ONE], [Call("first", "e1"), Call("first", "e9")]),
    "an earlier result in silence": (Kind.SWALLOWED, [FIRST, SECOND], [ONE], [Call("first"), Call("second", "e1")]),
    "a repetition gets another call's result in silence": (
        Kind.WRONG,
        [FIRST, SECOND],
        [ONE, SECOND_EFFECT],
        [Call("second", "e3"), Call("first"), Call("first", "e3", is_repetition=True)],
    ),
    "a result of other arguments": (
        Kind.WRONG,
        [FIRST, OTHER],
        [ONE, OTHER_EFFECT],
        [Call("first", "e1"), Call("other", "e1", was_said=True)],
    ),
    "told for no reason": (
        Kind.NEEDLESS,
        [FIRST, SECOND],
        [ONE],
        [Call("first", "e1"), Call("second", "e1", was_said=True, is_needless=True)],
    ),
    "never done": (Kind.STUCK, [FIRST, OTHER], [ONE], [Call("first", "e1"), Call("other")]),
}


@pytest.mark.parametrize(("kind", "meant", "effects", "calls"), BAD.values(), ids=BAD)
def test_what_is_planted_is_found(kind: Kind, meant: list[Meant], effects: list[Effect], calls: list[Call]) -> None:
    """Each broken promise is found, as what it is."""
    assert kinds(meant, effects, calls) == [kind]


def test_a_row_without_an_effect_is_lost() -> None:
    """What the ledger records as applied must be in the world."""
    assert kinds([FIRST], [ONE], [Call("first", "e1")], "e1", "e9") == [Kind.LOST]


@pytest.mark.parametrize("excuse", list(Excuse))
def test_a_named_exception_excuses_its_call_alone(excuse: Excuse) -> None:
    """The same double of another call is still found."""
    calls = [Call("first", excuses=frozenset({excuse})), Call("other", "e4")]
    effects = [ONE, TWO, OTHER_EFFECT, Effect("e6", "other", OTHER.arguments)]

    assert [found.meant for found in judge([FIRST, OTHER], effects, calls)] == ["other"]


def test_a_late_effect_excuses_no_swallowing() -> None:
    """Only a wrong proof and another identity may give a call the result of another one."""
    calls = [Call("first", "e1"), Call("second", "e1", excuses=frozenset({Excuse.LATE_EFFECT}))]

    assert kinds([FIRST, SECOND], [ONE], calls) == [Kind.SWALLOWED]
