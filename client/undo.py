"""Cancels a running task, and undoes the effects of a closed task with a workflow of its own, the rollback.

Runs when a person or a program cancels or undoes a task, and before a reset that undoes effects.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, JsonValue
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from client import effects
from client.effects import EffectState, TaskEffect, fetch_effects, with_reset_point
from client.encrypted import require_key
from client.follow import Follower, View
from client.history.fetch import ROLLBACK_OF, fetch_story
from client.history.records import LONG_AGO, Call, History
from client.history.story import Story
from client.problem import Problem, ProblemKind
from client.remedy import Remedy, Text, start_worker
from client.tasks import Handle, converter_of, decoded, existing, first_run, memo_field, outcome_of, query_progress
from client.text import cut, one_line
from client.vouching import Voucher
from client.workers import ask
from client.workflow_task import MAX_MESSAGE, FailingTask, failing
from workflows import ids
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.records import StepRecord, StepStatus, UndoRecord
from workflows.account.task import Task
from workflows.agent import AgentWorkflow, Confirmed
from workflows.commands import command
from workflows.faults.fault import Applied
from workflows.ids import reset_rollback_id, rollback_id
from workflows.inquiries import EffectsInquiry, Place
from workflows.json_values import digest
from workflows.people.approval import undo_code
from workflows.people.statement import Statement, newest_of_each
from workflows.plans.catalogue import FORM, WHY_OF_TASK, Effect, ToolSpec
from workflows.plans.proposal import Step
from workflows.rollback import (
    UNFINISHED,
    NoUndo,
    Undo,
    UndoCall,
    UndoWorkflow,
    last_fault,
    newest_first,
    undo_call,
    why_outside,
)
from workflows.web_ui import summary

KNOWN_TO_RUN = (StepStatus.COMPLETED, StepStatus.UNDONE)
"""With these statuses of a step, the newest run knows the effect; for other steps, the history decides."""
MAX_INPUT = 1024 * 1024
"""Bytes; a larger state of a task is shortened before it becomes the input of a rollback. The server takes 2 MB."""


class PlannedUndoCall(UndoCall):
    """A call of a rollback, before the rollback is started."""

    approve: str = ""
    """Why a person must approve the call, in words; empty if nobody must."""
    is_certain: bool = True
    """Whether the effect was certainly applied; otherwise the rollback first finds out whether it was applied."""
    undoes_kind: str = ""
    """The kind of tool whose effect this call undoes."""
    undoes_args: dict[str, JsonValue] = Field(default_factory=dict)
    """The arguments of the call whose effect this call undoes; the planned arguments if the task does not keep them."""


class PlannedUndo(BaseModel, frozen=True):
    """The calls with which a rollback would undo the effects of a task, the newest effect first."""

    calls: tuple[PlannedUndoCall, ...] = ()

    @property
    def to_approve(self) -> list[PlannedUndoCall]:
        """The calls that may need a person's approval: without a confirmation, a rollback may leave them out."""
        return [call for call in self.calls if call.approve]

    @property
    def code(self) -> str:
        """The code with which a person confirms these calls: a digest of all calls and their arguments."""
        return digest("undo", *[part for call in self.calls for part in (call.step, call.digest)])[:12]

    def without(self, steps: Collection[str]) -> "PlannedUndo":
        """This rollback without the calls that undo these steps."""
        return PlannedUndo(calls=tuple(call for call in self.calls if call.step not in steps))


Confirm = Callable[[PlannedUndo], Awaitable[bool]]
"""Asks a person about the calls of a rollback, of which some need an approval; returns whether the person confirms all.

If it returns False, calls that need an approval are not made. If it raises Problem, nothing is undone.
"""


def with_code(code: str | None) -> Confirm:
    """A Confirm that returns True for the calls with this code, else raises Problem; for None, it returns False."""

    async def confirm(planned: PlannedUndo) -> bool:
        if code is not None and code != planned.code:
            reason = f"The code {code[:40]!r} stands for other calls than the rollback would make now"
            raise Problem("not_confirmed", reason, "look at the calls again", ProblemKind.FAILED)
        return code is not None

    return confirm


