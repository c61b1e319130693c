"""Explains why a task ended without being completed, and the state of a running task.

Runs when a task is explained, after its steps, requests and proposals.
"""

from collections.abc import Iterator

from client.effects import EffectState, effect_of, reconciliation_of
from client.explain import faults, people, prose
from client.explain.prose import Item, Sentence, said
from client.history.records import Call, CallEnd, Event, Reset, RunEnd
from client.history.story import Story
from client.wording import count, expiry_text, pause_text
from workflows.limits.budget import LIMITS, Limits
from workflows.plans.proposal import GiveUp, Question

EXPLAINED_ELSEWHERE = ("plan_refused", "proposals_rejected", "replans", "no_progress")
"""Outcome codes of tasks whose end another Item explains, such as the Item about a rejected proposal."""
PROPOSED_ENDS = ("question", "gave_up")
"""Outcome codes of tasks whose end the planner proposed."""
NO_REASON = "no reason is recorded"
OUTSIDE = {
    "terminated": "The task was terminated from outside, so it could neither clean up nor write an outcome",
    "timed out": "The execution timeout of the task passed at the server, so no outcome was written",
    "continued": "The task continued in another run, which cannot be read here",
}


def ending_items(story: Story) -> Iterator[Item]:
    """The Item that explains why the task ended; none for a completed task, or if another Item explains the end."""
    end = story.history.end
    if end is None or end.status == "completed":
        return
    if end.status in OUTSIDE:
        because = f" ({prose.sentence(end.reason)})" if end.reason else ""
        yield Item.of(said(f"{OUTSIDE[end.status]}{because}.", end.event), "", "end", *_interrupted(story))
    elif not _is_explained_by_other_item(story, end):
        then = (*_interrupted(story), *_last_turn_sentences(story))
        yield Item.of(_how_it_ended(story, end), _why_it_ended(story, end), "end", *then)


def _is_explained_by_other_item(story: Story, end: RunEnd) -> bool:
    if end.status == "escalated" and story.failed:
        return True  # the item of a failed call says why a person has to act
    if end.code in PROPOSED_ENDS:  # a hand-written one came without a request
        return any(isinstance(turn.proposal, Question | GiveUp) for turn in story.turns)
    return end.code in EXPLAINED_ELSEWHERE


def _how_it_ended(story: Story, end: RunEnd) -> Sentence:
    history, reason = story.history, prose.sentence(end.outcome.reason if end.outcome else end.reason or NO_REASON)
    if end.status == "cancelled":
        what = "to stop and to undo its effects" if history.undo_asked else "to stop"
        return said(
            f"The task was asked {what}, and it was cancelled.", *history.undo_asked, *history.cancels, end.event
        )
    if end.code == "deadline":
        return said(reason, *(timer.ended for timer in history.timers if timer.fired and timer.is_deadline), end.event)
    return said(f"The task ended as {end.status.replace('_', ' ')}: {reason}", end.event)


def _why_it_ended(story: Story, end: RunEnd) -> str:
    limits = story.history.task.limits if story.history.task else Limits()
    if end.code and end.code in LIMITS and (why := LIMITS[end.code].why):
        return why.format(count=count(getattr(limits, end.code) or 0, LIMITS[end.code].unit))
    if end.status != "cancelled":
        return ""
    if story.history.undo_asked:
        return "Unknown outcomes are found out first; then all effects are undone, the newest first."
    return "Finished steps stay; nothing is undone."


def _interrupted(story: Story) -> Iterator[Sentence]:
    # Calls that were open or cancelled when the task ended.
    cut = [call for call in story.history.calls if call.is_step and call.closed in (None, CallEnd.CANCELLED)]
    found = [(call, reconciliation_of(story, call)) for call in cut]
    doubtful = [call.id for call, known in found if not known and effect_of(story, call) is not EffectState.NONE]
    doubt = f"; whether {prose.listed(doubtful)} changed the world is not known" if doubtful else ""
    if cut:
        were = "was" if len(cut) == 1 else "were"
        text = f"{prose.listed(call.id for call in cut)} {were} stopped while running{doubt}."
        yield said(text, *(event for call in cut for event in call.events))
    for _, known in found:
        if known:
            parts = faults.reconciliation_parts(known, prose.follows("end", None, known.verdict))
            yield from (part for part in parts if isinstance(part, Sentence))


def _last_turn_sentences(story: Story) -> Iterator[Sentence]:
    for call in story.history.planning:
        if call.situation and call.situation.is_last:
            has_said = story.history.outcome is not None and story.history.outcome.result is not None
            became = "its answer is the result" if has_said else "no answer came"
            text = f"The planner was asked once more, without tools, for an answer from the results so far: {became}."
            yield said(text, *call.events)


def state_now(story: Story) -> Iterator[Sentence]:
    """Sentences about a task that has not ended: open calls and timers, missing workers, requests to stop."""
    history = story.history
    if history.end is not None:
        return
    for pause in history.paused:
        if pause.activity is None:
            yield said(f"The task is {prose.sentence(pause_text(pause))} `{pause.resume}` resumes it.")
    yield from (_running(story, call) for call in history.calls if call.closed is None)
    yield from people.now(story)
    request_timers = [request.timer for request in story.requests]
    for timer in history.timers:
        if timer.ended is None and timer not in request_timers:
            text = f"A timer of {prose.seconds(timer.seconds)} runs: {prose.sentence(timer.summary)}"
            yield said(text, timer.started)
    if history.failing:
        yield said(f"{history.failing.reason}.", Event(history.runs, history.failing.event))
    elif history.waits_for_worker:
        how = "The task waits for a worker" if history.began else "No worker has taken the task up yet"
        yield said(f"{how}.", history.waits_for_worker)
    # Of several requests to stop, only the last one is named.
    yield from (said("The task was asked to stop.", event) for event in history.cancels[-1:])


def _running(story: Story, call: Call) -> Sentence:
    """A sentence about an open call; its attempts are from the server's description, since no event has them yet."""
    what = "The planner" if call.is_planning else f"{call.id} ({call.kind})"
    what = f"The check whether {call.owner} was applied ({call.kind})" if call.is_reconcile else what
    pending = story.history.pending.get(call.id)
    if pending is None:
        return said(f"{what} has been called and has not answered yet.", call.scheduled)
    last = f"; the one before {prose.failed_as(pending.last)}" if pending.last else "."
    of = f" of {call.allowed}" if call.allowed else ""
    if pause := story.history.pause_of(call):
        expiry = expiry_text(pause)
        parts = [f"{what} is {prose.sentence(pause_text(pause))}"]
        parts += [f"Attempt {pending.attempt}{of} {'runs' if pending.running else 'is next'}{last}"]
        parts += [f"{expiry}, unless `{pause.extend}` comes first."] if expiry else []
        return said(" ".join([*parts, f"`{pause.resume}` resumes it."]), call.scheduled)
    state = "runs" if pending.running else "waits to begin"
    return said(f"{what}: attempt {pending.attempt}{of} {state}{last}", call.scheduled)


def reset_sentence(reset: Reset) -> Sentence:
    why = f": {prose.sentence(reset.reason)}" if reset.reason else "."
    left = "What its earlier run did after this point is left out here; the end says what of it stands."
    return said(f"The task was reset here at {prose.moment(reset.at)}{why} {left}", reset.event)
