"""Scheduling of activities: reserve what an activity may use, run it, settle what it used.

Runs around each activity: a step's call, a read that observes or reconciles, the catalogue, a request to the planner.

A step's call and a read count against the limit of tool calls (and of tokens and money, if the tool uses a model), a
request to the planner against those of tokens and money. Other internal activities count against no limit.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RawValue

from workflows import ids
from workflows.account import metrics
from workflows.account.entries_of_steps import Attempted, Resumed, Settled, Started, Waited, added, decision_line
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord
from workflows.arguments import read_signal, undecoded
from workflows.calls.admission import TURN, Admitted
from workflows.calls.attempts import AttemptTally, pause, until_decided
from workflows.calls.header import CallHeader, made_by_reset
from workflows.calls.running import raise_if_cancelled, run_activity, run_locally
from workflows.faults import retries
from workflows.faults.decision import Action, Decision, Escalate, Remaining, Wait, decide
from workflows.faults.fault import UNCOUNTED, Code, Fault, number_of
from workflows.limits import spending
from workflows.limits.budget import retries_of
from workflows.plans.catalogue import Catalogue, ToolSpec
from workflows.plans.own_activities import PLANNING
from workflows.plans.proposal import Proposed, StepReturn
from workflows.seal import Seal
from workflows.web_ui import timer_name

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

    async def run(self, granted: int) -> tuple[StepReturn | Fault, Sequence[Fault]]:
        """Run the activity with at most `granted` attempts; return also the known faults before the final attempt.

        Raises:
            CancelledError: the activity was cancelled; it counts as one attempt.
        """
        try:
            result, earlier = await self._execute(granted)
        except asyncio.CancelledError:  # a cancelled execution, too, must give its reservation back
            self._settle(granted, None)
            raise
        self._settle(granted, result, earlier)
        return result, earlier

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
        if self.progress is None or self.spec not in PLANNING or not isinstance(result, Proposed | Fault):
            return
        taken = result.taken if isinstance(result, Fault) else number_of(1, earlier)
        retried = tuple(code for code, _ in metrics.retry_causes(taken, earlier, repeated))
        self.progress.write(Settled(proof=self.id, source=self.spec.kind, taken=taken, retried=retried))


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
    needs_approval: bool = False,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> StepReturn | Fault:
    """Run a read-only tool that the workflow itself needs.

    If a `store` is given, only a worker with this store may answer. `patience` is the most seconds to wait while the
    circuit breaker of the tool is open; each such wait runs within a `with waiting():` block. If it `needs_approval`,
    the worker does not call the tool: it answers with the fault of that name, since nobody can approve a read.
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
        approve="all" if needs_approval else "declared",
    )
    title = f"plan {revision}: {title}"
    call = ToolExecution(progress, catalogue, spec, args, id=id, title=title, header=header, step=step)
    attempts = ReadAttempts(OwnCall(progress, spec, id, revision), call, patience, waiting)
    return (await until_decided(attempts, await attempts.make()))[0]


@dataclass
class ReadAttempts(AttemptTally):
    """The attempts of a read; it is repeated only if its worker was lost, or its service turns calls away."""

    own: OwnCall
    call: ToolExecution
    patience: float
    waiting: Callable[[], AbstractContextManager[None]]

    async def make(self) -> StepReturn | Fault:
        raise_if_cancelled()
        progress, call, granted = self.call.progress, self.call, self.call.reserve()
        if not granted:
            reason = spending.limit_message(progress.budget.limits, call.missing)
            return Fault.of(Code.QUOTA_EXHAUSTED, reason, source=self.own.spec.kind, attempt=0)
        progress.write(Started(proof=call.id, is_untrusted=self.own.spec.untrusted))
        call.repeated = self.repeated
        result, self.earlier = await call.run(granted)
        self.own.note_retries(self.earlier)
        return result

    def decide(self, fault: Fault) -> Decision:
        # Calls of all tasks found the service down, or it limits them.
        is_turned_away = fault.code is Code.CIRCUIT_OPEN or fault.queued is not None
        if not (fault.uncounted or is_turned_away):
            return Escalate()
        self.count(fault)
        attempts, left = self.call.progress.budget.attempts(self.own.spec, self.used), self.patience - self.waited
        remaining = Remaining(attempts=attempts, waits=self.waits, losses=self.losses, deadline=left)
        decision = decide(fault, self.own.spec, remaining)
        if isinstance(decision, Wait):
            self.own.note(fault, decision.action, seconds=decision.seconds)
        return decision

    async def wait(self, fault: Fault, wait: Wait) -> None:
        call, progress = self.call, self.call.progress
        with nullcontext() if fault.uncounted else self.waiting():
            progress.write(Waited(proof=call.id, code=fault.code, seconds=wait.seconds))
            timer = timer_name(ids.retry_timer(call.id, fault.code), progress.number)
            slept = await pause(progress.admissions, wait, call.header.key, timer)
            progress.write(Resumed(proof=call.id, slept=slept))
        self.waits, self.waited = self.waits + 1, self.waited + slept