async def cancel(
    client: Client,
    handle: Handle,
    *,
    undo: bool = False,
    confirm: Confirm | None = None,
    voucher: Voucher | None = None,
) -> FailingTask | None:
    """Ask a running task to stop. It ends when its running steps have ended and, with `undo`, its effects are undone.

    `confirm` is asked about the calls that undo what the task has done so far; if no worker answers for the task, the
    task is asked to stop without a confirmation. A `voucher` signs who confirms. Returns the FailingTask if the
    workflow task fails, so that the task cannot stop yet; else None.

    Raises:
        Problem: the task has ended already.
    """
    description = await handle.describe()
    if description.status is not WorkflowExecutionStatus.RUNNING:
        how = description.status.name.lower() if description.status else "closed"
        reason = f"Task {handle.id!r} has ended already ({how})"
        shows = Text(Remedy("show", handle.id), " shows how")
        remedy = Text(Remedy("undo", handle.id), " takes back what it did") if undo else shows
        raise Problem("closed", reason, remedy, ProblemKind.FAILED)
    # Asked first: a signal or a cancel request restarts the count of attempts.
    found = await failing(client, description)
    if undo:
        if confirm and not found and (confirmed := await _confirmed_of_running(client, handle, confirm, voucher)):
            await handle.signal(AgentWorkflow.confirm_undo, confirmed)
        # A Signal without an argument has nothing that is encrypted.
        await handle.signal(AgentWorkflow.undo_when_cancelled, {})
    await handle.cancel()
    return await with_reset_point(client, found) if found else None


class Rollback(NamedTuple):
    """A workflow that undid the effects of a task, and its Outcome."""

    handle: Handle
    outcome: Outcome
    ended_before: datetime | None = None
    """The end of an earlier rollback that undid everything, so that this `undo` called nothing; None without such a
    rollback."""
    planned: PlannedUndo | None = None
    """The calls that were not made, whether a person has to confirm them or for another reason; None if no call needs
    a person."""

    @property
    def is_complete(self) -> bool:
        return all(record.done for record in self.outcome.undo)

    @property
    def planned_fields(self) -> dict[str, Any]:
        return planned_fields(self.planned)


def planned_fields(planned: PlannedUndo | None) -> dict[str, Any]:
    """The calls of `planned` and the code that confirms them, as fields of JSON outputs; with None, no calls."""
    calls = [call.model_dump(mode="json") for call in planned.calls] if planned else []
    return {"held": calls, "confirm": planned.code if planned else None}


async def undo(
    client: Client,
    handle: Handle,
    view: View,
    *,
    is_attended: bool = True,
    confirm: Confirm | None = None,
    voucher: Voucher | None = None,
) -> Rollback:
    """Undo a closed task and follow the rollback to its end; if a rollback of the task is running, only follow it.

    If an earlier rollback has undone everything, the result is that rollback, and nothing is called. `confirm` is asked
    if a call needs an approval; without `confirm`, such a call is not made, and the result names it. A `voucher` signs
    who confirms, for tools that say who may.

    Raises:
        Problem: the task runs, no worker answers for it or can replay it, the task is encrypted and its key is missing
            here, `confirm` raises it, or the rollback ended without an outcome.
    """
    description = await handle.describe()
    require_closed(description, undo=True)
    await require_key(description)
    if earlier := await _complete_rollback(client, handle, description):
        return earlier
    rollback: Handle = client.get_workflow_handle_for(AgentWorkflow.run, rollback_id(handle.id))
    found = await existing(rollback.describe())
    if found is not None and found.status is WorkflowExecutionStatus.RUNNING:
        followed = Rollback(rollback, await _follow(client, rollback, handle.id, view, is_attended=is_attended))
        if followed.is_complete or voucher is None:
            return followed  # else somebody confirms what the other rollback may have left
    story = await fetch_story(client, handle)
    account = await _account(client, handle, story, description.task_queue)
    planned = await _planned(client, story, account)
    account = await _confirmed(client, handle, account, planned, confirm, voucher, rollback_id(handle.id))
    running = await _start(client, description, account, rollback_id(handle.id))
    outcome = await _follow(client, running, handle.id, view, is_attended=is_attended)
    left = planned.without({record.step_id for record in outcome.undo if record.done})
    return Rollback(running, outcome, planned=left if left.to_approve else None)


