"""Why a proposal was sent back, why the planner could not be asked, and what it said instead of a plan."""

from collections.abc import Iterator

from console.call import Call, Closed
from console.explaining import attempts, faults, following, words
from console.explaining.item import Cost, Decision, Item, Sentence
from console.explaining.story import Story, Turn, Verdict
from workflows.plan import GiveUp, Question


def items(story: Story) -> Iterator[Item]:
    """The items of all requests for a proposal, and of the catalogue."""
    for call in story.history.calls:
        if call.is_own:
            yield from _troubles(story, call)
    for turn in story.turns:
        if turn.verdict is Verdict.REJECTED:
            yield _rejected(story, turn)
        if turn.verdict is Verdict.ACCEPTED and isinstance(turn.proposal, Question | GiveUp):
            yield _no_plan(story, turn, turn.proposal)


def _troubles(story: Story, call: Call) -> Iterator[Item]:
    """An activity of ours that was retried, or that failed."""
    if call.closed is Closed.COMPLETED and call.attempt > 1:
        yield attempts.retried(call)
    if call.closed is Closed.FAILED and call.failing is not None:
        waits = following.next_call(story, call) or following.timer_of(story, call)
        decision: Decision = "wait" if waits else "escalate" if story.history.end else "undecided"
        yield faults.of_call(story, call, call.failing, decision)


def _rejected(story: Story, turn: Turn) -> Item:
    """Why nothing of a proposal was run, and what came of sending it back."""
    by_hand = _is_by_hand(story, turn)
    who = "The hand-written plan" if by_hand else _named(story, turn).capitalize() + f" of the {_planner(story)}"
    why = "A proposal is checked before anything is scheduled, so nothing of it was run"
    end = story.history.end
    after = _next(story, turn)
    if after is None and end is not None:
        then = Sentence(text=_given_up(story, by_hand), events=(end.event,))
    else:
        then = _sent_back(story, after)
    return Item(
        what=Sentence(text=f"{who} was rejected: {words.sentences(turn.reasons)}", events=turn.call.events),
        why=Sentence(text=f"{why}; it cost no tool call."),
        decision="end" if by_hand else "send_back" if after else "escalate" if end else "undecided",
        then=(then,),
        cost=Cost(planning_calls=0 if by_hand else 1),
    )


def _next(story: Story, turn: Turn) -> Turn | None:
    """The next request that was answered; where the conversation had to be shortened first, the one after that."""
    later = (one for one in story.turns if one.call.scheduled > turn.call.scheduled)
    return next((one for one in later if one.verdict is not Verdict.TOO_LONG), None)


def _sent_back(story: Story, after: Turn | None) -> Sentence:
    if after is None:
        return Sentence(text="It is not decided yet what follows.")
    answer = {
        Verdict.ACCEPTED: "was accepted",
        Verdict.REJECTED: "was rejected too",
        Verdict.UNDECIDED: "is not decided yet",
        Verdict.UNREADABLE: "cannot be read here",
        Verdict.FAILED: "never came: the planner could not be asked",
        Verdict.TOO_LONG: "had to wait until the conversation was shortened",
    }[after.verdict]
    plan = next((plan for plan in story.plans if plan.turn.call is after.call), None)
    became = f" as {plan.name}" if plan and not story.in_turns else ""
    text = f"It went back to the {_planner(story)} with the reasons, and {_named(story, after)} {answer}{became}."
    return Sentence(text=text, events=after.call.events)


def _given_up(story: Story, by_hand: bool) -> str:
    if by_hand:
        return "A mistake in a hand-written plan is not sent to the planner, so the task ended as failed."
    if story.history.outcome and story.history.outcome.code == "proposals_rejected":
        return "No proposal could be run, and a person would have to look: the task ended as escalated."
    return "The task ended before another proposal came."


def _no_plan(story: Story, turn: Turn, said: Question | GiveUp) -> Item:
    end = story.history.end
    proof = (end.event,) if end else ()
    if isinstance(said, Question):
        what, decision = f"The planner asked: {words.sentence(said.text)}", "escalate"
        then = "Nobody can answer a task yet, so it ended as escalated."
    else:
        what, decision = f"The planner gave up: {words.sentence(said.reason)}", "end"
        then = "Without a plan there is nothing to run, so the task ended as failed."
    return Item.model_validate(
        {
            "what": Sentence(text=what, events=turn.call.events),
            "decision": decision,
            "then": (Sentence(text=then, events=proof),) if end else (),
        }
    )


def _is_by_hand(story: Story, turn: Turn) -> bool:
    return bool(story.history.task and story.history.task.plan is not None and turn is story.turns[0])


def _planner(story: Story) -> str:
    return "model" if story.in_turns else "planner"


def _named(story: Story, turn: Turn) -> str:
    """`proposal 2`, `turn 2`: the number of the request, which its activity id carries."""
    return f"{'turn' if story.in_turns else 'proposal'} {turn.call.id.removeprefix('plan:')}"
