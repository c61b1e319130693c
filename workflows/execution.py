"""Running a plan: every step as soon as what it needs is done, until all are done or a fault has drained it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, assert_never

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows import routing, spending
from workflows.call import Call, Undoes, call, key_of, raise_if_cancelled
from workflows.catalogue import ECHOES, SAFE, Catalogue, Effect, ToolSpec
from workflows.cost import sized
from workflows.decision import Decision, Escalate, Left, Reconcile, Replan, UseFallback, Wait, decide
from workflows.details import summary
from workflows.faults import (
    Applied,
    Code,
    Fault,
    earlier_faults,
    from_activity_error,
    readable,
)
from workflows.plan import Step, StepReturn, Unresolved, canonical, ready, resolve
from workflows.progress import Progress
from workflows.reconciling import Finding, Verdict, is_haunted, reconcile, told
from workflows.record import FaultRecord, StepRecord, StepStatus
from workflows.spending import Limit

UNCOUNTED_LOSSES = "uncounted-losses"
"""Patch: an attempt of an unkeyed kind that went with its worker counts as a loss; for all others the retry policy that
history holds tells."""
MAX_ARGS = 512 * 1024
"""Bytes of a step's arguments with the results in them; the server would terminate a workflow that sends 2 MB."""
MAX_SENT = 2 * 1024 * 1024
"""Bytes of the arguments of steps that start together; the server takes 4 MB at once."""


