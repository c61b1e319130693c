"""Asking a worker what it can do, and the planner for a proposal.

Runs before the first plan, and before each later plan or turn.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import JsonValue
from temporalio import workflow

from workflows import ids
from workflows.account import metrics
from workflows.account.entries_of_steps import Resumed, Settled, Waited
from workflows.account.outcome import TaskEnded
from workflows.account.progress import Progress
from workflows.account.records import PlannerWait
from workflows.account.task import TaskStatus
from workflows.calls.running import is_cancelled
from workflows.calls.scheduling import InternalActivityFailed, OwnAttempts, OwnCall
from workflows.faults import retries
from workflows.faults.decision import Decision, Remaining, Wait, outlast
from workflows.faults.fault import Fault
from workflows.limits import spending
from workflows.planning.situation import Situation
from workflows.plans.catalogue import FORM, Catalogue, OtherForm, ToolSpec
from workflows.plans.own_activities import CATALOGUE, COMPACT
from workflows.plans.proposal import Proposed
from workflows.web_ui import details, timer_name

MAX_SITUATION = 1024 * 1024
"""The most bytes of a Situation; the server would terminate a workflow that schedules an activity with 2 MB."""


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
        own = OwnCall(progress, CATALOGUE, ids.CATALOGUE, revision=0)
        catalogue = await OwnAttempts(own, requirements, Catalogue, title).run({**requirements, **first_turn})
    except InternalActivityFailed as failed:
        raise TaskEnded(TaskStatus.ESCALATED, f"The catalogue: {failed.fault.reason}", failed.fault.code) from None
    if catalogue.form != FORM:
        raise OtherForm(catalogue.form)
    return catalogue


@dataclass(kw_only=True)
class PlannerAttempts(OwnAttempts[Proposed]):
    """The attempts of one request to the planner; while it waits, `progress.waiting` says for what."""

    progress: Progress
    catalogue: Catalogue
    situation: Situation
    allowance: spending.Allowance
    """What the budget has reserved."""
    failed: list[spending.FailedExecution] = field(default_factory=list)
    """The failed executions of the planner's activity that were followed by a wait."""
    was_cut_off: bool = False
    """Whether the task was cancelled during a wait, when no request was under way."""
    ended: tuple[Proposed | Fault, Sequence[Fault]] | None = None
    """The result or fault of the execution during which the task was cancelled, and its earlier faults; None if that
    execution reported nothing."""
    lost: int = 0
    """How many replies the newest execution has lost, or got and could not use, but paid for."""

    @property
    def seconds_left(self) -> float:
        return retries.seconds_left(self.waited, is_draft=self.progress.is_draft)

    @property
    def outlasts(self) -> bool:
        """Whether the request waits for the end of an outage when its attempts are used up."""
        return not (self.situation.is_last or self.progress.is_draft)

    def note_end(self, result: Proposed | Fault) -> None:
        if is_cancelled():
            self.ended = result, self.earlier

    def decide(self, fault: Fault) -> Decision:
        decision = super().decide(fault)
        if isinstance(decision, Wait) and self.lost and isinstance(self.payload, dict):
            self.payload = after_lost_replies(self.payload, fault, self.lost, self.earlier)
        return decision

    def follows(self, fault: Fault, remaining: Remaining) -> Decision:
        decision, self.lost = super().follows(fault, remaining), int(fault.uncounted)
        if self.outlasts and not isinstance(decision, Wait) and (wait := outlast(fault, remaining)):
            decision, self.lost = wait, len(spending.lost_replies(fault, self.earlier))
        self.lost += spending.paid_replies(fault, self.earlier)
        return decision

    async def sleep(self, fault: Fault, seconds: float, timer: str) -> None:
        self.failed.append((fault, self.earlier))
        progress, until = self.progress, workflow.now() + timedelta(seconds=seconds)
        wait = PlannerWait(until=until, code=fault.code, reason=fault.reason) if seconds else None
        progress.write(Waited(proof=self.own.id, code=fault.code, seconds=seconds, planner=wait))
        workflow.set_current_details(details(progress))
        try:
            await workflow.sleep(seconds, summary=timer_name(timer, progress.number))
        except asyncio.CancelledError:
            self.was_cut_off = True
            raise
        finally:
            progress.write(Resumed(proof=self.own.id, slept=seconds))
        workflow.set_current_details(details(progress))

    def settle(self, used: Proposed | Fault, earlier: Sequence[Fault]) -> None:
        """Add what the request used, in its final execution and those before, to what is spent."""
        about = self.progress, self.catalogue, self.allowance
        spent, spec = spending.settle_turn(*about, used, self.failed, earlier), self.own.spec
        if spent.model_calls or spent.tokens:
            tokens, usd = (used.tokens, used.usd or 0.0) if isinstance(used, Proposed) else (0, 0.0)
            purpose = metrics.purpose_of(spec.kind, is_correction=bool(self.situation.rejected))
            paid = {"used": spent, "purpose": purpose, "tokens": tokens, "usd": usd}
            self.progress.write(Settled.model_validate({"proof": self.own.id, "source": spec.kind, **paid}))


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
    id = ids.of_request(situation.turn, is_compaction=spec is COMPACT)
    own = OwnCall(progress, spec, id, progress.revision + 1)
    while True:
        allowance, last_output = _reserve_turn(progress, catalogue, situation, new_bytes, own)
        if allowance is None:
            parameters, is_last = (progress, catalogue, new_bytes), situation.is_last
            limit = spending.turn_limit_reached(*parameters, is_last=is_last, last_output=last_output)
            reason = spending.turn_limit_message(*parameters, limit, is_last=is_last, last_output=last_output)
            raise TaskEnded(TaskStatus.OVER_BUDGET, reason, limit)
        payload: JsonValue = {**request, **allowance.planner_limits}
        attempts = PlannerAttempts(
            own,
            payload,
            Proposed,
            title,
            catalogue.patience,
            progress=progress,
            catalogue=catalogue,
            situation=situation,
            allowance=allowance,
        )
        earlier: Sequence[Fault] = ()
        is_local = catalogue.plans_locally and not (progress.replanning or situation.rejected)
        try:
            used: Proposed | Fault = await attempts.run(payload if is_local else None)
        except asyncio.CancelledError:
            cancelled = spending.cancelled_fault(spec, attempt=0 if attempts.was_cut_off else 1)
            attempts.settle(*(attempts.ended or (cancelled, ())))
            raise
        except InternalActivityFailed as failed:
            used, earlier = failed.fault, failed.earlier
        attempts.settle(used, earlier)
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
    is_enough = own.spec is not COMPACT and (is_ending or not progress.is_opened)
    last_outputs = (spending.MIN_LAST_OUTPUT, 0) if is_enough else (spending.MIN_LAST_OUTPUT,)
    for last_output in last_outputs:
        shorter = spending.reserve_turn(progress, catalogue, new_bytes, last_output=last_output)
        if shorter:
            return shorter, last_output
    return None, last_outputs[-1]


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
