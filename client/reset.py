"""Reset: a task continues from just before a step, in a new run of the same task (a workflow reset of Temporal).

Runs when a person or a program resets a task, while it runs or after its end.

A reset must not cause an effect to be applied twice. That could happen in two ways: the new run makes a call again, or
a planner that does not know of the effect plans it again, and the new call has another idempotency key.
"""

import functools
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.converter import JSONProtoPayloadConverter
from temporalio.service import RPCError, RPCStatusCode

from client.effects import (
    SINGLE,
    EffectState,
    TaskEffect,
    call_with_key,
    effect_of,
    fetch_effects,
    key_of,
    own_effects,
    repeated_by_reset,
    reset_points,
)
from client.follow import View
from client.history.decoder import payloads_of
from client.history.fetch import fetch_run, fetch_story
from client.history.records import INTERNAL_KINDS, Call, Event
from client.history.story import Plan, Story
from client.problem import Problem, ProblemKind
from client.remedy import Argument, Remedy, Text
from client.tasks import Handle
from client.undo import Confirm, record_of, require_closed, undo_steps
from client.vouching import Voucher
from client.workers import ask
from workflows.account.records import StepRecord, StepStatus, UndoRecord
from workflows.agent import AgentWorkflow
from workflows.inquiries import ClaimsInquiry, EffectsInquiry, PayloadClaim
from workflows.json_values import canonical
from workflows.plans.proposal import Step
from workflows.text import nearest

MAX_NAMED = 5
MAX_TRIES = 5
"""The most tries to send a Signal to a closed task: each try resets it to just before its end, and it may end again."""
MAX_SIGNAL = 1024 * 1024
"""Bytes: if the step records for a Signal are larger, their results are left out. The server takes at most 2 MB."""
SAID: Mapping[EffectState, str] = {
    EffectState.NONE: "has changed nothing",
    EffectState.APPLIED: "has changed the world",
    EffectState.RUNNING: "runs and may change the world",
    EffectState.UNKNOWN: "may have changed the world",
}


