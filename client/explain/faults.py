"""Explains the faults of calls: why each was followed by a retry, a wait, a fallback, a new plan or an escalation.

Runs when a task is explained, for each of its steps and undos.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from client.effects import Reconciliation, reconciliation_of
from client.explain import people, prose
from client.explain.prose import Cost, Item, Part, Sentence, said
from client.history.records import AttemptFailure, Call, CallEnd, Event, Timer
from client.history.story import Failure, Plan, PlannerTurn, Story, diff
from client.wording import times
from workflows import ids
from workflows.account.journal import Executed
from workflows.calls.reconciling import CallOutcome
from workflows.faults.decision import Action
from workflows.faults.fault import UNCOUNTED, Code, Fault
from workflows.people.requests import Choice
from workflows.plans import own_activities

LOST = AttemptFailure.of(
    Fault.of(Code.WORKER_LOST, "The attempt ended without a response: its worker was probably killed.")
)
SILENT = (Code.WORKER_LOST, Code.TIMEOUT)
"""The codes of an attempt that ended without a response: the server recorded its timeout."""
LIMITS = ("replans", "no_progress")
"""Outcome codes of tasks that were not allowed to replan any more."""


def step_items(story: Story, id: str) -> Iterator[Item]:
    """The items of one step: each call that needed a retry or failed, and each call that was not made."""
    yield from map(retry_item, filter(is_retried, story.history.of_step(id)))
    failures = (failure for failure in story.failures if failure.id == id)
    yield from (failure_item(story, failure, failure.failing) for failure in failures if failure.failing)


def is_retried(call: Call) -> bool:
    return call.closed is CallEnd.COMPLETED and call.attempt > 1


def failure_item(story: Story, failure: Failure, failing: AttemptFailure) -> Item:
    """The item that explains a failure: what happened, why the decision was made, and what followed."""
    call, decision, event = failure.call, decision_of(story, failure), _event_of(story, failure)
    # Without a call, the event itself is the first that follows.
    after = Event(event.run, event.id if call else event.id - 1) if event else Event(1, 1)
    then = tuple(_THEN[decision](story, failure, after)) if decision in _THEN else ()
    if call is None:
        what = said(f"{failure.id} {prose.failed_as(failing)}", event)
        why = prose.UNCALLED_BECAUSE.get(failing.code, prose.UNCALLED_ANYWAY)
        return Item.of(what, f"{why}.", decision, *then, steps=(failure.id,))
    is_over = story.history.end is not None and replan_after(story, after) is None
    follows = partial(prose.follows, decision, failing, in_turns=story.in_turns, is_over=is_over)
    why = _why(call, failing, decision) or follows()
    found = reconciliation_of(story, call)
    if found and (found.reads or found.verdict is not CallOutcome.CANNOT_TELL):
        why = prose.why_doubted(failing, is_over=found.verdict is not None)
        then = (*reconciliation_parts(found, follows(found.verdict)), *then)
    cost = cost_of_attempts(call, failing.fault.taken if failing.fault else call.attempt)
    return Item.of(_what_failed(call, failing), f"{why}.", decision, cost, *then, steps=step_ids(call))


def _what_failed(call: Call, failing: AttemptFailure) -> Sentence:
    failings = [*failed_before(call), failing]
    if len(failings) == 1:
        clause = prose.failed_as(failing)
    elif prose.same(failings):
        clause = f"{prose.failed_as(failing, f'at all {len(failings)} attempts')} {_why_retried(call)}"
    else:
        clause = f"failed {times(len(failings))}: {prose.counted(failings)}. {_why_retried(call)}"
    return said(f"{call_name(call)} {clause}{prose.observed(failing)}", call.ended)


def _why_retried(call: Call) -> str:
    is_last_worth_it = call.failing is None or call.failing.quadrant is None or call.failing.quadrant.is_transient
    before = "" if is_last_worth_it else " before the last fault"
    return f"A retry could have succeeded{before}: {after_attempts(call)}."


def decision_of(story: Story, failure: Failure) -> Action:
    """The decision after a failure: `ask` if the task asked a person, even if nobody answered; else as recorded.

    Without a record, it is `undecided`. If a fault of Replan's own call ended the task over its budget, it is `end`.
    """
    record, end = failure.record, story.history.end
    if record is None or failure.requests:
        return "ask" if record else "undecided"
    is_over_budget = end is not None and end.status == "over_budget" and record in story.account.own_faults[-1:]
    return "end" if is_over_budget else record.decision


def _why(call: Call, failing: AttemptFailure, decision: Action) -> str:
    """Why the decision was made; empty if the standard words for the decision say enough."""
    match decision:
        case "wait" if failing.fault and failing.fault.uncounted:
            return prose.WAIT_BECAUSE_LOST
        case "wait" if failing.fault and failing.fault.is_trial:
            return prose.WAIT_AFTER_TRIAL
        case "wait" if _is_queued(failing) and failing.code is not Code.CIRCUIT_OPEN:
            return prose.WAIT_FOR_SERVICE
        case "wait" | "end" if failing.fault and failing.fault.lost:
            return prose.TOO_LITTLE_LEFT
        case "wait" if call.is_own and failing.code not in UNCOUNTED:
            return prose.WAIT_FOR_PLANNER
        case "wait":
            return prose.WAIT_BECAUSE.get(failing.code, prose.WAIT_ANYWAY)
        case "escalate" if call.is_undo:
            return "A rollback is not re-planned: what cannot be undone is left to a person"
        case _:
            return ""


def _event_of(story: Story, failure: Failure) -> Event | None:
    """The event that shows a failure; without a call, the next request to the planner, else the end of the task."""
    if failure.call:
        return failure.call.ended or failure.call.scheduled
    at, end = failure.record and failure.record.at, story.history.end
    requests = (call.scheduled for call in story.history.planning if at and call.at >= at)
    return next(requests, end.event if end else None)


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
    waits, fault, lost = retry_waits(call), call.failing.fault if call.failing else None, 0.0
    if call.started_at is not None:
        if sum(fault.attempt < call.attempt for fault in call.earlier) < call.attempt - 1:
            # Attempts without a response: the time before the last attempt, minus the known backoffs.
            lost = max(0.0, (call.started_at - call.at).total_seconds() - sum(waits) - call.held)
        if fault and fault.uncounted and call.ended_at:
            lost += (call.ended_at - call.started_at).total_seconds()
    return Cost(failed_attempts=failed, waited=sum(waits), lost=lost)


def call_name(call: Call) -> str:
    """A call as the subject of a sentence: `book (book_slot)`, `The planner (request 2)`."""
    if call.is_planning:
        return f"The planner (request {call.id.removeprefix(ids.PLAN)})"
    if call.kind == own_activities.CATALOGUE.kind:
        return "The catalogue"
    return f"{'Undoing ' if call.is_undo else ''}{call.step} ({call.kind})"


def step_ids(call: Call) -> tuple[str, ...]:
    """The `steps` of an Item about the call: the id of its step; empty for a call of Replan's own."""
    return () if call.is_own else (call.step,)


