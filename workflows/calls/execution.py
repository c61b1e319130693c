"""Running a plan: a step starts when all steps that it needs are completed; after a fault no further step starts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, assert_never

from pydantic import JsonValue
from temporalio import workflow

from workflows import ids
from workflows.account.entries_of_people import Approved, Checked, Edited
from workflows.account.entries_of_steps import Attempted, Decided, Reconciled, Resumed, Started, StepEnded, Waited
from workflows.account.entry import JournalEntry
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, StepRecord, StepStatus
from workflows.calls.header import CallHeader, Provided, Undoes, made_by_reset
from workflows.calls.observing import is_repeat
from workflows.calls.reconciling import CallOutcome, FoundOutcome, explain_effect, reconcile, with_earlier_outcome
from workflows.calls.running import is_cancelled, raise_if_cancelled
from workflows.calls.scheduling import ToolExecution, pause
from workflows.faults import retries
from workflows.faults.decision import Ask, Decision, Escalate, NewPlan, Reconcile, Remaining, UseFallback, Wait, decide
from workflows.faults.fault import Applied, Code, Fault, cause_of
from workflows.json_values import canonical, digest
from workflows.limits.spending import Limit
from workflows.people.approval import Approval, added_digest, approval_code
from workflows.people.requests import (
    MAX_OTHERS,
    MAX_SHOWN,
    REPEATED,
    Choice,
    HumanAnswer,
    HumanRequest,
    ProposedCall,
    RequestKind,
    shown_args,
)
from workflows.people.sources import sources_of
from workflows.people.updates import People
from workflows.planning import trust
from workflows.plans.catalogue import ALWAYS, Catalogue, Effect, ToolSpec
from workflows.plans.graph import ready_steps
from workflows.plans.guards import WAITED
from workflows.plans.proposal import Step, StepReturn
from workflows.plans.references import Unresolved, resolve
from workflows.web_ui import timer_name

MAX_ARGS = 512 * 1024
"""The most bytes of a step's arguments with results in place of references; the server accepts 2 MB."""
MAX_SENT = 2 * 1024 * 1024
"""The most bytes of the arguments of all steps that start together; the server accepts 4 MB in one request."""


APPROVAL_CHOICES = (Choice.APPROVE, Choice.REJECT, Choice.EDIT, Choice.ABORT)
SEVERAL_CHOICES = (Choice.APPROVE, Choice.APPROVE_ALL, *APPROVAL_CHOICES[1:])
MAX_REASON = 2_000
"""The most characters of the fault that tells the planner why a person rejected a call."""
FAULT_CHOICES = (Choice.RETRY, Choice.REPLAN, Choice.PROVIDE, Choice.SKIP, Choice.ABORT)


