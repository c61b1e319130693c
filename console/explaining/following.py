"""What followed a fault, where the history shows it, and what that cost."""

from console.call import Call, Closed, Event
from console.explaining import words
from console.explaining.item import Cost, Decision, Sentence
from console.explaining.revisions import Change, diff
from console.explaining.story import Plan, Story, Turn
from console.history import Timer

LIMITS = ("replans", "no_progress")
"""How a task ends that may not replan any more."""
SETTLING = "waits: its last attempt may be under way"
"""How the summary of a timer goes on that lets a call settle before its effect is looked for again."""


def followed(
    story: Story, id: str, call: Call | None, after: Event, decision: Decision
) -> tuple[tuple[Sentence, ...], Cost]:
    """What followed, and what it cost."""
    if decision == "wait" and call is not None:
        return _waited(story, call)
    if decision == "fallback" and call is not None:
        return (_fallen_back(next_call(story, call)),), Cost()
    if decision == "replan":
        return _replanned(story, id, after)
    if decision == "escalate" and call is not None and call.is_undo:
        return (Sentence(text=f"So {call.step} stays as it is, and what is left is undone all the same."),), Cost()
    if decision == "escalate":
        return _escalated(story), Cost()
    return (), Cost()


def _waited(story: Story, call: Call) -> tuple[tuple[Sentence, ...], Cost]:
    timer, following = timer_of(story, call), next_call(story, call)
    proof = tuple(event for event in (timer and timer.started, timer and timer.ended) if event)
    again = "the same call was made again" if following else "the same call is to be made again"
    if timer is None:
        return (Sentence(text=f"So {again} at once.", events=(following.scheduled,) if following else ()),), Cost()
    state = "" if timer.fired else " (the timer was stopped)" if timer.ended else " (it is still waiting)"
    text = f"It waited {words.seconds(timer.seconds)} on a timer{state}, then {again}."
    proof += (following.scheduled,) if following else ()
    return (Sentence(text=text, events=proof),), Cost(waited=timer.seconds if timer.fired else 0.0)


def _fallen_back(following: Call | None) -> Sentence:
    if following is None:
        return Sentence(text="The fallback has not been called yet.")
    match following.closed:
        case Closed.COMPLETED:
            end = f"did the step instead and returned: {words.value(following.result)}"
        case Closed.FAILED:
            end = "was called instead, and failed too"
        case Closed.CANCELLED:
            end = "was called instead, and was stopped"
        case None:
            end = "was called instead, and has not ended yet"
    return Sentence(text=f"The fallback {following.kind} {words.stop(end)}", events=following.events)


def _replanned(story: Story, id: str, after: Event) -> tuple[tuple[Sentence, ...], Cost]:
    """The look at the world, the request for a new plan, and what that plan put in the step's place."""
    looks = [look for look in story.history.looks(id) if look.scheduled > after]
    seen = [_look(look) for look in looks]
    observations = sum(max(1, look.attempt) for look in looks)
    turn = replan_after(story, after)
    if turn is None:
        return (*seen, _no_plan(story)), Cost(observations=observations)
    plan = story.plan_from(turn)
    first = _first_refused(story, turn) in (id, None)
    asked = "The model was asked what comes next" if story.in_turns else "The planner was asked for a new plan"
    text = f"{asked}{'' if first else ' (once for all the faults)'}: {_put(story, id, plan)}"
    events = plan.events if plan else turn.call.events
    return (*seen, Sentence(text=text, events=events)), Cost(observations=observations, planning_calls=int(first))


def _first_refused(story: Story, turn: Turn) -> str | None:
    """The step whose item bears the cost of a request that several faults share."""
    previous = [one.call.scheduled for one in story.turns if one.call.scheduled < turn.call.scheduled]
    since = max(previous, default=Event(0, 0))
    failed = [call for call in story.history.calls if call.is_step and call.closed is Closed.FAILED]
    led = [call for call in failed if call.ended and since < call.ended < turn.call.scheduled]
    last = {call.id: call for call in led}
    done = {one.step for one in story.done}
    alone = [call for call in last.values() if next_call(story, call) is None and call.step not in done]
    return min(alone, key=lambda call: call.ended or call.scheduled).id if alone else None


def _look(look: Call) -> Sentence:
    if look.closed is Closed.COMPLETED:
        text = f"Looked at the world again with {look.kind}: {words.stop(words.value(look.result))}"
    elif look.failing is not None:
        text = f"Looking again with {look.kind} {words.failed_as(look.failing)} So the fault's own view was used."
    else:
        text = f"Looking again with {look.kind} {'was stopped' if look.closed else 'has not ended yet'}."
    return Sentence(text=text, events=look.events)


def _put(story: Story, id: str, plan: Plan | None) -> str:
    """What a new plan has in the place of a step."""
    if plan is None:
        end = story.history.end
        if story.in_turns:
            return "no call came of it." if end else "it has not answered yet."
        return "no plan came of it." if end else "it has not answered with a plan yet."
    before = story.plans[plan.number - 2] if plan.number > 1 else None
    changes = diff(story, before, plan).changed
    for one in changes:
        if one.before.id == id:
            return f"{plan.name} has {one.after.id} in its place{_difference(one)}."
    return f"{plan.name} does without it."


def _difference(change: Change) -> str:
    text = words.differences(change)
    return f" ({text})" if text else ""


def _no_plan(story: Story) -> Sentence:
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


def _escalated(story: Story) -> tuple[Sentence, ...]:
    end = story.history.end
    if end is None and any(call.is_undo for call in story.history.calls):
        return (Sentence(text="Nobody can answer a task yet, so what it did is being undone; then it ends."),)
    if end is None:
        return (Sentence(text="Steps that run may still finish; then the task ends as escalated."),)
    how = end.status.replace("_", " ")
    return (Sentence(text=f"Nobody can answer a task yet, so it ended as {how}.", events=(end.event,)),)


def next_call(story: Story, call: Call) -> Call | None:
    """The next scheduling of the same thing."""
    same = [other for other in story.history.calls if other.id == call.id and other.scheduled > call.scheduled]
    return same[0] if same else None


def timer_of(story: Story, call: Call) -> Timer | None:
    """The timer on which a call waits to be made again."""
    following, after = next_call(story, call), call.ended or call.scheduled
    for timer in story.history.timers:
        own = timer.summary.startswith((f"{call.id} waits", f"{call.kind} waits")) and not is_settling(timer, call)
        if own and timer.started > after and (following is None or timer.started < following.scheduled):
            return timer
    return None


def is_settling(timer: Timer, call: Call) -> bool:
    """Whether a timer waits until no attempt of a call can be under way any more."""
    return timer.summary.startswith(f"{call.owner} {SETTLING}")


def replan_after(story: Story, after: Event) -> Turn | None:
    return next((turn for turn in story.turns if turn.is_replan and turn.call.scheduled > after), None)
