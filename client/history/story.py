"""Joins the journal of a task with the events that prove it: turns, plans, faults, requests to people.

Made when the whole history has been read, before the task is explained, undone or reset.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, JsonValue

from client.history.records import AttemptFailure, Call, CallEnd, Event, History, Timer
from workflows import ids
from workflows.account import metrics
from workflows.account.entries_of_people import Answered, Closed, Endorsed, Extended, PersonIsAsked
from workflows.account.entries_of_steps import Attempted, Decided, Reconciled, Settled
from workflows.account.entry import JournalEntry
from workflows.account.journal import Replied
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import MAX_SHOWN_ARGS, FaultRecord
from workflows.faults.fault import Code
from workflows.json_values import canonical
from workflows.people.requests import HumanAnswer, HumanRequest, RequestKind
from workflows.plans import own_activities
from workflows.plans.proposal import BY_HAND, Answer, GiveUp, Mistake, NewSteps, Question, Step
from workflows.plans.references import Unresolved, resolve
from workflows.text import legible

OF_TURN = re.compile(r"t(\d+)\.c\d+(\.b\d+)?")
"""The id of a step that a model called directly, without a plan: `t7.c0` is the first call of turn 7."""


class ProposalVerdict(StrEnum):
    """What became of a request to the planner for a proposal."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNDECIDED = "undecided"
    UNREADABLE = "unreadable"
    FAILED = "failed"
    TOO_LONG = "too_long"
    """The conversation had to be shortened first, so no proposal was made."""


@dataclass(frozen=True)
class PlannerTurn:
    """One request to the planner for a proposal, and what became of it."""

    call: Call
    verdict: ProposalVerdict
    reasons: tuple[Mistake, ...] = ()
    """The mistakes for which Replan rejected the proposal; empty if it was not rejected."""

    @property
    def number(self) -> int:
        return int(self.call.id.removeprefix(ids.PLAN))

    @property
    def is_replan(self) -> bool:
        return self.call.kind == own_activities.REPLAN.kind

    @property
    def proposal(self) -> NewSteps | Answer | Question | GiveUp | None:
        """What the planner proposed; None if there is no proposal or it cannot be read."""
        return self.call.proposed.proposal if self.call.proposed else None

    @property
    def is_by_hand(self) -> bool:
        """Whether a person wrote the proposal (`--plan`)."""
        return self.call.proposed is not None and self.call.proposed.planner == BY_HAND


@dataclass(frozen=True)
class Plan:
    number: int
    turn: PlannerTurn
    steps: tuple[Step, ...]
    because: str = ""
    move: int | None = None
    """The number of the turn if these are the calls that a model made directly in one turn; None for a real plan."""

    @property
    def name(self) -> str:
        return f"plan {self.number}" if self.move is None else f"turn {self.move}"

    @property
    def events(self) -> tuple[Event, ...]:
        return self.turn.call.events


@dataclass(frozen=True)
class RecordedRequest:
    """A request of the task to a person, with the events that prove it and its answer."""

    request: HumanRequest
    timer: Timer | None
    """The timer that ends the wait; None if the history has none."""
    answered: Event | None
    """The event with the answer to the request; None without an answer."""
    endorsed: tuple[Event | None, ...] = ()
    """The event of each of `request.endorsed`; None if it is not known."""

    @property
    def events(self) -> tuple[Event, ...]:
        return (self.timer.started,) if self.timer else ()


@dataclass
class Failure:
    """A fault that no retry followed, of a call of the task."""

    call: Call | None
    """None if the call was not made."""
    record: FaultRecord | None
    """The fault and the decision; None if the task has not heard of it, or if that is not told."""
    is_own: bool = False
    """Whether the call is Replan's own, not of a step."""
    shown: list[HumanRequest] = field(default_factory=list)
    """The requests that showed the call."""

    @property
    def requests(self) -> list[HumanRequest]:
        """What people were asked because of it; several if the values in an answer were not accepted."""
        own = [request for request in self.shown if self.is_own or request.step == self.id]
        return own or self.shown[-1:]  # else another step has asked for it

    @property
    def id(self) -> str:
        """The id of the activity that was called, or was not."""
        return self.call.id if self.call else self.record.step_id if self.record else ""

    @property
    def failing(self) -> AttemptFailure | None:
        """How the call failed, or why it was not made; None if it was cancelled."""
        return self.call.failing if self.call else AttemptFailure.of(self.record) if self.record else None