def retry_item(call: Call) -> Item:
    """The item that explains a call that was completed after failed attempts."""
    failings = failed_before(call)
    first, name, is_same = failings[0], call_name(call), prose.same(failings)
    because = prose.RETRY_BECAUSE.get((call.is_own, first.quadrant), prose.RETRY_ANYWAY)
    why = f"{because}, so a retry could succeed"
    why = prose.INTERRUPTED_BECAUSE if first.code is Code.INTERRUPTED and is_same else why
    often = times(len(failings))
    what = prose.failed_as(first, often) if is_same else f"failed {often}: {prose.counted(failings)}."
    result = f" It returned: {prose.stop(prose.value(call.result))}" if call.is_step and call.result is not None else ""
    return Item.of(
        said(f"{name} {what}", call.started, call.ended),
        f"{why}: {after_attempts(call)}.",
        "retry",
        said(f"Attempt {call.attempt} succeeded.{result}", call.ended or call.started),
        cost_of_attempts(call, len(failings)),
        steps=step_ids(call),
    )


def after_attempts(call: Call) -> str:
    """A clause about the later attempts of a call: `attempts 2 and 3 followed after 0.2 s and 0.4 s`."""
    numbers = prose.listed(str(number) for number in range(2, call.attempt + 1))
    attempts, waits = f"attempt{'s' if call.attempt > 2 else ''} {numbers} followed", retry_waits(call)
    if len(waits) == call.attempt - 1:
        hold = f", and {prose.hold(call)}" if call.held else ""
        return f"{attempts} after {prose.listed(map(prose.seconds, waits))}{hold}"
    if call.started_at is None:
        return attempts
    last, hold = "" if call.attempt == 2 else ", the last one", f", of which {prose.hold(call)}" if call.held else ""
    took = prose.seconds((call.started_at - call.at).total_seconds())
    return f"{attempts}{last} {took} after the first was scheduled{hold}"


