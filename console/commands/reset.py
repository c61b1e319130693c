"""`reset`: a task goes on from just before a step, in a new run of the same task."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from client import effects as known
from client.connection import ui_url
from client.effects import Known, KnownEffect
from client.history import calls
from client.history.calls import UNREADABLE, Call, Calls, Change
from client.history.fetch import fetch_history
from client.history.records import OWN
from client.history.story import Story
from client.problem import Exit, Problem
from client.reset import Standing
from client.tasks import Handle
from console.commands import tools
from console.commands import undo as undoing
from console.commands.effects import known_effects
from console.commands.show import reference_of
from console.options import Common
from console.render import document
from console.render.terminal import printable, starter
from workflows.agent import AgentWorkflow
from workflows.inspect import Claim, ClaimsInquiry, EffectsInquiry
from workflows.plan import canonical, nearest
from workflows.record import StepRecord, StepStatus
from workflows.task import Task

MAX_NAMED = 5
MAX_TRIES = 5
"""How often a closed task is set back to its end to be told something, before it ends again."""
MAX_TOLD = 1024 * 1024
"""Bytes of results that a run is told; the server takes 2 MB."""


class Fate(StrEnum):
    """What becomes of effects that a reset goes back over and that could be planned anew."""

    UNDO = "undo"
    """They are undone first."""
    KEEP = "keep"
    """They stay, and the planner is told of them."""


async def reset(
    client: Client, handle: Handle, common: Common, *, to: str, why: str | None, fate: Fate | None = None
) -> int:
    """Begin a new run of a task that keeps what happened before `to` was first scheduled, and its keys.

    Raises:
        Problem: the task has no such step, it never started, what it did would or could be done twice, its deadline
            passed, or the store does not have what the new run needs.
    """
    seen = await handle.describe()
    this_run = client.get_workflow_handle(handle.id, run_id=seen.run_id)
    events = (await this_run.fetch_history()).events
    made = await calls.read_calls(events, client.data_converter)
    step = _step(made, to, handle.id, events)
    _refuse_twice(made, step, handle.id, fate)
    await _refuse_late(client, events, handle.id)
    await require_payloads(client, await common.at(handle), [one for one in events if one.event_id <= step.task])
    standing = await _look(client, handle, common, made, step)
    if fate is None and standing.in_the_way:
        raise _stands(standing, handle.id)
    goes_back_over = standing.after if fate is Fate.UNDO else [*standing.in_the_way, *made.undone_by(step)]
    if fate and goes_back_over:
        await _require_current(client, await common.at(handle))
        done = await _dealt_with(client, handle, common, standing, fate)
    else:
        done = _Done()
    point, base = done.point or step, seen.run_id
    reason = why or f"starter.py reset --to {to}"
    if done.told:
        base = await _told(client, seen, events, done.told, reason)
    run_id = await _begun(client, handle.id, base, point.task, reason)
    if seen.status is WorkflowExecutionStatus.RUNNING:
        after = await calls.read_calls((await this_run.fetch_history()).events, client.data_converter)
        _refuse_overtaken(made, after, point, handle.id)
    _say(client, handle.id, run_id, point, done, standing, common)
    return Exit.COMPLETED


class _Done(NamedTuple):
    """What was done about the effects that a reset goes back over."""

    point: Call | None = None
    """Where the task has to go back to instead, so that its planner decides with all that it is told."""
    told: Sequence[StepRecord] = ()
    """What the new run is told."""
    kept: Sequence[KnownEffect] = ()
    undone: Sequence[KnownEffect] = ()


async def _look(client: Client, handle: Handle, common: Common, made: Calls, step: Call) -> Standing:
    """What stands, as the histories of all runs and rollbacks tell; where one was deleted, a worker's ledgers too."""
    story = Story(await fetch_history(client, handle))
    standing = Standing(story, made, step, await known_effects(client, story, ()))
    if not story.history.deleted:
        return standing
    try:
        answer = await tools.ask(client, await common.at(handle), EffectsInquiry(task_id=handle.id))
    except Problem:  # without a worker the histories alone tell
        return standing
    return replace(standing, effects=await known_effects(client, story, answer.effects or ()))