class TakesAdmissions:
    """The Signal `turn`, for workflows whose calls wait for their admission to a service."""

    _progress: Progress
    _seal: Seal

    @workflow.signal(name=TURN, description="The turn of a call has come that waits for its service.")
    @undecoded
    def admit(self, *arguments: Admitted | RawValue) -> None:
        if admitted := read_signal(TURN, arguments, Admitted, self._seal):
            self._progress.admissions.come(admitted.key)


@dataclass
class OwnAttempts(AttemptTally, Generic[T]):
    """The attempts of one of Replan's own activities."""

    own: OwnCall
    payload: JsonValue
    returns: type[T]
    title: str
    patience: float = retries.MISSING_TOOL_PATIENCE
    """The most seconds to wait for a worker that has a tool."""

    def __post_init__(self) -> None:
        # Not the effect key: two tasks with the same one have conversations of their own with the planner.
        key = ids.idempotency_key(self.own.id, workflow.info().first_execution_run_id)
        about = {"revision": self.own.revision, "digest": self.own.spec.digest}
        self._header = CallHeader(key=key, is_reset=made_by_reset(), **about)

    async def run(self, local: JsonValue = None) -> T:
        """Return what the activity returns; after a transient fault, wait and schedule it again.

        `local` is the input of a local activity that is tried once first; None if no local activity is tried.

        Raises:
            InternalActivityFailed: the activity failed, and a repeat cannot help.
            CancelledError: the task was cancelled, even if the activity did not notice.
        """
        if local is not None:
            own = self.own
            tried = await run_locally(own.spec, local, self.returns, id=own.id, title=self.title, header=self._header)
            own.measure(tried)
            raise_if_cancelled()
            if not isinstance(tried, Fault):
                return tried
            own.note(tried, "wait", seconds=0)
            if tried.code is Code.MISSING_TOOL:  # the worker that has the tool must check what this one could not
                self.payload = local
        result, _ = await until_decided(self, await self.make())
        if isinstance(result, Fault):
            raise InternalActivityFailed(result, self.earlier)
        return result

    async def make(self) -> T | Fault:
        own, title, header = self.own, self.title, self._header
        # At least one: a wait for an uncounted fault may come when no attempt is left.
        granted = max(1, retries.attempts(own.spec, retries.RETRIES_PER_KIND, self.used))
        result, self.earlier = await run_activity(
            own.spec, granted, self.payload, self.returns, id=own.id, title=title, header=header
        )
        own.measure(result, self.earlier, self.repeated)
        own.note_retries(self.earlier)
        self.note_end(result)
        raise_if_cancelled()  # the activity may have ended normally although it was cancelled
        return result

    def note_end(self, result: T | Fault) -> None:
        """Called with the result of each execution, also of one during which the task was cancelled."""

    def decide(self, fault: Fault) -> Decision:
        self.count(fault)
        decision = self.follows(fault, self._remaining())
        if not isinstance(decision, Wait):
            # After lost replies, a shorter one may be asked for.
            self.own.note(fault, "wait" if fault.lost else "escalate")
            return decision
        self.own.note(fault, decision.action, seconds=decision.seconds)
        self._header = self._header.model_copy(update={"for_any_worker": fault.code is Code.MISSING_TOOL})
        return decision

    def follows(self, fault: Fault, remaining: Remaining) -> Decision:
        return decide(fault, self.own.spec, remaining)

    @property
    def seconds_left(self) -> float:
        """Seconds that it may still wait."""
        return retries.seconds_left(self.waited)

    def _remaining(self) -> Remaining:
        return Remaining(
            attempts=retries.attempts(self.own.spec, retries.RETRIES_PER_KIND, self.used),
            waits=self.waits,
            losses=self.losses,
            waited=self.waited,
            patience=self.patience,
            replans=False,
            deadline=self.seconds_left,
        )

    async def wait(self, fault: Fault, wait: Wait) -> None:
        self.waits, self.waited = self.waits + 1, self.waited + wait.seconds
        await self.sleep(fault, wait.seconds, ids.retry_timer(self.own.spec.kind, fault.code))

    async def sleep(self, fault: Fault, seconds: float, timer: str) -> None:
        await workflow.sleep(seconds, summary=timer)
