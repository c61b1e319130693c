"""Explains the faults of steps: why each was followed by a retry, a wait, a fallback, a new plan or an escalation."""

from collections.abc import Iterator
from functools import partial

from client.effects import Reconciliation, reconciliation_of
from client.explain import people, words
from client.explain.words import Cost, Item, Sentence
from client.history.records import AttemptFailure, Call, CallEnd, Event, Timer
from client.history.story import Plan, Story, Turn, diff
from client.wording import times
from workflows import ids
from workflows.account.records import FaultRecord
from workflows.faults import retries
from workflows.faults.decision import Action
from workflows.faults.fault import UNCOUNTED, Code, Fault
from workflows.people.requests import Choice

LOST = AttemptFailure.of(
    Fault.of(Code.WORKER_LOST, "The attempt ended without a response: its worker was probably killed.")
)
SILENT = (Code.WORKER_LOST, Code.TIMEOUT)
"""The codes of an attempt that ended without a response: the server recorded its timeout."""


LIMITS = ("replans", "no_progress")
"""Outcome codes of tasks that were not allowed to replan any more."""


def step_items(story: Story, id: str) -> Iterator[Item]:
    """The items of one step, in order: each call that needed a retry or failed, and each call that was not made."""
    for call in story.history.of_step(id):
        if call.closed is CallEnd.COMPLETED and call.attempt > 1:
            yield retry_item(call)
        if call.closed is CallEnd.FAILED and call.failing is not None:
            record, history = story.fault_of(call), story.history
            # Else it was a check; but the task may not have heard of the failure, or nothing here tells its decision.
            if record or history.is_untold or (history.next_call(call) is None and history.end is None):
                yield call_item(story, call, call.failing, record)
    for record in story.uncalled(id):
        yield _item_without_call(story, id, record)


def call_item(story: Story, call: Call, failing: AttemptFailure, record: FaultRecord | None) -> Item:
    """The item that explains a call that failed: what happened, why the decision was made, and what followed."""
    after, decision = call.ended or call.scheduled, decision_of(story, record)
    then, cost = what_followed(story, call, after, decision, record)
    found = reconciliation_of(story, call)
    failed = failing.fault.taken if failing.fault else call.attempt
    is_over = story.history.end is not None and replan_after(story, after) is None
    follows = partial(words.follows, decision, failing, in_turns=story.in_turns, is_over=is_over)
    if found:
        why = words.why_doubted(failing, is_over=found.verdict is not None)
        then = (*reconciliation_sentences(found, follows(found.verdict)), *then)
    else:
        why = _why(story, call, failing, decision) or follows()
    return Item(
        steps=step_ids(call),
        what=_what_failed(call, failing),
        why=Sentence(text=why + "."),
        decision=decision,
        then=then,
        cost=cost_of_attempts(call, failed) + cost + (_cost_of(found) if found else Cost()),
    )


def _what_failed(call: Call, failing: AttemptFailure) -> Sentence:
    failings = [*failed_before(call), failing]
    if len(failings) == 1:
        clause = words.failed_as(failing)
    elif words.same(failings):
        clause = f"{words.failed_as(failing, f'at all {len(failings)} attempts')} {_why_retried(call)}"
    else:
        clause = f"failed {times(len(failings))}: {words.counted(failings)}. {_why_retried(call)}"
    return Sentence(text=f"{call_name(call)} {clause}{words.observed(failing)}", events=words.known(call.ended))


def _why_retried(call: Call) -> str:
    is_last_worth_it = call.failing is None or call.failing.quadrant is None or call.failing.quadrant.is_transient
    before = "" if is_last_worth_it else " before the last fault"
    return f"A retry could have succeeded{before}: {after_attempts(call)}."


def decision_of(story: Story, record: FaultRecord | None) -> Action:
    """The decision after a fault: `ask` if the task asked a person, even if nobody answered; else as recorded.

    Without a record, it is `undecided`. If a fault of Replan's own call ended the task over its budget, it is `end`.
    """
    if record is None:
        return "undecided"
    if story.requests_about(record):
        return "ask"
    end, own = story.history.end, story.account.own_faults
    is_over_budget = end is not None and end.status == "over_budget" and record in own[-1:]
    return "end" if is_over_budget else record.decision