class Fate(StrEnum):
    """What `reset` does about effects after the reset point, which a new plan could otherwise apply again."""

    UNDO = "undo"
    """The effects are undone before the reset."""
    KEEP = "keep"
    """The effects stay, and they are reported to the planner."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ValueError(f"{value!r} is not a valid Fate: give {' or '.join(repr(fate.value) for fate in cls)}.")


class ResetResult(NamedTuple):
    run_id: str
    point: Call
    """The call before which the new run begins."""
    asked: Call
    """The call that the user named; `point` is an earlier call if the planner has to be asked again."""
    kept: Sequence[TaskEffect]
    undone: Sequence[TaskEffect]
    deleted_runs: Sequence[str]
    """The ids of runs whose history was deleted: of their effects, only what ledgers recorded is known."""


class _PreparedReset(NamedTuple):
    point: Call
    """The call before which the new run begins."""
    records: Sequence[StepRecord] = ()
    """The effects that a Signal reports to the new run: effects that stay, and effects that were undone."""
    kept: Sequence[TaskEffect] = ()
    undone: Sequence[TaskEffect] = ()


async def reset(
    client: Client,
    handle: Handle,
    *,
    to: str,
    reason: str,
    fate: Fate | None = None,
    view: View | None = None,
    is_attended: bool = True,
    confirm: Confirm | None = None,
    voucher: Voucher | None = None,
) -> ResetResult:
    """Start a new run of a task from just before the step `to` was first scheduled; idempotency keys stay the same.

    `fate` decides about later effects that could be applied again; with None, such effects raise Problem. `view` shows
    the rollback, `confirm` is asked about the rollback's calls, and `voucher` signs who confirms them, as by `undo`.
    `reason` is written into the history.

    Raises:
        Problem: the task has no such step; the step never started; the plan was written by hand; an effect would or
            could be applied twice; the deadline has passed; or the store lacks a payload that the new run needs.
    """
    # Everything is checked first, because a reset cannot be taken back.
    description = await handle.describe()
    story = await fetch_story(client, handle)
    step = _step(story, to)
    _refuse_repeated(story, step, fate)
    _refuse_late(story)
    events = (await client.get_workflow_handle(handle.id, run_id=description.run_id).fetch_history()).events
    await _require_payloads(client, description.task_queue, [event for event in events if event.event_id <= step.task])
    effects = await _effects(client, story, description.task_queue, step)
    if fate is None and effects.in_the_way:
        raise _effect_stands(effects)
    prepared = _PreparedReset(step)
    goes_back_over = effects.after if fate is Fate.UNDO else [*effects.in_the_way, *repeated_by_reset(story, step)]
    if fate and goes_back_over:
        if fate is Fate.UNDO:
            undoing = functools.partial(undo_steps, is_attended=is_attended, confirm=confirm, voucher=voucher)
            await _undo(client, handle, effects, view or View(), undoing)
        prepared = _prepare_reset(effects, fate)
    base = description.run_id
    if prepared.records:
        base = await _report_effects(client, description, events, prepared.records, reason)
    run_id = await _begin(client, handle.id, base, prepared.point.task, reason)
    if description.status is WorkflowExecutionStatus.RUNNING:
        # The old run went on until the reset ended it, so it may have made calls after the checks.
        _refuse_overtaken(story, Story(await fetch_run(client, handle.id, description.run_id)), prepared.point)
    return ResetResult(run_id, prepared.point, step, prepared.kept, prepared.undone, story.history.deleted)


async def require_step(client: Client, handle: Handle, to: str) -> None:
    """Raise Problem if the task has no step `to`, or the step never started."""
    _step(await fetch_story(client, handle), to)


@dataclass(frozen=True)
class EffectsAtReset:
    """The effects of a task at a reset, compared with the new run, whose history ends just before the call `point`."""

    story: Story
    point: Call
    effects: Sequence[TaskEffect]

    @property
    def after(self) -> list[TaskEffect]:
        """Effects that are or may be applied, were not undone, and are not in the history of the new run."""
        return [effect for effect in self._later if effect.state is not EffectState.UNDONE]

    @property
    def undone(self) -> list[TaskEffect]:
        """Undone effects that are not in the history of the new run: a new plan could use their step ids again."""
        return [effect for effect in self._later if effect.state is EffectState.UNDONE]

    @property
    def in_the_way(self) -> list[TaskEffect]:
        """Effects of `after` that the planner does not know: a new plan could apply them again, with another key."""
        known = {record.step.id for record in self.story.history.earlier_effects}
        return [effect for effect in self.after if effect.step not in known and not self._is_repeated(effect)]

    @property
    def plan(self) -> Plan | None:
        """The plan in force at the reset point; None before the first plan."""
        return self.story.plan_of(self._event)

    @property
    def is_by_hand(self) -> bool:
        """Whether the plan at the reset point was written by hand (`--plan`), not by a planner."""
        made = [self.plan.turn] if self.plan else self.story.turns
        turns = [turn for turn in self.story.turns if turn.call == self.point] or made
        return bool(turns) and turns[0].is_by_hand

    def is_of_plan(self, effect: TaskEffect) -> bool:
        """Whether the effect belongs to the newest run, and to a step of the plan in force at the reset point."""
        return effect.step in self._steps and effect.key in own_effects(self.story)

    def is_in_flight(self, effect: TaskEffect) -> bool:
        """Whether the effect's call was open at the reset point; the server makes such a call again in the new run."""
        calls = self.story.history.newest_calls
        return any(call.id == effect.step and call.scheduled.id < self.point.task for call in calls)

    @property
    def _event(self) -> Event:
        return Event(self.story.history.runs, self.point.task)

    @property
    def _later(self) -> list[TaskEffect]:
        calls = [call for call in self.story.history.calls if call.is_step and call.ended and call.ended < self._event]
        before = {key_of(self.story, call.id, call.kind) for call in calls}
        return [effect for effect in self.effects if effect.undoes is None and effect.key not in before]

    @property
    def _steps(self) -> Mapping[str, Step]:
        task, plan = self.story.history.task, self.plan
        by_hand = task.plan if task and task.plan else ()
        return {step.id: step for step in (plan.steps if plan else by_hand)}

    def _is_repeated(self, effect: TaskEffect) -> bool:
        """Whether the new run certainly repeats the effect's call with the same key, and gets the call's first result.

        The repetition is certain in three cases: the task may not replan; the call is scheduled at the reset point
        already; or all other steps that may run before the call get their first results, too, so that no fault can lead
        to a new plan.
        """
        task = self.story.history.task
        if not self.is_of_plan(effect) or not self._is_single(effect):
            return False
        if task is not None and task.limits.replans == 0:
            return True
        calls = self.story.history.newest_calls
        if any(call.id == effect.step and call.task <= self.point.task for call in calls):
            return True
        over = {call.id for call in calls if call.ended is not None and call.ended.id < self.point.task}
        once = {other.step for other in self.after if other.state is EffectState.APPLIED and self._is_single(other)}
        return self._steps.keys() - over - {effect.step} - self._descendants(effect.step) <= once

    def _is_single(self, effect: TaskEffect) -> bool:
        # The key of a fallback does not end with the step's id: the new run may never get to the fallback.
        return effect.effect in SINGLE and effect.key.endswith(f"/{effect.step}")

    def _descendants(self, id: str) -> set[str]:
        found, steps = {id}, self._steps
        while new := {step.id for step in steps.values() if step.dependencies & found} - found:
            found |= new
        return found - {id}


