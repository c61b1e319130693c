"""Counts what a task did in its history, as its workflow counted it for the metrics of its workers."""

from collections import Counter
from collections.abc import Iterator, Sequence

from client.history.records import Call, CallEnd, History
from workflows import measures
from workflows.faults import Code, Fault, parse_faults
from workflows.measures import Metric, Sample
from workflows.outcome import Outcome
from workflows.plan import Proposed, StepReturn

Counts = Counter[tuple[Metric, tuple[str, ...]]]
"""Sums by metric and labels."""


def counts(history: History) -> Counts:
    """The counters of `measures.COUNTED` for one task; what only an Outcome tells is missing until the task ends."""
    found = Counts()
    for metric, labels, value in samples(history):
        if metric in measures.COUNTED and value > 0:
            found[metric, labels] += round(value)
    return found


def samples(history: History) -> Iterator[Sample]:
    """All samples of a task, of its calls in the order of the events, then of its faults, requests and end."""
    for _, of_one in by_call(history):
        yield from of_one
    if history.outcome is not None:
        yield from _of_outcome(history.outcome)
        yield from _lost(history, history.outcome)


def by_call(history: History) -> Iterator[tuple[Call, Sequence[Sample]]]:
    """The calls of a task in the order of the events, each with its samples."""
    before = dict[tuple[str, str], tuple[Call, Fault | None]]()
    for call in history.calls:
        last, failed = before.get((call.id, call.kind), (None, None))
        repeated = failed if last and _is_repeated(history, last, call) else None
        yield call, list(of_call(call, repeated))
        fault = call.failing.fault if call.failing else None
        before[call.id, call.kind] = call, measures.last_fault(fault, call.earlier, repeated)


def of_call(call: Call, repeated: Fault | None) -> Iterator[Sample]:
    """The samples of one activity execution; an open one has none yet.

    `repeated` is what `measures.last_fault` says of the execution that this one repeats.
    """
    fault = call.failing.fault if call.failing else None
    if call.is_own:
        if call.kind in measures.PLANNERS and (call.proposed or fault):
            earlier = parse_faults(call.proposed.earlier) if call.proposed else call.earlier
            yield from measures.of_request_to_planner(call.kind, call.proposed or fault, earlier, repeated)
        if call.proposed:
            is_correction = bool(call.situation and call.situation.rejected)
            yield from _spent(measures.purpose_of(call.kind, is_correction=is_correction), call.proposed)
    elif call.returned:
        yield from measures.of_call(call.kind, call.returned, parse_faults(call.returned.earlier), repeated)
        yield from _spent(measures.STEPS, call.returned)
    elif fault or call.closed is CallEnd.CANCELLED:
        yield from measures.of_call(call.kind, fault, call.earlier if fault else (), repeated)
    elif call.closed is CallEnd.COMPLETED:  # its result cannot be read here: it is in a store, or encrypted
        last = call.last.fault if call.last else None
        unread = StepReturn(result=None, attempt=max(1, call.attempt))
        yield from measures.of_call(call.kind, unread, (last,) if last else (), repeated)


def _is_repeated(history: History, before: Call, call: Call) -> bool:
    """Whether the task itself repeats `before` with `call` after a wait; a person may have done it otherwise."""
    if not before.failing or not before.ended:
        return False
    if before.failing.code is Code.WORKER_SHUTDOWN:  # another worker takes it at once
        return True
    if before.failing.fault and before.failing.fault.queued:  # its turn may have come before it waited
        return True
    between = (one for one in history.timers if before.ended < one.started < call.scheduled)
    return any(timer.retries(call) for timer in between)


def _spent(purpose: str, returned: Proposed | StepReturn) -> Iterator[Sample]:
    return measures.of_spending(purpose, returned.tokens, returned.usd or 0.0)


def _of_outcome(outcome: Outcome) -> Iterator[Sample]:
    for fault in outcome.faults:
        yield from measures.of_fault(fault)
    for request in outcome.requests:
        yield from measures.of_opened(request)
        yield from measures.of_closed(request)
    places = {step.id: place for place, step in enumerate(outcome.steps)}
    rejecting = [fault for fault in outcome.faults if fault.decision == "replan"]
    # The last plan of a task that had no replan left failed, too.
    for revision in sorted({fault.revision for fault in rejecting})[: outcome.replans]:
        of_plan = [one for one in rejecting if one.revision == revision]
        first = min(of_plan, key=lambda fault: places.get(fault.step_id, 0))
        yield from measures.of_replan(first.code, revision)
    yield from measures.of_ending(outcome)


def _lost(history: History, outcome: Outcome) -> Iterator[Sample]:
    """What the task paid for replies that no result has: the rest of what it spent."""
    known = [used for call in history.calls if (used := call.returned or call.proposed)]
    tokens, usd = sum(one.tokens for one in known), sum(one.usd or 0.0 for one in known)
    paid = usd if outcome.spent.usd is None else outcome.spent.usd
    yield from measures.of_spending(measures.LOST, outcome.spent.tokens - tokens, paid - usd)
