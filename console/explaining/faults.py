"""Why a step's fault was followed by what followed it: a wait, a fallback, a new plan, a person."""

from collections.abc import Iterator

from console.call import Call, Closed, Event, Failing
from console.explaining import attempts, following, reconciling, words
from console.explaining.item import Cost, Decision, Item, Sentence
from console.explaining.story import Story
from workflows.reconciling import Verdict
from workflows.record import FaultRecord


def of_step(story: Story, id: str) -> Iterator[Item]:
    """The items of one step, in order: each call that needed a retry or failed, and each call that was not made."""
    records = story.decisions(id)
    for call in story.history.of_step(id):
        if call.closed is Closed.COMPLETED and call.attempt > 1:
            yield attempts.retried(call)
        if call.closed is Closed.FAILED and call.failing is not None:
            record = _recorded(records, call.failing)
            yield of_call(story, call, call.failing, _decision(story, call, record), record)
    for record in records:
        if record.attempt == 0:
            yield _uncalled(story, id, record)


def of_call(story: Story, call: Call, failing: Failing, decision: Decision, record: FaultRecord | None = None) -> Item:
    """Why a call failed for good, and what followed."""
    after = call.ended or call.scheduled
    spent = Cost(failed_attempts=max(1, call.attempt), waited=attempts.waited(call), lost=attempts.lost(call))
    then, cost = following.followed(story, call.id, call, after, decision)
    found = reconciling.of(story, call, record)
    why = (
        words.why_doubted(failing, is_over=found.verdict is not None)
        if found
        else _why(story, call, failing, decision, is_over=_is_over(story, after))
    )
    return Item(
        steps=attempts.steps(call),
        what=_what(call, failing),
        why=Sentence(text=why + "."),
        decision=decision,
        then=(*found.sentences(decision), *then) if found else then,
        cost=spent + cost + (found.cost if found else Cost()),
    )


def _what(call: Call, failing: Failing) -> Sentence:
    failings = [*attempts.before(call), failing]
    if len(failings) == 1:
        said = words.failed_as(failing)
    elif words.same(failings):
        said = f"{words.failed_as(failing, f'at all {len(failings)} attempts')} {_tried(call)}"
    else:
        said = f"failed {words.times(len(failings))}: {words.counted(failings)}. {_tried(call)}"
    proof = tuple(event for event in (call.ended,) if event)
    return Sentence(text=f"{attempts.name(call)} {said}{words.observed(failing)}", events=proof)


def _tried(call: Call) -> str:
    return f"Time could have cured it: {attempts.followed(call)}."


def _recorded(records: list[FaultRecord], failing: Failing) -> FaultRecord | None:
    """The record of a fault that came back from a call; each record is used once."""
    same = [one for one in records if one.attempt and failing.code in (None, one.code)]
    if same:
        records.remove(same[0])
    return same[0] if same else None


def _decision(story: Story, call: Call, record: FaultRecord | None) -> Decision:
    """What was decided: as the Outcome says or, before there is one, as what followed shows."""
    if record is not None and story.history.outcome is not None:
        return record.decision
    derived = _derived(story, call)
    return record.decision if record is not None and derived == "undecided" else derived


def _derived(story: Story, call: Call) -> Decision:
    found = reconciling.of(story, call)
    if found is not None and found.verdict in (None, Verdict.APPLIED):
        return "reconcile"
    other = following.next_call(story, call)
    if other is not None:
        return "wait" if other.kind == call.kind else "fallback"
    after = call.ended or call.scheduled
    if following.timer_of(story, call) is not None:
        return "wait"
    if any(look.scheduled > after for look in story.history.looks(call.id)) or following.replan_after(story, after):
        return "replan"
    is_rolled_back = call.is_undo or any(other.is_undo for other in story.history.calls)
    is_escalated = story.history.end is not None and story.history.end.status == "escalated"
    return "escalate" if is_rolled_back or is_escalated else "undecided"


def _is_over(story: Story, after: Event) -> bool:
    """Whether the task ended without having asked for a new plan."""
    return story.history.end is not None and following.replan_after(story, after) is None


def _why(story: Story, call: Call, failing: Failing, decision: Decision, *, is_over: bool) -> str:
    match decision:
        case "wait" if failing.fault and failing.fault.uncounted:
            return words.WAIT_BECAUSE_LOST
        case "wait":
            return words.WAIT_BECAUSE.get(failing.code, words.WAIT_ANYWAY)
        case "fallback":
            return f"The attempts of {call.kind} were used up, and it names another kind that takes over then"
        case "replan":
            return words.why_replanned(failing, call.kind, planned=not is_over, in_turns=story.in_turns)
        case "escalate" if call.is_undo:
            return "Nobody plans a rollback anew: what cannot be undone is left to a person"
        case "escalate":
            return words.why_escalated(failing, is_own=call.is_own)
        case _:
            return "What follows is not decided yet"


def _uncalled(story: Story, id: str, record: FaultRecord) -> Item:
    """A fault that was found before anything was called; it is written where it was told first."""
    where = _told(story, record)
    failing = Failing.of(record)
    why = words.UNCALLED_BECAUSE.get(record.code, words.UNCALLED_ANYWAY)
    then, cost = following.followed(story, id, None, _before(story, where), record.decision)
    return Item(
        steps=(id,),
        what=Sentence(text=f"{id} {words.failed_as(failing)}", events=where),
        why=Sentence(text=f"{why}."),
        decision=record.decision,
        then=then,
        cost=cost,
    )


def _told(story: Story, record: FaultRecord) -> tuple[Event, ...]:
    told = [call for call in story.history.planning if call.situation and record in call.situation.faults]
    end = story.history.end
    return (told[0].scheduled,) if told else (end.event,) if end else ()


def _before(story: Story, where: tuple[Event, ...]) -> Event:
    """Just before an event, so that what is written in it counts as following."""
    return Event(where[0].run, where[0].id - 1) if where else Event(1, 1)