Happened = tuple[JournalEntry, Call | None]
"""An entry of a journal and, if it tells how an execution of an activity ended, the call."""


def happened_by_journal(history: History) -> Iterator[Happened]:
    """The entries of the journal with their calls: the n-th end of an activity belongs to its n-th call."""
    calls, newest = defaultdict[str, list[Call]](list), dict[str, Call]()
    for call in history.calls:
        if call.closed is CallEnd.FAILED or (call.closed and call.id != ids.CATALOGUE):
            calls[call.id].append(call)
    ends = [entry.proof if _ends_execution(entry) else "" for entry in history.journal]
    number = Counter(ends)
    if history.journal and history.journal[0].number > 1:  # a long task drops its oldest entries
        calls.update((id, ended[-number[id] :] if number[id] else []) for id, ended in list(calls.items()))
    for entry, end in zip(history.journal, ends, strict=True):
        if calls[end]:
            newest[end] = calls[end].pop(0)
        yield entry, newest.get(entry.proof) if isinstance(entry, Settled | Attempted) else None


def _ends_execution(entry: JournalEntry) -> bool:
    if isinstance(entry, Settled):
        return entry.purpose in ("", metrics.STEPS)
    return isinstance(entry, Attempted) and entry.proof == ids.CATALOGUE  # whose executions are not settled


def happened_by_account(account: Outcome, calls: Iterable[Call] = ()) -> list[Happened]:
    """What the Outcome and the calls of a task tell of its journal, in the order of time, if no replay has the rest."""
    happened: list[Happened] = [(_settled(call), call) for call in calls if call.closed]
    asked, answered = account.requests, [(one.id, one.answer.at) for one in account.requests if one.answer]
    entries: list[JournalEntry] = [
        *(Answered(at=at, request=id) for id, at in answered),
        *(Endorsed(at=answer.at, request=one.id, answer=answer) for one in asked for answer in one.endorsed),
        *(Extended(at=answer.at, answer=answer) for answer in account.extensions),
        *(Attempted(at=fault.at, step=fault.step_id, fault=fault) for fault in account.faults),
        *(Attempted(at=fault.at, step=fault.step_id, fault=fault, is_own=True) for fault in account.own_faults),
        *(PersonIsAsked(at=request.since, request=request.id, step=request.step or "") for request in asked),
    ]
    return sorted([*happened, *((entry, None) for entry in entries)], key=lambda pair: pair[0].at)


def _settled(call: Call) -> Settled:
    result = call.returned or (call.failing.fault if call.failing else None)
    own = Settled.of_execution(result, call.earlier, None, {}, source=call.kind, proof=call.id, purpose=metrics.STEPS)
    return own.model_copy(update={"at": call.ended_at})


