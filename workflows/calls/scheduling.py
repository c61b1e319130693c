"""Scheduling of activities: reserve what an activity may use, run it, settle what it used.

A step's call and a read count against the limit of tool calls (and of tokens and money, if the tool uses a model), a
request to the planner against those of tokens and money. Other internal activities count against no limit.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import NamedTuple, TypeVar

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RawValue

from workflows import ids
from workflows.account import metrics
from workflows.account.entries_of_steps import Attempted, Resumed, Settled, Started, Waited, added, decision_line
from workflows.account.outcome import TaskEnded
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, PlannerWait
from workflows.account.task import TaskStatus
from workflows.arguments import read_signal, undecoded
from workflows.calls.header import CallHeader, made_by_reset
from workflows.calls.running import is_cancelled, raise_if_cancelled, run_activity, run_locally
from workflows.calls.turns import TURN, Turn, Turns
from workflows.faults import retries
from workflows.faults.decision import Action, Remaining, Wait, decide, outlast
from workflows.faults.fault import UNCOUNTED, Code, Fault, number_of
from workflows.limits import spending
from workflows.limits.budget import retries_of
from workflows.planning.situation import Situation
from workflows.plans.catalogue import FORM, Catalogue, OtherForm, ToolSpec
from workflows.plans.proposal import Proposed, StepReturn
from workflows.web_ui import details, timer_name

MAX_SITUATION = 1024 * 1024
"""The most bytes of a Situation; the server would terminate a workflow that schedules an activity with 2 MB."""

ONLY_LOCAL = (UNCOUNTED - {Code.NEEDS_APPROVAL}) | {Code.TIMEOUT, Code.TOO_LARGE}
"""Codes of faults of a local activity after which an ordinary activity is scheduled: it can reach another worker, which
has the tool or does not shut down, and its result may be larger."""

T = TypeVar("T")


class InternalActivityFailed(Exception):
    """One of Replan's own activities failed, and is not scheduled again."""

    def __init__(self, fault: Fault, earlier: Sequence[Fault] = ()) -> None:
        """`earlier` are the faults of the attempts before the final attempt, as far as they are known."""
        super().__init__(fault.reason)
        self.fault = fault
        self.earlier = earlier


class ToolReply(NamedTuple):
    """What one execution of a tool's activity returned, or why it failed."""

    result: StepReturn | Fault
    earlier: Sequence[Fault]
    """The known faults of the attempts that were made before the final attempt."""


@dataclass
class PlannerWaits:
    """The waits of one request to the planner; during a wait, `progress.waiting` describes it."""

    progress: Progress
    outlasts: bool
    """Whether the request waits for the end of an outage when its attempts are used up."""
    failed: list[spending.FailedExecution] = field(default_factory=list)
    """The failed executions of the planner's activity that were followed by a wait."""
    was_cut_off: bool = False
    """Whether the task was cancelled during a wait, when no request was under way."""
    ended: tuple[Proposed | Fault, Sequence[Fault]] | None = None
    """The result or fault of the execution during which the task was cancelled, and its earlier faults; None if that
    execution reported nothing."""

    async def sleep(self, fault: Fault, earlier: Sequence[Fault], seconds: float, id: str, timer: str) -> None:
        """Wait after an execution of the activity `id` that failed; the web UI shows the timer as `timer`."""
        self.failed.append((fault, earlier))
        until = workflow.now() + timedelta(seconds=seconds)
        wait = PlannerWait(until=until, code=fault.code, reason=fault.reason) if seconds else None
        self.progress.write(Waited(proof=id, code=fault.code, seconds=seconds, planner=wait))
        workflow.set_current_details(details(self.progress))
        try:
            await workflow.sleep(seconds, summary=timer_name(timer, self.progress.number))
        except asyncio.CancelledError:
            self.was_cut_off = True
            raise
        finally:
            self.progress.write(Resumed(proof=id, slept=seconds))
        workflow.set_current_details(details(self.progress))