class Execution:
    """Runs the steps of the current plan, and records in `progress` the state and the result of each step."""

    def __init__(
        self, progress: Progress, catalogue: Catalogue, changed: Callable[[], None], people: People | None = None
    ) -> None:
        """`changed` is called whenever the details of the task have changed; `people` is None if nobody is asked."""
        self._progress = progress
        self._catalogue = catalogue
        self._changed = changed
        self._people = people
        self._draining = False
        self._shown = set[str]()
        """The ids of the steps whose calls an open request about another step shows, too."""
        self._unapproved = dict[str, Fault]()
        """By step id, the fault `needs_approval` of each step whose call was rejected, and is not approved yet."""
        self.unanswered: HumanRequest | None = None
        """The request because of which the task ends, since nobody answered it."""
        self.reached_limit: Limit | None = None
        """The limit of the budget that was reached, so that a step could not start; None if no limit was reached."""

    async def run(self) -> None:
        """Run the steps of the plan; after a fault no further step starts, and the running steps finish.

        Raises:
            CancelledError: the task was cancelled, and every step that ran has ended.
        """
        running: list[asyncio.Task[None]] = []
        try:
            while True:
                started = [(record, self._start(record)) for record in self._ready(len(running))]
                running += [asyncio.create_task(self._run_step(record, fault)) for record, fault in started]
                self._changed()
                if not running:
                    return
                done, running = await workflow.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for step in done:
                    # A step raises only because of a bug in this code, which must fail the workflow task.
                    step.result()
        except asyncio.CancelledError:
            self._draining = True
            for task in running:
                task.cancel()
            if running:  # an activity may still be applying its effect when its cancel is requested
                await workflow.wait(running)
            raise

    def _ready(self, running: int) -> list[StepRecord]:
        if self._draining:
            return []
        pending = {record.step.id: record for record in self._progress.with_status(StepStatus.PENDING)}
        results, records, sent = self._progress.results, list[StepRecord](), 0
        steps = ready_steps([record.step for record in pending.values()], results)
        for step in steps[: retries.MAX_PARALLEL - running]:
            sent += _bytes_of_args(step, results)
            if records and sent > MAX_SENT:  # a single step always fits: `_arguments` limits its arguments
                break  # the others start when one of these has ended
            records.append(pending[step.id])
        return records

    async def _run_step(self, record: StepRecord, fault: Fault | None) -> None:
        try:
            await self._attempt_until_ended(record, fault)
        except asyncio.CancelledError:
            self._end(record, StepStatus.CANCELLED)

    def _write(self, record: StepRecord, entry: type[JournalEntry], **fields: Any) -> None:
        self._progress.write(entry(step=record.step.id, proof=record.step.id, **fields))

    def _end(self, record: StepRecord, status: StepStatus) -> None:
        self._write(record, StepEnded, status=status)

    async def _attempt_until_ended(self, record: StepRecord, unready: Fault | None) -> None:
        fault, finding = unready or await self._attempt(record), None
        while fault is not None:
            if finding is None:
                fault = with_earlier_outcome(record, self._spec(record).effect, self._progress.faults, fault)
            decision = decide(fault, self._spec(record), self._remaining(record, finding))
            if record.undoes is not None and isinstance(decision, NewPlan):
                decision = Escalate()  # a rollback has no planner
            people = self._people_for(record)
            if isinstance(decision, Escalate) and people is not None:
                self._note(record, fault, Ask(), finding)
                ask = self._ask_approval if fault.code is Code.NEEDS_APPROVAL else self._ask
                fault, finding = await ask(people, record, fault), None
                continue
            self._note(record, fault, decision, finding)
            match decision:
                case Reconcile():
                    finding = await reconcile(self._progress, self._catalogue, record, fault, self._changed)
                    fault = self._after_finding(record, fault, finding)
                    continue
                case Wait():
                    await self._wait(record, fault, decision)
                case UseFallback():
                    pass  # the entry has changed the kind
                case NewPlan() | Escalate():
                    self._draining = True
                    self._end(record, StepStatus.FAILED)
                    return
                case _:
                    assert_never(decision)
            fault, finding = self._check_repeat(record) or await self._attempt(record), None

    def _people_for(self, record: StepRecord) -> People | None:
        """The people to ask about a step; None after a cancel, in a rollback, or if the task asks nobody."""
        if is_cancelled():  # a call that fails hides the cancel
            return None
        return self._people if self._people and self._people.are_asked and record.undoes is None else None

    async def _ask(self, people: People, record: StepRecord, fault: Fault) -> Fault | None:
        """Ask a person about a step that failed with `fault`; return the fault of the attempt that follows, if any."""
        reason, again = fault.reason, list[Fault | None]()
        # If the effect may have been applied, only a person who has looked at this very call may let it be repeated.
        cause = cause_of(record.kind, fault.code) if fault.applied is Applied.NONE else ""

        async def repeat() -> bool:
            """Repeat the call, since a deploy may have brought the tool; return False if no worker has the tool yet."""
            again[:] = [await self._attempt(record)]
            return again[0] is None or again[0].code is not Code.MISSING_TOOL

        is_repeated = fault.code is Code.MISSING_TOOL
        while True:
            request = await people.ask(
                RequestKind.FAULT,
                fault.code.value,
                reason,
                FAULT_CHOICES,
                record,
                cause=cause,
                words=fault.words,
                repeat=repeat if is_repeated else None,
            )
            answer = request.answer
            if request.closed == REPEATED and again[0] is None:
                return None
            self._write(record, Resumed)
            if request.closed == REPEATED:
                return again[0]
            if answer is None or answer.choice is not Choice.PROVIDE:
                break
            if (refused := await self._provide(record, request)) is None:
                return None
            reason = f"{fault.reason} The result that was provided is not accepted: {refused.reason}"
        match answer.choice if answer else None:
            case Choice.RETRY:
                return await self._attempt(record)
            case Choice.SKIP:
                self._end(record, StepStatus.SKIPPED)
            case Choice.REPLAN:
                self._write(record, Decided, decision="replan")
                self._draining = True
                self._end(record, StepStatus.FAILED)
            case _:
                self._give_up(people, record, request)
        return None

    async def _ask_approval(self, people: People, record: StepRecord, fault: Fault) -> Fault | None:
        """Ask a person to approve a call that was rejected with `fault`, because it needs an approval.

        Returns the fault of the approved call, if any, or the fault that stands for a rejection by the person.
        """
        reason = fault.reason
        if await self._waited_for_another(record, fault):
            return None if record.status is StepStatus.SKIPPED else await self._attempt(record)
        while True:
            others = self._others_to_approve(record)
            ids = {other.step.id for other, _ in others}
            self._shown |= ids
            try:
                request = await people.ask(
                    RequestKind.APPROVAL,
                    fault.code.value,
                    reason,
                    SEVERAL_CHOICES if others else APPROVAL_CHOICES,
                    record,
                    call=self._proposed_call(record, record.args or {}, fault.defaults),
                    others=tuple(call for _, call in others),
                )
            finally:
                self._shown -= ids
            answer = request.answer
            self._write(record, Resumed)
            match answer.choice if answer else None:
                case Choice.APPROVE | Choice.APPROVE_ALL:
                    for (other, call), code in zip(others, request.given_others, strict=False):
                        shown, added = digest(call.kind, call.args), added_digest(call.defaults)
                        approval = Approval(code=code, shown=shown, allowed=shown, added=added)
                        self._write(other, Approved, approval=approval)
                    shown, added = digest(record.kind, record.args), added_digest(fault.defaults)
                    approval = Approval(code=request.given_code, shown=shown, allowed=shown, added=added)
                    self._write(record, Approved, approval=approval)
                    return await self._attempt(record)
                case Choice.EDIT:
                    if (refused := await self._edit(record, request, fault.defaults)) is None:
                        return await self._attempt(record)
                    reason = f"{fault.reason} The edited arguments are not accepted: {refused.reason}"
                case Choice.REJECT:
                    return self._fault_without_call(record, Code.REJECTED, _rejection_reason(record, answer))
                case _:
                    self._give_up(people, record, request)
                    return None

    async def _waited_for_another(self, record: StepRecord, fault: Fault) -> bool:
        """Wait while a request about another step shows the call of this one, too.

        Returns whether that request decided about this step: its call was approved, or it is skipped as the plan ends.
        """
        self._unapproved[record.step.id], is_shown = fault, record.step.id in self._shown
        if is_shown:
            self._write(record, Waited)
        while record.step.id in self._shown:  # the next step that asks may show it again
            await workflow.wait_condition(lambda: record.step.id not in self._shown)
        self._unapproved.pop(record.step.id, None)
        if not is_shown or (record.approval is None and not self._draining):
            return False
        if record.approval is None:
            self._end(record, StepStatus.SKIPPED)
        else:
            self._write(record, Resumed)
        return True

    def _proposed_call(
        self, record: StepRecord, args: dict[str, JsonValue], defaults: Mapping[str, JsonValue], **more: str
    ) -> ProposedCall:
        spec, run = self._spec(record), workflow.info().run_id
        sources = sources_of(self._progress, record, args)
        return ProposedCall(
            kind=spec.kind,
            effect=spec.effect.value,
            undo=spec.undo.kind if spec.undo else None,
            args=shown_args(args),
            code=approval_code(run, self._key(record), digest(record.kind, args)),
            says=spec.says,
            defaults=dict(defaults),
            origins={name: source.words for name, source in sources.items()},
            untrusted=tuple(name for name, source in sources.items() if source.is_untrusted),
            **more,
        )

    def _others_to_approve(self, record: StepRecord) -> list[tuple[StepRecord, ProposedCall]]:
        """Further steps of the plan that need an approval, too, with their calls: as many as can be shown whole."""
        found, room = list[tuple[StepRecord, ProposedCall]](), MAX_SHOWN
        for other in self._progress.records:
            if other is record or other.revision != record.revision or not self._can_be_shown(other):
                continue
            with suppress(Unresolved):
                args = resolve(other.step.args, self._progress.results)
                refused = self._unapproved.get(other.step.id)
                defaults = refused.defaults if refused else {}
                size = len(canonical(args)) + (len(canonical(defaults)) if defaults else 0)
                if isinstance(args, dict) and size <= room and len(found) < MAX_OTHERS:
                    reason = self._progress.contract.outside.get(other.step.id, "")
                    found.append((other, self._proposed_call(other, args, defaults, step=other.step.id, reason=reason)))
                    room -= size
        return found

    def _can_be_shown(self, record: StepRecord) -> bool:
        """Whether a step was not called yet, is in no request, and needs an approval whatever its arguments are."""
        is_running = record.status is StepStatus.RUNNING and not record.attempts
        is_uncalled = record.status is StepStatus.PENDING or is_running or record.step.id in self._unapproved
        if not is_uncalled or record.approval is not None or record.step.id in self._shown:
            return False
        spec, outside = self._spec(record), self._progress.contract.outside
        is_meant = spec.needs_approval(self._progress.task.approve)
        return is_meant or spec.approve == ALWAYS or record.step.id in outside

    async def _edit(self, record: StepRecord, request: HumanRequest, defaults: Mapping[str, JsonValue]) -> Fault | None:
        """Change the arguments as a person edited them; if the tool rejects them, change nothing and return the fault.

        `defaults` are the arguments that the tool adds, as the person was shown them. The tool checks the arguments in
        a call that asks for an approval and has none, so it applies no effect.
        """
        planned, changes = record.args, request.given_args
        args = {**(planned or {}), **changes}
        fault = await self._check(record, args, approve="all", approval=None)
        is_accepted = fault is None or fault.code is Code.NEEDS_APPROVAL
        self._progress.write(Checked(request=request.id, refused="" if is_accepted or not fault else fault.reason))
        if not is_accepted:
            return fault
        added = added_digest({name: value for name, value in defaults.items() if name not in changes})
        shown, allowed = digest(record.kind, planned), digest(record.kind, args)
        self._write(record, Edited, args=args, changes=changes)
        approval = Approval(code=request.given_code, shown=shown, allowed=allowed, added=added)
        self._write(record, Approved, approval=approval)
        return None

    def _give_up(self, people: People, record: StepRecord, request: HumanRequest) -> None:
        """Mark the step as failed, and start no further step: its request was answered with `abort`, or not at all."""
        self.unanswered = None if request.answer or people.abort else request
        self._write(record, Decided, decision="escalate")
        self._draining = True
        self._end(record, StepStatus.FAILED)

    async def _provide(self, record: StepRecord, request: HumanRequest) -> Fault | None:
        """Complete a step with the result that a person provides; return the fault if the result is not accepted."""
        fault = await self._check(record, record.args, provided=Provided(result=request.result))
        self._progress.write(Checked(request=request.id, refused=fault.reason if fault else ""))
        return fault

    async def _check(self, record: StepRecord, args: dict[str, JsonValue] | None, **header_fields: Any) -> Fault | None:
        """Have a worker check what a person gave, in attempts that do not call the tool; return the last fault."""
        while True:
            fault = await self._attempt(record, args=args, is_check=True, **header_fields)
            if fault is None:
                return None
            fault = fault.model_copy(update={"applied": Applied.NONE})
            decision = decide(fault, self._spec(record), self._remaining(record, None))
            if not isinstance(decision, Wait):
                return fault
            self._note(record, fault, decision, None, is_check=True)
            await self._wait(record, fault, decision)

    def _after_finding(self, record: StepRecord, fault: Fault, finding: FoundOutcome) -> Fault | None:
        """The fault with what reconciliation found; if the effect was applied, complete the step and return None."""
        match finding.verdict:
            case CallOutcome.APPLIED:
                known = fault.model_copy(update={"applied": Applied.APPLIED})
                self._note(record, known, Reconcile(), finding)
                self._complete(record, StepReturn(result=finding.result, replayed=True))
                return None
            case CallOutcome.NOT_APPLIED:
                return fault.model_copy(update={"applied": Applied.NONE})
            case CallOutcome.CANNOT_TELL:
                return fault
            case unreachable:
                assert_never(unreachable)

    def _start(self, record: StepRecord) -> Fault | None:
        """Start a step, with results of others in its arguments; return a fault if it cannot or may not be called."""
        is_untrusted, fault, outside, args = self._spec(record).untrusted, None, "", record.args
        if record.undoes is None:  # else its arguments were made before, and contain no references
            made = self._arguments(record)
            args, fault = (None, made) if isinstance(made, Fault) else (made, None)
        known = self._progress.contract.outside.get(record.step.id, "")
        if args is not None and record.undoes is None and not known:
            outside = trust.address_of_content(self._progress, record.step, args)
        if outside and self._progress.task.on_escalation != "wait":  # as a proposal would be rejected
            reason = f"{outside}: {trust.OUTSIDE}."[:MAX_REASON]
            outside, fault = "", self._fault_without_call(record, Code.INVALID_INPUT, reason)
        self._write(record, Started, is_untrusted=is_untrusted, args=args, outside=outside)
        if fault is None and record.undoes is None and (known or outside) and record.approval is None:
            return self._fault_without_call(record, Code.NEEDS_APPROVAL, f"{known or outside}."[:MAX_REASON])
        return fault or (self._check_repeat(record) if record.undoes is None else None)

    def _arguments(self, record: StepRecord) -> dict[str, JsonValue] | Fault:
        """The arguments of a step with results in place of references; a fault if they cannot be made."""
        try:
            args = resolve(record.step.args, self._progress.results)
        except Unresolved as missing:
            reason = f"The step's arguments cannot be made: {missing}."
            return self._fault_without_call(record, Code.INVALID_INPUT, reason)
        size = len(canonical(args).encode())  # references may have made them large
        if size > MAX_ARGS:
            reason = f"The step's arguments would have {size} bytes, more than {MAX_ARGS}: refer to parts of results."
            return self._fault_without_call(record, Code.INVALID_INPUT, reason)
        if not isinstance(args, dict):
            reason = "The step's arguments stand for a single value: name each argument, and refer to results there."
            return self._fault_without_call(record, Code.INVALID_INPUT, reason)
        return args

    def _check_repeat(self, record: StepRecord) -> Fault | None:
        if not is_repeat(self._progress, record.kind, record.args or {}):
            return None
        reason = "The same call failed before and nothing has changed since: change the call."
        return self._fault_without_call(record, Code.REPEATED_CALL, reason)

    def _fault_without_call(self, record: StepRecord, code: Code, reason: str) -> Fault:
        return Fault.of(code, reason, source=record.kind, attempt=0)

    async def _attempt(
        self, record: StepRecord, args: dict[str, JsonValue] | None = None, *, is_check: bool = False, **header: Any
    ) -> Fault | None:
        """Execute the step's activity once; return its fault; None if the step is completed or no attempt is left.

        `args` take the place of the step's arguments. `is_check`: the tool is not called; see `_check`.
        """
        raise_if_cancelled()
        call = self._call(record, record.args if args is None else args, header, is_check=is_check)
        granted = await call.reserve_after_siblings()
        while not granted and (people := self._people_for(record)):
            self._write(record, Waited)
            if not await people.ask_for_budget(call.missing):
                break
            self._write(record, Resumed)
            granted = await call.reserve_after_siblings()
        if not granted:
            self.reached_limit, self._draining = call.missing, True
            self._end(record, StepStatus.FAILED if record.attempts else StepStatus.SKIPPED)
            return None
        reply = await call.run(granted)
        self._note_retries(record, reply.earlier)
        if isinstance(reply.result, Fault):
            return reply.result
        self._complete(record, reply.result, is_in_history=True)
        return None

    def _call(
        self, record: StepRecord, args: dict[str, JsonValue] | None, header: Mapping[str, Any], *, is_check: bool
    ) -> ToolExecution:
        progress, step = self._progress, record.step
        whose = f"turn {progress.turn}" if progress.task.strategy == "react" else f"plan {record.revision}"
        return ToolExecution(
            progress,
            self._catalogue,
            self._spec(record),
            args,
            id=step.id,
            title=f"{whose}: {record.label}" + (f" (instead of {step.kind})" if record.is_fallback else ""),
            header=self._header(record).model_copy(update=header),
            step=step.id,
            is_check=is_check,
            used=record.used,
            repeated=record.repeated,
            retried=record.retried,
        )

    def _header(self, record: StepRecord) -> CallHeader:
        progress, spec = self._progress, self._spec(record)
        has_effect = spec.effect is not Effect.READ
        approve = "all" if record.step.id in progress.contract.outside else progress.task.approve
        return CallHeader(
            key=self._key(record),
            revision=record.revision,
            digest=spec.digest,
            effect=spec.effect,
            documents=progress.task.documents,
            store=progress.store if has_effect else None,  # any worker may do a read
            fencing_token=record.fencing_token if has_effect else 0,
            is_reset=progress.was_reset or made_by_reset(),
            undoes=self._undoes(record),
            approve=approve,
            calls=progress.task.calls,
            approval=record.approval,
            started=progress.place_in_queue,
            for_any_worker=record.waited > 0,
            task=progress.task_id if progress.origin is not None else None,
            has_effect_key=progress.task.effect_key is not None,
        )

    def _undoes(self, record: StepRecord) -> Undoes | None:
        if record.undoes is None:
            return None
        undone = next(other for other in self._progress.records if other.step.id == record.undoes)
        return Undoes(key=self._key(undone), step=record.undoes, kind=undone.kind)

    def _key(self, record: StepRecord) -> str:
        return ids.idempotency_key(record.call_id, self._progress.key_prefix)

    def _spec(self, record: StepRecord) -> ToolSpec:
        return self._catalogue.specs[record.kind]

    def _remaining(self, record: StepRecord, finding: FoundOutcome | None) -> Remaining:
        return Remaining(
            attempts=self._progress.budget.attempts(self._spec(record), record.used),
            waits=record.waits,
            losses=record.losses,
            waited=record.waited,
            patience=self._catalogue.patience,
            replans=self._progress.replans < self._progress.budget.limits.replans,
            deadline=retries.seconds_left(record.slept),
            down=tuple(self._progress.down),
            reconcile=finding is None,
        )

    async def _wait(self, record: StepRecord, fault: Fault, wait: Wait) -> None:
        raise_if_cancelled()
        self._write(record, Waited, code=fault.code, seconds=wait.seconds)
        slept = 0.0
        if wait.seconds > 0:  # after a worker's shutdown another one can take the call at once
            self._changed()
            timer = timer_name(ids.retry_timer(record.step.id, fault.code), self._progress.number)
            slept = await pause(self._progress.turns, wait, self._key(record), timer)
        self._write(record, Resumed, slept=slept)
        self._changed()

    def _complete(self, record: StepRecord, back: StepReturn, *, is_in_history: bool = False) -> None:
        self._write(
            record,
            StepEnded,
            status=StepStatus.COMPLETED,
            result=back.result,
            replayed=back.replayed,
            in_history=is_in_history,
            has_waited=(back.lasted > 0 and not back.model_calls) or record.slept >= WAITED,
            is_by_model=back.model_calls > 0,
        )

    def _note(
        self,
        record: StepRecord,
        fault: Fault,
        decision: Decision | Ask,
        finding: FoundOutcome | None,
        *,
        is_check: bool = False,
    ) -> None:
        """Record a fault and the decision that follows it; with a `finding`, in place of the earlier record of it."""
        verdict = finding.verdict.value if finding else None
        explained = explain_effect(fault, decision, record, self._key(record), finding)
        about = record.step.id, record.revision, decision.action
        self._write(
            record,
            Reconciled if finding else Attempted,
            fault=FaultRecord.of_call(explained, *about, at=workflow.now(), reconciled=verdict),
            is_check=is_check,
            seconds=decision.seconds if isinstance(decision, Wait) else None,
            marks_down=isinstance(decision, NewPlan) and decision.mark_down,
            **(self._fallback(decision.kind) if isinstance(decision, UseFallback) else {}),
        )

    def _fallback(self, kind: str) -> dict[str, Any]:
        spec = self._catalogue.specs[kind]
        return {"fallback": kind, "effect": spec.effect, "is_untrusted": spec.untrusted}

    def _note_retries(self, record: StepRecord, faults: Sequence[Fault]) -> None:
        about = record.step.id, record.revision, "retry"
        for fault in faults:
            self._write(record, Attempted, fault=FaultRecord.of_call(fault, *about, at=workflow.now()))


def _rejection_reason(record: StepRecord, answer: HumanAnswer | None) -> str:
    why = f": {answer.text}" if answer and answer.text else ""
    return f"A person rejected the call of {record.kind}{why}"[:MAX_REASON].rstrip(".") + "."


def _bytes_of_args(step: Step, results: Mapping[str, JsonValue]) -> int:
    with suppress(Unresolved):
        return len(canonical(resolve(step.args, results)).encode())
    return 0