def failures_of(happened: Iterable[Happened], account: Outcome) -> list[Failure]:
    """The faults that no retry followed, in their order, each with what people were asked because of it."""
    requests = {request.id: request for request in account.requests}
    found, newest, ended, open = list[Failure](), dict[str, Failure](), dict[str, Call](), dict[str, HumanRequest]()
    for entry, call in happened:
        match entry:
            case Settled() if call:
                ended[call.id] = call
            case Reconciled(fault=fault) if entry.step in newest:
                newest[entry.step].record = fault
            case Decided(decision=decision) if (failure := newest.get(entry.step)) and failure.record:
                failure.record = failure.record.model_copy(update={"decision": decision})
            case Attempted(is_check=False, fault=fault) if fault.decision != "retry":
                call = ended.pop(fault.step_id, call if fault.step_id == ids.CATALOGUE else None)
                # The replay is ahead of the workers if none has gone on after the call.
                is_decided = call is None or call.ended_at is None or call.ended_at <= entry.at
                failure = Failure(call, fault if is_decided else None, entry.is_own)
                if fault.code is Code.NEEDS_APPROVAL:  # another step may have asked for it before
                    failure.shown += [request for request in open.values() if fault.step_id in request.steps]
                found.append(failure)
                newest["" if entry.is_own else entry.step] = failure
            case PersonIsAsked():
                ended.pop(entry.step, None)  # what followed the failure before only checked what a person gave
                request = requests[entry.request]
                open[entry.request] = request
                for step in request.steps or ("",):
                    if (failure := newest.get(step)) and request.kind in (RequestKind.FAULT, RequestKind.APPROVAL):
                        failure.shown.append(request)
            case Answered() | Closed():
                open.pop(entry.request, None)
            case Replied():
                newest.pop("", None)  # what is asked from now on is about something else
    return found


class Story:
    """What one task did, from its journal and history: its turns, its plans, and the calls that finished its steps."""

    def __init__(self, history: History) -> None:
        self.history, self.account = history, history.account
        self.happened = list(happened_by_journal(history)) or happened_by_account(self.account, history.calls)
        self.turns = list(_turns(history, self.account))
        self.plans = _plans(history, self.turns)
        self.requests = list(_exchanges(self))
        self.failures = failures_of(self.happened, self.account)
        self._faults = {failure.call.scheduled: failure.record for failure in self.failures if failure.call}
        for call in history.calls:
            is_unheard = history.is_untold or (history.next_call(call) is None and history.end is None)
            if call.closed is CallEnd.FAILED and call.scheduled not in self._faults and is_unheard:
                self.failures.append(Failure(call, None, call.is_own))

    def fault_of(self, call: Call) -> FaultRecord | None:
        """The fault recorded for a failed or cancelled call; None without one, as for a call that was only a check."""
        return self._faults.get(call.scheduled)

    def answer_event(self, answer: HumanAnswer | None, request: str = "") -> Event | None:
        """The event with an answer to a request, or with an extension that no request asked for."""
        if answer is None:
            return None
        entries = [entry for entry, _ in self.happened if isinstance(entry, Answered | Endorsed | Extended)]
        to_request = (entry for entry in entries if isinstance(entry, Answered | Endorsed) and entry.at == answer.at)
        ours = {entry.proof for entry in to_request if entry.request == request}
        ours |= {entry.proof for entry in entries if isinstance(entry, Extended) and entry.at == answer.at}
        ours |= {answer.resolution}
        alike = (known for known in self.history.answers if known.choice is answer.choice)
        # Without the journal, the first one since then: the handler of an Update runs before its event is written.
        accepted = (known for known in alike if known.id in ours or (not any(ours) and known.at >= answer.at))
        return next((known.event for known in accepted), None)

    @property
    def failed(self) -> list[Call]:
        """The failed calls of steps and of Replan's own activities."""
        return [call for call in self.history.calls if (call.is_step or call.is_own) and call.closed is CallEnd.FAILED]

    @property
    def in_turns(self) -> bool:
        """Whether the model makes its calls turn by turn (strategy `react`) instead of proposing whole plans."""
        return bool(self.history.task and self.history.task.strategy == "react")

    @property
    def steps(self) -> dict[str, Step]:
        """The steps of all plans by id; if several plans have an id, the step of the newest of them."""
        return {step.id: step for plan in self.plans for step in plan.steps}

    @property
    def step_ids(self) -> list[str]:
        """The ids of all steps: first the planned steps, then the steps that a model called directly."""
        called = [call.id for call in self.history.calls if call.is_step]
        return list(dict.fromkeys([*self.steps, *called]))

    @property
    def undo_ids(self) -> list[str]:
        """The ids of the undo calls (`undo:STEP`), in the order of the first calls."""
        return list(dict.fromkeys(call.id for call in self.history.calls if call.is_undo))

    @property
    def done(self) -> list[Call]:
        """The calls that completed a step, and the reconciliations that found a step applied, in order."""
        calls = [call for call in self.history.calls if call.is_step or (call.is_reconcile and call.owner == call.step)]
        return _completed_in_order(calls)

    @property
    def undone(self) -> list[Call]:
        """The calls that undid a step, and the reconciliations that found a step undone, in order."""
        return _completed_in_order(call for call in self.history.calls if call.owner in self.undo_ids)

    def plan_of(self, event: Event) -> Plan | None:
        """The plan that was in force at an event; None before the first plan."""
        earlier = [plan for plan in self.plans if (plan.turn.call.ended or event) < event]
        return earlier[-1] if earlier else None