def _why(story: Story, call: Call, failing: AttemptFailure, decision: Action) -> str:
    """Why the decision was made; empty if the standard words for the decision say enough."""
    match decision:
        case "wait" if failing.fault and failing.fault.uncounted:
            return words.WAIT_BECAUSE_LOST
        case "wait" if failing.fault and failing.fault.is_trial:
            return words.WAIT_AFTER_TRIAL
        case "wait" if _is_queued(failing) and failing.code is not Code.CIRCUIT_OPEN:
            return words.WAIT_FOR_TURN
        case "wait" | "end" if failing.fault and failing.fault.lost:
            return words.TOO_LITTLE_LEFT
        case "wait" if call.is_own and failing.code not in UNCOUNTED:
            return words.WAIT_FOR_PLANNER
        case "wait":
            return words.WAIT_BECAUSE.get(failing.code, words.WAIT_ANYWAY)
        case "escalate" if call.is_undo:
            return "A rollback is not re-planned: what cannot be undone is left to a person"
        case _:
            return ""


def _item_without_call(story: Story, id: str, record: FaultRecord) -> Item:
    where = _fault_events(story, record)
    failing = AttemptFailure.of(record)
    why = words.UNCALLED_BECAUSE.get(record.code, words.UNCALLED_ANYWAY)
    # The place just before the event, so that the event itself counts as following.
    before = Event(where[0].run, where[0].id - 1) if where else Event(1, 1)
    then, cost = what_followed(story, None, before, record.decision, record)
    return Item(
        steps=(id,),
        what=Sentence(text=f"{id} {words.failed_as(failing)}", events=where),
        why=Sentence(text=f"{why}."),
        decision=record.decision,
        then=then,
        cost=cost,
    )


def _fault_events(story: Story, record: FaultRecord) -> tuple[Event, ...]:
    """The event that shows a fault without a call: the next request to the planner, else the end of the task."""
    requests = [call for call in story.history.planning if call.at >= record.at]
    end = story.history.end
    return (requests[0].scheduled,) if requests else (end.event,) if end else ()


def failed_before(call: Call) -> list[AttemptFailure]:
    """The failures of all attempts of a call before its last attempt, also of attempts that nobody reported."""
    known = {fault.attempt: AttemptFailure.of(fault) for fault in call.earlier}
    last = {call.attempt - 1: call.last} if call.last else {}
    # If the last known attempt timed out, the unknown ones before it count as the same; else as lost workers.
    silent = call.last if call.last and call.last.code in SILENT else LOST
    return [known.get(number) or last.get(number) or silent for number in range(1, call.attempt)]


def retry_waits(call: Call) -> list[float]:
    """Seconds of backoff before each attempt except the first; an unknown backoff is left out."""
    return [fault.waited for fault in call.earlier if fault.waited is not None and fault.attempt < call.attempt]


def cost_of_attempts(call: Call, failed: int) -> Cost:
    """The cost of the attempts of a call, of which `failed` failed."""
    lost = _seconds_lost_before_last_attempt(call) + _seconds_lost_in_last_attempt(call)
    return Cost(failed_attempts=failed, waited=sum(retry_waits(call)), lost=lost)


def _seconds_lost_in_last_attempt(call: Call) -> float:
    fault = call.failing.fault if call.failing else None
    if fault is None or not fault.uncounted or call.started_at is None or call.ended_at is None:
        return 0.0
    return (call.ended_at - call.started_at).total_seconds()


def _seconds_lost_before_last_attempt(call: Call) -> float:
    """Seconds in earlier attempts without a response: the time before the last attempt, minus the known backoffs."""
    reported = sum(fault.attempt < call.attempt for fault in call.earlier)
    if reported >= call.attempt - 1 or call.started_at is None:
        return 0.0
    return max(0.0, (call.started_at - call.at).total_seconds() - sum(retry_waits(call)) - call.held)