def _stands(standing: Standing, id: str) -> Problem:
    one, all = standing.in_the_way[-1], f"`{starter('effects', id)}`"
    did = "was applied" if one.known is Known.HAPPENED else "may have been applied"
    more = f", and {len(standing.in_the_way) - 1} more" if len(standing.in_the_way) > 1 else ""
    what = f"{one.step!r} ({one.kind}) {did} after {standing.point.id!r} and stands{more}"
    reason = f"{what}: a task that goes back there could apply it again under another key"
    remedy = f"add `--undo` to undo it first, or `--keep` to let it stay and tell the planner; {all} lists all"
    return Problem("effect_stands", reason, remedy, Exit.FAILED)


async def _dealt_with(client: Client, handle: Handle, common: Common, standing: Standing, fate: Fate | None) -> _Done:
    """Decide where the task goes back to and what it is told, and undo what is to be undone.

    Raises:
        Problem: the plan was written by hand, or something cannot be undone.
    """
    after, point = standing.after, standing.point
    is_anew = fate is Fate.UNDO or any(not standing.is_of_plan(one) for one in standing.in_the_way)
    if is_anew or point.kind in OWN:
        point = _planning(standing, handle.id)
    there = replace(standing, point=point)
    if fate is Fate.UNDO:
        await _undone(client, handle, common, standing, after)
    undone = [*(after if fate is Fate.UNDO else ()), *(there.undone if point.kind in OWN else ())]
    gone = {one.key for one in undone}
    kept = [one for one in there.after if one.key not in gone and not there.is_in_flight(one)]
    told = [_record(one, standing.story) for one in kept]
    told += [_as_undone(one, standing.story) for one in undone]
    return _Done(point, told, kept, after if fate is Fate.UNDO else ())


def _record(one: KnownEffect, story: Story) -> StepRecord:
    """An effect as a run is told of it, without arguments that no message has room for."""
    record = undoing.record(one, known.call(story, one.key), outlived=known.outlived(story, one.key))
    spec = story.history.catalogue.specs.get(one.kind) if story.history.catalogue else None
    small = record.slim(0, spec.paths if spec else ())
    return small if small is record else small.model_copy(update={"step": record.step.model_copy(update={"args": {}})})


def _as_undone(one: KnownEffect, story: Story) -> StepRecord:
    return _record(one, story).model_copy(update={"status": StepStatus.UNDONE, "result": None})


def _planning(standing: Standing, id: str) -> Call:
    """The request for the plan in force: only there the planner can take into account what stands.

    Raises:
        Problem: nobody is asked for that plan.
    """
    if standing.is_by_hand:
        one = (standing.in_the_way or standing.after)[-1]
        reason = f"The plan of task {id!r} was written by hand, and its steps would be called with their old ids"
        remedy = f"`{starter('undo', id)}` undoes {one.step!r}; then start the plan as a new task"
        raise Problem("by_hand", reason, remedy, Exit.FAILED)
    if standing.point.kind in OWN or standing.plan is None:
        return standing.point
    return standing.made.first(standing.plan.turn.call.id) or standing.point


async def _undone(
    client: Client, handle: Handle, common: Common, standing: Standing, effects: Sequence[KnownEffect]
) -> None:
    """Undo these effects, by a workflow that is followed to its end.

    Raises:
        Problem: the task runs, or something cannot be undone.
    """
    seen = await handle.describe()
    undoing.require_closed(seen, starter("cancel", handle.id))
    specs = standing.story.history.catalogue.specs if standing.story.history.catalogue else {}
    stays = [
        f"{one.step} ({one.kind} has no undo)" for one in effects if one.kind in specs and not specs[one.kind].undo
    ]
    if not stays:
        undo = await undoing.of_effects(client, handle, common, {one.step for one in effects})
        stays = [f"{one.step_id} ({one.reason.rstrip('.')})" for one in undo if not one.done]
        named = {one.step_id for one in undo}
        sure = [one.step for one in effects if one.known is Known.HAPPENED and one.step not in named]
        stays += [f"{step} (the rollback did not undo it)" for step in dict.fromkeys(sure)]
    if stays:
        reason = f"Task {handle.id!r} was not reset, since this cannot be undone: {', '.join(stays)}"
        remedy = f"see `{starter('effects', handle.id)}`; with `--keep` it stays and the planner is told"
        raise Problem("effect_stands", reason, remedy, Exit.FAILED)


