"""Joins a task's account with the events that prove it: turns (requests to the planner), plans, faults, requests."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from pydantic import BaseModel, JsonValue

from client.history.records import AcceptedAnswer, Call, CallEnd, Event, History, Timer
from workflows import ids
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import MAX_SHOWN_ARGS, FaultRecord
from workflows.faults import retries
from workflows.json_values import canonical
from workflows.people.requests import Choice, Given, HumanRequest, RequestKind, Resolution
from workflows.plans.proposal import BY_HAND, Answer, GiveUp, Mistake, NewSteps, Question, Step
from workflows.plans.references import Unresolved, resolve
from workflows.text import legible

LATER = datetime.max.replace(tzinfo=UTC)
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
class Turn:
    """One request to the planner for a proposal, and what became of it."""

    call: Call
    verdict: ProposalVerdict
    reasons: tuple[Mistake, ...] = ()
    """The mistakes for which Replan rejected the proposal; empty if it was not rejected."""

    @property
    def is_replan(self) -> bool:
        return self.call.kind == retries.REPLAN.kind

    @property
    def proposal(self) -> NewSteps | Answer | Question | GiveUp | None:
        """What the planner proposed; None if there is no proposal or it cannot be read."""
        return self.call.proposed.proposal if self.call.proposed else None


@dataclass(frozen=True)
class Plan:
    number: int
    turn: Turn
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
class Asked:
    """A request of the task to a person, with the events that prove it."""

    request: HumanRequest
    timer: Timer | None
    """The timer that ends the wait; None if the history has none."""
    answered: Event | None
    """The event with the answer to the request; None without an answer."""

    @property
    def events(self) -> tuple[Event, ...]:
        return (self.timer.started,) if self.timer else ()


class Story:
    """What one task did, derived from its history: its turns, its plans, and the calls that finished its steps."""

    def __init__(self, history: History) -> None:
        self.history, self.account = history, history.account
        self.turns = _turns(history, self.account)
        self.plans = _plans(history, self.turns)
        timers, answers = list(history.timers), list(history.answers)
        self.requests = [
            Asked(request, _timer_of(request, timers), _answer_of(request, answers))
            for request in self.account.requests
        ]

    def fault_of(self, call: Call) -> FaultRecord | None:
        """The fault recorded for a failed or cancelled call; None without one, as for a check (see `is_check`)."""
        if call.closed not in (CallEnd.FAILED, CallEnd.CANCELLED) or call.ended_at is None:
            return None
        following = self.history.next_call(call)
        until = following.at if following else LATER
        records = (record for record in self._faults_not_retried if record.step_id == call.id)
        return next((record for record in records if call.ended_at <= record.at < until), None)

    def is_check(self, call: Call) -> bool:
        """Whether a failed call only checked arguments or a result that a person gave, so that no decision followed."""
        return call.closed is CallEnd.FAILED and self.fault_of(call) is None

    @property
    def failed(self) -> list[Call]:
        """The failed calls of steps and of Replan's own activities."""
        calls = [call for call in self.history.calls if call.is_step or call.is_own]
        return [call for call in calls if call.closed is CallEnd.FAILED]

    def uncalled(self, step: str) -> list[FaultRecord]:
        """The faults of `step` that the task recorded without making a call."""
        called = [self.fault_of(call) for call in self.history.of_step(step)]
        records = [record for record in self._faults_not_retried if record.step_id == step and not record.attempt]
        return [record for record in records if record not in called]

    @cached_property
    def _faults_not_retried(self) -> list[FaultRecord]:
        return [fault for fault in (*self.account.faults, *self.account.own_faults) if fault.decision != "retry"]

    def requests_about(self, fault: FaultRecord) -> list[Asked]:
        """The requests to people that `fault` led to; several if the values in an answer were not accepted."""
        ids = {request.id for request in requests_about(self.account, fault)}
        return [request for request in self.requests if request.request.id in ids]

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

    def is_by_hand(self, turn: Turn) -> bool:
        """Whether a person wrote the proposal of the turn (`--plan`)."""
        return turn.call.proposed is not None and turn.call.proposed.planner == BY_HAND

    def plan_from(self, turn: Turn) -> Plan | None:
        """The first accepted plan of the request `turn` or of a later request; None if there is none."""
        return next((plan for plan in self.plans if plan.turn.call.scheduled >= turn.call.scheduled), None)


def _completed_in_order(calls: Iterable[Call]) -> list[Call]:
    done = [call for call in calls if call.closed is CallEnd.COMPLETED]
    return sorted(done, key=lambda call: call.ended or call.scheduled)