def _completed_in_order(calls: Iterable[Call]) -> list[Call]:
    done = [call for call in calls if call.closed is CallEnd.COMPLETED]
    return sorted(done, key=lambda call: call.ended or call.scheduled)


def requests_about(account: Outcome, fault: FaultRecord) -> list[HumanRequest]:
    """The requests to people that `fault` led to; several if the values in an answer were not accepted."""
    failures = failures_of(happened_by_account(account), account)
    return next((failure.requests for failure in failures if failure.record == fault), [])


def _exchanges(story: Story) -> Iterator[RecordedRequest]:
    timers = list(story.history.timers)
    for request in story.account.requests:
        name = legible(ids.request_timer(request))
        same = (timer for timer in timers if timer.summary and name.startswith(timer.summary.removesuffix("…")))
        if timer := next(same, None):
            timers.remove(timer)  # a repeated request has a timer of its own
        endorsed = tuple(story.answer_event(answer, request.id) for answer in request.endorsed)
        yield RecordedRequest(request, timer, story.answer_event(request.answer, request.id), endorsed)


def _turns(history: History, account: Outcome) -> Iterator[PlannerTurn]:
    rejected = {rejection.turn: rejection.mistakes for rejection in account.rejections}
    if account.reasons:  # the last one ended the task, so that all reasons are kept
        rejected[account.rejections[-1].turn] = account.reasons
    accepted = {revision.turn for revision in account.revisions}
    for call in history.planning:
        turn = PlannerTurn(call, ProposalVerdict.UNDECIDED)
        is_old = turn.number < min(accepted, default=0)  # a long task keeps only its last revisions
        is_decided = history.is_untold or is_old or turn.number in accepted or not isinstance(turn.proposal, NewSteps)
        if call.closed in (CallEnd.FAILED, CallEnd.CANCELLED):
            turn = PlannerTurn(call, ProposalVerdict.FAILED)
        elif call.proposed and call.proposed.compact:
            turn = PlannerTurn(call, ProposalVerdict.TOO_LONG)
        elif call.closed and turn.number in rejected:
            turn = PlannerTurn(call, ProposalVerdict.REJECTED, rejected[turn.number])
        elif call.closed and (call.proposed is None or is_decided):
            turn = PlannerTurn(call, ProposalVerdict.ACCEPTED if call.proposed else ProposalVerdict.UNREADABLE)
        yield turn


def _plans(history: History, turns: Sequence[PlannerTurn]) -> list[Plan]:
    plans = list[Plan]()
    for turn in turns:
        proposal = turn.proposal
        if turn.verdict is ProposalVerdict.ACCEPTED and isinstance(proposal, NewSteps):
            move = turn_of(step.id for step in proposal.steps)
            plans.append(Plan(len(plans) + 1, turn, proposal.steps, proposal.because, move))
        elif turn.verdict is ProposalVerdict.UNREADABLE and (steps := _called_after(history, turn)):
            plans.append(Plan(len(plans) + 1, turn, steps))
    revisions = history.outcome.revisions if history.outcome else ()
    accepted = revisions[-1].number if revisions else 0  # a long task keeps only its last revisions
    return plans[:accepted] if history.outcome else plans


