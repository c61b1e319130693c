"""Which effects the calls of a task had, from the task's history and from a worker's ledgers.

Runs when the effects of a task are listed or explained, and before they are undone or the task is reset.

An effect is a change in the world. A ledger is a table in which a worker records effects by their idempotency keys.
`effect_of` decides for one call.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, JsonValue
from temporalio.client import Client

from client.history.fetch import fetch_run, rollbacks
from client.history.records import Call, CallEnd, Event, Timer
from client.history.story import Story
from client.workflow_task import FailingTask
from workflows import ids
from workflows.calls.reconciling import CallOutcome
from workflows.faults.fault import Applied, applied_by_call
from workflows.inquiries import AppliedEffect, EffectCard
from workflows.plans.catalogue import IN_LEDGER, SAFE, Effect, ToolSpec

SINGLE = (Effect.KEYED, Effect.TRANSACTIONAL, Effect.UNKEYED)
"""Effects that a second call with the same key does not apply again: a ledger or the called service knows the key."""


class EffectState(StrEnum):
    NONE = "none"
    APPLIED = "applied"
    UNKNOWN = "unknown"
    RUNNING = "running"
    """The call has not ended; its effect may still be applied."""
    UNDONE = "undone"


@dataclass(frozen=True)
class Reconciliation:
    """How the workflow found out whether a call was applied: its reads, the timers between them, and the verdict."""

    reads: tuple[Call, ...]
    timers: tuple[Timer, ...]
    verdict: CallOutcome | None
    """What the workflow found out; None if the reconciliation still goes on, or was cancelled."""


def effect_of(story: Story, call: Call) -> EffectState:
    """The state of one call's effect; never UNDONE."""
    spec = story.history.spec(call.kind)
    if spec is not None and spec.effect is Effect.READ:
        return EffectState.NONE
    if record := story.fault_of(call):
        return EffectState(record.applied)
    match call.closed:
        case None:
            return EffectState.RUNNING
        case CallEnd.COMPLETED:
            return EffectState.APPLIED if spec else EffectState.UNKNOWN  # an unknown kind may be a read
        case CallEnd.CANCELLED:
            return EffectState.UNKNOWN if call.started or _may_have_been_retried(call, spec) else EffectState.NONE
        case CallEnd.FAILED:  # the task has not heard of it
            last = call.failing.fault if call.failing else None
            known = applied_by_call(spec.effect, last, call.earlier) if spec and last else Applied.UNKNOWN
            return EffectState(known)


def _may_have_been_retried(call: Call, spec: ToolSpec | None) -> bool:
    # The server writes the start of an attempt only when the call ends with that attempt. Of a call that was cancelled
    # during its backoff it writes neither the start nor the failure of the attempts before, so that history looks as if
    # no worker had taken it. Only kinds that may be repeated get to a backoff after an attempt with an unknown outcome.
    return call.allowed != 1 and (spec is None or spec.effect in SAFE)


def reconciliation_of(story: Story, call: Call) -> Reconciliation | None:
    """How the workflow found out whether an ended call was applied; None if the workflow did not try."""
    # Reads and timers after the next call of the step belong to that call.
    after, following, record = call.ended or call.scheduled, story.history.next_call(call), story.fault_of(call)
    until = following.scheduled if following else Event(story.history.runs + 1, 0)
    reads = tuple(read for read in story.history.reconciles(call.owner) if after < read.scheduled < until)
    timers = (timer for timer in story.history.timers if timer.reconciles(call) and after < timer.started < until)
    verdict = CallOutcome(record.reconciled) if record and record.reconciled else None
    return Reconciliation(reads, tuple(timers), verdict) if reads or verdict else None


class TaskEffect(BaseModel, frozen=True):
    """One effect of a task; the idempotency key of its call identifies it."""

    key: str
    step: str
    kind: str
    effect: Effect | None
    """The effect class that the tool of `kind` declares; None if the history does not have it."""
    state: EffectState
    """What is known of the effect: APPLIED, UNKNOWN or UNDONE."""
    at: datetime
    """When the call ended or, for an open call, when it was scheduled; the time in a ledger takes precedence."""
    args: dict[str, JsonValue] | None = None
    """The arguments of the call; None if no history has them."""
    result: JsonValue = None
    undone_at: datetime | None = None
    undone_by: str | None = None
    """The key of the call that undid the effect."""
    undoes: str | None = None
    """The id of the step that this effect undid; None if its call was no undo."""
    lacks_row: bool = False
    """Whether no ledger has a row of the effect, although its call completed with one: the store was probably restored
    from an older backup. False also if nobody can tell."""