def _after_wait(story: Story, failure: Failure, after: Event) -> Iterator[Part]:
    call, failing = failure.call, failure.failing
    if call is None or failing is None:
        return
    following = story.history.next_call(call)
    timers = (timer for timer in story.history.timers if timer.retries(call) and timer.started > after)
    timer = next((timer for timer in timers if following is None or timer.started < following.scheduled), None)
    again = "the same call was made again" if following else "the same call is to be made again"
    again = "the planner was asked for a shorter reply" if failing.fault and failing.fault.lost > 0 else again
    proof = (*(timer.events if timer else ()), *(following.events[:1] if following else ()))
    if following and following.started_at and call.ended_at and _is_queued(failing):
        waited = (following.started_at - call.ended_at).total_seconds()
        yield from (said(f"It waited {prose.seconds(waited)} for its turn, then {again}.", *proof), Cost(waited=waited))
    elif timer is None:
        yield said(f"So {again} at once.", *proof)
    else:
        yield from (said(f"{_wait_clause(timer)}, then {again}.", *proof), Cost(waited=timer.waited))


def _is_queued(failing: AttemptFailure) -> bool:
    """Whether the call waited for its turn at its service."""
    return failing.fault is not None and failing.fault.queued is not None


def _wait_clause(timer: Timer) -> str:
    state = "" if timer.fired else " (the timer was stopped)" if timer.ended else " (it is still waiting)"
    return f"It waited {prose.seconds(timer.seconds)} on a timer{state}"


_FALLBACK_ENDED: Mapping[CallEnd | None, str] = {
    CallEnd.FAILED: "was called instead, and failed too.",
    CallEnd.CANCELLED: "was called instead, and was stopped.",
    None: "was called instead, and has not ended yet.",
}


def _after_fallback(story: Story, failure: Failure, after: Event) -> Iterator[Part]:
    following = story.history.next_call(failure.call) if failure.call else None
    if following is None:
        yield said("The fallback has not been called yet.")
    else:
        returned = prose.stop(f"did the step instead and returned: {prose.value(following.result)}")
        text = f"The fallback {following.kind} {_FALLBACK_ENDED.get(following.closed, returned)}"
        yield said(text, *following.events)


def _after_request(story: Story, failure: Failure, after: Event) -> Iterator[Part]:
    asked = [exchange for exchange in story.requests if exchange.request in failure.requests]
    for exchange in asked:
        yield from people.answer_sentences(story, exchange)
    answer = asked[-1].request.answer if asked else None
    if answer and answer.choice is Choice.REPLAN and not failure.is_own:
        yield from _after_rejection(story, failure, asked[-1].answered or after)


def _after_rejection(story: Story, failure: Failure, after: Event) -> Iterator[Part]:
    """Sentences about the observations and the new plan after a fault of a step, and their cost."""
    for read in story.history.observations(failure.id):
        if read.scheduled > after:
            yield from (_observation_sentence(read), Cost(observations=max(1, read.attempt)))
    turn = replan_after(story, after)
    if turn is None:
        yield _no_replan_sentence(story)
        return
    plan = next((plan for plan in story.plans if plan.turn.call.scheduled >= turn.call.scheduled), None)
    is_first = _is_first_of_replan(story, failure)
    lead = "The model was asked what comes next" if story.in_turns else "The planner was asked for a new plan"
    lead = "The next plan was written by hand" if turn.is_by_hand else lead
    once = "" if is_first else " (once for all the faults)"
    text = f"{lead}{once}: {_replacement_clause(story, failure.id, plan)}"
    yield said(text, *(plan.turn if plan else turn).call.events)
    yield Cost(planning_calls=int(is_first and not turn.is_by_hand))


def _is_first_of_replan(story: Story, failure: Failure) -> bool:
    """Whether a fault is the first of those that led to one request for a new plan: only its item gets the cost."""
    led = (entry.rejected for entry, _ in story.happened if isinstance(entry, Executed))
    return next((ids[0] for ids in led if failure.id in ids), failure.id) == failure.id


