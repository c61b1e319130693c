"""What is known of effects, step by step through a history of our own making."""

from datetime import timedelta

import pytest

from client import effects
from client.effects import EffectState
from client.history.records import Call, CallEnd
from tests.console.made import BEGAN, call, lost, refused, story
from workflows.faults.fault import Applied, Fault
from workflows.inquiries import EffectCard


def card(id: str, kind: str, **more: object) -> EffectCard:
    """A row of a ledger."""
    given = {"key": f"run/{id}", "step": id, "kind": kind, "at": BEGAN, "result": None, **more}
    return EffectCard.model_validate(given)


CALLS: dict[str, tuple[list[Call], list[str]]] = {
    "nothing": ([call(1, "a", "keyed", lost(Applied.NONE))], []),
    "unknown": ([call(1, "a", "keyed", lost())], ["unknown"]),
    "unknown, then done": ([call(1, "a", "keyed", lost()), call(2, "a", "keyed")], ["applied"]),
    "done, and refused": ([call(1, "a", "keyed", lost(Applied.APPLIED))], ["applied"]),
    "runs": ([call(1, "a", "unkeyed", closed=None)], ["unknown"]),
    "stopped": ([call(1, "a", "unkeyed", closed=CallEnd.CANCELLED)], ["unknown"]),
    "undone": ([call(1, "a", "keyed"), call(2, "undo:a", "keyed")], ["undone", "applied"]),
    "not undone": ([call(1, "a", "keyed"), call(2, "undo:a", "keyed", refused())], ["applied"]),
    "perhaps undone": ([call(1, "a", "keyed"), call(2, "undo:a", "keyed", lost())], ["applied", "unknown"]),
    "a read": ([call(1, "a", "read")], []),
}


@pytest.mark.parametrize(("calls", "expected"), CALLS.values(), ids=CALLS)
def test_a_history_tells_what_is_known(calls: list[Call], expected: list[str]) -> None:
    """What was sure stays sure, what had not happened is forgotten, and what nobody knows is said to be so."""
    assert [one.state for one in effects.all_effects(story(*calls), None, [])] == expected


@pytest.mark.parametrize(
    ("verdict", "expected"), [("applied", ["applied"]), ("not_applied", []), ("cannot_tell", ["unknown"])]
)
def test_what_reconciliation_found_out_decides(verdict: str, expected: list[str]) -> None:
    """As the task recorded it, whatever the read returned; or as the rollback did, whether it could take it back."""
    unknown = call(1, "a", "unkeyed", lost())
    told = story(unknown, call(2, "a:reconcile", "read", refused()), verdict=verdict)
    found = effects.all_effects(story(unknown), story(unknown, verdict=verdict), [])
    looked = effects.all_effects(story(unknown), story(call(2, "a:reconcile", "read")), [])

    assert [one.state for one in effects.all_effects(told, None, [])] == expected
    assert [one.state for one in found] == (expected if verdict != "applied" else ["applied"])
    assert [one.state for one in looked] == ["applied"]


UNDONE = {"undone_at": BEGAN + timedelta(seconds=2), "undone_by": "run/undo:a"}
CARDS: dict[str, tuple[str, Fault | None, dict[str, object], str]] = {
    "committed": ("transactional", lost(), {"result": {"id": 1}}, "applied"),
    "claimed": ("unkeyed", lost(), {}, "unknown"),
    "answered": ("unkeyed", lost(), {"result": {"id": 1}}, "applied"),
    "undone later": ("keyed", None, UNDONE, "undone"),
}


@pytest.mark.parametrize(("kind", "fault", "row", "expected"), CARDS.values(), ids=CARDS)
def test_a_ledger_knows_better(kind: str, fault: Fault | None, row: dict[str, object], expected: str) -> None:
    """Its row decides, but a claim says no more than the history, and a row of another run is of another task."""
    [one] = effects.all_effects(story(call(1, "a", kind, fault)), None, [card("a", kind, **row)])

    assert one.state == expected
    assert effects.all_effects(story(), None, [card("a", "keyed", key="other/a")]) == []


def test_an_undo_that_was_wanted_twice_happened_when_it_did() -> None:
    """The second rollback only heard of it; the ledger knows the moment."""
    task, rollback = story(call(1, "a", "keyed")), story(call(60, "undo:a", "keyed"))
    found = effects.all_effects(task, rollback, [card("a", "keyed", **UNDONE)])

    assert [one.at for one in found] == [BEGAN + timedelta(seconds=1), BEGAN + timedelta(seconds=2)]


CANCELLED = {
    ("unkeyed", 4): EffectState.NONE,
    ("keyed", 1): EffectState.NONE,
    ("keyed", 4): EffectState.UNKNOWN,
    ("idempotent", 4): EffectState.UNKNOWN,
    ("transactional", 0): EffectState.UNKNOWN,
    ("read", 4): EffectState.NONE,
}


@pytest.mark.parametrize(("kind", "allowed"), CANCELLED)
def test_a_call_without_a_written_start_may_have_been_retried(kind: str, allowed: int) -> None:
    """It was cancelled while it waited for a worker, or in a backoff: only one that may be repeated gets there."""
    stopped = call(1, "a", kind, closed=CallEnd.CANCELLED)
    stopped.started, stopped.attempt, stopped.allowed = None, 0, allowed

    assert effects.effect_of(story(stopped), stopped) is CANCELLED[kind, allowed]


EARLIER = {
    ("keyed", Applied.UNKNOWN): EffectState.UNKNOWN,
    ("idempotent", Applied.UNKNOWN): EffectState.UNKNOWN,
    ("transactional", Applied.UNKNOWN): EffectState.NONE,
    ("unkeyed", Applied.UNKNOWN): EffectState.NONE,
    ("keyed", Applied.NONE): EffectState.NONE,
}


@pytest.mark.parametrize(("kind", "earlier"), EARLIER)
def test_a_rejection_does_not_prove_that_an_earlier_attempt_had_no_effect(kind: str, earlier: Applied) -> None:
    """But the ledger of a transactional kind does."""
    rejected = call(1, "a", kind, refused())
    rejected.attempt, rejected.earlier = 2, (lost(earlier).model_copy(update={"attempt": 1}),)

    assert effects.effect_of(story(rejected), rejected) is EARLIER[kind, earlier]


def test_what_cannot_be_read_may_have_been_an_effect() -> None:
    """Without the catalogue nobody knows what a kind changes."""
    told = story(call(1, "a", "keyed"))
    told.history.catalogue = None

    assert [(one.state, one.effect) for one in effects.all_effects(told, None, [])] == [("unknown", None)]


def test_a_rollback_has_the_keys_of_what_it_undoes() -> None:
    """A step named undo is none, although its key begins as theirs; after the end they are of another workflow."""
    ids = ["undo", "a", "undo:undo", "undo:a"]
    within = effects.all_effects(story(*(call(at, id, "keyed") for at, id in enumerate(ids, 1))), None, [])
    after = effects.all_effects(story(call(1, "a", "keyed")), story(call(2, "undo:a", "keyed")), [])

    assert {one.key: one.state for one in within} == {
        **{"run/undo": "undone", "run/a": "undone"},
        **{"run/undo:undo": "applied", "run/undo:a": "applied"},
    }
    undone, undo = ("run/a", "undone", "run/undo:a"), ("run/undo:a", "applied", None)
    assert [(one.key, one.state, one.undone_by) for one in after] == [undone, undo]