@dataclass
class ToolExecution:
    """One execution of a tool's activity, counted against the task's budget: call `reserve`, then `run`."""

    progress: Progress
    catalogue: Catalogue
    spec: ToolSpec
    args: dict[str, JsonValue] | None
    id: str
    title: str
    header: CallHeader
    step: str = ""
    """The id of the step for which the call is made; for the call of the step itself, the same as `id`."""
    is_check: bool = False
    """Whether the call only checks what a person gave."""
    used: int = 0
    """Attempts that earlier executions of the same call took."""
    repeated: Fault | None = None
    """What `metrics.last_fault` returns for the execution that this execution repeats; None if it repeats none."""
    retried: dict[str, int] = field(default_factory=dict)
    """The retries of the call until now, by the code of the fault before each."""

    def __post_init__(self) -> None:
        self.spec = spending.with_call_tokens(self.spec, self.args)
        self._account = (self.progress, self.catalogue, self.spec)

    def reserve(self) -> int:
        """Reserve attempts, and return how many; 0 if the budget has none left."""
        return spending.reserve_step(*self._account, self.used)

    async def reserve_after_siblings(self) -> int:
        """Reserve as `reserve` does; first wait while running steps have reserved what is missing."""
        # Several steps may wake up for the same attempt: only the reservation decides which of them gets it.
        while not (granted := self.reserve()) and spending.should_wait_for_siblings(*self._account):
            await workflow.wait_condition(lambda: spending.is_open(*self._account, self.used))
        return granted

    @property
    def missing(self) -> spending.Limit:
        """The limit of the budget that is too low for an attempt of this call."""
        return spending.step_limit_reached(*self._account)

    async def run(self, granted: int) -> ToolReply:
        """Run the activity with at most `granted` attempts.

        Raises:
            CancelledError: the activity was cancelled; it counts as one attempt.
        """
        try:
            result, earlier = await self._execute(granted)
        except asyncio.CancelledError:  # a cancelled execution, too, must give its reservation back
            self._settle(granted, None)
            raise
        self._settle(granted, result, earlier)
        return ToolReply(result, earlier)

    def _settle(self, granted: int, result: StepReturn | Fault | None, earlier: Sequence[Fault] = ()) -> None:
        """Settle an execution, and add what it used to the journal; `result` is None if the execution was cancelled."""
        settled = spending.cancelled_fault(self.spec) if result is None else result
        used = spending.settle_step(*self._account, granted, settled, earlier, self.used)
        entry = Settled.of_execution(
            result,
            earlier,
            self.repeated,
            self.retried,
            step=self.step,
            proof=self.id,
            source=self.spec.kind,
            is_read=self.id != self.step,
            is_check=self.is_check,
            retries=retries_of(used.tool_calls, self.used),
            used=used,
            purpose=metrics.STEPS,
        )
        self.progress.write(entry)
        self.retried = added(self.retried, entry.retried)

    async def _execute(self, granted: int) -> tuple[StepReturn | Fault, Sequence[Fault]]:
        spec, args, id, title, header = self.spec, self.args, self.id, self.title, self.header
        if spec.pure:
            result = await run_locally(spec, args, StepReturn, id=id, title=title, header=header)
            if not (isinstance(result, Fault) and result.code in ONLY_LOCAL):
                return result, ()
            raise_if_cancelled()  # the local activity may have ended normally although it was cancelled
        # The worker cannot see it of an eager activity: the server sends no retry policy with it.
        if granted != retries.PROFILES[spec.retry].attempts:
            header = header.model_copy(update={"attempts": granted})
        return await run_activity(spec, granted, args, StepReturn, id=id, title=title, header=header)


