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


CALLS = [
    ("nothing", [call(1, "a", "keyed", lost(Applied.NONE))], []),
    ("unknown", [call(1, "a", "keyed", lost())], ["unknown"]),
    ("unknown, then done", [call(1, "a", "keyed", lost()), call(2, "a", "keyed")], ["applied"]),
    ("done, and refused", [call(1, "a", "keyed", lost(Applied.APPLIED))], ["applied"]),
    ("runs", [call(1, "a", "unkeyed", closed=None)], ["unknown"]),
    ("stopped", [call(1, "a", "unkeyed", closed=CallEnd.CANCELLED)], ["unknown"]),
    ("undone", [call(1, "a", "keyed"), call(2, "undo:a", "keyed")], ["undone", "applied"]),
    ("not undone", [call(1, "a", "keyed"), call(2, "undo:a", "keyed", refused())], ["applied"]),
    ("perhaps undone", [call(1, "a", "keyed"), call(2, "undo:a", "keyed", lost())], ["applied", "unknown"]),
    ("a read", [call(1, "a", "read")], []),
]


@pytest.mark.parametrize(("calls", "expected"), [given[1:] for given in CALLS], ids=[given[0] for given in CALLS])
def test_a_history_tells_what_is_known(calls: list[Call], expected: list[str]) -> None:
    """What was sure stays sure, what had not happened is forgotten, and what nobody knows is said to be so."""
    assert [one.state for one in effects.all_effects(story(*calls), None, [])] == expected


@pytest.mark.parametrize(
    ("verdict", "expected"), [("applied", ["applied"]), ("not_applied", []), ("cannot_tell", ["unknown"])]
)
def test_what_reconciliation_found_out_decides(verdict: str, expected: list[str]) -> None:
    """As the task recorded it, whatever the read returned."""
    told = story(call(1, "a", "unkeyed", lost()), call(2, "a:reconcile", "read", refused()), verdict=verdict)

    assert [one.state for one in effects.all_effects(told, None, [])] == expected


CARDS = [
    ("transactional, unknown, committed", "transactional", lost(), {"result": {"id": 1}}, "applied"),
    ("unkeyed, unknown, claimed", "unkeyed", lost(), {}, "unknown"),
    ("unkeyed, unknown, answered", "unkeyed", lost(), {"result": {"id": 1}}, "applied"),
    ("keyed, done, undone later", "keyed", None, {"undone_at": BEGAN, "undone_by": "run/undo:a"}, "undone"),
]


@pytest.mark.parametrize(
    ("kind", "fault", "row", "expected"), [given[1:] for given in CARDS], ids=[given[0] for given in CARDS]
)
def test_a_ledger_knows_better(kind: str, fault: Fault | None, row: dict[str, object], expected: str) -> None:
    """Its row decides, but a claim says no more than the history."""
    [one] = effects.all_effects(story(call(1, "a", kind, fault)), None, [card("a", kind, **row)])

    assert one.state == expected


def test_a_row_of_another_task_is_not_of_this_one() -> None:
    """Its key begins with another run."""
    assert effects.all_effects(story(), None, [card("a", "keyed", key="other/a")]) == []


def test_an_undo_that_was_wanted_twice_happened_when_it_did() -> None:
    """The second rollback only heard of it; the ledger knows the moment."""
    undone = card("a", "keyed", undone_at=BEGAN + timedelta(seconds=2), undone_by="run/undo:a")
    found = effects.all_effects(story(call(1, "a", "keyed")), story(call(60, "undo:a", "keyed")), [undone])

    assert [one.at for one in found] == [BEGAN + timedelta(seconds=1), BEGAN + timedelta(seconds=2)]


def test_what_a_rollback_found_not_to_have_happened_is_forgotten() -> None:
    """Nobody knew at the end of the task; the rollback looked for it."""
    unknown = call(1, "a", "unkeyed", lost())
    task, rollback = story(unknown), story(unknown, verdict="not_applied")

    assert effects.all_effects(task, rollback, []) == []


def test_what_a_rollback_found_happened() -> None:
    """Whether or not it could take it back."""
    task, rollback = story(call(1, "a", "unkeyed", lost())), story(call(2, "a:reconcile", "read"))

    assert [one.state for one in effects.all_effects(task, rollback, [])] == ["applied"]


CANCELLED_BEFORE_AN_ATTEMPT = [
    ("unkeyed", 4, EffectState.NONE),
    ("keyed", 1, EffectState.NONE),
    ("keyed", 4, EffectState.UNKNOWN),
    ("idempotent", 4, EffectState.UNKNOWN),
    ("transactional", 0, EffectState.UNKNOWN),
    ("read", 4, EffectState.NONE),
]


@pytest.mark.parametrize(("kind", "allowed", "expected"), CANCELLED_BEFORE_AN_ATTEMPT)
def test_a_call_without_a_written_start_may_have_been_retried(kind: str, allowed: int, expected: EffectState) -> None:
    """It was cancelled while it waited for a worker, or in a backoff: only one that may be repeated gets there."""
    stopped = call(1, "a", kind, closed=CallEnd.CANCELLED)
    stopped.started, stopped.attempt, stopped.allowed = None, 0, allowed

    assert effects.effect_of(story(stopped), stopped) is expected


EARLIER = [
    ("keyed", [Applied.UNKNOWN], 2, EffectState.UNKNOWN),
    ("idempotent", [Applied.UNKNOWN], 2, EffectState.UNKNOWN),
    ("transactional", [Applied.UNKNOWN], 2, EffectState.NONE),
    ("unkeyed", [Applied.UNKNOWN], 2, EffectState.NONE),
    ("keyed", [Applied.NONE], 2, EffectState.NONE),
]


@pytest.mark.parametrize(("kind", "earlier", "attempt", "expected"), EARLIER)
def test_a_rejection_does_not_prove_that_an_earlier_attempt_had_no_effect(
    kind: str, earlier: list[Applied], attempt: int, expected: EffectState
) -> None:
    """But the ledger of a transactional kind does."""
    rejected = call(1, "a", kind, refused())
    rejected.attempt = attempt
    rejected.earlier = tuple(lost(one).model_copy(update={"attempt": 1}) for one in earlier)

    assert effects.effect_of(story(rejected), rejected) is expected


def test_what_cannot_be_read_may_have_been_an_effect() -> None:
    """Without the catalogue nobody knows what a kind changes."""
    told = story(call(1, "a", "keyed"))
    told.history.catalogue = None

    assert [(one.state, one.effect) for one in effects.all_effects(told, None, [])] == [("unknown", None)]


def test_a_step_named_undo_is_no_rollback() -> None:
    """Its key begins as those of the calls that undo others."""
    told = story(
        call(1, "undo", "keyed"), call(2, "a", "keyed"), call(3, "undo:undo", "keyed"), call(4, "undo:a", "keyed")
    )
    found = {one.key: one.state for one in effects.all_effects(told, None, [])}

    assert found == {"run/undo": "undone", "run/a": "undone", "run/undo:undo": "applied", "run/undo:a": "applied"}


def test_a_rollback_after_the_end_counts() -> None:
    """Its calls are of another workflow, with the keys of the task."""
    found = effects.all_effects(story(call(1, "a", "keyed")), story(call(2, "undo:a", "keyed")), [])

    assert [(one.key, one.state, one.undone_by) for one in found] == [
        ("run/a", "undone", "run/undo:a"),
        ("run/undo:a", "applied", None),
    ]