async def plan(client: Client, handle: Handle) -> PlannedUndo:
    """The calls with which `undo` would undo a closed task now.

    Raises:
        Problem: the task runs, no worker answers for it or can replay it, or it is encrypted and its key is missing
            here.
    """
    description = await handle.describe()
    require_closed(description, undo=True)
    await require_key(description)
    if await _complete_rollback(client, handle, description):
        return PlannedUndo()
    story = await fetch_story(client, handle)
    account = await _account(client, handle, story, description.task_queue)
    return await _without_undone(client, story, planned_undo(account, story.history.specs))


async def _planned(client: Client, story: Story, account: Progress) -> PlannedUndo:
    """The calls of a rollback of `account`; if a person has to confirm, without calls for effects already undone."""
    planned = planned_undo(account, story.history.specs)
    return await _without_undone(client, story, planned) if planned.to_approve else planned


async def _without_undone(client: Client, story: Story, planned: PlannedUndo) -> PlannedUndo:
    known = await fetch_effects(client, story, ())
    return planned.without({effect.step for effect in known if effect.state is EffectState.UNDONE})


def planned_undo(account: Progress, specs: Mapping[str, ToolSpec]) -> PlannedUndo:
    """The calls that undo the effects of `account`, the state of a task."""
    calls = list[PlannedUndoCall]()
    for record in newest_first(account):
        is_certain = record.status is StepStatus.COMPLETED
        may_be_applied = _is_open(record) and last_fault(account, record).applied is not Applied.NONE
        if not (is_certain or may_be_applied):
            continue
        with suppress(NoUndo):
            call = undo_call(record, specs)
            reasons = _why_approval_needed(specs[call.kind], account.task), why_outside(account, specs, record, call)
            asks = "; ".join(filter(None, reasons))
            undone = {"undoes_kind": record.kind, "undoes_args": record.shown_args}
            calls.append(PlannedUndoCall(**dict(call), approve=asks, is_certain=is_certain, **undone))
    return PlannedUndo(calls=tuple(calls))


def _is_open(record: StepRecord) -> bool:
    """Whether a step was called, and its state does not say that it was applied."""
    return record.started is not None and record.status in UNFINISHED


def _why_approval_needed(spec: ToolSpec, task: Task) -> str:
    of_tool = spec.asks or spec.approve or ""
    return of_tool or (WHY_OF_TASK[task.approve] if spec.needs_approval(task.approve) else "")


async def _confirmed(
    client: Client,
    handle: Handle,
    account: Progress,
    planned: PlannedUndo,
    confirm: Confirm | None,
    voucher: Voucher | None,
    rollback: str,
) -> Progress:
    """`account` with what a person has confirmed, and with what is signed about that person and those before.

    `rollback` is the id of the workflow that will undo: if a call needs several people, each starts it once.
    """
    if not planned.to_approve:
        return account
    digests = await _confirmed_digests(planned, confirm)
    stated = [_stated(client, handle, account, digests, voucher)] if digests and voucher else []
    # Also if nobody confirms anything now: the next one to confirm looks at the newest rollback alone.
    before = await _vouched_before(client, handle, rollback)
    vouched = newest_of_each((*account.vouched, *before, *stated))
    return account.model_copy(update={"confirmed": digests, "vouched": vouched})


def _stated(
    client: Client, handle: Handle, account: Progress, digests: Mapping[str, str], voucher: Voucher
) -> Statement:
    """What the voucher signs about the calls with these digests."""
    keys = {step: ids.idempotency_key(ids.of_undo(step), account.key_prefix) for step in digests}
    codes = [undo_code(keys[step], digest) for step, digest in digests.items()]
    return voucher.of_undo(client.namespace, handle.id, codes)