def requests_about(account: Outcome, fault: FaultRecord) -> list[HumanRequest]:
    """The requests to people that `fault` led to; several if the values in an answer were not accepted."""
    is_own, step = fault in account.own_faults, fault.step_id
    same = [record for record in (*account.faults, *account.own_faults) if record.step_id == step]
    same = [record for record in same if record.decision != "retry"]
    until = min((record.at for record in same if record.at > fault.at), default=LATER)
    kinds = RequestKind.FAULT, RequestKind.APPROVAL
    asked = [request for request in account.requests if request.kind in kinds]
    about = [request for request in asked if request.step == (None if is_own else step)]
    if found := [request for request in about if fault.at <= request.since < until]:
        return found
    # Another step may have asked for it before.
    together = [request for request in asked if not is_own and step in request.steps and request.step != step]
    earlier = [request for request in together if request.since <= fault.at]
    return [request for request in earlier if request.answer is None or fault.at <= request.answer.at][-1:]


def _timer_of(request: HumanRequest, timers: list[Timer]) -> Timer | None:
    """The timer of a request, or None; it is removed from `timers`, since a repeated request has a timer of its own."""
    name = legible(ids.request_timer(request))
    same = (timer for timer in timers if timer.summary and name.startswith(timer.summary.removesuffix("…")))
    found = next((timer for timer in same if timer.at >= request.since), None)
    if found:
        timers.remove(found)
    return found


def _answer_of(request: HumanRequest, answers: list[AcceptedAnswer]) -> Event | None:
    """The event with the answer to a request, or None; an answer to this request only is removed from `answers`."""
    answer = request.answer
    if answer is None:
        return None
    if answer.resolution:
        later = ((accepted.event, accepted.given) for accepted in answers if request.since <= accepted.at)
        ours = (event for event, given in later if isinstance(given, Resolution) and given.id == answer.resolution)
        return next(ours, None)
    # The handler of an Update runs before its event is written.
    fitting = [accepted for accepted in answers if accepted.choice is answer.choice and accepted.at >= answer.at]
    named = [other for other in fitting if isinstance(other.given, Given) and other.given.request == request.id]
    for accepted in (named or fitting)[:1]:
        if answer.choice is not Choice.EXTEND:
            answers.remove(accepted)
        return accepted.event
    return None


def _turns(history: History, account: Outcome) -> list[Turn]:
    rejected = {rejection.turn: rejection.mistakes for rejection in account.rejections}
    if account.reasons:  # the last one ended the task, so that all reasons are kept
        rejected[account.rejections[-1].turn] = account.reasons
    accepted = {revision.turn for revision in account.revisions}
    first = min(accepted, default=0)  # a long task keeps only its last revisions
    return [_turn(history, call, rejected, accepted, first) for call in history.planning]


def _turn(
    history: History, call: Call, rejected: Mapping[int, tuple[Mistake, ...]], accepted: Collection[int], first: int
) -> Turn:
    number, proposed = int(call.id.removeprefix(ids.PLAN)), call.proposed
    if call.closed is not CallEnd.COMPLETED:
        return Turn(call, ProposalVerdict.FAILED if call.closed else ProposalVerdict.UNDECIDED)
    if proposed and proposed.compact:
        return Turn(call, ProposalVerdict.TOO_LONG)
    if number in rejected:
        return Turn(call, ProposalVerdict.REJECTED, rejected[number])
    if proposed is None:
        return Turn(call, ProposalVerdict.UNREADABLE)
    is_decided = not isinstance(proposed.proposal, NewSteps) or number in accepted or number < first
    return Turn(call, ProposalVerdict.ACCEPTED if is_decided or history.is_untold else ProposalVerdict.UNDECIDED)


def _plans(history: History, turns: Sequence[Turn]) -> list[Plan]:
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


def _called_after(history: History, turn: Turn) -> tuple[Step, ...]:
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


class Change(BaseModel, frozen=True):
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
    changed: tuple[Change, ...] = ()
    added: tuple[Planned, ...] = ()
    dropped: tuple[Planned, ...] = ()
    events: tuple[int, ...] = ()


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


def _change(was: Step, new: Step) -> Change:
    before, after = dict(_flat(was.args)), dict(_flat(new.args))
    paths = dict.fromkeys([*before, *after])
    different = {
        path: Was(before=before.get(path, MISSING), after=after.get(path, MISSING))
        for path in paths
        if before.get(path, MISSING) != after.get(path, MISSING)
    }
    return Change(before=Planned.of(was), after=Planned.of(new), args=different)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, JsonValue]]:
    for name, item in value.items():
        inner = f"{path}.{name}" if path else name
        if isinstance(item, dict) and item and "$from" not in item:
            yield from _flat(item, inner)
        else:
            yield inner, item