def call_name(call: Call) -> str:
    """A call as the subject of a sentence: `book (book_slot)`, `The planner (request 2)`."""
    if call.is_planning:
        return f"The planner (request {call.id.removeprefix(ids.PLAN)})"
    if call.kind == retries.CATALOGUE.kind:
        return "The catalogue"
    if call.is_undo:
        return f"Undoing {call.step} ({call.kind})"
    return f"{call.step} ({call.kind})"


def step_ids(call: Call) -> tuple[str, ...]:
    """The `steps` of an Item about the call: the id of its step; empty for a call of Replan's own."""
    return () if call.is_own else (call.step,)


def retry_item(call: Call) -> Item:
    """The item that explains a call that was completed after failed attempts."""
    failings = failed_before(call)
    first = failings[0]
    because = words.REQUEST_AGAIN_BECAUSE if call.is_own else words.RETRY_BECAUSE
    why = because.get(first.quadrant, words.RETRY_ANYWAY)
    why = words.INTERRUPTED_BECAUSE if first.code is Code.INTERRUPTED and words.same(failings) else why
    proof, name = words.known(call.started, call.ended), call_name(call)
    what = f"{name} failed {times(len(failings))}: {words.counted(failings)}."
    what = f"{name} {words.failed_as(first, times(len(failings)))}" if words.same(failings) else what
    result = f" It returned: {words.stop(words.value(call.result))}" if call.is_step and call.result is not None else ""
    return Item(
        steps=step_ids(call),
        what=Sentence(text=what, events=proof),
        why=Sentence(text=f"{why}: {after_attempts(call)}."),
        decision="retry",
        then=(Sentence(text=f"Attempt {call.attempt} succeeded.{result}", events=proof[-1:]),),
        cost=cost_of_attempts(call, len(failings)),
    )


def after_attempts(call: Call) -> str:
    """A clause about the later attempts of a call: `attempts 2 and 3 followed after 0.2 s and 0.4 s`."""
    numbers = words.listed(str(number) for number in range(2, call.attempt + 1))
    attempts = f"attempt{'s' if call.attempt > 2 else ''} {numbers} followed"
    if len(retry_waits(call)) == call.attempt - 1:
        held = f", and {words.held(call)}" if call.held else ""
        return f"{attempts} after {words.listed(map(words.seconds, retry_waits(call)))}{held}"
    last = "" if call.attempt == 2 else ", the last one"
    if call.started_at is None:
        return attempts
    held = f", of which {words.held(call)}" if call.held else ""
    took = words.seconds((call.started_at - call.at).total_seconds())
    return f"{attempts}{last} {took} after the first was scheduled{held}"


def what_followed(
    story: Story, call: Call | None, after: Event, decision: Action, record: FaultRecord | None
) -> tuple[tuple[Sentence, ...], Cost]:
    """Sentences about what followed a decision, and what that cost; only events after the event `after` count."""
    if decision == "wait" and call is not None:
        return _what_followed_wait(story, call)
    if decision == "fallback" and call is not None:
        return (_fallback_sentence(story.history.next_call(call)),), Cost()
    if decision == "ask" and record is not None:
        requests = story.requests_about(record)
        sentences = tuple(sentence for request in requests for sentence in people.answer_sentences(story, request))
        answer = requests[-1].request.answer if requests else None
        if answer is None or answer.choice is not Choice.REPLAN or record not in story.account.faults:
            return sentences, Cost()
        replanned, cost = _what_followed_replan(story, record, requests[-1].answered or after)
        return (*sentences, *replanned), cost
    if decision == "replan" and record is not None:
        return _what_followed_replan(story, record, after)
    if decision == "escalate" and call is not None and call.is_undo:
        return (Sentence(text=f"So the effect of {call.step} stays; the remaining effects are undone."),), Cost()
    if decision == "escalate":
        return (_escalation_sentence(story),), Cost()
    return (), Cost()