async def _effects(client: Client, story: Story, queue: str, point: Call) -> EffectsAtReset:
    """The effects from the histories of all runs and rollbacks; if a history was deleted, also from the ledgers."""
    cards = None
    if story.history.deleted:
        with suppress(Problem):  # no worker answers, so only the histories count
            cards = (await ask(client, queue, EffectsInquiry(task_id=story.history.task_id))).effects
    return EffectsAtReset(story, point, await fetch_effects(client, story, cards or ()))


def _effect_stands(effects: EffectsAtReset) -> Problem:
    effect, all = effects.in_the_way[-1], Remedy("effects", effects.story.history.task_id)
    did = "was applied" if effect.state is EffectState.APPLIED else "may have been applied"
    more = f", and {len(effects.in_the_way) - 1} more" if len(effects.in_the_way) > 1 else ""
    what = f"{effect.step!r} ({effect.kind}) {did} after {effects.point.id!r} and stands{more}"
    reason = f"{what}: a task that goes back there could apply it again under another key"
    undo, keep = (Argument("fate", fate) for fate in Fate)
    ways = "add `{undo}` to undo it first, or `{keep}` to let it stay and tell the planner; {all} lists all"
    remedy = Text.of(ways, undo=undo, keep=keep, all=all)
    return Problem("effect_stands", reason, remedy, ProblemKind.FAILED)


def _prepare_reset(effects: EffectsAtReset, fate: Fate) -> _PreparedReset:
    after = effects.after
    # If an effect is undone, or does not belong to the plan at the point, the planner has to be asked again.
    is_anew = fate is Fate.UNDO or any(not effects.is_of_plan(effect) for effect in effects.in_the_way)
    point = _request(effects) if is_anew or effects.point.kind in INTERNAL_KINDS else effects.point
    new = replace(effects, point=point)
    undone = [*(after if fate is Fate.UNDO else ()), *(new.undone if point.kind in INTERNAL_KINDS else ())]
    gone = {effect.key for effect in undone}
    kept = [effect for effect in new.after if effect.key not in gone and not new.is_in_flight(effect)]
    records = [_record(effect, effects.story) for effect in kept]
    as_undone = {"status": StepStatus.UNDONE, "result": None}
    records += [_record(effect, effects.story).model_copy(update=as_undone) for effect in undone]
    return _PreparedReset(point, records, kept, after if fate is Fate.UNDO else ())


def _record(effect: TaskEffect, story: Story) -> StepRecord:
    record = record_of(effect, call_with_key(story, effect.key), story)
    spec = story.history.specs.get(effect.kind)
    small = record.slim(0, spec.paths if spec else ())
    return small if small is record else small.model_copy(update={"step": record.step.model_copy(update={"args": {}})})


def _request(effects: EffectsAtReset) -> Call:
    """The request that led to the plan at the reset point. Raises Problem if the plan was written by hand."""
    if effects.is_by_hand:
        effect, id = (effects.in_the_way or effects.after)[-1], effects.story.history.task_id
        reason = f"The plan of task {id!r} was written by hand, and its steps would be called with their old ids"
        remedy = Text(Remedy("undo", id), f" undoes {effect.step!r}; then start the plan as a new task")
        raise Problem("by_hand", reason, remedy, ProblemKind.FAILED)
    if effects.point.kind in INTERNAL_KINDS:
        return effects.point
    # Without a plan: it was made in the workflow task that scheduled the call, and is made again with it.
    if effects.plan is None:
        calls = effects.story.history.newest_calls
        made = [call for call in calls if call.is_planning and call.task == effects.point.task]
        return made[0] if made else effects.point
    return _first_call(effects.story, effects.plan.turn.call.id) or effects.point