async def _told(
    client: Client,
    seen: WorkflowExecutionDescription,
    events: Sequence[HistoryEvent],
    records: Sequence[StepRecord],
    reason: str,
) -> str:
    """Tell a run of the task what stands by a signal, which a reset of that run carries over; the id of that run.

    A closed task takes no signal: it is first set back to just before its end, where it does nothing but end again.

    Raises:
        Problem: it was closed from outside, or ended again each time before it was told.
    """
    small = _fitting(records)
    run = seen.run_id
    for _ in range(MAX_TRIES):
        if seen.status is not WorkflowExecutionStatus.RUNNING:
            run = await _begun(client, seen.id, run, _last_task(events, seen.id), reason)
        one: Handle = client.get_workflow_handle_for(AgentWorkflow.run, seen.id, run_id=run)
        try:
            await one.signal(AgentWorkflow.know_earlier_effects, small)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            events = (await one.fetch_history()).events
            continue
        return run
    reason = f"Task {seen.id!r} ended again each time before it could be told what stands"
    raise Problem("untold", reason, "stop its workers, reset it, and start them again", Exit.FAILED)


def _last_task(events: Sequence[HistoryEvent], id: str) -> int:
    """The workflow task that closed a run."""
    end = events[-1]
    last = getattr(end, end.WhichOneof("attributes") or "")
    if not hasattr(last, "workflow_task_completed_event_id"):
        reason = f"Task {id!r} was closed from outside, and nobody can tell it what stands"
        raise Problem("effect_stands", reason, f"`{starter('undo', id)}`, then start a new task", Exit.FAILED)
    return int(last.workflow_task_completed_event_id)


def _fitting(records: Sequence[StepRecord]) -> list[StepRecord]:
    """The same without results, where they are too large for a message."""
    size = sum(len(record.model_dump_json()) for record in records)
    return [record.slim(len(canonical(record.result)) if size > MAX_TOLD else 0) for record in records]


async def _begun(client: Client, id: str, run: str, task: int, reason: str) -> str:
    """Reset a run to before a workflow task, and return the id of the new run."""
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=id, run_id=run),
        reason=reason,
        workflow_task_finish_event_id=task,
        request_id=secrets.token_hex(16),
        reset_reapply_exclude_types=[ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_CANCEL_REQUEST],
        identity=client.identity,
    )
    return (await client.workflow_service.reset_workflow_execution(request)).run_id


def _step(made: Calls, to: str, id: str, events: Sequence[HistoryEvent]) -> Call:
    step = made.first(to)
    if step is not None:
        return step
    called = list(dict.fromkeys(call.id for call in made.all))
    if to in made.planned:
        reason = f"Step {to!r} of task {id!r} never started"
        raise Problem("not_started", reason, f"reset to one that did: {_names(called)}")
    continued = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    whose = f"The newest run of task {id!r}, which continues another," if continued else f"Task {id!r}"
    reason = f"{whose} has no step {to!r}{nearest(to, called).rstrip('?')}"
    remedy = f"reset to one of {_names(called)}" if called else "it has not begun; `--again` starts it anew"
    raise Problem("unknown_step", reason, remedy)


def _refuse_twice(made: Calls, step: Call, id: str, fate: Fate | None) -> None:
    """Refuse what would be called again; with a fate only what is called before anybody can decide."""
    twice = [call for call in made.undone_by(step) if fate is None or call.closed is None or call.event < step.task]
    if not twice:
        return
    one = twice[-1]
    free = [call.id for call in made.all if not made.undone_by(call) and made.first(call.id) == call]
    reason = f"Going back to {step.id!r} would do {one.id!r} again, which {one.change} ({one.kind}, event {one.event})"
    if one.closed is None:
        remedy = f"wait until it has ended, or stop the task with `{starter('cancel', id)}`"
    elif free:
        remedy = f"reset to what came after it: {_names(free)}; or add `--undo` or `--keep`"
    else:
        remedy = "start a new task for what is left to do"
    raise Problem("changed_world", reason, remedy, Exit.FAILED)