def _what_followed_wait(story: Story, call: Call) -> tuple[tuple[Sentence, ...], Cost]:
    following, after = story.history.next_call(call), call.ended or call.scheduled
    timers = (timer for timer in story.history.timers if timer.retries(call) and timer.started > after)
    timer = next((timer for timer in timers if following is None or timer.started < following.scheduled), None)
    is_shorter = call.failing is not None and call.failing.fault is not None and call.failing.fault.lost > 0
    next_event = (following.scheduled,) if following else ()
    again = "the same call was made again" if following else "the same call is to be made again"
    again = "the planner was asked for a shorter reply" if is_shorter else again
    if following and following.started_at and call.ended_at and call.failing and _is_queued(call.failing):
        waited = (following.started_at - call.ended_at).total_seconds()
        events = (*(words.known(timer.started, timer.ended) if timer else ()), *next_event)
        sentence = Sentence(text=f"It waited {words.seconds(waited)} for its turn, then {again}.", events=events)
        return (sentence,), Cost(waited=waited)
    if timer is None:
        return (Sentence(text=f"So {again} at once.", events=next_event),), Cost()
    events = (*words.known(timer.started, timer.ended), *next_event)
    sentence = Sentence(text=f"{_wait_clause(timer)}, then {again}.", events=events)
    return (sentence,), Cost(waited=timer.seconds if timer.fired else 0.0)


def _is_queued(failing: AttemptFailure) -> bool:
    """Whether the call waited for its turn at its service."""
    return failing.fault is not None and failing.fault.queued is not None


def _wait_clause(timer: Timer) -> str:
    state = "" if timer.fired else " (the timer was stopped)" if timer.ended else " (it is still waiting)"
    return f"It waited {words.seconds(timer.seconds)} on a timer{state}"


def _fallback_sentence(following: Call | None) -> Sentence:
    if following is None:
        return Sentence(text="The fallback has not been called yet.")
    match following.closed:
        case CallEnd.COMPLETED:
            end = f"did the step instead and returned: {words.value(following.result)}"
        case CallEnd.FAILED:
            end = "was called instead, and failed too"
        case CallEnd.CANCELLED:
            end = "was called instead, and was stopped"
        case None:
            end = "was called instead, and has not ended yet"
    return Sentence(text=f"The fallback {following.kind} {words.stop(end)}", events=following.events)


def _what_followed_replan(story: Story, record: FaultRecord, after: Event) -> tuple[tuple[Sentence, ...], Cost]:
    """Sentences about the observations and the new plan after a fault of a step, and their cost."""
    id = record.step_id
    reads = [read for read in story.history.observations(id) if read.scheduled > after]
    sentences = [_observation_sentence(read) for read in reads]
    observations = sum(max(1, read.attempt) for read in reads)
    turn = replan_after(story, after)
    if turn is None:
        return (*sentences, _no_replan_sentence(story)), Cost(observations=observations)
    plan = story.plan_from(turn)
    first = _is_first_of_replan(story, record)
    by_hand = story.is_by_hand(turn)
    lead = "The model was asked what comes next" if story.in_turns else "The planner was asked for a new plan"
    lead = "The next plan was written by hand" if by_hand else lead
    text = f"{lead}{'' if first else ' (once for all the faults)'}: {_replacement_clause(story, id, plan)}"
    events = plan.events if plan else turn.call.events
    cost = Cost(observations=observations, planning_calls=int(first and not by_hand))
    return (*sentences, Sentence(text=text, events=events)), cost


def _is_first_of_replan(story: Story, record: FaultRecord) -> bool:
    """Whether a fault is the first of those that led to one request for a new plan: only its item gets the cost."""
    replanned = [fault for fault in story.account.faults if fault.decision == "replan"]
    led = [fault.step_id for fault in replanned if fault.revision == record.revision]
    places = {step.id: place for place, step in enumerate(story.account.steps)}
    return not led or min(led, key=lambda step: places.get(step, 0)) == record.step_id


def _observation_sentence(read: Call) -> Sentence:
    if read.closed is CallEnd.COMPLETED:
        text = f"Observed again with {read.kind}: {words.stop(words.value(read.result))}"
    elif read.failing is not None:
        text = f"The observation with {read.kind} {words.failed_as(read.failing)} So that of the fault itself was used."
    else:
        text = f"The observation with {read.kind} {'was stopped' if read.closed else 'has not ended yet'}."
    return Sentence(text=text, events=read.events)