async def fetch_effects(client: Client, story: Story, cards: Sequence[EffectCard]) -> list[TaskEffect]:
    """The effects of a task, from the histories of its runs and rollbacks and from `cards`, the rows of ledgers."""
    undone = [Story(rollback) for rollback in await rollbacks(client, story.history.task_id, story.history.first_run)]
    newest = undone.pop() if undone else None
    return all_effects(story, newest, cards, undone)


def all_effects(
    story: Story, rollback: Story | None, cards: Sequence[EffectCard], earlier_rollbacks: Sequence[Story] = ()
) -> list[TaskEffect]:
    """All effects that a task had or may have had, the oldest first; `rollback` is the newest of its rollbacks."""
    found = dict[str, TaskEffect]()
    for run in runs_of(story)[:-1]:
        _add(run, run, found)
    for earlier in earlier_rollbacks:
        _add(story, earlier, found)
    _add(story, story, found)
    if rollback is not None:
        _add(story, rollback, found)
    for card in cards:
        if card.key.rpartition("/")[0] == story.history.key_prefix:  # otherwise of an earlier task with this id
            found[card.key] = _with_card(story, card, found.get(card.key))
    undone_at = {effect.undone_by: effect.undone_at for effect in found.values() if effect.undone_at}
    dated = (effect.model_copy(update={"at": undone_at.get(effect.key) or effect.at}) for effect in found.values())
    return sorted(dated, key=lambda effect: (effect.at, effect.key))


def effects_with_row(story: Story, effects: Iterable[TaskEffect]) -> list[AppliedEffect]:
    """Those of the `effects` of a task that its completed calls applied, and recorded in a ledger of its store."""
    store = story.history.catalogue.store if story.history.catalogue else None
    applied = (effect for effect in effects if effect.state is EffectState.APPLIED and effect.effect in IN_LEDGER)
    calls = ((effect, call_with_key(story, effect.key)) for effect in applied)
    return [
        AppliedEffect(key=effect.key, kind=effect.kind, store=store)
        for effect, call in calls
        if store and call and call.closed is CallEnd.COMPLETED
    ]


def own_effects(story: Story) -> dict[str, TaskEffect]:
    """By key, the effects of the newest run and of runs that continued as new into it; not of runs before a reset."""
    found = dict[str, TaskEffect]()
    _add(story, story, found)
    return found


def runs_of(story: Story) -> list[Story]:
    """The stories of all runs of the task: first the runs that a reset replaced, last the newest run."""
    return [*map(Story, story.history.earlier), story]


def _add(task: Story, story: Story, found: dict[str, TaskEffect]) -> None:
    """Update `found`, the effects by key, with `story`: the history of a run or of a rollback of `task`."""
    for call in story.history.calls:
        if call.is_step or call.is_undo:
            _add_call(task, story, call, found)
    for call in story.done:
        if call.is_reconcile:
            _update(found, key_of(task, call.step), {"state": EffectState.APPLIED, "result": call.result})
    last = {fault.step_id: fault for fault in story.account.faults}
    for effect in list(found.values()):
        fault = last.get(effect.step)
        # A rollback finds it out without a call of the step.
        if effect.state is EffectState.UNKNOWN and fault and fault.reconciled == "not_applied":
            del found[effect.key]
    for call in story.undone:
        by = key_of(task, call.owner)
        change = {"state": EffectState.UNDONE, "undone_at": call.ended_at, "undone_by": by}
        _update(found, key_of(task, call.step), change)


def _update(found: dict[str, TaskEffect], key: str, change: Mapping[str, Any]) -> None:
    """Apply `change` to the effect of the step with this key, or of its fallback, whose key ends with `:KIND`."""
    for effect in list(found.values()):
        is_of_step = effect.key == key or effect.key.startswith(f"{key}:")
        if is_of_step and effect.undoes is None:
            found[effect.key] = effect.model_copy(update=change)


def _add_call(task: Story, story: Story, call: Call, found: dict[str, TaskEffect]) -> None:
    """Add the effect of one call to `found`; remove the effect if a reconciliation found that it was not applied."""
    key, state = key_of(task, call.id, call.kind), effect_of(story, call)
    if state is EffectState.NONE:
        if reconciliation_of(story, call) is not None:
            found.pop(key, None)
        return
    if key in found and found[key].state is EffectState.APPLIED:
        return  # a later call with the same key does not make a certain effect uncertain
    spec = story.history.spec(call.kind)
    found[key] = TaskEffect(
        key=key,
        step=call.id,
        kind=call.kind,
        effect=spec.effect if spec else None,
        state=EffectState.UNKNOWN if state is EffectState.RUNNING else state,
        at=call.ended_at or call.at,
        args=call.args if isinstance(call.args, dict) else None,
        result=call.result,
        undoes=call.step if call.is_undo else None,
    )