async def _vouched_before(client: Client, handle: Handle, rollback: str) -> Sequence[Statement]:
    """What was signed for the newest rollback with this id; nothing if it was one of an earlier task."""
    earlier = client.get_workflow_handle(rollback)
    found = await existing(earlier.describe())
    if found is None or await memo_field(found, ROLLBACK_OF, str) != await first_run(handle):
        return ()
    async for event in earlier.fetch_history_events(page_size=1):
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        begun = await decoded(converter_of(client, rollback), payloads, Undo)
        return begun.progress.vouched if begun else ()
    return ()


async def _confirmed_digests(planned: PlannedUndo, confirm: Confirm | None) -> dict[str, str]:
    """The digests of the planned calls by step if a person confirms the calls, else none."""
    is_confirmed = bool(planned.to_approve) and confirm is not None and await confirm(planned)
    return {call.step: call.digest for call in planned.calls} if is_confirmed else {}


async def _confirmed_of_running(
    client: Client, handle: Handle, confirm: Confirm, voucher: Voucher | None
) -> Confirmed | None:
    """What a person confirms of the undo calls of a running task; None without a confirmation."""
    story = await fetch_story(client, handle)
    specs = story.history.specs
    undoing = [specs[spec.undo.kind] for spec in specs.values() if spec.undo and spec.undo.kind in specs]
    task, is_tainted = story.history.task, story.account.is_tainted
    if task is None or not (is_tainted or any(_why_approval_needed(spec, task) for spec in undoing)):
        return None
    progress = await query_progress(handle)
    if progress is None or not (digests := await _confirmed_digests(planned_undo(progress, specs), confirm)):
        return None
    account = progress.model_copy(update={"origin": story.history.first_run})
    vouched = (_stated(client, handle, account, digests, voucher),) if voucher else ()
    return Confirmed(confirmed=digests, vouched=vouched)


async def _complete_rollback(
    client: Client, handle: Handle, description: WorkflowExecutionDescription
) -> Rollback | None:
    """The rollback that undid all effects of the task after its end, of all its runs; None if there is none."""
    rollback: Handle = client.get_workflow_handle_for(AgentWorkflow.run, rollback_id(handle.id))
    found = await existing(rollback.describe())
    if found is None or found.status is not WorkflowExecutionStatus.COMPLETED or not found.close_time:
        return None
    is_of_task = await memo_field(found, ROLLBACK_OF, str) == await first_run(handle)
    if not (is_of_task and description.close_time and found.start_time > description.close_time):
        return None  # an earlier task had this id, or the task was reset after it was undone
    outcome = await rollback.result()
    return Rollback(rollback, outcome, found.close_time) if outcome.undo else None


async def undo_steps(
    client: Client,
    handle: Handle,
    steps: Collection[str],
    view: View,
    *,
    is_attended: bool = True,
    confirm: Confirm | None = None,
    voucher: Voucher | None = None,
) -> Sequence[UndoRecord]:
    """Undo the effects of these steps of a closed task before a reset, and return a record of the result for each.

    `confirm` is as for `undo`.

    Raises:
        Problem: no worker answers for the task, another such rollback runs, or the rollback ended without an outcome.
    """
    description = await handle.describe()
    story = await fetch_story(client, handle)
    whole = await _account(client, handle, story, description.task_queue)
    # Reads are kept, because a value that a trusted one shows needs no person.
    records = [record for record in whole.records if record.step.id in steps or record.effect is Effect.READ]
    folded = whole.folded.model_copy(update={"effects": 0})
    undo = [record for record in whole.undo if record.step_id in steps]
    account = whole.model_copy(update={"records": records, "folded": folded}).with_undo(undo)
    planned = await _planned(client, story, account)
    id = reset_rollback_id(handle.id)
    account = await _confirmed(client, handle, account, planned, confirm, voucher, id)
    try:
        running = await _start(client, description, account, id, WorkflowIDConflictPolicy.FAIL)
    except WorkflowAlreadyStartedError:
        reason = f"Effects of task {handle.id!r} are being undone already, for another reset (workflow {id})"
        remedy = "wait until that has ended, then try again"
        raise Problem("still_running", reason, remedy, ProblemKind.FAILED) from None
    return (await _follow(client, running, handle.id, view, is_attended=is_attended)).undo


