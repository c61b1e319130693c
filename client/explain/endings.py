"""Explains why a task ended without being completed, and the state of a running task."""

from collections.abc import Iterator

from client.effects import EffectState, effect_of, reconciliation_of
from client.explain import faults, people, words
from client.explain.words import Item, Sentence
from client.history.records import Call, CallEnd, End, Event, Reset
from client.history.story import Story
from client.wording import count, expiry_words, pause_words
from workflows.limits.budget import LIMITS, Limits
from workflows.plans.proposal import GiveUp, Question

TOLD_ELSEWHERE = ("plan_refused", "proposals_rejected", "replans", "no_progress")
"""Outcome codes of tasks whose end another Item explains, such as the Item about a rejected proposal."""
PROPOSED_ENDS = ("question", "gave_up")
"""Outcome codes of tasks whose end the planner proposed."""
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
        because = f" ({words.sentence(end.reason)})" if end.reason else ""
        what = Sentence(text=f"{OUTSIDE[end.status]}{because}.", events=(end.event,))
        yield Item(what=what, decision="end", then=_interrupted(story))
    # The item of a failed call says why a person has to act.
    elif not _is_explained_by_other_item(story, end) and not (end.status == "escalated" and story.failed):
        then = (*_interrupted(story), *_last_turn_sentences(story))
        yield Item(what=_how_it_ended(story, end), why=_why_it_ended(story, end), decision="end", then=then)


def _is_explained_by_other_item(story: Story, end: End) -> bool:
    if end.code in PROPOSED_ENDS:  # a hand-written one came without a request
        return any(isinstance(turn.proposal, Question | GiveUp) for turn in story.turns)
    return end.code in TOLD_ELSEWHERE


def _how_it_ended(story: Story, end: End) -> Sentence:
    reason = words.sentence(end.outcome.reason if end.outcome else end.reason or "no reason is recorded")
    match (end.status, end.code):
        case ("cancelled", _):
            proof = (*story.history.undo_asked, *story.history.cancels, end.event)
            what = "to stop and to undo its effects" if story.history.undo_asked else "to stop"
            return Sentence(text=f"The task was asked {what}, and it was cancelled.", events=proof)
        case (_, "deadline"):
            fired = [timer.ended for timer in story.history.timers if timer.fired and timer.is_deadline]
            return Sentence(text=reason, events=words.known(*fired, end.event))
        case _:
            return Sentence(text=f"The task ended as {end.status.replace('_', ' ')}: {reason}", events=(end.event,))


def _why_it_ended(story: Story, end: End) -> Sentence | None:
    limits = story.history.task.limits if story.history.task else Limits()
    if end.code and end.code in LIMITS and (why := LIMITS[end.code].why):
        return Sentence(text=why.format(count=count(getattr(limits, end.code) or 0, LIMITS[end.code].unit)))
    if end.status == "cancelled" and story.history.undo_asked:
        return Sentence(text="Unknown outcomes are found out first; then all effects are undone, the newest first.")
    if end.status == "cancelled":
        return Sentence(text="Finished steps stay; nothing is undone.")
    return None


def _interrupted(story: Story) -> tuple[Sentence, ...]:
    # Calls that were open or cancelled when the task ended.
    cut = [call for call in story.history.calls if call.is_step and call.closed in (None, CallEnd.CANCELLED)]
    if not cut:
        return ()
    found = [reconciliation_of(story, call) for call in cut]
    doubtful = [
        call.id
        for call, reconciliation in zip(cut, found, strict=True)
        if effect_of(story, call) is not EffectState.NONE and reconciliation is None
    ]
    doubt = f"; whether {words.listed(doubtful)} changed the world is not known" if doubtful else ""
    text = f"{words.listed(call.id for call in cut)} {'was' if len(cut) == 1 else 'were'} stopped while running{doubt}."
    sentences = [Sentence(text=text, events=tuple(event for call in cut for event in call.events))]
    for reconciliation in filter(None, found):
        verdict = words.follows("end", None, reconciliation.verdict)
        sentences += faults.reconciliation_sentences(reconciliation, verdict)
    return tuple(sentences)


def _last_turn_sentences(story: Story) -> Iterator[Sentence]:
    for call in story.history.planning:
        if call.situation and call.situation.is_last:
            has_said = story.history.outcome is not None and story.history.outcome.result is not None
            became = "its answer is the result" if has_said else "no answer came"
            text = f"The planner was asked once more, without tools, for an answer from the results so far: {became}."
            yield Sentence(text=text, events=call.events)


def state_now(story: Story) -> list[Sentence]:
    """Sentences about a task that has not ended: open calls and timers, missing workers, requests to stop."""
    history = story.history
    if history.end is not None:
        return []
    pauses = [pause for pause in history.paused if pause.activity is None]
    told = (f"The task is {words.sentence(pause_words(pause))} `{pause.resume}` resumes it." for pause in pauses)
    sentences = [Sentence(text=text) for text in told]
    sentences += [_running(story, call) for call in history.calls if call.closed is None]
    sentences += people.now(story)
    request_timers = [request.timer for request in story.requests]
    for timer in history.timers:
        if timer.ended is None and timer not in request_timers:
            text = f"A timer of {words.seconds(timer.seconds)} runs: {words.sentence(timer.summary)}"
            sentences.append(Sentence(text=text, events=(timer.started,)))
    if history.failing:
        event = Event(history.runs, history.failing.event)
        sentences.append(Sentence(text=f"{history.failing.reason}.", events=(event,)))
    elif history.waits_for_worker:
        how = "The task waits for a worker" if history.began else "No worker has taken the task up yet"
        sentences.append(Sentence(text=f"{how}.", events=(history.waits_for_worker,)))
    # Of several requests to stop, only the last one is named.
    sentences += [Sentence(text="The task was asked to stop.", events=(event,)) for event in history.cancels[-1:]]
    return sentences


def _running(story: Story, call: Call) -> Sentence:
    """A sentence about an open call; its attempts are from the server's description, since no event has them yet."""
    what = "The planner" if call.is_planning else f"{call.id} ({call.kind})"
    what = f"The check whether {call.owner} was applied ({call.kind})" if call.is_reconcile else what
    pending = story.history.pending.get(call.id)
    if pending is None:
        return Sentence(text=f"{what} has been called and has not answered yet.", events=(call.scheduled,))
    last = f"; the one before {words.failed_as(pending.last)}" if pending.last else "."
    of = f" of {call.allowed}" if call.allowed else ""
    if pause := story.history.pause_of(call):
        expiry = expiry_words(pause)
        parts = [f"{what} is {words.sentence(pause_words(pause))}"]
        parts += [f"Attempt {pending.attempt}{of} {'runs' if pending.running else 'is next'}{last}"]
        parts += [f"{expiry}, unless `{pause.extend}` comes first."] if expiry else []
        return Sentence(text=" ".join([*parts, f"`{pause.resume}` resumes it."]), events=(call.scheduled,))
    state = "runs" if pending.running else "waits to begin"
    return Sentence(text=f"{what}: attempt {pending.attempt}{of} {state}{last}", events=(call.scheduled,))


def reset_sentence(reset: Reset) -> Sentence:
    why = f": {words.sentence(reset.reason)}" if reset.reason else "."
    left = "What its earlier run did after this point is left out here; the end says what of it stands."
    return Sentence(text=f"The task was reset here at {words.moment(reset.at)}{why} {left}", events=(reset.event,))