def _with_card(story: Story, card: EffectCard, before: TaskEffect | None) -> TaskEffect:
    """The effect in `card`, a row of a ledger; `before` is the same effect from the histories, None if they lack it."""
    spec = story.history.spec(card.kind)
    effect = spec.effect if spec else None
    # Except for transactional kinds, the row is written before the call; without a result it proves no effect.
    is_claim = card.result is None and effect is not Effect.TRANSACTIONAL
    state = EffectState.UNDONE if card.undone_at else EffectState.UNKNOWN if is_claim else EffectState.APPLIED
    undoes = card.step.removeprefix(ids.UNDO).partition(":")[0] if card.step.startswith(ids.UNDO) else None
    own = TaskEffect(**dict(card), effect=effect, state=state, undoes=undoes)
    if before is None:
        return own
    if state is EffectState.UNKNOWN:
        return before
    at = before.at if card.undone_at else card.at
    result = own.result if own.result is not None else before.result
    return own.model_copy(update={"at": at, "args": before.args, "result": result})


def call_with_key(story: Story, key: str) -> Call | None:
    """The newest completed call with this key in all runs of the task; else the newest call with the key, else None."""
    made = _calls_with_key(story, key)
    done = [call for call in made if call.closed is CallEnd.COMPLETED]
    return next(reversed(done or made), None)


def outlived(story: Story, key: str) -> bool:
    """Whether, in any run of the task, a call with this key left its thread running after an attempt had ended."""
    return any(call.outlived for call in _calls_with_key(story, key))


def _calls_with_key(story: Story, key: str) -> list[Call]:
    calls = [(run, call) for run in runs_of(story) for call in run.history.calls if call.is_step]
    return [call for run, call in calls if key_of(run, call.id, call.kind) == key]


def key_of(story: Story, id: str, kind: str | None = None) -> str:
    """The idempotency key of the call of step `id`; ends with `:KIND` if `kind` is a fallback of the planned kind."""
    planned = story.steps[id].kind if id in story.steps else kind
    fallback = kind if kind != planned else None
    return ids.idempotency_key(ids.of_call(id, fallback), story.history.key_prefix)


def repeated_by_reset(story: Story, point: Call) -> list[Call]:
    """The calls of the newest run whose effect a reset to before `point` could apply a second time.

    They include calls that were scheduled before `point` and ended after it, since the new run makes them again. They
    exclude ended calls whose key prevents a second effect.
    """
    return [call for call in _unprotected(story) if call.ended is None or call.ended.id > point.task]


def reset_points(story: Story) -> list[str]:
    """The ids of the calls of the newest run, in order, to which `reset` may go back without repeating an effect."""
    # A call that has not ended would be made again after every reset, so it excludes all points.
    last = max((call.ended.id if call.ended else sys.maxsize for call in _unprotected(story)), default=0)
    first = {call.id: call for call in reversed(story.history.newest_calls)}
    return [call.id for call in story.history.newest_calls if first[call.id] is call and call.task >= last]


def _unprotected(story: Story) -> list[Call]:
    """Calls of the newest run that are open, or that may have had an effect and could have it again if repeated."""
    found = list[Call]()
    for call in story.history.newest_calls:
        spec = story.history.spec(call.kind)
        is_single = call.ended is not None and spec is not None and spec.effect in SINGLE
        if not is_single and effect_of(story, call) is not EffectState.NONE:
            found.append(call)
    return found


async def with_reset_point(client: Client, failing: FailingTask) -> FailingTask:
    """A copy of `failing` with the newest step to which `reset` may go back; reads the whole history of the run."""
    if failing.task_id != failing.workflow_id:  # a rollback is started again instead of reset
        return failing
    run_id = (await client.get_workflow_handle(failing.workflow_id).describe()).run_id
    return add_reset_point(failing, Story(await fetch_run(client, failing.workflow_id, run_id)))


def add_reset_point(failing: FailingTask, story: Story) -> FailingTask:
    """A copy of `failing` with the newest step of `story` to which `reset` may go back, or None as the step."""
    points = reset_points(story)
    return failing.model_copy(update={"step": points[-1] if points else None})