def _called_after(history: History, turn: PlannerTurn) -> tuple[Step, ...]:
    """The steps of an unreadable plan, as far as they were called before the next request to the planner."""
    later = [call for call in history.calls if call.scheduled > turn.call.scheduled]
    until = next((call.scheduled for call in later if call.is_planning), history.last)
    called = [call for call in later if call.is_step and until and call.scheduled <= until]
    return tuple({call.id: Step(id=call.id, kind=call.kind) for call in called}.values())


def turn_of(ids: Iterable[str]) -> int | None:
    """The number of the turn in which a model called these steps directly; None if they belong to a plan."""
    return next((int(found[1]) for found in map(OF_TURN.fullmatch, ids) if found), None)


def with_values(outcome: Outcome, story: Story) -> Outcome:
    """A copy of `outcome` with the values that it leaves out because events have them: arguments, results and more."""
    ended = {call.id: call for call in story.history.newest_calls if call.is_step and call.closed is CallEnd.COMPLETED}
    kept = {step.id: step.result for step in outcome.steps if not step.in_history}
    results = {**kept, **{id: call.result for id, call in ended.items()}}
    steps = [
        _with_values(step, story.steps.get(step.id), ended.get(step.id), results) if step.in_history else step
        for step in outcome.steps
    ]
    return outcome.model_copy(update={"steps": tuple(steps)})


def _with_values(
    outcome_step: OutcomeStep, step: Step | None, call: Call | None, results: Mapping[str, JsonValue]
) -> OutcomeStep:
    if step is None or call is None:  # a codec without a key hides the plan
        kind = outcome_step.kind or (call.kind if call else "")
        return outcome_step.model_copy(update={"in_history": False, "kind": kind, "result_omitted": True})
    args = call.args
    with suppress(Unresolved):  # the event of a local activity has no arguments
        args = resolve(step.args, results) if args is None else args
    shown = args if isinstance(args, dict) and len(canonical(args).encode()) <= MAX_SHOWN_ARGS else step.args
    values = {"kind": outcome_step.kind or step.kind, "args": shown, "needs": tuple(sorted(step.dependencies))}
    return outcome_step.model_copy(update={"in_history": False, "title": step.label, "result": call.result, **values})


MISSING = "(none)"
"""In a comparison of two steps, the value of an argument that one of them does not have."""


class Planned(BaseModel, frozen=True):
    """A planned step without its title, for the comparison of two plans."""

    id: str
    kind: str
    args: dict[str, JsonValue]
    needs: tuple[str, ...] = ()

    @classmethod
    def of(cls, step: Step) -> "Planned":
        return cls(id=step.id, kind=step.kind, args=step.args, needs=tuple(sorted(step.dependencies)))


class Was(BaseModel, frozen=True):
    """A value before and after a change; `(none)` stands for a missing value."""

    before: JsonValue
    after: JsonValue


class ReplacedStep(BaseModel, frozen=True):
    """A step of the new plan that takes the place of a step of the old plan."""

    before: Planned
    after: Planned
    args: dict[str, Was]
    """The arguments that differ, by dotted path."""

    @property
    def differences(self) -> list[tuple[str, Was]]:
        """Each difference with its name: `kind`, the path of an argument, or `needs`."""
        before, after = self.before, self.after
        kind = [("kind", Was(before=before.kind, after=after.kind))] if before.kind != after.kind else []
        moved = Was(before=list(before.needs), after=list(after.needs))
        return [*kind, *self.args.items(), *([("needs", moved)] if before.needs != after.needs else [])]