@dataclass(frozen=True)
class OwnCall:
    """A call that the workflow itself needs, beside the steps; its faults go into the account of the task."""

    progress: Progress | None
    """None if the workflow runs no task."""
    spec: ToolSpec
    id: str
    revision: int

    def note(self, fault: Fault, action: Action, *, seconds: float | None = None) -> None:
        """Add a fault and the decision `action` to the journal; `seconds` is the length of a wait."""
        record = FaultRecord.of_call(fault, self.id, self.revision, action, at=workflow.now())
        if self.progress is not None:
            self.progress.write(Attempted(proof=self.id, fault=record, is_own=True, seconds=seconds))
        else:
            name, fields = decision_line(record, seconds)
            workflow.logger.info(name, extra=fields)

    def note_retries(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self.note(fault, "retry")

    def measure(self, result: object, earlier: Sequence[Fault] = (), repeated: Fault | None = None) -> None:
        """Add the execution to the journal if it is a request to the planner; see `metrics.retry_causes`."""
        if self.progress is None or self.spec not in retries.PLANNING or not isinstance(result, Proposed | Fault):
            return
        taken = result.taken if isinstance(result, Fault) else number_of(1, earlier)
        retried = tuple(code for code, _ in metrics.retry_causes(taken, earlier, repeated))
        self.progress.write(Settled(proof=self.id, source=self.spec.kind, taken=taken, retried=retried))


async def pause(turns: Turns, wait: Wait, key: str, timer: str) -> float:
    """Wait as `wait` says before a call is repeated; return the seconds slept, 0 if the turn of the `key` came."""
    if wait.for_turn:
        return await turns.wait(key, wait.seconds, timer)
    await workflow.sleep(retries.timer(wait.seconds), summary=timer)
    return wait.seconds


async def read(
    progress: Progress,
    catalogue: Catalogue,
    spec: ToolSpec,
    args: dict[str, JsonValue],
    *,
    id: str,
    step: str,
    title: str,
    revision: int,
    store: str | None = None,
    patience: float = retries.STEP_DEADLINE.total_seconds(),
    is_held: bool = False,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> StepReturn | Fault:
    """Run a read-only tool that the workflow itself needs.

    If a `store` is given, only a worker with this store may answer. `patience` is the most seconds to wait while the
    circuit breaker of the tool is open; each such wait runs within a `with waiting():` block. With `is_held` the worker
    does not call the tool: it answers with the fault `needs_approval`, since nobody can approve a read.
    """
    header = CallHeader(
        key=ids.idempotency_key(id, progress.first_run),  # not the effect key, which other tasks may have, too
        revision=revision,
        digest=spec.digest,
        effect=spec.effect,
        documents=progress.task.documents,
        store=store,
        is_reset=progress.was_reset or made_by_reset(),
        calls=progress.task.calls,
        started=progress.place_in_queue,
        patience=patience if patience < retries.STEP_DEADLINE.total_seconds() else None,
        approve="all" if is_held else "declared",
    )
    title = f"plan {revision}: {title}"
    call = ToolExecution(progress, catalogue, spec, args, id=id, title=title, header=header, step=step)
    own, used, losses, waits, waited = OwnCall(progress, spec, id, revision), 0, 0, 0, 0.0
    while True:
        raise_if_cancelled()
        granted = call.reserve()
        if not granted:
            reason = spending.limit_message(progress.budget.limits, call.missing)
            return Fault.of(Code.QUOTA_EXHAUSTED, reason, source=spec.kind, attempt=0)
        progress.write(Started(proof=id, is_untrusted=spec.untrusted))
        reply = await call.run(granted)
        result = reply.result
        used += result.attempt if isinstance(result, StepReturn) else result.taken
        own.note_retries(reply.earlier)
        # Calls of all tasks found the service down, or it limits them.
        is_turned_away = isinstance(result, Fault) and (result.code is Code.CIRCUIT_OPEN or result.queued is not None)
        if not isinstance(result, Fault) or not (result.uncounted or is_turned_away):
            return result
        losses += result.uncounted
        attempts, left = progress.budget.attempts(spec, used), patience - waited
        decision = decide(result, spec, Remaining(attempts=attempts, waits=waits, losses=losses, deadline=left))
        if not isinstance(decision, Wait):
            return result
        own.note(result, decision.action, seconds=decision.seconds)
        with nullcontext() if result.uncounted else waiting():
            progress.write(Waited(proof=id, code=result.code, seconds=decision.seconds))
            timer = timer_name(ids.retry_timer(id, result.code), progress.number)
            slept = await pause(progress.turns, decision, header.key, timer)
            progress.write(Resumed(proof=id, slept=slept))
            waited += slept
        waits += 1
        call.repeated = metrics.last_fault(result, reply.earlier, call.repeated)


class TakesTurns:
    """The Signal `turn`, for workflows whose calls wait for their turn at a service."""

    _progress: Progress

    @workflow.signal(name=TURN, description="The turn of a call has come that waits for its service.")
    @undecoded
    def turn(self, *arguments: Turn | RawValue) -> None:
        if turn := read_signal(TURN, arguments, Turn):
            self._progress.turns.come(turn.key)


async def read_catalogue(
    requirements: dict[str, JsonValue], opening: Situation | None = None, *, progress: Progress | None = None
) -> Catalogue:
    """Ask a worker which tools it has, and whether it can take the task with these `requirements`.

    `progress` is that of the task; None if the workflow runs no task. `opening` is what the planner is told in the
    first turn; the catalogue contains the planner's proposal if the proposal needs no I/O.

    Raises:
        TaskEnded: no worker can answer.
        OtherForm: another version of Replan began the run, and this version would misread the history; the workflow
            task fails, so that a worker of the other version goes on.
    """
    title = "what this worker can do"
    first_turn = {"opening": opening.model_dump(mode="json", exclude_defaults=True)} if opening else {}
    try:
        own = OwnCall(progress, retries.CATALOGUE, ids.CATALOGUE, revision=0)
        catalogue = await run_internal_activity(
            own, requirements, Catalogue, title=title, local={**requirements, **first_turn}
        )
    except InternalActivityFailed as failed:
        raise TaskEnded(TaskStatus.ESCALATED, f"The catalogue: {failed.fault.reason}", failed.fault.code) from None
    if catalogue.form != FORM:
        raise OtherForm(catalogue.form)
    return catalogue


async def ask_planner(
    progress: Progress, catalogue: Catalogue, spec: ToolSpec, situation: Situation, *, title: str
) -> Proposed:
    """Send the planner one request, for which the budget reserves tokens and money.

    Raises:
        TaskEnded: the planner cannot be reached, the request is too large, or the budget has too little left.
    """
    if situation.is_last and catalogue.last_news:
        situation = situation.shortened(spending.room_for_news(progress, catalogue))
    request: dict[str, JsonValue] = situation.model_dump(mode="json", exclude_defaults=situation.converses)
    size = len(situation.model_dump_json(exclude_defaults=situation.converses).encode())
    if size > MAX_SITUATION:
        reason = "What the planner would have to be told is too large: split the task, or let its tools return less."
        raise TaskEnded(TaskStatus.ESCALATED, reason, "too_large")
    new_bytes = situation.told_bytes if situation.max_shown is not None else size - situation.unshown_bytes
    id = ids.of_request(situation.turn, is_compaction=spec is retries.COMPACT)
    own = OwnCall(progress, spec, id, progress.revision + 1)
    while True:
        allowance, last_output = _reserve_turn(progress, catalogue, situation, new_bytes, own)
        if allowance is None:
            turn, is_last = (progress, catalogue, new_bytes), situation.is_last
            limit = spending.turn_limit_reached(*turn, is_last=is_last, last_output=last_output)
            reason = spending.turn_limit_message(*turn, limit, is_last=is_last, last_output=last_output)
            raise TaskEnded(TaskStatus.OVER_BUDGET, reason, limit)
        payload: JsonValue = {**request, **allowance.planner_limits}
        waits = PlannerWaits(progress, outlasts=not (situation.is_last or progress.is_draft))
        earlier: Sequence[Fault] = ()
        settle = partial(_settle_turn, progress, catalogue, allowance, situation, waits.failed, spec)
        is_local = catalogue.plans_locally and not (progress.replanning or situation.rejected)
        local = payload if is_local else None
        try:
            used: Proposed | Fault = await run_internal_activity(
                own, payload, Proposed, title=title, waits=waits, local=local, patience=catalogue.patience
            )
        except asyncio.CancelledError:
            settle(*(waits.ended or (spending.cancelled_fault(spec, attempt=0 if waits.was_cut_off else 1), ())))
            raise
        except InternalActivityFailed as failed:
            used, earlier = failed.fault, failed.earlier
        settle(used, earlier)
        if isinstance(used, Proposed):
            return used
        if not used.lost:  # otherwise a shorter answer may still fit beside those that were lost
            raise TaskEnded(TaskStatus.ESCALATED, f"The planner: {used.reason}", used.code)


def _reserve_turn(
    progress: Progress, catalogue: Catalogue, situation: Situation, new_bytes: int, own: OwnCall
) -> tuple[spending.Allowance | None, int]:
    """Reserve a request, and keep back the longest last answer that fits after the request.

    Returns the allowance, None if too little is left, and the most tokens of the last answer. If no last answer fits,
    a proposal is requested without one if it opens the conversation or, in the strategy `plan`, if neither a step
    of the newest plan nor the last proposal was rejected.
    """
    is_last, is_by_hand = situation.is_last, situation.plan is not None
    usual = spending.reserve_turn(progress, catalogue, new_bytes, is_last=is_last, is_by_hand=is_by_hand)
    if usual or is_last:
        return usual, 0 if is_last else spending.LAST_OUTPUT
    is_ending = progress.task.strategy == "plan" and not (progress.replanning or situation.rejected)
    is_enough = own.spec is not retries.COMPACT and (is_ending or not progress.is_opened)
    last_outputs = (spending.MIN_LAST_OUTPUT, 0) if is_enough else (spending.MIN_LAST_OUTPUT,)
    for last_output in last_outputs:
        shorter = spending.reserve_turn(progress, catalogue, new_bytes, last_output=last_output)
        if shorter:
            return shorter, last_output
    return None, last_outputs[-1]


def _settle_turn(
    progress: Progress,
    catalogue: Catalogue,
    allowance: spending.Allowance,
    situation: Situation,
    failed: Sequence[spending.FailedExecution],
    spec: ToolSpec,
    used: Proposed | Fault,
    earlier: Sequence[Fault] = (),
) -> None:
    """Add what a request to the planner used, in its final execution and the `failed` ones before, to what is spent."""
    spent = spending.settle_turn(progress, catalogue, allowance, used, failed, earlier)
    if not (spent.model_calls or spent.tokens):
        return
    reported = used if isinstance(used, Proposed) else None
    id = ids.of_request(situation.turn, is_compaction=spec is retries.COMPACT)
    progress.write(
        Settled(
            proof=id,
            source=spec.kind,
            used=spent,
            purpose=metrics.purpose_of(spec.kind, is_correction=bool(situation.rejected)),
            tokens=reported.tokens if reported else 0,
            usd=(reported.usd or 0.0) if reported else 0.0,
        )
    )


async def run_internal_activity(
    own: OwnCall,
    payload: JsonValue,
    returns: type[T],
    *,
    title: str,
    waits: PlannerWaits | None = None,
    local: JsonValue = None,
    patience: float = retries.MISSING_TOOL_PATIENCE,
) -> T:
    """Run one of Replan's own activities; after a transient fault, wait and schedule it again.

    `waits` is given only for a request to the planner. `local` is the input of a local activity that is tried once
    first; None if no local activity is tried. `patience` is the most seconds to wait for a worker that has a tool.

    Raises:
        InternalActivityFailed: the activity failed, and a repeat cannot help.
        CancelledError: the task was cancelled, even if the activity did not notice.
    """
    spec, id = own.spec, own.id
    # Not the effect key: two tasks with the same one have conversations of their own with the planner.
    key = ids.idempotency_key(id, workflow.info().first_execution_run_id)
    header = CallHeader(key=key, revision=own.revision, digest=spec.digest, is_reset=made_by_reset())
    if local is not None:
        tried = await run_locally(spec, local, returns, id=id, title=title, header=header)
        own.measure(tried)
        raise_if_cancelled()
        if not isinstance(tried, Fault):
            return tried
        own.note(tried, "wait", seconds=0)
        if tried.code is Code.MISSING_TOOL:  # the worker that has the tool must check what this one could not
            payload = local
    used, losses, wait_count, waited, repeated = 0, 0, 0, 0.0, None
    while True:
        # At least one: a wait for an uncounted fault may come when no attempt is left.
        granted = max(1, retries.attempts(spec, retries.RETRIES_PER_KIND, used))
        result, earlier = await run_activity(spec, granted, payload, returns, id=id, title=title, header=header)
        own.measure(result, earlier, repeated)
        own.note_retries(earlier)
        if waits and is_cancelled() and isinstance(result, Proposed | Fault):
            waits.ended = result, earlier
        raise_if_cancelled()  # the activity may have ended normally although it was cancelled
        if not isinstance(result, Fault):
            return result
        used, losses = used + result.taken, losses + result.uncounted
        repeated = metrics.last_fault(result, earlier, repeated)
        remaining = Remaining(
            attempts=retries.attempts(spec, retries.RETRIES_PER_KIND, used),
            waits=wait_count,
            losses=losses,
            waited=waited,
            patience=patience,
            replans=False,
            deadline=retries.seconds_left(waited, is_draft=waits is not None and waits.progress.is_draft),
        )
        decision, lost = decide(result, spec, remaining), int(result.uncounted)
        if waits and waits.outlasts and not isinstance(decision, Wait) and (wait := outlast(result, remaining)):
            decision, lost = wait, len(spending.lost_replies(result, earlier))
        lost += spending.paid_replies(result, earlier)
        if not isinstance(decision, Wait):
            # After lost replies, a shorter one may be asked for.
            own.note(result, "wait" if result.lost else "escalate")
            raise InternalActivityFailed(result, earlier)
        own.note(result, decision.action, seconds=decision.seconds)
        header = header.model_copy(update={"for_any_worker": result.code is Code.MISSING_TOOL})
        if lost and isinstance(payload, dict):
            payload = after_lost_replies(payload, result, lost, earlier)
        wait_count, waited = wait_count + 1, waited + decision.seconds
        timer = ids.retry_timer(spec.kind, result.code)
        if waits:
            await waits.sleep(result, earlier, decision.seconds, id, timer)
        else:
            await workflow.sleep(decision.seconds, summary=timer)


def after_lost_replies(
    payload: dict[str, JsonValue], fault: Fault, lost: int, earlier: Sequence[Fault] = ()
) -> dict[str, JsonValue]:
    """The input of the next request to a model: `payload`, with `lost` fewer replies that may be lost.

    Raises:
        InternalActivityFailed: the budget has reserved nothing for a further request; the lost ones may be billed.
    """
    left = payload.get(spending.MAX_LOST_REPLIES)
    if not isinstance(left, int):  # no budget limits it
        return payload
    if left < lost:
        raise InternalActivityFailed(fault.model_copy(update={"lost": lost}), earlier)
    return {**payload, spending.MAX_LOST_REPLIES: left - lost}
