"""Derives from a task's history its turns (requests to the planner), its plans, and the plans' differences."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from client.history.records import AcceptedAnswer, Call, CallEnd, Event, History, Timer
from workflows import ids, routing
from workflows.asking import PLANNER
from workflows.faults import cause_of
from workflows.outcome import Outcome, OutcomeStep
from workflows.people import Choice, GivenExtend, HumanRequest, Resolution
from workflows.plan import BY_HAND, Answer, GiveUp, Mistake, NewSteps, Question, Step, Unresolved, canonical, resolve
from workflows.record import MAX_SHOWN_ARGS, FaultRecord

REFUSED_AT_THE_END = ("plan_refused", "proposals_rejected")
"""The outcome codes of tasks that ended because the last proposal was rejected."""
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
        return self.call.kind == routing.REPLAN.kind

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
    """A request of the task to a person, and its answer, as far as one was accepted."""

    id: str
    timer: Timer
    """The timer that ends the wait."""
    step: str | None
    code: str
    choices: tuple[str, ...]
    answer: AcceptedAnswer | None = None
    recorded: HumanRequest | None = None
    """The request in the Outcome; None while the task runs."""

    @property
    def is_question(self) -> bool:
        return Choice.REPLY in self.choices

    @property
    def is_budget(self) -> bool:
        return Choice.EXTEND in self.choices


class Story:
    """What one task did, derived from its history: its turns, its plans, and the calls that finished its steps."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.turns = _turns(history)
        self.plans = _plans(history, self.turns)
        self.requests = _requests(history)

    def request_after(self, call: Call) -> Asked | None:
        """The request to a person that the failure of a call led to; None if nobody was asked."""
        after = call.ended or call.scheduled
        step = None if call.is_own else call.step
        later = [other.scheduled for other in self.history.calls if other.id == call.id and other.scheduled > after]
        until = min(later, default=None)
        for one in self.requests:
            is_fault = not (one.is_question or one.is_budget)
            if is_fault and one.step == step and one.timer.started > after and (not until or one.timer.started < until):
                return one
        return None

    @property
    def in_turns(self) -> bool:
        """Whether the model makes its calls turn by turn (strategy `react`) instead of proposing whole plans."""
        return bool(self.history.task and self.history.task.strategy == "react")

    @property
    def steps(self) -> dict[str, Step]:
        return {step.id: step for plan in self.plans for step in plan.steps}

    @property
    def step_ids(self) -> list[str]:
        """The ids of all steps: first the planned steps, then the steps that a model called directly."""
        called = [call.id for call in self.history.calls if call.is_step]
        return list(dict.fromkeys([*self.steps, *called]))

    @property
    def undo_ids(self) -> list[str]:
        return list(dict.fromkeys(call.id for call in self.history.calls if call.is_undo))

    @property
    def done(self) -> list[Call]:
        """The calls that completed a step, and the reconciliations that found it applied, in order."""
        return self._completed(
            [call for call in self.history.calls if call.is_step or (call.is_reconcile and call.owner == call.step)]
        )

    @property
    def undone(self) -> list[Call]:
        """The calls that undid a step, and the reconciliations that found it undone, in order."""
        about = [call for call in self.history.calls if call.owner in self.undo_ids]
        return self._completed(about)

    def _completed(self, calls: Sequence[Call]) -> list[Call]:
        done = [call for call in calls if call.closed is CallEnd.COMPLETED]
        return sorted(done, key=lambda call: call.ended or call.scheduled)

    def done_before(self, event: Event) -> list[str]:
        return [call.step for call in self.done if call.ended and call.ended < event]

    def plan_of(self, event: Event) -> Plan | None:
        """The plan that was in force at an event; None before the first plan."""
        earlier = [plan for plan in self.plans if (plan.turn.call.ended or event) < event]
        return earlier[-1] if earlier else None

    def is_by_hand(self, turn: Turn) -> bool:
        """Whether a person wrote the proposal of the turn (`--plan`)."""
        proposed, task = turn.call.proposed, self.history.task
        # In histories of an earlier version the first proposal has the name of the worker's planner.
        is_first = task is not None and task.plan is not None and turn is self.turns[0]
        return is_first or (proposed is not None and proposed.planner == BY_HAND)

    def plan_from(self, turn: Turn) -> Plan | None:
        """The plan that this request led to: the first plan accepted from the request on; None if there is none."""
        return next((plan for plan in self.plans if plan.turn.call.scheduled >= turn.call.scheduled), None)

    def faults(self) -> Sequence[FaultRecord]:
        """The recorded faults with their decisions: from the Outcome, else from the newest request for a plan."""
        if self.history.outcome is not None:
            return self.history.outcome.faults
        told = [call.situation.faults for call in self.history.planning if call.situation]
        return told[-1] if told else ()

    def decisions(self, step: str) -> list[FaultRecord]:
        """The recorded faults of a step about which the workflow decided, without faults that only led to a retry."""
        return [fault for fault in self.faults() if fault.step_id == step and fault.decision != "retry"]


