"""What is known of a task's effects: its history, and what the ledgers of a worker have of them, put together."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from client.history.records import Call, Closed
from client.history.story import Story
from console.explain import faults
from workflows import ids
from workflows.catalogue import Effect, ToolSpec
from workflows.faults import Applied
from workflows.inspect import EffectCard
from workflows.reconciling import Verdict


class Known(StrEnum):
    """Whether an effect stands."""

    HAPPENED = "happened"
    MAY = "may_have_happened"
    UNDONE = "undone"


class KnownEffect(BaseModel):
    """One effect, by its key."""

    model_config = ConfigDict(frozen=True)

    key: str
    """The idempotency key."""
    step: str
    kind: str
    effect: Effect | None
    """What the kind promises; None where the history cannot tell."""
    known: Known
    at: datetime
    """When it happened, or when the last that is known of it was heard."""
    result: JsonValue = None
    undone_at: datetime | None = None
    undone_by: str | None = None
    """The key of the call that took it back."""
    undoes: str | None = None
    """The step that it takes back."""


def effects(
    story: Story, rollback: Story | None, cards: Sequence[EffectCard], more: Sequence[Story] = ()
) -> list[KnownEffect]:
    """All effects of a task, over all its runs, that happened or may have, the oldest first.

    `rollback` undid it after its end, `more` are earlier rollbacks.
    """
    found = dict[str, KnownEffect]()
    for one in stories(story)[:-1]:
        found = _told(one, one, found)
    for one in more:
        found = _told(story, one, found)
    found = _told(story, story, found)
    if rollback is not None:
        found = _told(story, rollback, found)
    for card in cards:
        if card.key.startswith(f"{story.history.first_run}/"):  # else of an earlier task with the same id
            found[card.key] = _written(story, card, found.get(card.key))
    since = {one.undone_by: one.undone_at for one in found.values() if one.undone_at}
    told = (one.model_copy(update={"at": since.get(one.key) or one.at}) for one in found.values())
    return sorted(told, key=lambda one: (one.at, one.key))


def own_effects(story: Story) -> dict[str, KnownEffect]:
    """Those that the newest runs alone tell of, which no reset has left behind, by key."""
    return _told(story, story, {})


def stories(story: Story) -> list[Story]:
    """Of all runs of the task: those that resets left behind first."""
    return [*map(Story, story.history.earlier), story]


def _told(task: Story, story: Story, found: dict[str, KnownEffect]) -> dict[str, KnownEffect]:
    """What a history of the task, or of its rollback, adds to what is known by key."""
    for call in story.history.calls:
        if (call.is_step or call.is_undo) and story.history.changes_world(call.kind) is not False:
            _fold(task, story, call, found)
    for call in story.done:
        if call.is_reconcile:
            _mark(found, key_of(task, call.step), {"known": Known.HAPPENED, "result": call.result})
    left = {call.step for run in stories(task) for call in run.history.calls if call.is_step and call.outlived}
    for id in set(faults.never_happened(story)) - left:
        for one in [one for one in found.values() if one.step == id and one.known is Known.MAY]:
            del found[one.key]
    for call in story.undone:
        by = key_of(task, call.owner)
        _mark(found, key_of(task, call.step), {"known": Known.UNDONE, "undone_at": call.ended_at, "undone_by": by})
    return found


def _mark(found: dict[str, KnownEffect], key: str, more: Mapping[str, Any]) -> None:
    """Write down what became of a step, whose effect may be that of a fallback."""
    for one in list(found.values()):
        if one.key.partition(":")[0] == key and one.undoes is None:
            found[one.key] = one.model_copy(update=more)


def _fold(task: Story, story: Story, call: Call, found: dict[str, KnownEffect]) -> None:
    """Take up one scheduling: what was sure stays sure, and what had not happened is forgotten."""
    key, inquest = key_of(task, call.id, call.kind), faults.of(story, call)
    if inquest is not None and inquest.verdict is Verdict.NOT_APPLIED:
        found.pop(key, None)
        return
    spec = story.history.spec(call.kind)
    known = _known(call, spec)
    if known is None or (key in found and found[key].known is Known.HAPPENED):
        return
    found[key] = KnownEffect(
        key=key,
        step=call.id,
        kind=call.kind,
        effect=spec.effect if spec else None,
        known=known,
        at=call.ended_at or call.at,
        result=call.result,
        undoes=call.step if call.is_undo else None,
    )


def _known(call: Call, spec: ToolSpec | None) -> Known | None:
    """What the end of a call says of its effect; None where there was none."""
    if call.closed is Closed.COMPLETED:
        return Known.HAPPENED if spec else Known.MAY  # it may have been a read, where that cannot be read
    if call.closed is Closed.CANCELLED and call.started is None:
        return None
    if call.closed is Closed.FAILED and call.failing and call.failing.fault:
        return {Applied.NONE: None, Applied.APPLIED: Known.HAPPENED, Applied.UNKNOWN: Known.MAY}[
            call.failing.fault.applied
        ]
    return Known.MAY


def _written(story: Story, card: EffectCard, told: KnownEffect | None) -> KnownEffect:
    """What a ledger has of an effect; a claim alone says only that somebody was about to call."""
    spec = story.history.spec(card.kind)
    effect = spec.effect if spec else None
    is_claim = card.result is None and effect is not Effect.TRANSACTIONAL
    known = Known.UNDONE if card.undone_at else Known.MAY if is_claim else Known.HAPPENED
    own = KnownEffect(
        key=card.key,
        step=card.step,
        kind=card.kind,
        effect=effect,
        known=known,
        at=card.at,
        result=card.result,
        undone_at=card.undone_at,
        undone_by=card.undone_by,
        undoes=card.step.removeprefix(ids.UNDO).partition(":")[0] if card.step.startswith(ids.UNDO) else None,
    )
    if told is None:
        return own
    if known is Known.MAY:
        return told
    at = told.at if card.undone_at else card.at
    return own.model_copy(update={"at": at, "result": own.result if own.result is not None else told.result})


def call(story: Story, wanted: str) -> Call | None:
    """The call with this key, in any run of the task: the last one that ended well, else the last one."""
    calls = [(run, one) for run in stories(story) for one in run.history.calls if one.is_step]
    made = [one for run, one in calls if key_of(run, one.id, one.kind) == wanted]
    done = [one for one in made if one.closed is Closed.COMPLETED]
    return next(reversed(done or made), None)


def outlived(story: Story, key: str) -> bool:
    """Whether a thread of the call with this key outlived its attempt, in any run of the task."""
    calls = [(run, one) for run in stories(story) for one in run.history.calls if one.is_step and one.outlived]
    return any(key_of(run, one.id, one.kind) == key for run, one in calls)


def key_of(story: Story, id: str, kind: str | None = None) -> str:
    """The idempotency key of a call: that of a fallback names its kind."""
    planned = story.steps[id].kind if id in story.steps else kind
    return f"{story.history.first_run}/{id}" + (f":{kind}" if kind and kind != planned else "")