def require_closed(description: WorkflowExecutionDescription, *, undo: bool) -> None:
    """Raise Problem if the task is running; the remedy is to stop it and, with `undo`, to undo its effects."""
    if description.status is WorkflowExecutionStatus.RUNNING:
        stop = Remedy("cancel", description.id, {"undo": True} if undo else {})
        remedy = Text(stop, " stops it", " and takes back what it has done" if undo else "")
        raise Problem("still_running", f"Task {description.id!r} is running", remedy, ProblemKind.FAILED)


async def _account(client: Client, handle: Handle, story: Story, queue: str) -> Progress:
    """The state of a task over all its runs; the field `origin` is the id of the first run.

    A worker knows the state of the newest run. Effects that this state lacks, of runs before a reset or of steps that a
    long task has dropped, are added from the histories and from the ledgers; so are results that a rollback has found.
    """
    newest = _as_begun(story.history) or await _state_of_newest_run(handle, queue)
    whole = newest.model_copy(update={"origin": story.history.first_run, "waiting": None}).with_undo(())
    if not story.history.earlier and not story.history.deleted and not whole.folded.effects:
        # An earlier rollback may have found a result that the task never heard of.
        is_found = any(map(_is_open, newest_first(whole)))
        return over_all_runs(whole, story, await fetch_effects(client, story, ())) if is_found else whole
    ledgers = await ask(client, queue, EffectsInquiry(task_id=handle.id))
    return over_all_runs(whole, story, await fetch_effects(client, story, ledgers.effects or ()), ledgers.unread)


def _as_begun(history: History) -> Progress | None:
    """The state of a task whose only run was closed before a worker did anything in it; None for any other task."""
    # No worker can be asked: the server passes a query on only after the first workflow task.
    if history.runs > 1 or history.decided or history.task is None or history.started_at is None:
        return None
    return Progress(task=history.task, task_id=history.task_id, started_at=history.started_at, form=FORM)


async def _state_of_newest_run(handle: Handle, queue: str) -> Progress:
    try:
        progress = await query_progress(handle)
    except WorkflowQueryFailedError as error:
        message = cut(one_line(error.message), MAX_MESSAGE).rstrip(".")
        reason = f"The worker that answers cannot replay task {handle.id!r} ({message})"
        remedy = "run workers with the code that the task ran on, or with code that is fixed, and try again"
        raise Problem("workflow_task_fails", reason, remedy, ProblemKind.NEEDS_PERSON) from error
    if progress is None:
        reason = f"No worker tells what task {handle.id!r} did"
        remedy = Text("start one with ", start_worker(queue), ", with the tools of the task, and try again")
        raise Problem("no_worker", reason, remedy, ProblemKind.UNREACHABLE)
    return progress


def over_all_runs(
    newest: Progress, story: Story, found: Sequence[TaskEffect], unread: Sequence[Place] = ()
) -> Progress:
    """The state of the newest run, and a step for each effect that only earlier runs know of.

    The field `undo` of the result lists what the rollback will not undo: for a step of the newest run, other effects
    that earlier runs had; runs whose history was deleted; and, if there are such runs, ledgers that cannot be read.
    """
    own, records = effects.own_effects(story), {record.step.id: record for record in newest.records}
    undo = _records_of_unread_places(story, unread)
    for effect in found:
        own_record, call = records.get(effect.step), effects.call_with_key(story, effect.key)
        is_known = own_record is not None and (
            own_record.status in KNOWN_TO_RUN or effects.key_of(story, own_record.step.id, own_record.kind) in own
        )
        is_mine = own_record is not None and own_record.call_id == effect.key.rpartition("/")[2]
        is_gone = effect.state is EffectState.UNDONE and call is None
        is_found = effect.state is EffectState.APPLIED and effect.result is not None
        if own_record is not None and is_mine and is_found and own_record.status in UNFINISHED:
            changes = {"status": StepStatus.COMPLETED, "result": effect.result, "ended": own_record.ended or effect.at}
            records[effect.step] = own_record.model_copy(update=changes)
        # Left out: undo calls, effects that the newest run has itself, and undone effects without a call.
        if effect.undoes is not None or (is_known and is_mine) or is_gone:
            continue
        if is_known:
            reason = f"an earlier run also called {effect.kind} for this step"
            undo.append(UndoRecord(step_id=effect.step, kind=effect.kind, reason=reason))
        else:
            records[effect.step] = record_of(effect, call, story)
    left = newest.folded.effects if story.history.deleted else 0
    folded = newest.folded.model_copy(update={"effects": left})
    ended = sorted((record for record in records.values() if record.ended), key=lambda record: record.ended or LONG_AGO)
    for position, record in enumerate(ended, 1):
        record.place = position  # the newest effect is undone first, from whichever run
    whole = newest.model_copy(update={"records": [*records.values()], "folded": folded}).with_undo(undo)
    return whole if len(whole.model_dump_json()) <= MAX_INPUT else whole.slim(story.history.specs)


