"""The loop of a task: propose, check, execute, and again, until a proposal carries the answer.

Runs from the start of a task to its end, in each of its runs, and again whenever a worker replays the history.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from operator import not_
from typing import Annotated, Any, TypeVar, assert_never

from pydantic import BaseModel, Field, RootModel, model_validator
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from workflows import ids
from workflows.account import search_attributes
from workflows.account.journal import (
    EarlierKnown,
    Executed,
    JournalPage,
    MovedOn,
    PlanInForce,
    Replanned,
    TaskBegun,
    TaskClosed,
    Turned,
    UndoAsked,
    UndoEnded,
)
from workflows.account.outcome import REFUSED, Ending, Outcome, TaskEnded, ending_of_unasked_question, refusal
from workflows.account.progress import MAX_RECORDS, Progress, fits_continue_as_new, fold
from workflows.account.records import FaultRecord, Revision, StepRecord, UndoRecord
from workflows.account.task import UNREADABLE, Task, TaskStatus
from workflows.arguments import MalformedArgument, is_sealed, read_argument, read_signal, undecoded
from workflows.calls.asking import read_catalogue
from workflows.calls.execution import Execution
from workflows.calls.header import made_by_reset
from workflows.calls.observing import observe
from workflows.calls.running import raise_if_cancelled
from workflows.calls.scheduling import TakesAdmissions
from workflows.faults import retries
from workflows.faults.fault import Code
from workflows.limits.spending import limit_message
from workflows.people.approvers import MAX_COUNT
from workflows.people.notifications import Notifications
from workflows.people.requests import MAX_NAME, Choice, RequestKind
from workflows.people.statement import Statement
from workflows.people.updates import ABORTED, Answers, People, unanswered
from workflows.planning import trust
from workflows.planning.proposing import describe_opening, last_answer, propose
from workflows.plans.catalogue import FORM, Catalogue, OtherForm
from workflows.plans.contract import Contract
from workflows.plans.proposal import BY_HAND, Answer, GiveUp, NewSteps, Proposal, Question
from workflows.rollback import roll_back
from workflows.seal import NotSealed, Seal
from workflows.unfinished import Unfinished, said_now
from workflows.web_ui import details

T = TypeVar("T")

MAX_KEPT = 50
"""A Revision (an accepted plan) lists at most this many ids of completed steps: the ids of the newest ones."""
CONTINUE = "continue-as-new"
"""Prefix of a patch id; the number of a turn follows. The marker records in history that, in this turn, the run saw the
server's suggestion to continue as new. It does not mark a version of the code: never remove it."""
REQUEST_MEMO = "request"
"""The key of the memo field with the oldest open request to a person; missing if no request is open."""
OTHERS_MEMO = "other_requests"
"""The key of the memo field with the other open requests that have a cause; missing if there are none."""
OUTCOME_MEMO = "outcome"
"""The key of the memo field with the Outcome of a cancelled task, because a Canceled close has no details."""


class EarlierEffects(RootModel[list[StepRecord]]):
    """The input of the Signal with which a reset tells the new run which effects earlier runs applied."""


class Confirmed(BaseModel):
    """The input of the Signal with which `cancel --undo` tells what a person confirmed, as in `Progress`."""

    confirmed: dict[Annotated[str, Field(max_length=MAX_NAME)], Annotated[str, Field(max_length=MAX_NAME)]] = Field(
        max_length=MAX_RECORDS
    )
    vouched: tuple[Statement, ...] = Field(default=(), max_length=MAX_COUNT, exclude_if=not_)

    @model_validator(mode="before")
    @classmethod
    def _as_before(cls, value: Any) -> Any:
        """Read what earlier clients sent: the digests alone."""
        is_alone = isinstance(value, dict) and all(isinstance(digest, str) for digest in value.values())
        return {"confirmed": value} if is_alone else value