def _requests(history: History) -> list[Asked]:
    """The requests to people, in order: each has a timer of its own, and its number in the task is its id."""
    recorded = {one.id: one for one in history.outcome.requests} if history.outcome else {}
    found, taken = list[Asked](), set[object]()
    for timer in history.timers:
        if read := ids.read_request_timer(timer.summary):
            id = f"r{len(found) + 1}"
            found.append(Asked(id, timer, *read, recorded=recorded.get(id)))
    # An answer need not name its request; of several open ones, the one that was closed first had it.
    for one in sorted(found, key=lambda one: one.timer.ended or Event(history.runs + 1, 0)):
        about = _about(history, one)
        answer = next(
            (given for given in history.answers if _taken(one, given) not in taken and _fits(one, given, about)), None
        )
        if answer is not None:
            found[found.index(one)] = replace(one, answer=answer)
            taken.add(_taken(one, answer))
    return found


def _taken(asked: Asked, answer: AcceptedAnswer) -> object:
    """What no later request can have as its answer: an extension and a resolution may answer several requests."""
    if isinstance(answer.given, Resolution):
        return asked.step, answer.given.id
    return (asked.id, answer.event) if answer.choice is Choice.EXTEND else answer.event


def _about(history: History, asked: Asked) -> str:
    """The cause that a request may share with those of other tasks."""
    calls = [one for one in history.of_step(asked.step) if one.scheduled < asked.timer.started] if asked.step else []
    return cause_of(calls[-1].kind if calls else PLANNER, asked.code)


def _fits(asked: Asked, answer: AcceptedAnswer, cause: str) -> bool:
    if isinstance(answer.given, Resolution):
        if answer.given.cause != cause:
            return False
    elif answer.given and answer.given.request:
        return answer.given.request == asked.id
    if isinstance(answer.given, GivenExtend) and asked.code not in answer.given.amounts:
        return False
    ended = asked.timer.ended
    is_open = asked.timer.started < answer.event and ended is not None and answer.event < ended
    return is_open and answer.choice in asked.choices


def _turns(history: History) -> list[Turn]:
    calls = history.planning
    following = [*calls[1:], None]
    return [_turn(history, call, after) for call, after in zip(calls, following, strict=False)]


def _turn(history: History, call: Call, after: Call | None) -> Turn:
    if call.closed is not CallEnd.COMPLETED:
        return Turn(call, ProposalVerdict.FAILED if call.closed else ProposalVerdict.UNDECIDED)
    if call.proposed and call.proposed.compact:
        return Turn(call, ProposalVerdict.TOO_LONG)
    own = call.proposed.rejected if call.proposed else ()
    if after is not None:
        # The request after a rejected proposal tells the planner why it was rejected.
        reasons = after.situation.rejected if after.situation and not after.situation.is_last else own
        return _judged(call, reasons)
    outcome = history.outcome
    if outcome is not None and outcome.code in REFUSED_AT_THE_END:
        # An older worker writes the reasons as one text behind a few words of its own.
        last = outcome.reason.partition(": ")[2] or outcome.reason
        return Turn(call, ProposalVerdict.REJECTED, outcome.reasons or (Mistake(text=last),))
    if history.end is None and not own and not _anything_after(history, call):
        return Turn(call, ProposalVerdict.UNDECIDED)
    return _judged(call, own)


def _judged(call: Call, reasons: Sequence[Mistake]) -> Turn:
    if reasons:
        return Turn(call, ProposalVerdict.REJECTED, tuple(reasons))
    return Turn(call, ProposalVerdict.ACCEPTED if call.proposed else ProposalVerdict.UNREADABLE)