async def _undo(
    client: Client,
    handle: Handle,
    effects: EffectsAtReset,
    view: View,
    undoing: Callable[..., Awaitable[Sequence[UndoRecord]]],
) -> None:
    """Undo the effects after the reset point by `undoing`. Raises Problem if the task runs, or an effect stays."""
    _request(effects)  # raises Problem for a plan written by hand, before anything is undone
    require_closed(await handle.describe(), undo=False)
    after, specs = effects.after, effects.story.history.specs
    final = [effect for effect in after if effect.kind in specs and not specs[effect.kind].undo]
    stays = [f"{effect.step} ({effect.kind} has no undo)" for effect in final]
    if not stays:
        steps = {effect.step for effect in after}
        undo = await undoing(client, handle, steps, view)
        stays = [f"{record.step_id} ({record.reason.rstrip('.')})" for record in undo if not record.done]
        named = {record.step_id for record in undo}
        sure = [effect.step for effect in after if effect.state is EffectState.APPLIED and effect.step not in named]
        stays += [f"{step} (the rollback did not undo it)" for step in dict.fromkeys(sure)]
    if stays:
        reason = f"Task {handle.id!r} was not reset, since this cannot be undone: {', '.join(stays)}"
        keep = Argument("fate", Fate.KEEP)
        remedy = Text("see ", Remedy("effects", handle.id), "; with `", keep, "` it stays and the planner is told")
        raise Problem("effect_stands", reason, remedy, ProblemKind.FAILED)


async def _report_effects(
    client: Client,
    description: WorkflowExecutionDescription,
    events: Sequence[HistoryEvent],
    records: Sequence[StepRecord],
    reason: str,
) -> str:
    """Report `records` (effects that stay or were undone) to a run of the task by Signal; return the id of that run.

    A later reset of that run keeps the Signal. A closed run takes no Signal, so the run is first reset to just before
    its end.

    Raises:
        Problem: the task was closed from outside, or the run ended each time before the Signal reached it.
    """
    size = sum(len(record.model_dump_json()) for record in records)
    small = [record.slim(len(canonical(record.result)) if size > MAX_SIGNAL else 0) for record in records]
    run = description.run_id
    for _ in range(MAX_TRIES):
        if description.status is not WorkflowExecutionStatus.RUNNING:
            run = await _begin(client, description.id, run, _last_task(events, description.id), reason)
        handle: Handle = client.get_workflow_handle_for(AgentWorkflow.run, description.id, run_id=run)
        try:
            await handle.signal(AgentWorkflow.know_earlier_effects, small)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            events = (await handle.fetch_history()).events  # the run has ended again meanwhile
            continue
        return run
    reason = f"Task {description.id!r} ended again each time before it could be told which effects stand"
    raise Problem("untold", reason, "stop its workers, reset it, and start them again", ProblemKind.FAILED)


def _last_task(events: Sequence[HistoryEvent], id: str) -> int:
    """The event id of the workflow task that ended a run. Raises Problem if the run was closed from outside."""
    end = events[-1]
    last = getattr(end, end.WhichOneof("attributes") or "")
    # Only the event of an end that the workflow itself decided has this field.
    if not hasattr(last, "workflow_task_completed_event_id"):
        reason = f"Task {id!r} was closed from outside, and nobody can tell it what stands"
        remedy = Text(Remedy("undo", id), ", then start a new task")
        raise Problem("effect_stands", reason, remedy, ProblemKind.FAILED)
    return int(last.workflow_task_completed_event_id)


async def _begin(client: Client, id: str, run: str, task: int, reason: str) -> str:
    """Reset a run to just before its completed workflow task with the event id `task`; return the id of the new run."""
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=id, run_id=run),
        reason=reason,
        workflow_task_finish_event_id=task,
        request_id=secrets.token_hex(16),
        # A cancel request after the point would cancel the new run as well, and an answer that a person gave after it
        # was meant for what the old run asked: the new run asks again.
        reset_reapply_exclude_types=[
            ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_CANCEL_REQUEST,
            ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
        ],
        identity=client.identity,
    )
    return (await client.workflow_service.reset_workflow_execution(request)).run_id


def _first_call(story: Story, id: str) -> Call | None:
    return next((call for call in story.history.newest_calls if call.id == id), None)


