"""The attempts of one step: its call with arguments and header, what follows its faults, and its end in the journal.

Runs from the start of a step to its end; `execution` says when a step starts, and asks people.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue
from temporalio import workflow

from workflows import ids
from workflows.account.entries_of_people import Approved
from workflows.account.entries_of_steps import Attempted, Reconciled, Resumed, StepEnded, Waited
from workflows.account.entry import JournalEntry
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, StepRecord, StepStatus
from workflows.calls.attempts import pause, until_decided
from workflows.calls.header import CallHeader, Undoes, made_by_reset
from workflows.calls.observing import is_repeat
from workflows.calls.reconciling import FoundOutcome, explain_effect, with_earlier_outcome
from workflows.calls.running import is_cancelled, raise_if_cancelled
from workflows.calls.scheduling import ToolExecution
from workflows.faults import retries
from workflows.faults.decision import Ask, Decision, Escalate, NewPlan, Remaining, UseFallback, Wait, decide
from workflows.faults.fault import Applied, Code, Fault
from workflows.limits.spending import Limit
from workflows.people.approval import ApprovedCall, added_digest
from workflows.people.statement import Statement
from workflows.people.updates import People
from workflows.plans.catalogue import Catalogue, Effect, ToolSpec
from workflows.plans.proposal import StepReturn
from workflows.plans.repeated_calls import WAITED
from workflows.web_ui import timer_name


@dataclass
class StepAttempts:
    """The attempts of one step, recorded in the journal of the task."""

    progress: Progress
    catalogue: Catalogue
    record: StepRecord
    changed: Callable[[], None]
    """Called whenever the details of the task have changed."""
    people: People | None
    """None if nobody is asked."""
    stop: Callable[[Limit], None]
    """Called with the limit of the budget that lets no attempt begin."""
    finding: FoundOutcome | None = None
    """What reconciliation has just found out, until it is decided what follows that."""

    @property
    def spec(self) -> ToolSpec:
        return self.catalogue.specs[self.record.kind]

    @property
    def key(self) -> str:
        """The idempotency key of the call."""
        return ids.idempotency_key(self.record.call_id, self.progress.key_prefix)

    @property
    def asked(self) -> People | None:
        """The people to ask about the step; None after a cancel, in a rollback, or if the task asks nobody."""
        if is_cancelled():  # a call that fails hides the cancel
            return None
        return self.people if self.people and self.people.are_asked and self.record.undoes is None else None

    def write(self, entry: type[JournalEntry], **fields: Any) -> None:
        self.progress.write(entry(step=self.record.step.id, proof=self.record.step.id, **fields))

    def end(self, status: StepStatus) -> None:
        self.write(StepEnded, status=status)

    def complete(self, back: StepReturn, *, is_in_history: bool = False) -> None:
        """End the step with a result; `is_in_history`: the result is in an event of this run."""
        self.write(
            StepEnded,
            status=StepStatus.COMPLETED,
            result=back.result,
            replayed=back.replayed,
            in_history=is_in_history,
            has_waited=(back.lasted > 0 and not back.model_calls) or self.record.slept >= WAITED,
            is_by_model=back.model_calls > 0,
        )

    def fault_without_call(self, code: Code, reason: str) -> Fault:
        return self._with_earlier(Fault.of(code, reason, source=self.record.kind, attempt=0))

    def repeated_call(self) -> Fault | None:
        """The fault of a call that failed persistently before, and since then nothing has changed; None for another."""
        if not is_repeat(self.progress, self.record.kind, self.record.args or {}):
            return None
        reason = "The same call failed before and nothing has changed since: change the call."
        return self.fault_without_call(Code.REPEATED_CALL, reason)

    async def make(self) -> Fault | None:
        """Make an attempt, unless it repeats a call that failed persistently before; return its fault."""
        return self.repeated_call() or await self.attempt()

    async def attempt(
        self, args: dict[str, JsonValue] | None = None, *, is_check: bool = False, **header: Any
    ) -> Fault | None:
        """Execute the step's activity once; return its fault; None if the step is completed or no attempt is left.

        `args` take the place of the step's arguments. `is_check`: the tool is not called; see `check`.
        """
        raise_if_cancelled()
        record, call = self.record, self._call(self.record.args if args is None else args, header, is_check=is_check)
        granted = await call.reserve_after_siblings()
        while not granted and (people := self.asked):
            self.write(Waited)
            if not await people.ask_for_budget(call.missing):
                break
            self.write(Resumed)
            granted = await call.reserve_after_siblings()
        if not granted:
            self.stop(call.missing)
            self.end(StepStatus.FAILED if record.attempts else StepStatus.SKIPPED)
            return None
        result, earlier = await call.run(granted)
        for fault in earlier:
            about = record.step.id, record.revision, "retry"
            self.write(Attempted, fault=FaultRecord.of_call(fault, *about, at=workflow.now()))
        if isinstance(result, Fault):
            return self._with_earlier(result)
        self.complete(result, is_in_history=True)
        return None

    async def check(self, args: dict[str, JsonValue] | None, **header: Any) -> Fault | None:
        """Have a worker check what a person gave, in attempts that do not call the tool; return the last fault."""
        check = _Check(self, args, header)
        return (await until_decided(check, await check.make()))[0]

    def decide(self, fault: Fault) -> Decision | Ask:
        """Decide what follows a fault, and record both."""
        finding, self.finding = self.finding, None
        decision = decide(fault, self.spec, self.remaining(finding))
        if self.record.undoes is not None and isinstance(decision, NewPlan):
            decision = Escalate()  # a rollback has no planner
        follows = Ask() if isinstance(decision, Escalate) and self.asked else decision
        self.note(fault, follows, finding)
        return follows

    def remaining(self, finding: FoundOutcome | None = None) -> Remaining:
        progress, record = self.progress, self.record
        return Remaining(
            attempts=progress.budget.attempts(self.spec, record.used),
            waits=record.waits,
            losses=record.losses,
            waited=record.waited,
            patience=self.catalogue.patience,
            replans=progress.replans < progress.budget.limits.replans,
            deadline=retries.seconds_left(record.slept),
            down=tuple(progress.down),
            reconcile=finding is None,
        )

    async def wait(self, fault: Fault, wait: Wait) -> None:
        """Wait before the next attempt."""
        raise_if_cancelled()
        self.write(Waited, code=fault.code, seconds=wait.seconds)
        slept = 0.0
        if wait.seconds > 0:  # after a worker's shutdown another one can take the call at once
            self.changed()
            timer = timer_name(ids.retry_timer(self.record.step.id, fault.code), self.progress.number)
            slept = await pause(self.progress.admissions, wait, self.key, timer)
        self.write(Resumed, slept=slept)
        self.changed()

    def note(
        self, fault: Fault, decision: Decision | Ask, finding: FoundOutcome | None, *, is_check: bool = False
    ) -> None:
        """Record a fault and the decision that follows it; with a `finding`, in place of the earlier record of it."""
        verdict = finding.verdict.value if finding else None
        explained = explain_effect(fault, decision, self.record, self.key, finding)
        about = self.record.step.id, self.record.revision, decision.action
        self.write(
            Reconciled if finding else Attempted,
            fault=FaultRecord.of_call(explained, *about, at=workflow.now(), reconciled=verdict),
            is_check=is_check,
            seconds=decision.seconds if isinstance(decision, Wait) else None,
            marks_down=isinstance(decision, NewPlan) and decision.mark_down,
            **(self._fallback(decision.kind) if isinstance(decision, UseFallback) else {}),
        )

    def approve(
        self, code: str, shown: str, defaults: Mapping[str, JsonValue], statements: tuple[Statement, ...]
    ) -> None:
        """Record that the call with the digest `shown` may be made, with the defaults that were shown."""
        added = added_digest(defaults)
        approval = ApprovedCall(code=code, shown=shown, allowed=shown, added=added, statements=statements)
        self.write(Approved, approval=approval)

    def _fallback(self, kind: str) -> dict[str, Any]:
        spec = self.catalogue.specs[kind]
        return {"fallback": kind, "effect": spec.effect, "is_untrusted": spec.untrusted}

    def _with_earlier(self, fault: Fault) -> Fault:
        return with_earlier_outcome(self.record, self.spec.effect, self.progress.faults, fault)

    def _call(self, args: dict[str, JsonValue] | None, header: Mapping[str, Any], *, is_check: bool) -> ToolExecution:
        progress, record, step = self.progress, self.record, self.record.step
        whose = f"turn {progress.turn}" if progress.task.strategy == "react" else f"plan {record.revision}"
        return ToolExecution(
            progress,
            self.catalogue,
            self.spec,
            args,
            id=step.id,
            title=f"{whose}: {record.label}" + (f" (instead of {step.kind})" if record.is_fallback else ""),
            header=self._header().model_copy(update=header),
            step=step.id,
            is_check=is_check,
            used=record.used,
            repeated=record.repeated,
            retried=record.retried,
        )

    def _header(self) -> CallHeader:
        progress, record, spec = self.progress, self.record, self.spec
        has_effect = spec.effect is not Effect.READ
        approve = "all" if record.step.id in progress.contract.outside else progress.task.approve
        return CallHeader(
            key=self.key,
            revision=record.revision,
            digest=spec.digest,
            effect=spec.effect,
            documents=progress.task.documents,
            store=progress.store if has_effect else None,  # any worker may do a read
            fencing_token=record.fencing_token if has_effect else 0,
            is_reset=progress.was_reset or made_by_reset(),
            undoes=self._undoes(),
            approve=approve,
            calls=progress.task.calls,
            approval=record.approval,
            starter=progress.task.started if spec.approvers and spec.approvers.not_starter else None,
            started=progress.place_in_queue,
            for_any_worker=record.waited > 0,
            task=progress.task_id if progress.origin is not None else None,
            has_effect_key=progress.task.effect_key is not None,
        )

    def _undoes(self) -> Undoes | None:
        if self.record.undoes is None:
            return None
        undone = next(other for other in self.progress.records if other.step.id == self.record.undoes)
        key = ids.idempotency_key(undone.call_id, self.progress.key_prefix)
        return Undoes(key=key, step=self.record.undoes, kind=undone.kind)


@dataclass
class _Check:
    """The attempts of a check of what a person gave; see `StepAttempts.check`."""

    step: StepAttempts
    args: dict[str, JsonValue] | None
    header: Mapping[str, Any]

    async def make(self) -> Fault | None:
        fault = await self.step.attempt(self.args, is_check=True, **self.header)
        return fault and fault.model_copy(update={"applied": Applied.NONE})

    def decide(self, fault: Fault) -> Decision:
        decision = decide(fault, self.step.spec, self.step.remaining())
        if isinstance(decision, Wait):
            self.step.note(fault, decision, None, is_check=True)
        return decision

    async def wait(self, fault: Fault, wait: Wait) -> None:
        await self.step.wait(fault, wait)