class Diff(BaseModel, frozen=True):
    """A plan, and how it differs from the plan before it."""

    number: int
    name: str
    """`plan 2`, or `turn 7` for the calls that a model made directly in one turn."""
    is_turn: bool
    because: str
    replan: bool
    """Whether the plan was requested because of a fault; otherwise it continues after a finished plan."""
    kept: tuple[str, ...] = ()
    """The ids of the steps that had finished before this plan."""
    unchanged: tuple[str, ...] = ()
    """The ids of the steps that had not finished, and are planned as before."""
    changed: tuple[ReplacedStep, ...] = ()
    added: tuple[Planned, ...] = ()
    dropped: tuple[Planned, ...] = ()
    events: tuple[int, ...] = ()

    def about(self, id: str) -> "Diff | None":
        """What it says of one step; None if nothing."""
        parts: dict[str, tuple[object, ...]] = {
            "kept": tuple(step for step in self.kept if step == id),
            "unchanged": tuple(step for step in self.unchanged if step == id),
            "changed": tuple(change for change in self.changed if id in (change.before.id, change.after.id)),
            "added": tuple(step for step in self.added if step.id == id),
            "dropped": tuple(step for step in self.dropped if step.id == id),
        }
        return self.model_copy(update=parts) if any(parts.values()) else None


def diffs(story: Story) -> list[Diff]:
    """Each plan, compared with the plan before it.

    All steps count as added in the first plan, and in a turn that no fault led to.
    """
    earlier: Sequence[Plan | None] = [None, *story.plans]
    pairs = zip(earlier, story.plans, strict=False)
    return [diff(story, before if plan.move is None or plan.turn.is_replan else None, plan) for before, plan in pairs]


def diff(story: Story, before: Plan | None, plan: Plan) -> Diff:
    """How `plan` differs from the plan `before`; if `before` is None, all steps of `plan` count as added."""
    accepted = plan.turn.call.ended or plan.turn.call.scheduled
    kept = [call.step for call in story.done if call.ended and call.ended < accepted]
    old = {step.id: step for step in before.steps if step.id not in kept} if before else {}
    pairs = dict(_replaced_by_new_id(list(old.values()), plan.steps))
    changed = [(step, pairs[step.id]) for step in plan.steps if step.id in pairs]
    taken = {old_step.id for _, old_step in changed}
    return Diff(
        number=plan.number,
        name=plan.name,
        is_turn=plan.move is not None,
        because=plan.because,
        replan=plan.turn.is_replan,
        kept=tuple(kept),
        unchanged=tuple(new.id for new, was in changed if Planned.of(new) == Planned.of(was)),
        changed=tuple(_change(was, new) for new, was in changed if Planned.of(new) != Planned.of(was)),
        added=tuple(Planned.of(step) for step in plan.steps if step.id not in pairs),
        dropped=tuple(Planned.of(step) for id, step in old.items() if id not in taken),
        events=tuple(event.id for event in plan.events),
    )


_REPLACES: tuple[Callable[[Step, Step], bool], ...] = (
    lambda new, old: new.id == old.id,
    lambda new, old: new.id.startswith((old.id + "-", old.id + "_")),  # `book-2` or `book_again`
    lambda new, old: new.kind == old.kind,
)
"""The signs that a new step replaces an old one, the surest first."""


def _replaced_by_new_id(old: list[Step], new: Sequence[Step]) -> Iterator[tuple[str, Step]]:
    rest, waiting = list(old), list(new)
    for replaces in _REPLACES:
        for step in list(waiting):
            alike = [other for other in rest if replaces(step, other)]
            if alike:
                # Of several, the one with the most equal arguments.
                found = max(
                    alike, key=lambda other: sum(step.args.get(name) == value for name, value in other.args.items())
                )
                rest.remove(found)
                waiting.remove(step)
                yield step.id, found


def _change(was: Step, new: Step) -> ReplacedStep:
    before, after = dict(_flat(was.args)), dict(_flat(new.args))
    pairs = {path: (before.get(path, MISSING), after.get(path, MISSING)) for path in before | after}
    different = {path: Was(before=old, after=new) for path, (old, new) in pairs.items() if old != new}
    return ReplacedStep(before=Planned.of(was), after=Planned.of(new), args=different)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, JsonValue]]:
    for name, item in value.items():
        inner = f"{path}.{name}" if path else name
        if isinstance(item, dict) and item and "$from" not in item:
            yield from _flat(item, inner)
        else:
            yield inner, item