def _anything_after(history: History, call: Call) -> bool:
    after = call.ended or call.scheduled
    asked = (timer.started for timer in history.timers if ids.read_request_timer(timer.summary))
    return any(event > after for event in (*asked, *(other.scheduled for other in history.calls)))


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
    steps = {
        call.id: Step(id=call.id, kind=call.kind)
        for call in later
        if call.is_step and until and call.scheduled <= until
    }
    return tuple(steps.values())


def turn_of(ids: Iterable[str]) -> int | None:
    """The number of the turn in which a model called these steps directly; None if they belong to a plan."""
    return next((int(found[1]) for found in map(OF_TURN.fullmatch, ids) if found), None)


def with_values(outcome: Outcome, story: Story) -> Outcome:
    """The Outcome with all that it leaves out because the events of its run have it: arguments, results and more."""
    ended = {call.id: call for call in story.history.newest_calls if call.is_step and call.closed is CallEnd.COMPLETED}
    kept = {one.id: one.result for one in outcome.steps if not one.in_history}
    results = {**kept, **{id: call.result for id, call in ended.items()}}
    steps = [
        _with_values(one, story.steps.get(one.id), ended.get(one.id), results) if one.in_history else one
        for one in outcome.steps
    ]
    return outcome.model_copy(update={"steps": tuple(steps)})


def _with_values(
    one: OutcomeStep, step: Step | None, call: Call | None, results: Mapping[str, JsonValue]
) -> OutcomeStep:
    if step is None or call is None:  # a codec without a key hides the plan
        return one.model_copy(update={"in_history": False, "result_omitted": True})
    args = call.args
    with suppress(Unresolved):  # the event of a local activity has no arguments
        args = resolve(step.args, results) if args is None else args
    shown = args if isinstance(args, dict) and len(canonical(args).encode()) <= MAX_SHOWN_ARGS else step.args
    values = {"title": step.label, "args": shown, "needs": tuple(sorted(step.dependencies)), "result": call.result}
    return one.model_copy(update={"in_history": False, **values})


MISSING = "(none)"
"""In a comparison of two steps, the value of an argument that one of them does not have."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Planned(_Frozen):
    """A planned step without its title, for the comparison of two plans."""

    id: str
    kind: str
    args: dict[str, JsonValue]
    needs: tuple[str, ...] = ()

    @classmethod
    def of(cls, step: Step) -> "Planned":
        return cls(id=step.id, kind=step.kind, args=step.args, needs=tuple(sorted(step.dependencies)))


class Was(_Frozen):
    """A value before and after a change; `(none)` stands for a missing value."""

    before: JsonValue
    after: JsonValue


class Change(_Frozen):
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


class Diff(_Frozen):
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

    The first plan, and the calls of a turn that no fault led to, are compared with no plan: all their steps are added.
    """
    earlier: Sequence[Plan | None] = [None, *story.plans]
    pairs = zip(earlier, story.plans, strict=False)
    return [diff(story, before if plan.move is None or plan.turn.is_replan else None, plan) for before, plan in pairs]


def diff(story: Story, before: Plan | None, plan: Plan) -> Diff:
    """How `plan` differs from the plan `before`; with None, all its steps count as added."""
    kept = story.done_before(plan.turn.call.ended or plan.turn.call.scheduled)
    old = {step.id: step for step in before.steps if step.id not in kept} if before else {}
    pairs = dict(_pairs(list(old.values()), plan.steps))
    changed = [(step, pairs[step.id]) for step in plan.steps if step.id in pairs]
    taken = {one.id for _, one in changed}
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


def _pairs(old: list[Step], new: Sequence[Step]) -> Iterator[tuple[str, Step]]:
    """Pairs of the id of a new step and the old step that it replaces.

    The old step has the same id, else an id that the new id extends, else the same kind.
    """
    rest, waiting = list(old), list(new)
    for alike in (_same_id, _extended_id, _same_kind):
        for step in list(waiting):
            # Of several candidates, the one with the most equal arguments.
            found = max((one for one in rest if alike(one, step)), key=lambda one: _shared(one, step), default=None)
            if found is not None:
                rest.remove(found)
                waiting.remove(step)
                yield step.id, found


def _same_id(one: Step, other: Step) -> bool:
    return one.id == other.id


def _extended_id(one: Step, other: Step) -> bool:
    # `book-2` or `book_again` extends `book`.
    return other.id.startswith((one.id + "-", one.id + "_"))


def _same_kind(one: Step, other: Step) -> bool:
    return one.kind == other.kind


def _shared(one: Step, other: Step) -> int:
    return sum(other.args.get(name) == value for name, value in one.args.items())


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