def _step(story: Story, to: str) -> Call:
    """The first call of the step `to` in the newest run. Raises Problem if there is no such step, or it never began."""
    step, id = _first_call(story, to), story.history.task_id
    if step is not None:
        return step
    called = list(dict.fromkeys(call.id for call in story.history.newest_calls))
    if to in story.steps and not story.history.of_step(to):
        reason = f"Step {to!r} of task {id!r} never started"
        raise Problem("not_started", reason, f"reset to one that did: {named(called)}")
    whose = f"The newest run of task {id!r}, which continues another," if story.history.runs > 1 else f"Task {id!r}"
    reason = f"{whose} has no step {to!r}{nearest(to, called).rstrip('?')}"
    anew = Text("it has not begun; `", Argument("again", True), "` starts it anew")
    remedy = f"reset to one of {named(called)}" if called else anew
    raise Problem("unknown_step", reason, remedy)


def _refuse_repeated(story: Story, step: Call, fate: Fate | None) -> None:
    """Raise Problem if the new run could repeat an effect of a call.

    With a `fate`, which decides about the ended calls after `step`, only open calls and calls before `step` count.
    """
    repeated = repeated_by_reset(story, step)
    if fate is not None:
        repeated = [call for call in repeated if call.closed is None or call.scheduled.id < step.task]
    if not repeated:
        return
    last, free = repeated[-1], reset_points(story)
    did = f"{SAID[effect_of(story, last)]} ({last.kind}, event {last.scheduled.id})"
    reason = f"Going back to {step.id!r} would do {last.id!r} again, which {did}"
    if last.closed is None:
        pause = story.history.pause_of(last)
        resumed = f"resume it with `{pause.resume}`, " if pause else ""
        stop = Remedy("cancel", story.history.task_id)
        remedy: str = Text(f"{resumed}wait until it has ended, or stop the task with ", stop)
    elif free:
        undo, keep = (Argument("fate", fate) for fate in Fate)
        remedy = Text(f"reset to what came after it: {named(free)}; or add `", undo, "` or `", keep, "`")
    else:
        remedy = "start a new task for what is left to do"
    raise Problem("changed_world", reason, remedy, ProblemKind.FAILED)


def _refuse_late(story: Story) -> None:
    # The deadline counts from the first start, so the new run would end at once.
    task, start = story.history.task, story.history.started_at
    limit = task.limits.deadline if task else None
    if limit and start and start + timedelta(seconds=limit) <= datetime.now(UTC):
        reason = f"The deadline of task {story.history.task_id!r}, {limit:g} s after its start, has passed"
        raise Problem("deadline", reason, "start a new task", ProblemKind.FAILED)


async def _require_payloads(client: Client, queue: str, events: Sequence[HistoryEvent]) -> None:
    claims = dict[str, PayloadClaim]()
    for reference in (reference_of(payload) for event in events for payload in payloads_of(event)):
        if reference is not None:
            claim = PayloadClaim(driver=reference.driver_name, data=dict(reference.claim_data))
            claims[claim.model_dump_json()] = claim
    if not claims:
        return
    lacks = (await ask(client, queue, ClaimsInquiry(claims=tuple(claims.values())))).lacks
    if lacks:
        reason = f"The new run would lack what the old one had ({lacks.rstrip('.')})"
        raise Problem("payload_lost", reason, "start a new task for what is left to do", ProblemKind.FAILED)


def reference_of(payload: Payload) -> ExternalStorageReference | None:
    """The place of a payload in external storage; None if the payload itself is in the history."""
    if payload.metadata.get("messageType", b"").decode() != ExternalStorageReference.DESCRIPTOR.full_name:
        return None
    reference: ExternalStorageReference = JSONProtoPayloadConverter().from_payload(payload, ExternalStorageReference)
    return reference


def _refuse_overtaken(before: Story, after: Story, point: Call) -> None:
    """Raise Problem if `after`, read when the old run had ended, shows an effect that `before`, read earlier, lacks."""
    known = {(call.scheduled.id, effect_of(before, call)) for call in before.history.newest_calls}
    for call in reversed(after.history.newest_calls):
        state = effect_of(after, call)
        is_later = (call.ended or call.scheduled).id > point.task
        if state is not EffectState.NONE and is_later and (call.scheduled.id, state) not in known:
            reason = f"The task was reset, but meanwhile its old run had called {call.id!r}, which {SAID[state]}"
            remedy = Text("stop it with ", Remedy("cancel", before.history.task_id), " unless that may happen twice")
            raise Problem("overtaken", reason, remedy, ProblemKind.FAILED)


def named(ids: Sequence[str]) -> str:
    """The first MAX_NAMED ids, separated by commas, with `...` if there are more."""
    return ", ".join(ids[:MAX_NAMED]) + (", ..." if len(ids) > MAX_NAMED else "")