def _replacement_clause(story: Story, id: str, plan: Plan | None) -> str:
    if plan is None:
        end = story.history.end
        if story.in_turns:
            return "no call came of it." if end else "it has not answered yet."
        return "no plan came of it." if end else "it has not answered with a plan yet."
    before = story.plans[plan.number - 2] if plan.number > 1 else None
    change = next((change for change in diff(story, before, plan).changed if change.before.id == id), None)
    if change is None:
        return f"{plan.name} does without it."
    how = words.differences(change)
    return f"{plan.name} has {change.after.id} in its place{f' ({how})' if how else ''}."


def _no_replan_sentence(story: Story) -> Sentence:
    outcome, end = story.history.outcome, story.history.end
    if outcome and outcome.code in LIMITS and end:
        nothing = "The model was not asked again" if story.in_turns else "No new plan was asked for"
        return Sentence(text=f"{nothing}: {words.sentence(outcome.reason)}", events=(end.event,))
    if end is None and story.in_turns:
        return Sentence(text="The model has not been asked again yet.")
    if end is None:
        return Sentence(text="The planner has not been asked for a new plan yet.")
    was_asked = "the model was asked again" if story.in_turns else "a new plan was asked for"
    return Sentence(text=f"The task ended before {was_asked}.", events=(end.event,))


def _escalation_sentence(story: Story) -> Sentence:
    end = story.history.end
    text = "Steps that run may still finish; then the task ends as escalated."
    if end is not None:
        text = words.not_waiting(f"so it ended as {end.status.replace('_', ' ')}.")
    elif any(call.is_undo for call in story.history.calls):
        text = words.not_waiting("so what it did is being undone; then it ends.")
    return Sentence(text=text, events=(end.event,) if end else ())


def replan_after(story: Story, after: Event) -> Turn | None:
    """The first request for a new plan that was scheduled after an event; None if there is none."""
    return next((turn for turn in story.turns if turn.is_replan and turn.call.scheduled > after), None)


def _cost_of(found: Reconciliation) -> Cost:
    """The reads of a reconciliation, and the time that it waited."""
    waited = sum(timer.seconds for timer in found.timers if timer.fired)
    return Cost(observations=sum(max(1, read.attempt) for read in found.reads), waited=waited)


def reconciliation_sentences(found: Reconciliation, verdict: str) -> tuple[Sentence, ...]:
    """Sentences about the reads and timers of a reconciliation, and last its `verdict` (given without a full stop)."""
    dated = [(read.scheduled, _sentence_of_read(read)) for read in found.reads]
    for timer in found.timers:
        text = f"{_wait_clause(timer)}, until no attempt could still be running."
        dated.append((timer.started, Sentence(text=text, events=words.known(timer.started, timer.ended))))
    last = [Sentence(text=f"{verdict}.", events=found.reads[-1].events if found.reads else ())] if found.verdict else []
    return (*(sentence for _, sentence in sorted(dated, key=lambda pair: pair[0])), *last)


_IN_LEDGER = {Code.NO_RESULTS: "has the call, but not its result", Code.GONE: "says that it was undone"}
"""What the ledger knows of a call of which it can return no result, as a clause."""


def _sentence_of_read(read: Call) -> Sentence:
    who = "The ledger" if read.kind == retries.FIND_EFFECT.kind else read.kind
    lead = f"{who} was asked whether it was applied, and"
    if read.closed is CallEnd.COMPLETED:
        text = f"{lead} found it: {words.stop(words.value(read.result))}"
    elif read.failing is None:
        text = f"{lead} {'was stopped' if read.closed else 'has not answered yet'}."
    elif read.failing.code is Code.NOT_FOUND and not (read.failing.fault and read.failing.fault.guessed):
        text = f"{lead} found nothing."
    elif read.kind == retries.FIND_EFFECT.kind and read.failing.code in _IN_LEDGER:
        text = f"{lead} {_IN_LEDGER[read.failing.code]}."
    else:
        text = f"{lead} {words.failed_as(read.failing)}"
    return Sentence(text=text, events=read.events)