@workflow.defn(name="AgentWorkflow")
class AgentWorkflow(Answers, TakesAdmissions):
    """One task, from its text to its Outcome.

    A completed task returns its Outcome. A cancelled task closes as Canceled, with the Outcome in the memo. Every other
    task fails with `ApplicationError(type=<status>, details=[Outcome])`.
    """

    @workflow.init
    @undecoded
    def __init__(self, *arguments: Task | Progress | RawValue) -> None:
        self._seal = Seal("task", arguments)
        self._refused: Ending | None = None
        read: Task | Progress = UNREADABLE
        try:
            if self._seal.refusal:
                self._refused = refusal(self._seal.refusal)
            else:
                read = read_argument(arguments, Task, Progress)
            if isinstance(read, Progress) and read.form != FORM:
                raise OtherForm(read.form)
        except (MalformedArgument, OtherForm) as malformed:
            # Another worker wrote the input of a later run: one that cannot read it leaves it to a newer one.
            if workflow.info().continued_run_id:
                raise
            reason = f"The task cannot be read: {malformed}".rstrip(".")
            read, self._refused = UNREADABLE, refusal(f"{reason}.")
        self._progress = read if isinstance(read, Progress) else Progress.of(read)
        # Empty until the activity has returned it, because a query may come first.
        self._catalogue = Catalogue(specs={}, planner="", searchable=False, patience=0)
        self._turn_at_run_start = self._progress.turn
        self._published: search_attributes.Values = ()
        self._had_others = False
        self._people = People(self._progress, self._publish_requests)
        self._notifications = Notifications(self._progress)

    @property
    def account(self) -> Progress:
        """The state of the task with all its values, for a replay."""
        return self._progress.with_tools(self._catalogue.specs)

    @workflow.query
    def progress(self) -> Progress:
        """The state of the task, without values that are too large for an answer."""
        return self._progress.slim(self._catalogue.specs).with_tools(self._catalogue.specs).without_course()

    @workflow.query
    def journal(self, after: str = "") -> JournalPage:
        """The entries of the task's journal that follow the cursor `after`; from the first one if it is empty."""
        return self._progress.entries_after(workflow.info().run_id, after)

    @workflow.query
    def words(self) -> list[Unfinished]:
        """What models that are asked for the task say at this moment."""
        return said_now()

    @workflow.run
    @undecoded
    async def run(self, *arguments: Task | Progress | RawValue) -> Outcome:
        """Run the task until it ends, its deadline passes, or it is cancelled; with a long history, continue as new."""
        if self._refused:
            return await self._finish(self._refused)
        work = asyncio.create_task(self._work())
        limit = self._progress.budget.limits.deadline
        # Since the first run began: to continue as new does not extend the deadline.
        spent = (workflow.now() - self._progress.started_at).total_seconds()
        deadline = retries.timer(limit - spent) if limit else None
        try:
            await workflow.wait_condition(work.done, timeout=deadline, timeout_summary=ids.DEADLINE_TIMER)
            ending = work.result()
        except TimeoutError:
            reason = limit_message(self._progress.budget.limits, "deadline")
            if wait := self._progress.waiting:
                reason += f" It waited for the planner: {wait.reason}"
            ending = Ending(status=TaskStatus.OVER_BUDGET, reason=reason, code="deadline")
        except asyncio.CancelledError:
            stays = "is undone" if self._progress.undo_when_cancelled else "stays"
            reason = f"Cancelled on request; what was finished {stays}."
            ending = Ending(status=TaskStatus.CANCELLED, reason=reason, code="cancelled")
        work.cancel()
        # Until its steps have ended, even if another cancel arrives: their outcomes belong into the Outcome.
        while not work.done():
            with suppress(asyncio.CancelledError):
                await workflow.wait([work])
        if ending is None:
            await self._notifications.handed_over()
            await workflow.wait_condition(workflow.all_handlers_finished)
            # The ids of the next run do not tell any more that this one was made by a reset.
            self._progress.write(MovedOn(run=workflow.info().run_id, was_reset=made_by_reset()))
            workflow.continue_as_new(self._progress.slim(self._catalogue.specs))
        if self._is_to_be_undone(ending):
            ending = await self._roll_back(ending)
        return await self._finish(ending)

    @workflow.signal(description="Undo the effects of the task when it is cancelled.")
    @undecoded
    def undo_when_cancelled(self, *arguments: object) -> None:
        if is_sealed("undo_when_cancelled", arguments, self._seal):
            self._progress.write(UndoAsked())

    @workflow.signal(description="Take over which calls of a rollback a person has confirmed.")
    @undecoded
    def confirm_undo(self, *arguments: Confirmed | RawValue) -> None:
        if confirmed := read_signal("confirm_undo", arguments, Confirmed, self._seal):
            self._progress.write(UndoAsked(confirmed=confirmed.confirmed, vouched=confirmed.vouched))

    @workflow.signal(description="Take over effects of earlier runs, which a reset kept or undid.")
    @undecoded
    def know_earlier_effects(self, *arguments: list[StepRecord] | RawValue) -> None:
        if effects := read_signal("know_earlier_effects", arguments, EarlierEffects, self._seal):
            self._progress.write(EarlierKnown(records=tuple(effects.root)))

    def _is_to_be_undone(self, ending: Ending) -> bool:
        if ending.status is TaskStatus.CANCELLED:
            return self._progress.undo_when_cancelled
        if ending.code == ABORTED:
            return self._progress.undo_when_aborted
        return ending.status is TaskStatus.ESCALATED and self._progress.task.on_escalation == "undo"

    async def _roll_back(self, ending: Ending) -> Ending:
        """Undo the effects, even if the task is cancelled meanwhile; the returned ending says what was undone."""
        progress = self._progress
        undoing = asyncio.create_task(self._undo())
        while not undoing.done():
            with suppress(asyncio.CancelledError):  # a rollback is not cancelled halfway
                await workflow.wait([undoing])
        try:
            undoing.result()
        except TaskEnded as early:
            progress.write(UndoEnded(undo=UndoRecord(step_id="all steps", reason=early.ending.reason)))
        undone = ", ".join(undo_record.step_id for undo_record in progress.undo if undo_record.done)
        results = [f"Undone: {undone}."] if undone else []
        results += [f"Not undone: {progress.not_undone}."] if progress.not_undone else []
        reason = f"{ending.reason.rstrip('.')}." if results else ending.reason
        return ending.model_copy(update={"reason": " ".join([reason, *results])})

    async def _work(self) -> Ending | None:
        """Run the loop until the task ends; return None if its history is long, so that it must continue as new."""
        progress = self._progress
        try:
            await self._run_or_ask(self._read_catalogue)
            while not self._should_continue_as_new():
                if progress.revision and progress.task.plan_only and not progress.replanning:
                    return Ending(status=TaskStatus.COMPLETED, result=dict(progress.results))
                proposal, contract = await self._run_or_ask(self._propose)
                match proposal:
                    case NewSteps():
                        await self._execute(proposal, contract)
                    case Answer():
                        return Ending(status=TaskStatus.COMPLETED, result=proposal.result)
                    case Question() if self._people.are_asked:
                        await self._ask_user(proposal)
                    case Question():
                        return ending_of_unasked_question(proposal)
                    case GiveUp():
                        return Ending(status=TaskStatus.FAILED, reason=proposal.reason, code="gave_up")
                    case _:
                        assert_never(proposal)
        except TaskEnded as early:
            if early.ending.status is not TaskStatus.OVER_BUDGET:
                return early.ending
            answer = await last_answer(progress, self._catalogue)
            return early.ending if answer is None else early.ending.with_answer(answer.result, answer.misfit)
        return None

    async def _run_or_ask(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`; if it raises TaskEnded, ask a person and repeat it, unless the task ends."""
        while True:
            try:
                return await work()
            except TaskEnded as early:
                await self._people.ask_about(early)

    async def _propose(self) -> tuple[Proposal, Contract]:
        progress = self._progress
        before = Turned(turn=progress.turn, taken=progress.revisions_taken)
        try:
            return await propose(progress, self._catalogue)
        except TaskEnded:
            if self._people.are_asked:  # then the same turn may be repeated
                progress.write(before)
            raise

    async def _ask_user(self, question: Question) -> None:
        request = await self._people.ask(
            RequestKind.QUESTION,
            "question",
            question.text,
            (Choice.REPLY, Choice.ABORT),
            options=question.options,
            free_text=question.free_text or not question.options,
        )
        self._people.raise_if_aborted()
        if request.answer is None:
            raise unanswered(request)

    def _should_continue_as_new(self) -> bool:
        """Drop old steps of a long task, and return whether it should continue as new. Called while no step runs.

        It should if the server suggests it, this run has completed a turn, and the state is small enough.
        """
        progress = self._progress
        fold(progress)
        is_suggested = workflow.info().is_continue_as_new_suggested() and progress.turn > self._turn_at_run_start
        if not is_suggested or not fits_continue_as_new(progress.slim(self._catalogue.specs)):
            return False
        # A worker that answers a query before it takes the workflow task does not see the suggestion of that task, but
        # a replay does. The marker of a patch of this turn keeps in history what the run saw.
        return workflow.patched(f"{CONTINUE}:{progress.turn}")

    async def _undo(self) -> None:
        # Cancelled before the catalogue was read in this run, after effects in an earlier one.
        if not self._catalogue.specs and self._progress.records:
            await self._read_catalogue()
        await roll_back(self._progress, self._catalogue, self._update_details)

    async def _read_catalogue(self) -> None:
        task, planner = self._progress.task, self._progress.planner
        by_hand = {"by_hand": True} if task.plan is not None and planner in ("", BY_HAND) else {}
        requirements, opening = {**task.requirements, **by_hand}, describe_opening(self._progress)
        self._catalogue = await read_catalogue(requirements, opening, progress=self._progress)
        if self._progress.turn and not self._progress.is_opened:  # its planner has no conversation
            self._catalogue = self._catalogue.model_copy(update={"converses": False})
        # Later runs have their contract in Progress.
        contract = None if self._progress.turn else trust.first_contract(self._progress, self._catalogue)
        known = self._catalogue
        began = TaskBegun(planner=known.planner, searchable=known.searchable, store=known.store, page=known.page)
        self._progress.write(began.model_copy(update={"proof": ids.CATALOGUE, "contract": contract}))
        self._update_attributes_and_details()
        if self._catalogue.refused:
            raise TaskEnded(TaskStatus.FAILED, self._catalogue.refused, REFUSED)

    async def _renew_specs(self) -> None:
        """Read the specs of the tools again: a tool has changed, and the next plan is made for the new specs."""
        newest = await read_catalogue(self._progress.task.requirements, progress=self._progress)
        # Steps of the old plan may have kinds that are gone.
        specs = {**self._catalogue.specs, **newest.specs}
        self._catalogue = self._catalogue.model_copy(update={"specs": specs, "digest": newest.digest})

    async def _execute(self, proposal: NewSteps, contract: Contract) -> None:
        """Accept and run a plan, and prepare a replan; raise TaskEnded if a person has to act or a limit is reached."""
        self._accept(proposal, contract)
        progress, finished = self._progress, len(self._progress.results)
        execution = Execution(progress, self._catalogue, self._update_details, self._people)
        await execution.run()
        raise_if_cancelled()
        self._people.raise_if_aborted()
        if execution.unanswered:
            raise unanswered(execution.unanswered)
        faults = [fault for fault in progress.faults if fault.revision == progress.revision]
        for fault in faults:
            if fault.decision == "escalate":
                raise TaskEnded(TaskStatus.ESCALATED, f"{fault.step_id}: {fault.reason}", fault.code)
        if execution.reached_limit:
            reason = limit_message(progress.budget.limits, execution.reached_limit)
            raise TaskEnded(TaskStatus.OVER_BUDGET, reason, execution.reached_limit)
        order = [record.step.id for record in progress.records]
        rejecting = progress.rejecting_faults
        # In the order of the plan: the order of the faults depends on which call took longer.
        rejecting.sort(key=lambda fault: order.index(fault.step_id))
        fruitless = progress.replanning and len(progress.results) == finished
        progress.write(Executed(rejected=tuple(fault.step_id for fault in rejecting)))
        if rejecting:

            async def check() -> None:
                self._check_replans(rejecting, fruitless)

            await self._run_or_ask(check)
            if any(fault.code is Code.CHANGED_TOOL for fault in rejecting):
                await self._run_or_ask(self._renew_specs)
            await observe(progress, self._catalogue, rejecting)
            raise_if_cancelled()

    def _accept(self, proposal: NewSteps, contract: Contract) -> None:
        progress, specs = self._progress, self._catalogue.specs
        observations = progress.observations if progress.replanning else []  # else they are of an earlier replan
        rejecting = progress.rejecting_faults if progress.replanning else []
        revision = Revision(
            number=progress.revision + 1,
            because=proposal.because,
            refused=tuple(dict.fromkeys(observation.step_id for observation in observations)),
            kept=tuple(progress.results)[-MAX_KEPT:],
            looked=tuple(dict.fromkeys(observation.kind for observation in observations if not observation.stale)),
            planner=progress.planner,
            turn=progress.turn,
            at=workflow.now(),
        )
        records = [
            StepRecord(
                step=step,
                revision=revision.number,
                effect=specs[step.kind].effect,
                kind=step.kind,
                is_tainted=step.id in contract.tainted,
                is_planned_ahead=specs[step.kind].pure and not contract.is_tainted,
            )
            for step in proposal.steps
        ]
        failed_at, proof = rejecting[0].at if rejecting else None, ids.of_request(progress.turn)
        about = {"records": progress.with_earlier_outcomes(records), "contract": contract}
        progress.write(PlanInForce(proof=proof, revision=revision, failed_at=failed_at, **about))
        self._update_attributes_and_details()

    def _check_replans(self, rejecting: Sequence[FaultRecord], fruitless: bool) -> None:
        """Count a replan; `fruitless`: the plan that has just failed was itself a replan, and completed no step.

        Raises:
            TaskEnded: no replan is left, or too many consecutive replans completed no step.
        """
        progress, limits = self._progress, self._progress.budget.limits
        in_row = progress.fruitless + 1 if fruitless else 0
        last = f"{rejecting[-1].step_id}: {rejecting[-1].reason}"
        if limits.fruitless is not None and in_row >= limits.fruitless:
            reason = f"{limits.fruitless} new plans in a row finished no step; the last fault was {last}"
            raise TaskEnded(TaskStatus.ESCALATED, reason, "no_progress")
        if progress.task.plan_only and not limits.replans:
            raise TaskEnded(TaskStatus.FAILED, last, rejecting[-1].code)
        if progress.replans >= limits.replans:
            reason = f"{limit_message(limits, 'replans')} The last fault was {last}"
            raise TaskEnded(TaskStatus.OVER_BUDGET, reason, "replans")
        progress.write(Replanned(code=rejecting[0].code, fruitless=in_row))

    async def _finish(self, ending: Ending) -> Outcome:
        """Close the workflow so that Temporal's status agrees with the task's.

        Raises:
            ApplicationError: the task failed, escalated or went over its budget.
            CancelledError: the task was cancelled.
        """
        progress = self._progress
        progress.write(TaskClosed(ending=ending))
        self._update_attributes_and_details()
        self._notify()
        await self._notifications.handed_over()
        outcome = progress.outcome(workflow.now())
        if ending.status is TaskStatus.COMPLETED:
            return outcome
        if ending.status is TaskStatus.CANCELLED:
            workflow.upsert_memo({OUTCOME_MEMO: outcome})
            raise asyncio.CancelledError
        error = NotSealed if self._seal.refusal else ApplicationError
        raise error(ending.reason, outcome, type=ending.status, non_retryable=True)

    def _update_details(self) -> None:
        workflow.set_current_details(details(self._progress))

    def _publish_requests(self) -> None:
        """Set the status, and put the open requests into the memo, the search attributes and notifications."""
        opened = self._progress.open_requests
        about = {"id", "kind", "step", "code", "reason", "since", "until", "choices", "options", "free_text"}
        about |= {"cause", "after", "approvers", "needed"}
        # Without what was signed, which only a worker verifies.
        published: dict[str, Any] = {**dict.fromkeys(about, True), "endorsed": {"__all__": {"choice", "by", "at"}}}
        oldest = opened[0].model_dump(mode="json", include=published) if opened else None
        others = [request.model_dump(mode="json", include=published) for request in opened[1:] if request.cause]
        memo = {OTHERS_MEMO: others or None} if others or self._had_others else {}
        self._had_others = bool(others)
        workflow.upsert_memo({REQUEST_MEMO: oldest, **memo})
        self._update_attributes_and_details()
        self._notify()

    def _notify(self) -> None:
        if self._catalogue.notifies:
            self._notifications.tell()

    def _update_attributes_and_details(self) -> None:
        values = search_attributes.values(self._progress)
        # A model may take many turns: then only changed values are worth a history event.
        if not self._catalogue.converses or values != self._published:
            search_attributes.publish(self._progress)
        self._published = values
        self._update_details()