class Execution:
    """Carries out the plan in force; all that it learns goes into `progress`."""

    def __init__(self, progress: Progress, catalogue: Catalogue, changed: Callable[[], None]) -> None:
        """Call `changed` whenever there is something new to see."""
        self._progress = progress
        self._catalogue = catalogue
        self._changed = changed
        self._draining = False
        self.short: Limit | None = None
        """The limit that a step could not start by."""

    async def run(self) -> None:
        """Start what is ready until nothing is left, or until a fault: then only let the running steps finish.

        Raises:
            CancelledError: the task was cancelled, and every step that ran has ended.
        """
        running: list[asyncio.Task[None]] = []
        try:
            while True:
                running += [asyncio.create_task(self._run(record)) for record in self._start(len(running))]
                self._changed()
                if not running:
                    return
                done, running = await workflow.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for step in done:
                    step.result()
        except asyncio.CancelledError:
            await self._stop(running)
            raise

    def _start(self, running: int) -> list[StepRecord]:
        if self._draining:
            return []
        pending = {record.step.id: record for record in self._progress.with_status(StepStatus.PENDING)}
        results, records, sent = self._progress.results, list[StepRecord](), 0
        steps = ready([record.step for record in pending.values()], results)
        for step in steps[: routing.MAX_PARALLEL - running]:
            sent += _size(step, results)
            if records and sent > MAX_SENT:
                break
            records.append(pending[step.id])
        for record in records:
            record.status, record.started = StepStatus.RUNNING, workflow.now()
            self._progress.grants.begin(self._spec(record))
        return records

    async def _stop(self, running: list[asyncio.Task[None]]) -> None:
        self._draining = True
        for step in running:
            step.cancel()
        if running:
            await workflow.wait(running)

    async def _run(self, record: StepRecord) -> None:
        try:
            await self._carry_out(record)
        except asyncio.CancelledError:
            record.was_waiting = record.status is StepStatus.WAITING
            record.status = StepStatus.CANCELLED
        record.ended = workflow.now()
        record.place = 1 + max(one.place for one in self._progress.records)

    async def _carry_out(self, record: StepRecord) -> None:
        """One step, from its arguments to its result or to the fault that ends it."""
        fault, finding = self._prepare(record) or await self._attempt(record), None
        while fault is not None:
            fault = fault if finding else self._doubted(record, fault)
            decision = decide(fault, self._spec(record), self._left(record, finding))
            if record.undoes is not None and isinstance(decision, Replan):
                decision = Escalate()  # nobody plans a rollback anew
            self._note(record, fault, decision, finding)
            match decision:
                case Reconcile():
                    finding = await reconcile(self._progress, self._catalogue, record, fault, self._changed)
                    fault = self._known(record, fault, finding)
                    continue
                case Wait():
                    await self._wait(record, fault, decision.seconds)
                case UseFallback():
                    record.kind, record.used = decision.kind, 0
                    record.effect = self._spec(record).effect
                    self._progress.grants.begin(self._spec(record))
                case Replan() | Escalate():
                    self._fail(record, fault, decision)
                    return
                case _:
                    assert_never(decision)
            fault, finding = self._repeated(record) or await self._attempt(record), None

    def _known(self, record: StepRecord, fault: Fault, finding: Finding) -> Fault | None:
        """The fault with what was found out about its effect; None where the call happened, and so is done."""
        match finding.verdict:
            case Verdict.APPLIED:
                known = fault.model_copy(update={"effect": Applied.APPLIED})
                self._note(record, known, Reconcile(), finding)
                self._complete(record, StepReturn(result=finding.result, replayed=True))
                return None
            case Verdict.NOT_APPLIED:
                record.claim += 1
                return fault.model_copy(update={"effect": Applied.NONE})
            case Verdict.CANNOT_TELL:
                return fault
            case unreachable:
                assert_never(unreachable)

    def _prepare(self, record: StepRecord) -> Fault | None:
        """Put the results of other steps into the arguments; refuse what is known to fail."""
        if record.undoes is not None:
            return None  # its arguments are made already, of what is data
        try:
            args = resolve(record.step.args, self._progress.results)
        except Unresolved as missing:
            return self._uncalled(record, Code.INVALID_INPUT, f"The step's arguments cannot be made: {missing}.")
        size = len(canonical(args).encode())
        if size > MAX_ARGS:
            reason = f"The step's arguments would have {size} bytes, more than {MAX_ARGS}: refer to parts of results."
            return self._uncalled(record, Code.INVALID_INPUT, reason)
        if not isinstance(args, dict):
            reason = "The step's arguments stand for a single value: name each argument, and refer to results there."
            return self._uncalled(record, Code.INVALID_INPUT, reason)
        record.args = args
        return self._repeated(record)

    def _repeated(self, record: StepRecord) -> Fault | None:
        if not self._progress.guard.refuses(record.kind, record.args or {}, self._progress.effects):
            return None
        reason = "The same call failed before and nothing has changed since: change the call."
        return self._uncalled(record, Code.REPEATED_CALL, reason)

    def _uncalled(self, record: StepRecord, code: Code, reason: str) -> Fault:
        return Fault.of(code, reason, source=record.kind, attempt=0)

    async def _attempt(self, record: StepRecord) -> Fault | None:
        """Schedule the step's kind once (which may be several attempts); None when there is nothing more to do."""
        raise_if_cancelled()
        spec = sized(self._spec(record), record.args)
        account = (self._progress, self._catalogue, spec)
        while not (granted := spending.reserve_step(*account, record.used)) and spending.may_come_back(*account):
            await workflow.wait_condition(lambda: spending.is_open(*account, record.used))
        if not granted:
            self.short, self._draining = spending.step_short_of(*account), True
            record.status = StepStatus.FAILED if record.attempts else StepStatus.SKIPPED
            return None
        came_back, earlier = await self._call(spec, granted, record)
        taken = spending.settle_step(*account, granted, came_back, earlier, record.used)
        record.attempts, record.used = record.attempts + taken, record.used + taken
        if isinstance(came_back, Fault):
            record.losses += came_back.uncounted
            return came_back
        self._complete(record, came_back)
        return None

    async def _call(
        self, spec: ToolSpec, granted: int, record: StepRecord
    ) -> tuple[StepReturn | Fault, Sequence[Fault]]:
        """What came of it, and the faults of the attempts before the last one."""
        step, revision = record.step, record.revision
        whose = f"turn {self._progress.turn}" if self._progress.task.strategy == "react" else f"plan {revision}"
        title = f"{whose}: {step.label}" + (f" (instead of {step.kind})" if record.is_fallback else "")
        try:
            back = await call(
                routing.route(spec, granted),
                record.args,
                StepReturn,
                id=step.id,
                summary=summary(title),
                header=self._header(record, spec),
            )
            return back, readable(back.earlier)
        except ActivityError as error:
            if is_cancelled_exception(error):
                cut_off, used = spending.cut_off(spec), record.used
                spending.settle_step(self._progress, self._catalogue, spec, granted, cut_off, used=used)
                record.attempts += 1
                raise asyncio.CancelledError from None
            earlier = earlier_faults(error)
            self._retried(record, earlier)
            fault = from_activity_error(error, spec, granted)
            if fault.uncounted and spec.effect is Effect.UNKEYED and not workflow.patched(UNCOUNTED_LOSSES):
                fault = fault.model_copy(update={"uncounted": False})
            return fault, earlier

    def _header(self, record: StepRecord, spec: ToolSpec) -> Call:
        progress, more = self._progress, dict[str, Any](was_reset=self._progress.was_reset)
        if spec.effect is not Effect.READ:
            more |= {"store": progress.store, "claim": record.claim}
        if progress.origin is not None:
            more["task"] = progress.task_id
        if record.undoes is not None:
            undone = next(one for one in progress.records if one.step.id == record.undoes)
            key = key_of(undone.call_id, progress.origin)
            more["undoes"] = Undoes(key=key, step=record.undoes, kind=undone.kind)
        documents = progress.task.documents
        return Call.of(record.call_id, spec, record.revision, origin=progress.origin, documents=documents, **more)

    def _doubted(self, record: StepRecord, fault: Fault) -> Fault:
        """The fault, or, where an earlier scheduling of the step may have happened, one of unknown effect.

        A refusal may be the echo of that scheduling, and a fault that time cures says nothing of it.
        """
        spec = self._spec(record)
        doubtful = SAFE if fault.quadrant.is_transient else ECHOES
        if spec.effect not in doubtful or fault.effect is not Applied.NONE:
            return fault
        before = [one for one in self._progress.faults if one.step_id == record.step.id and one.source == spec.kind]
        return fault.model_copy(update={"effect": Applied.UNKNOWN}) if is_haunted(before) else fault

    def _spec(self, record: StepRecord) -> ToolSpec:
        return self._catalogue.specs[record.kind]

    def _left(self, record: StepRecord, finding: Finding | None) -> Left:
        return Left(
            attempts=self._progress.budget.attempts(self._spec(record), record.used),
            waits=record.waits,
            losses=record.losses,
            waited=record.waited,
            patience=self._catalogue.patience,
            replans=self._progress.replans < self._progress.budget.limits.replans,
            deadline=routing.seconds_left(record.slept),
            down=tuple(self._progress.down),
            reconcile=finding is None,
        )

    async def _wait(self, record: StepRecord, fault: Fault, seconds: float) -> None:
        raise_if_cancelled()
        record.waits += 1
        if fault.code is Code.MISSING_TOOL:
            record.waited += seconds
        if seconds > 0:
            record.status = StepStatus.WAITING
            self._changed()
            await workflow.sleep(seconds, summary=summary(f"{record.step.id} waits: {fault.code}, then again"))
            record.slept += seconds
        record.status = StepStatus.RUNNING
        self._changed()

    def _complete(self, record: StepRecord, back: StepReturn) -> None:
        record.status, record.result, record.replayed = StepStatus.COMPLETED, back.result, back.replayed
        record.unchanged = self._is_unchanged(record)
        self._retried(record, readable(back.earlier))

    def _is_unchanged(self, record: StepRecord) -> bool:
        progress = self._progress
        if progress.task.strategy != "react" or record.args is None:
            return False
        now = {"revision": record.revision, "changes": progress.effects}
        return progress.loops.note(record.step.kind, record.args, record.result, record.effect, **now)

    def _fail(self, record: StepRecord, fault: Fault, decision: Replan | Escalate) -> None:
        record.status = StepStatus.FAILED
        self._draining = True
        if isinstance(decision, Escalate):
            return
        if decision.mark_down:
            self._progress.down.append(record.kind)
        elif fault.code is not Code.REPEATED_CALL and not fault.by_id:  # what was not called leaves the memory alone
            self._progress.guard.remember(record.kind, record.args or record.step.args, self._progress.effects)

    def _note(self, record: StepRecord, fault: Fault, decision: Decision, finding: Finding | None) -> None:
        """Write a fault down with what follows; what was found out about its effect is added to what was written."""
        verdict = finding.verdict.value if finding else None
        key = key_of(record.call_id, self._progress.origin)
        note = _fault_record(record, told(fault, decision, record, key, finding), decision.action, reconciled=verdict)
        if finding is None:
            self._progress.faults.append(note)
        else:
            mine = (number for number, one in enumerate(self._progress.faults) if one.step_id == record.step.id)
            self._progress.faults[max(mine)] = note
        workflow.logger.info(
            "decision",
            extra={
                "step": record.step.id,
                "kind": record.kind,
                "revision": record.revision,
                "code": fault.code.value,
                "decision": "retry_skipped, " + decision.action if not fault.quadrant.is_transient else decision.action,
            },
        )

    def _retried(self, record: StepRecord, faults: Sequence[Fault]) -> None:
        self._progress.faults += [_fault_record(record, fault, "retry") for fault in faults]


def _size(step: Step, results: Mapping[str, JsonValue]) -> int:
    """Bytes of a step's arguments with the results in them."""
    with suppress(Unresolved):
        return len(canonical(resolve(step.args, results)).encode())
    return 0


def _fault_record(record: StepRecord, fault: Fault, decision: str, *, reconciled: str | None = None) -> FaultRecord:
    more: dict[str, object] = {"step_id": record.step.id, "revision": record.revision, "decision": decision}
    more |= {"reconciled": reconciled, "at": workflow.now()}
    return FaultRecord.model_validate({**fault.model_dump(), **more})
