"""Whether the calls of a task changed the world, from its history and the ledgers of a worker.

`effect_of` decides it for one call; `effects`, `explain`, `undo`, `show` and `reset` all use it.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from temporalio.client import Client

from client.history.fetch import fetch_run, rollbacks
from client.history.records import Call, CallEnd, Timer
from client.history.story import Story
from client.workflow_task import FailingTask
from workflows import ids
from workflows.catalogue import REFUSAL_MAY_FOLLOW_SUCCESS, SAFE, Effect, ToolSpec
from workflows.faults import Applied, Code, Fault
from workflows.inspect import EffectCard
from workflows.reconciling import Verdict
from workflows.record import FaultRecord

SINGLE = (Effect.KEYED, Effect.TRANSACTIONAL, Effect.UNKEYED)
"""Effects which a second call with the same key does not apply again: a ledger or the service knows the first."""


class EffectState(StrEnum):
    NONE = "none"
    APPLIED = "happened"
    UNKNOWN = "may_have_happened"
    RUNNING = "running"
    """The call has not ended, and may still change the world."""
    UNDONE = "undone"


@dataclass(frozen=True)
class Reconciliation:
    """The reads that looked for the effect of a call, the timers between them, and what was found."""

    reads: tuple[Call, ...]
    timers: tuple[Timer, ...]
    verdict: Verdict | None
    """None while the reconciliation has no verdict."""


_OF_VERDICT: Mapping[Verdict | None, EffectState] = {
    Verdict.APPLIED: EffectState.APPLIED,
    Verdict.NOT_APPLIED: EffectState.NONE,
    Verdict.CANNOT_TELL: EffectState.UNKNOWN,
    None: EffectState.UNKNOWN,
}


def effect_of(story: Story, call: Call) -> EffectState:
    """Whether one call changed the world, as its history and the reconciliation after it tell; never UNDONE."""
    spec = story.history.spec(call.kind)
    if spec is not None and spec.effect is Effect.READ:
        return EffectState.NONE
    found = reconciliation_of(story, call)
    if found is not None:
        return _OF_VERDICT[found.verdict]
    match call.closed:
        case None:
            return EffectState.RUNNING
        case CallEnd.COMPLETED:
            return EffectState.APPLIED if spec else EffectState.UNKNOWN  # an unknown kind may be a read
        case CallEnd.CANCELLED:
            return EffectState.UNKNOWN if call.started or _may_have_been_retried(call, spec) else EffectState.NONE
        case CallEnd.FAILED:
            return _after_failure(call, spec)


def _may_have_been_retried(call: Call, spec: ToolSpec | None) -> bool:
    # The server writes the start of an attempt only when the call ends with that attempt. Of a call that was cancelled
    # during its backoff it writes neither the start nor the failure of the attempts before, so that history looks as if
    # no worker had taken it. Only kinds that may be repeated get to a backoff after an attempt with an unknown outcome.
    return call.allowed != 1 and (spec is None or spec.effect in SAFE)


def _after_failure(call: Call, spec: ToolSpec | None) -> EffectState:
    fault = call.failing.fault if call.failing else None
    if fault is None or spec is None:
        return EffectState.UNKNOWN
    if fault.applied is not Applied.NONE:
        return EffectState.APPLIED if fault.applied is Applied.APPLIED else EffectState.UNKNOWN
    # The last attempt had no effect. One before it may have had; a rejection by the ledger of a transactional kind
    # proves that none had, but a worker without the tool has not looked there.
    looked = not fault.quadrant.is_transient and fault.code is not Code.MISSING_TOOL
    doubtful = REFUSAL_MAY_FOLLOW_SUCCESS if looked else SAFE
    is_doubtful = spec.effect in doubtful and _may_have_had_effect_before(call, fault)
    return EffectState.UNKNOWN if is_doubtful else EffectState.NONE


def _may_have_had_effect_before(call: Call, last: Fault) -> bool:
    """Whether an attempt before the last one may have had an effect; one that ended without reporting may."""
    earlier = {one.attempt: one for one in call.earlier}
    if call.last is not None and call.last.fault is not None:
        earlier.setdefault(call.attempt - 1, call.last.fault)
    unreported = max(call.attempt, last.attempt) - 1 - len(earlier)
    return unreported > 0 or any(one.applied is not Applied.NONE for one in earlier.values())


def reconciliation_of(story: Story, call: Call, record: FaultRecord | None = None) -> Reconciliation | None:
    """What was done to find out whether a call that ended was applied; None where nothing was.

    The verdict of `record`, the fault that the task recorded, counts where the history has no read.
    """
    after, following = call.ended or call.scheduled, next_call(story, call)
    until = following.scheduled if following else None
    reads = tuple(
        read
        for read in story.history.reconciles(call.owner)
        if read.scheduled > after and (until is None or read.scheduled < until)
    )
    timers = tuple(
        timer
        for timer in story.history.timers
        if timer.reconciles(call) and timer.started > after and (until is None or timer.started < until)
    )
    if reads:
        same = [one for one in story.history.of_step(call.owner) if one.kind == call.kind]
        outlived = any(one.outlived for one in same if one.scheduled <= call.scheduled)
        return Reconciliation(reads, timers, _verdict(reads, timers, outlived=outlived))
    if record is None or not record.reconciled:
        return None
    return Reconciliation(reads, timers, Verdict(record.reconciled))


def next_call(story: Story, call: Call) -> Call | None:
    return next((one for one in story.history.calls if one.id == call.id and one.scheduled > call.scheduled), None)


def _not_applied(story: Story) -> list[str]:
    """The steps that were not applied, as the reconciliation during a rollback found."""
    reads = dict[str, tuple[Call, ...]]()
    for call in story.history.calls:
        if call.is_reconcile and not story.history.of_step(call.owner):
            reads[call.owner] = (*reads.get(call.owner, ()), call)
    found = {
        id: _verdict(made, tuple(timer for timer in story.history.timers if timer.reconciles(made[-1])))
        for id, made in reads.items()
    }
    return [id for id, verdict in found.items() if verdict is Verdict.NOT_APPLIED]


def _verdict(reads: tuple[Call, ...], timers: tuple[Timer, ...], *, outlived: bool = False) -> Verdict | None:
    """What the last read says; "not found" counts only if no further read is waited for."""
    last = reads[-1]  # if a thread of the call outlived its attempt, "not found" never counts
    match last.closed:
        case CallEnd.COMPLETED:
            return Verdict.APPLIED
        case CallEnd.FAILED if last.failing and last.failing.code is Code.NOT_FOUND and not outlived:
            return None if any(timer.started > last.scheduled for timer in timers) else Verdict.NOT_APPLIED
        case CallEnd.FAILED:
            return Verdict.CANNOT_TELL
        case _:
            return None


class TaskEffect(BaseModel):
    """One effect of a task, by its key."""

    model_config = ConfigDict(frozen=True)

    key: str
    step: str
    kind: str
    effect: Effect | None
    """What the kind promises; None where the history cannot tell."""
    state: EffectState = Field(serialization_alias="known")
    """APPLIED, UNKNOWN or UNDONE."""
    at: datetime
    """When it was applied or, where that is not known, when it was last heard of."""
    result: JsonValue = None
    undone_at: datetime | None = None
    undone_by: str | None = None
    undoes: str | None = None


async def fetch_effects(client: Client, story: Story, cards: Sequence[EffectCard]) -> list[TaskEffect]:
    """The effects of a task, from the histories of all its runs and rollbacks, and from these rows of ledgers."""
    undone = [Story(one) for one in await rollbacks(client, story.history.task_id, story.history.first_run)]
    newest = undone.pop() if undone else None
    return all_effects(story, newest, cards, undone)


def all_effects(
    story: Story, rollback: Story | None, cards: Sequence[EffectCard], earlier_rollbacks: Sequence[Story] = ()
) -> list[TaskEffect]:
    """All effects of a task that were applied or may have been, the oldest first; `rollback` undid it after its end."""
    found = dict[str, TaskEffect]()
    for run in runs_of(story)[:-1]:
        _add(run, run, found)
    for earlier in earlier_rollbacks:
        _add(story, earlier, found)
    _add(story, story, found)
    if rollback is not None:
        _add(story, rollback, found)
    for card in cards:
        if card.key.startswith(f"{story.history.first_run}/"):  # else of an earlier task with the same id
            found[card.key] = _with_card(story, card, found.get(card.key))
    undone_at = {one.undone_by: one.undone_at for one in found.values() if one.undone_at}
    dated = (one.model_copy(update={"at": undone_at.get(one.key) or one.at}) for one in found.values())
    return sorted(dated, key=lambda one: (one.at, one.key))


def own_effects(story: Story) -> dict[str, TaskEffect]:
    """By key, the effects of the newest run and the runs that it continues, without runs that a reset left behind."""
    found = dict[str, TaskEffect]()
    _add(story, story, found)
    return found


def runs_of(story: Story) -> list[Story]:
    """All runs of the task: those that resets left behind first."""
    return [*map(Story, story.history.earlier), story]


def _add(task: Story, story: Story, found: dict[str, TaskEffect]) -> None:
    """Add what a history of the task, or of its rollback, tells to what was `found` before, by key."""
    for call in story.history.calls:
        if call.is_step or call.is_undo:
            _add_call(task, story, call, found)
    for call in story.done:
        if call.is_reconcile:
            _update(found, key_of(task, call.step), {"state": EffectState.APPLIED, "result": call.result})
    outlived = {call.step for run in runs_of(task) for call in run.history.calls if call.is_step and call.outlived}
    for id in set(_not_applied(story)) - outlived:
        for one in [one for one in found.values() if one.step == id and one.state is EffectState.UNKNOWN]:
            del found[one.key]
    for call in story.undone:
        by = key_of(task, call.owner)
        change = {"state": EffectState.UNDONE, "undone_at": call.ended_at, "undone_by": by}
        _update(found, key_of(task, call.step), change)


def _update(found: dict[str, TaskEffect], key: str, change: Mapping[str, Any]) -> None:
    """Apply `change` to the effect of a step, also where a fallback applied the effect."""
    for one in list(found.values()):
        if one.key.partition(":")[0] == key and one.undoes is None:
            found[one.key] = one.model_copy(update=change)


def _add_call(task: Story, story: Story, call: Call, found: dict[str, TaskEffect]) -> None:
    """Add one execution: an effect that was certain stays so, and one that was found not to be applied is removed."""
    key, state = key_of(task, call.id, call.kind), effect_of(story, call)
    if state is EffectState.NONE:
        if reconciliation_of(story, call) is not None:
            found.pop(key, None)
        return
    if key in found and found[key].state is EffectState.APPLIED:
        return
    spec = story.history.spec(call.kind)
    found[key] = TaskEffect(
        key=key,
        step=call.id,
        kind=call.kind,
        effect=spec.effect if spec else None,
        state=EffectState.UNKNOWN if state is EffectState.RUNNING else state,
        at=call.ended_at or call.at,
        result=call.result,
        undoes=call.step if call.is_undo else None,
    )


def _with_card(story: Story, card: EffectCard, before: TaskEffect | None) -> TaskEffect:
    """What a ledger has of an effect; a claim without a result says only that a call was about to be made."""
    spec = story.history.spec(card.kind)
    effect = spec.effect if spec else None
    is_claim = card.result is None and effect is not Effect.TRANSACTIONAL
    state = EffectState.UNDONE if card.undone_at else EffectState.UNKNOWN if is_claim else EffectState.APPLIED
    own = TaskEffect(
        key=card.key,
        step=card.step,
        kind=card.kind,
        effect=effect,
        state=state,
        at=card.at,
        result=card.result,
        undone_at=card.undone_at,
        undone_by=card.undone_by,
        undoes=card.step.removeprefix(ids.UNDO).partition(":")[0] if card.step.startswith(ids.UNDO) else None,
    )
    if before is None:
        return own
    if state is EffectState.UNKNOWN:
        return before
    at = before.at if card.undone_at else card.at
    return own.model_copy(update={"at": at, "result": own.result if own.result is not None else before.result})


def call_with_key(story: Story, key: str) -> Call | None:
    """The call with this key, in any run of the task: the last one that completed, else the last one."""
    made = _calls_with_key(story, key)
    done = [one for one in made if one.closed is CallEnd.COMPLETED]
    return next(reversed(done or made), None)


def outlived(story: Story, key: str) -> bool:
    """Whether a thread of the call with this key outlived its attempt, in any run of the task."""
    return any(one.outlived for one in _calls_with_key(story, key))


def _calls_with_key(story: Story, key: str) -> list[Call]:
    calls = [(run, one) for run in runs_of(story) for one in run.history.calls if one.is_step]
    return [one for run, one in calls if key_of(run, one.id, one.kind) == key]


def key_of(story: Story, id: str, kind: str | None = None) -> str:
    """The idempotency key of a call: that of a fallback names its kind."""
    planned = story.steps[id].kind if id in story.steps else kind
    fallback = kind if kind != planned else None
    return ids.idempotency_key(ids.of_call(id, fallback), story.history.first_run)


def repeated_by_reset(story: Story, point: Call) -> list[Call]:
    """The calls of the newest run, applied or perhaps applied, that a reset to before `point` would make again.

    A call that was scheduled before and ended after that point is made again as well. A call whose key protects it is
    made again and changes nothing: it returns its first result, or says that it was undone.
    """
    return [call for call in _unprotected(story) if call.ended is None or call.ended.id > point.task]


def reset_points(story: Story) -> list[str]:
    """The calls of the newest run, in order, that `reset` may go back to."""
    last = max((call.ended.id if call.ended else sys.maxsize for call in _unprotected(story)), default=0)
    first = {call.id: call for call in reversed(story.history.newest_calls)}
    return [call.id for call in story.history.newest_calls if first[call.id] is call and call.task >= last]


def _unprotected(story: Story) -> list[Call]:
    """The calls of the newest run that may be running, or that may be applied and have no key that protects them."""
    found = list[Call]()
    for call in story.history.newest_calls:
        spec = story.history.spec(call.kind)
        is_single = call.ended is not None and spec is not None and spec.effect in SINGLE
        if not is_single and effect_of(story, call) is not EffectState.NONE:
            found.append(call)
    return found


async def with_reset_point(client: Client, failing: FailingTask) -> FailingTask:
    """`failing` with the newest step that `reset` may go back to; the whole run is read to find this step."""
    if failing.task_id != failing.workflow_id:  # a rollback is started again instead of reset
        return failing
    run_id = (await client.get_workflow_handle(failing.workflow_id).describe()).run_id
    return add_reset_point(failing, Story(await fetch_run(client, failing.workflow_id, run_id)))


def add_reset_point(failing: FailingTask, story: Story) -> FailingTask:
    points = reset_points(story)
    return failing.model_copy(update={"step": points[-1] if points else None})