def _observation_sentence(read: Call) -> Sentence:
    if read.closed is CallEnd.COMPLETED:
        text = f"Observed again with {read.kind}: {prose.stop(prose.value(read.result))}"
    elif read.failing is not None:
        text = f"The observation with {read.kind} {prose.failed_as(read.failing)} So that of the fault itself was used."
    else:
        text = f"The observation with {read.kind} {'was stopped' if read.closed else 'has not ended yet'}."
    return said(text, *read.events)


def _replacement_clause(story: Story, id: str, plan: Plan | None) -> str:
    if plan is None:
        if story.in_turns:
            return "no call came of it." if story.history.end else "it has not answered yet."
        return "no plan came of it." if story.history.end else "it has not answered with a plan yet."
    before = story.plans[plan.number - 2] if plan.number > 1 else None
    change = next((change for change in diff(story, before, plan).changed if change.before.id == id), None)
    if change is None:
        return f"{plan.name} does without it."
    how = prose.differences(change)
    return f"{plan.name} has {change.after.id} in its place{f' ({how})' if how else ''}."


def _no_replan_sentence(story: Story) -> Sentence:
    outcome, end, in_turns = story.history.outcome, story.history.end, story.in_turns
    if end is None:
        nobody = "model has not been asked again" if in_turns else "planner has not been asked for a new plan"
        return said(f"The {nobody} yet.")
    if outcome and outcome.code in LIMITS:
        nothing = "The model was not asked again" if in_turns else "No new plan was asked for"
        return said(f"{nothing}: {prose.sentence(outcome.reason)}", end.event)
    return said(
        f"The task ended before {'the model was asked again' if in_turns else 'a new plan was asked for'}.", end.event
    )


def _after_escalation(story: Story, failure: Failure, after: Event) -> Iterator[Part]:
    end, text = story.history.end, "Steps that run may still finish; then the task ends as escalated."
    if failure.call and failure.call.is_undo:
        yield said(f"So the effect of {failure.call.step} stays; the remaining effects are undone.")
        return
    if end is not None:
        text = prose.not_waiting(f"so it ended as {end.status.replace('_', ' ')}.")
    elif story.undo_ids:
        text = prose.not_waiting("so what it did is being undone; then it ends.")
    yield said(text, *([end.event] if end else []))


_THEN: Mapping[Action, Callable[[Story, Failure, Event], Iterator[Part]]] = {
    "wait": _after_wait,
    "fallback": _after_fallback,
    "ask": _after_request,
    "replan": _after_rejection,
    "escalate": _after_escalation,
}
"""By decision, what says what followed after an event, and what that cost."""


def replan_after(story: Story, after: Event) -> PlannerTurn | None:
    """The first request for a new plan that was scheduled after an event; None if there is none."""
    return next((turn for turn in story.turns if turn.is_replan and turn.call.scheduled > after), None)


def reconciliation_parts(found: Reconciliation, verdict: str) -> Iterator[Part]:
    """Sentences about the reads and timers of a reconciliation, with their cost, and last its `verdict`."""
    dated: list[tuple[Event, Sentence, Cost]] = [
        (read.scheduled, _sentence_of_read(read), Cost(observations=max(1, read.attempt))) for read in found.reads
    ]
    for timer in found.timers:
        text = f"{_wait_clause(timer)}, until no attempt could still be running."
        dated.append((timer.started, said(text, *timer.events), Cost(waited=timer.waited)))
    for _, sentence, cost in sorted(dated, key=lambda part: part[0]):
        yield from (sentence, cost)
    if found.verdict:
        yield said(f"{verdict}.", *(found.reads[-1].events if found.reads else ()))


_IN_LEDGER = {Code.NO_RESULTS: "has the call, but not its result", Code.GONE: "says that it was undone"}
"""What the ledger knows of a call of which it can return no result, as a clause."""


def _sentence_of_read(read: Call) -> Sentence:
    is_ledger, failing = read.kind == own_activities.FIND_EFFECT.kind, read.failing
    if read.closed is CallEnd.COMPLETED:
        found = f"found it: {prose.stop(prose.value(read.result))}"
    elif failing is None:
        found = "was stopped." if read.closed else "has not answered yet."
    elif failing.code is Code.NOT_FOUND and not (failing.fault and failing.fault.guessed):
        found = "found nothing."
    else:
        known = _IN_LEDGER.get(failing.code) if is_ledger and failing.code else None
        found = f"{known}." if known else prose.failed_as(failing)
    who = "The ledger" if is_ledger else read.kind
    return said(f"{who} was asked whether it was applied, and {found}", *read.events)
