"""Running a plan: a step starts when all steps that it needs are completed; after a fault no further step starts.

Runs after a plan was accepted, until none of its steps runs any more; in a rollback, once for each effect.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import assert_never

from pydantic import JsonValue
from temporalio import workflow

from workflows.account.entries_of_people import Approved, Checked, Edited
from workflows.account.entries_of_steps import Decided, Resumed, Started, Waited
from workflows.account.progress import Progress
from workflows.account.records import StepRecord, StepStatus
from workflows.calls.attempts import until_decided
from workflows.calls.header import Provided
from workflows.calls.reconciling import CallOutcome, FoundOutcome, reconcile
from workflows.calls.steps import StepAttempts
from workflows.faults.decision import Ask, Reconcile, UseFallback
from workflows.faults.fault import Applied, Code, Fault, cause_of
from workflows.json_values import canonical, digest
from workflows.limits.spending import Limit
from workflows.people.approval import ApprovedCall, added_digest, approval_code
from workflows.people.approvers import Approvers
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
from workflows.plans.catalogue import ALWAYS, Catalogue
from workflows.plans.graph import ready_steps
from workflows.plans.proposal import Step, StepReturn
from workflows.plans.references import Unresolved, resolve

MAX_PARALLEL = 20
"""How many steps of one task may run at the same time."""
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
                started = [(step, self._start(step)) for step in map(self._step, self._ready(len(running)))]
                running += [asyncio.create_task(self._run_step(step, fault)) for step, fault in started]
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
        for step in steps[: MAX_PARALLEL - running]:
            sent += _bytes_of_args(step, results)
            if records and sent > MAX_SENT:  # a single step always fits: `_arguments` limits its arguments
                break  # the others start when one of these has ended
            records.append(pending[step.id])
        return records

    async def _run_step(self, step: StepAttempts, fault: Fault | None) -> None:
        try:
            await self._attempt_until_ended(step, fault)
        except asyncio.CancelledError:
            step.end(StepStatus.CANCELLED)

    def _step(self, record: StepRecord) -> StepAttempts:
        return StepAttempts(self._progress, self._catalogue, record, self._changed, self._people, self._stop)

    def _stop(self, limit: Limit) -> None:
        self.reached_limit, self._draining = limit, True

    async def _attempt_until_ended(self, step: StepAttempts, unready: Fault | None) -> None:
        fault, decision = await until_decided(step, unready or await step.attempt())
        while fault is not None:
            match decision:
                case Ask() if step.people:
                    ask = self._ask_approval if fault.code is Code.NEEDS_APPROVAL else self._ask
                    fault = await ask(step.people, step, fault)
                case Reconcile():
                    step.finding = await reconcile(self._progress, self._catalogue, step.record, fault, self._changed)
                    fault = self._after_finding(step, fault, step.finding)
                case UseFallback():
                    fault = await step.make()  # the entry has changed the kind
                case _:
                    self._draining = True
                    return step.end(StepStatus.FAILED)
            fault, decision = await until_decided(step, fault)
        return None

    async def _ask(self, people: People, step: StepAttempts, fault: Fault) -> Fault | None:
        """Ask a person about a step that failed with `fault`; return the fault of the attempt that follows, if any."""
        record, reason, again = step.record, fault.reason, list[Fault | None]()
        # If the effect may have been applied, only a person who has looked at this very call may let it be repeated.
        cause = cause_of(record.kind, fault.code) if fault.applied is Applied.NONE else ""

        async def repeat() -> bool:
            """Repeat the call, since a deploy may have brought the tool; return False if no worker has the tool yet."""
            again[:] = [await step.attempt()]
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
                approvers=step.spec.approvers,
                repeat=repeat if is_repeated else None,
            )
            answer = request.answer
            if request.closed == REPEATED and again[0] is None:
                return None
            step.write(Resumed)
            if request.closed == REPEATED:
                return again[0]
            if answer is None or answer.choice is not Choice.PROVIDE:
                break
            if (refused := await self._provide(step, request)) is None:
                return None
            reason = f"{fault.reason} The result that was provided is not accepted: {refused.reason}"
        match answer.choice if answer else None:
            case Choice.RETRY:
                return await step.attempt()
            case Choice.SKIP:
                step.end(StepStatus.SKIPPED)
            case Choice.REPLAN:
                step.write(Decided, decision="replan")
                self._draining = True
                step.end(StepStatus.FAILED)
            case _:
                self._give_up(people, step, request)
        return None

    async def _ask_approval(self, people: People, step: StepAttempts, fault: Fault) -> Fault | None:
        """Ask a person to approve a call that was rejected with `fault`, because it needs an approval.

        Returns the fault of the approved call, if any, or the fault that stands for a rejection by the person.
        """
        record, reason, rule = step.record, fault.reason, step.spec.approvers
        if await self._waited_for_another(step, fault):
            return None if record.status is StepStatus.SKIPPED else await step.attempt()
        while True:
            others = self._others_to_approve(record)
            ids = {other.record.step.id for other, _ in others}
            self._shown |= ids
            try:
                request = await people.ask(
                    RequestKind.APPROVAL,
                    fault.code.value,
                    reason,
                    SEVERAL_CHOICES if others else APPROVAL_CHOICES,
                    record,
                    call=self._proposed_call(step, record.args or {}, fault.defaults),
                    others=tuple(call for _, call in others),
                    approvers=rule,
                )
            finally:
                self._shown -= ids
            answer = request.answer
            step.write(Resumed)
            match answer.choice if answer else None:
                case Choice.APPROVE | Choice.APPROVE_ALL:
                    for (other, call), code in zip(others, request.given_others, strict=False):
                        stated = tuple(one for one in request.statements if code in one.calls)
                        if rule is None or rule.are_enough(stated, self._progress.task.starter):
                            other.approve(code, digest(call.kind, call.args), call.defaults, stated)
                    shown = digest(record.kind, record.args)
                    step.approve(request.given_code, shown, fault.defaults, request.statements)
                    return await step.attempt()
                case Choice.EDIT:
                    if (refused := await self._edit(step, request, fault.defaults)) is None:
                        return await step.attempt()
                    reason = f"{fault.reason} The edited arguments are not accepted: {refused.reason}"
                case Choice.REJECT:
                    return step.fault_without_call(Code.REJECTED, _rejection_reason(record, answer))
                case _:
                    self._give_up(people, step, request)
                    return None

    async def _waited_for_another(self, step: StepAttempts, fault: Fault) -> bool:
        """Wait while a request about another step shows the call of this one, too.

        Returns whether that request decided about this step: its call was approved, or it is skipped as the plan ends.
        """
        record = step.record
        self._unapproved[record.step.id], is_shown = fault, record.step.id in self._shown
        if is_shown:
            step.write(Waited)
        while record.step.id in self._shown:  # the next step that asks may show it again
            await workflow.wait_condition(lambda: record.step.id not in self._shown)
        self._unapproved.pop(record.step.id, None)
        if not is_shown or (record.approval is None and not self._draining):
            return False
        if record.approval is None:
            step.end(StepStatus.SKIPPED)
        else:
            step.write(Resumed)
        return True

    def _proposed_call(
        self, step: StepAttempts, args: dict[str, JsonValue], defaults: Mapping[str, JsonValue], /, **more: str
    ) -> ProposedCall:
        spec, run = step.spec, workflow.info().run_id
        sources = sources_of(self._progress, step.record, args)
        return ProposedCall(
            kind=spec.kind,
            effect=spec.effect.value,
            undo=spec.undo.kind if spec.undo else None,
            args=shown_args(args),
            code=approval_code(run, step.key, digest(step.record.kind, args)),
            says=spec.says,
            defaults=dict(defaults),
            origins={name: source.text for name, source in sources.items()},
            untrusted=tuple(name for name, source in sources.items() if source.is_untrusted),
            **more,
        )

    def _others_to_approve(self, record: StepRecord) -> list[tuple[StepAttempts, ProposedCall]]:
        """Further steps of the plan that need an approval, too, with their calls: as many as can be shown whole."""
        found, room = list[tuple[StepAttempts, ProposedCall]](), MAX_SHOWN
        rule = self._catalogue.specs[record.kind].approvers
        for other in self._progress.records:
            if other is record or other.revision != record.revision or not self._can_be_shown(other, rule):
                continue
            with suppress(Unresolved):
                args = resolve(other.step.args, self._progress.results)
                refused = self._unapproved.get(other.step.id)
                defaults = refused.defaults if refused else {}
                size = len(canonical(args)) + (len(canonical(defaults)) if defaults else 0)
                if isinstance(args, dict) and size <= room and len(found) < MAX_OTHERS:
                    reason = self._progress.contract.outside.get(other.step.id, "")
                    step, about = self._step(other), {"step": other.step.id, "reason": reason}
                    found.append((step, self._proposed_call(step, args, defaults, **about)))
                    room -= size
        return found

    def _can_be_shown(self, record: StepRecord, rule: Approvers | None) -> bool:
        """Whether a step was not called yet, is in no request, and needs an approval whatever its arguments are.

        `rule` says who must approve the other call of the request.
        """
        is_running = record.status is StepStatus.RUNNING and not record.attempts
        is_uncalled = record.status is StepStatus.PENDING or is_running or record.step.id in self._unapproved
        if not is_uncalled or record.approval is not None or record.step.id in self._shown:
            return False
        spec, outside = self._catalogue.specs[record.kind], self._progress.contract.outside
        if spec.approvers != rule:  # whoever answers for this call may not answer for that one
            return False
        is_meant = spec.needs_approval(self._progress.task.approve)
        return is_meant or spec.approve == ALWAYS or record.step.id in outside

    async def _edit(self, step: StepAttempts, request: HumanRequest, defaults: Mapping[str, JsonValue]) -> Fault | None:
        """Change the arguments as a person edited them; if the tool rejects them, change nothing and return the fault.

        `defaults` are the arguments that the tool adds, as the person was shown them. The tool checks the arguments in
        a call that asks for an approval and has none, so it applies no effect.
        """
        record, changes = step.record, request.given_args
        planned = record.args
        args = {**(planned or {}), **changes}
        edited = tuple(one for one in request.statements if one.choice == Choice.EDIT)
        stated = ApprovedCall(statements=edited) if step.spec.approvers else None
        fault = await step.check(args, approve="all", approval=stated)
        is_accepted = fault is None or fault.code is Code.NEEDS_APPROVAL
        self._progress.write(Checked(request=request.id, refused=fault.reason if fault and not is_accepted else ""))
        if not is_accepted:
            return fault
        added = added_digest({name: value for name, value in defaults.items() if name not in changes})
        shown, allowed = digest(record.kind, planned), digest(record.kind, args)
        step.write(Edited, args=args, changes=changes)
        if step.spec.approvers is not None:  # what was signed is about the call that was shown: this one is asked for
            return None
        approval = ApprovedCall(code=request.given_code, shown=shown, allowed=allowed, added=added)
        step.write(Approved, approval=approval)
        return None

    def _give_up(self, people: People, step: StepAttempts, request: HumanRequest) -> None:
        """Mark the step as failed, and start no further step: its request was answered with `abort`, or not at all."""
        self.unanswered = None if request.answer or people.abort else request
        step.write(Decided, decision="escalate")
        self._draining = True
        step.end(StepStatus.FAILED)

    async def _provide(self, step: StepAttempts, request: HumanRequest) -> Fault | None:
        """Complete a step with the result that a person provides; return the fault if the result is not accepted."""
        stated = ApprovedCall(statements=request.statements) if request.statements else step.record.approval
        fault = await step.check(step.record.args, provided=Provided(result=request.result), approval=stated)
        self._progress.write(Checked(request=request.id, refused=fault.reason if fault else ""))
        return fault

    def _after_finding(self, step: StepAttempts, fault: Fault, finding: FoundOutcome) -> Fault | None:
        """The fault with what reconciliation found; if the effect was applied, complete the step and return None."""
        match finding.verdict:
            case CallOutcome.APPLIED:
                known = fault.model_copy(update={"applied": Applied.APPLIED})
                step.note(known, Reconcile(), finding)
                step.complete(StepReturn(result=finding.result, replayed=True))
                return None
            case CallOutcome.NOT_APPLIED:
                return fault.model_copy(update={"applied": Applied.NONE})
            case CallOutcome.CANNOT_TELL:
                return fault
            case unreachable:
                assert_never(unreachable)

    def _start(self, step: StepAttempts) -> Fault | None:
        """Start a step, with results of others in its arguments; return a fault if it cannot or may not be called."""
        record = step.record
        is_untrusted, fault, outside, args = step.spec.untrusted, None, "", record.args
        if record.undoes is None:  # else its arguments were made before, and contain no references
            made = self._arguments(step)
            args, fault = (None, made) if isinstance(made, Fault) else (made, None)
        known = self._progress.contract.outside.get(record.step.id, "")
        if args is not None and record.undoes is None and not known:
            outside = trust.address_of_content(self._progress, record.step, args)
        if outside and self._progress.task.on_escalation != "wait":  # as a proposal would be rejected
            reason = f"{outside}: {trust.OUTSIDE}."[:MAX_REASON]
            outside, fault = "", step.fault_without_call(Code.INVALID_INPUT, reason)
        step.write(Started, is_untrusted=is_untrusted, args=args, outside=outside)
        if fault is None and record.undoes is None and (known or outside) and record.approval is None:
            return step.fault_without_call(Code.NEEDS_APPROVAL, f"{known or outside}."[:MAX_REASON])
        return fault or (step.repeated_call() if record.undoes is None else None)

    def _arguments(self, step: StepAttempts) -> dict[str, JsonValue] | Fault:
        """The arguments of a step with results in place of references; a fault if they cannot be made."""
        try:
            args = resolve(step.record.step.args, self._progress.results)
        except Unresolved as missing:
            reason = f"The step's arguments cannot be made: {missing}."
            return step.fault_without_call(Code.INVALID_INPUT, reason)
        size = len(canonical(args).encode())  # references may have made them large
        if size > MAX_ARGS:
            reason = f"The step's arguments would have {size} bytes, more than {MAX_ARGS}: refer to parts of results."
            return step.fault_without_call(Code.INVALID_INPUT, reason)
        if not isinstance(args, dict):
            reason = "The step's arguments stand for a single value: name each argument, and refer to results there."
            return step.fault_without_call(Code.INVALID_INPUT, reason)
        return args


def _rejection_reason(record: StepRecord, answer: HumanAnswer | None) -> str:
    why = f": {answer.text}" if answer and answer.text else ""
    return f"A person rejected the call of {record.kind}{why}"[:MAX_REASON].rstrip(".") + "."


def _bytes_of_args(step: Step, results: Mapping[str, JsonValue]) -> int:
    with suppress(Unresolved):
        return len(canonical(resolve(step.args, results)).encode())
    return 0