async def _refuse_late(client: Client, events: Sequence[HistoryEvent], id: str) -> None:
    """A deadline counts from the first start, so a task that is past it would only end again."""
    began = events[0].workflow_execution_started_event_attributes
    try:
        task: Task = (await client.data_converter.decode(began.input.payloads[:1], [Task]))[0]
    except UNREADABLE:  # a codec that is not here: the server will tell
        return
    start = events[0].event_time.ToDatetime(UTC)
    if task.limits.deadline and start + timedelta(seconds=task.limits.deadline) <= datetime.now(UTC):
        reason = f"The deadline of task {id!r}, {task.limits.deadline:g} s after its start, has passed"
        raise Problem("deadline", reason, "start a new task", Exit.FAILED)


async def _require_current(client: Client, common: Common) -> None:
    """Refuse where a worker answers that is too old to be told of earlier effects: it would plan them anew.

    Raises:
        Problem: it is.
    """
    try:
        answer = await tools.ask(client, common, ClaimsInquiry())
    except Problem:  # nobody is there to plan anything
        return
    if answer.lacks is None:
        remedy = "restart all workers on the version of this console"
        raise Problem("old_worker", "The worker is too old to be told what stays", remedy, Exit.FAILED)


async def require_payloads(client: Client, common: Common, events: Sequence[HistoryEvent]) -> None:
    """Have a worker look whether all is there that these events only refer to.

    Raises:
        Problem: something is not, or no worker tells.
    """
    claims = {text: claim for event in events for text, claim in _claims(event)}
    if not claims:
        return
    lacks = (await tools.ask(client, common, ClaimsInquiry(claims=tuple(claims.values())))).lacks
    if lacks is None:
        remedy = "restart it on the version of this console"
        raise Problem("old_worker", "The worker is too old to look for large results", remedy, Exit.FAILED)
    if lacks:
        reason = f"The new run would lack what the old one had ({lacks.rstrip('.')})"
        raise Problem("payload_lost", reason, "start a new task for what is left to do", Exit.FAILED)


def _claims(message: Message) -> Iterator[tuple[str, Claim]]:
    """What a message of the history refers to in a worker's store, each with a text that tells it from others."""
    if isinstance(message, Payload):
        if reference := reference_of(message):
            claim = Claim(driver=reference.driver_name, data=dict(reference.claim_data))
            yield claim.model_dump_json(), claim
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        one_map = field.message_type.GetOptions().map_entry
        inner = value.values() if one_map else value if field.is_repeated else (value,)
        for item in inner:
            if isinstance(item, Message):
                yield from _claims(item)


def _refuse_overtaken(before: Calls, after: Calls, step: Call, id: str) -> None:
    """Tell of what the old run did in the world between the look at it and its end."""
    known = {(call.event, call.change) for call in before.all}
    may = [call for call in after.all if call.change is not Change.NONE and (call.closed or call.event) > step.task]
    new = [call for call in may if (call.event, call.change) not in known]
    if new:
        reason = f"The task was reset, but meanwhile its old run had called {new[-1].id!r}, which {new[-1].change}"
        remedy = f"stop it with `{starter('cancel', id)}` unless that may happen twice"
        raise Problem("overtaken", reason, remedy, Exit.FAILED)


def _say(client: Client, id: str, run_id: str, point: Call, done: _Done, standing: Standing, common: Common) -> None:
    place = ui_url(client.service_client.config.target_host, client.namespace, id)
    kept, undone = [one.step for one in done.kept], [one.step for one in done.undone]
    deleted = standing.story.history.deleted
    if common.json:
        fields = {"task_id": id, "run_id": run_id, "to": point.id, "event": point.task, "ui_url": place}
        print(document.of_anything({**fields, "kept": kept, "undone": undone, "deleted_runs": deleted}))
        return
    where = f" and not only before {standing.point.id}, so that the planner is told" if point != standing.point else ""
    print(printable(f"{id} goes on from before {point.id}{where} (event {point.task})."))
    if kept:
        print(printable(f"What stays, and counts as done: {_names(kept)}."))
    for run in deleted:
        print(printable(f"The history of its run {run} was deleted: what that did was not looked at."))
    print(f"Follow: {starter('show', id, '--follow')}")


def _names(ids: Sequence[str]) -> str:
    return ", ".join(ids[:MAX_NAMED]) + (", ..." if len(ids) > MAX_NAMED else "")