def _records_of_unread_places(story: Story, unread: Sequence[Place]) -> list[UndoRecord]:
    if not story.history.deleted:
        return []
    reason = "its history was deleted, so what it did outside the ledgers is not known"
    runs = [UndoRecord(step_id=f"run {run}", reason=reason) for run in story.history.deleted]
    ledgers = ((f"ledger {place.where}", f"it cannot be read: {place.problem}") for place in unread)
    return runs + [UndoRecord(step_id=ledger, reason=problem) for ledger, problem in ledgers]


def record_of(effect: TaskEffect, call: Call | None, story: Story) -> StepRecord:
    """The step record of an effect of an earlier run, which `call` applied."""
    args = call.args if call is not None and isinstance(call.args, dict) else None
    planned = effect.kind if effect.key.endswith(f"/{effect.step}") else "unknown"  # a fallback applied it
    return StepRecord(
        step=Step(id=effect.step, kind=planned, args=args or {}),
        revision=0,
        effect=effect.effect or Effect.UNKEYED,
        # A rollback first finds out whether the call of a cancelled step was applied.
        status=StepStatus.CANCELLED if effect.state is EffectState.UNKNOWN else StepStatus.COMPLETED,
        attempts=1,
        kind=effect.kind,
        args=args,
        started=effect.at,
        ended=effect.at,
        result=effect.result,
        outlived=effects.outlived(story, effect.key),
        is_tainted=_has_read_untrusted(story),
    )


def _has_read_untrusted(story: Story) -> bool:
    """Whether the task may have read untrusted content in any of its runs, before any of its effects."""
    specs = [run.history.spec(call.kind) for run in effects.runs_of(story) for call in run.history.calls]
    is_tainted = story.history.task is None or story.history.task.is_tainted(is_clean=False)
    return is_tainted or bool(story.history.deleted) or any(spec.untrusted for spec in specs if spec)


async def _start(
    client: Client,
    description: WorkflowExecutionDescription,
    account: Progress,
    id: str,
    if_it_runs: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.USE_EXISTING,
) -> Handle:
    """Start the workflow `id` that undoes the effects in `account`; `if_it_runs`: what the server does if it runs."""
    # Two rollbacks do not undo an effect twice: their calls have the same idempotency keys.
    await client.start_workflow(
        UndoWorkflow.run,
        Undo(progress=account),
        id=id,
        task_queue=description.task_queue,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=if_it_runs,
        memo={ROLLBACK_OF: account.origin},
        static_summary=summary(f"undo {description.id}"),
        static_details=f"`{command('undo', description.id)}` shows it in a terminal, or does it once more.",
    )
    return client.get_workflow_handle_for(AgentWorkflow.run, id)  # same query and result as a task


async def _follow(client: Client, running: Handle, id: str, view: View, *, is_attended: bool) -> Outcome:
    with view:
        await Follower(client, running, view, is_attended=is_attended).to_the_end()
    try:
        return await running.result()
    except WorkflowFailureError as failure:
        cause = failure.cause
        if outcome := outcome_of(cause):
            return outcome
        message = cause.message if isinstance(cause, ApplicationError) else "it was stopped from outside"
        reason = f"The rollback of {id!r} ended early ({one_line(message).rstrip('.')})"
        remedy = Text("run ", Remedy("undo", id), " again")
        raise Problem("not_undone", reason, remedy, ProblemKind.NEEDS_PERSON) from failure
