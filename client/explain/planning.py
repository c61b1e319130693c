"""Explains rejected proposals, planners that could not be used, questions to the user, and compactions."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from client.explain import faults, people, words
from client.explain.words import Cost, Item, Sentence
from client.history.records import Call, CallEnd
from client.history.story import ProposalVerdict, Story, Turn
from client.wording import count, suggested
from workflows import ids
from workflows.faults.decision import Action
from workflows.faults.fault import QUADRANT, Code
from workflows.people.requests import RequestKind
from workflows.plans.proposal import GiveUp, NewSteps, PassedOver, Question


def failover_items(story: Story) -> Iterator[Item]:
    """One item for each pair of a planner that could not be used and the code with which its requests failed."""
    found = dict[tuple[str, str], list[tuple[Call, PassedOver]]]()
    for call in story.history.planning:
        for passed_over in call.proposed.passed_over if call.proposed else ():
            found.setdefault((passed_over.planner, passed_over.code), []).append((call, passed_over))
    for tries in found.values():
        yield _failover_item(tries)


def _failover_item(tries: list[tuple[Call, PassedOver]]) -> Item:
    (call, passed_over), *later = tries
    took_over = call.proposed.planner if call.proposed else ""
    then = [Sentence(text=f"So {took_over} was asked in its place.", events=call.events)]
    if later:
        again = f"It was tried first again at {count(len(later), 'later request')}, and could not be used either."
        then.append(Sentence(text=again, events=tuple(event for call, _ in later for event in call.events[-1:])))
    what = f"The planner {passed_over.planner} could not be used ({passed_over.code})"
    may_answer_later = passed_over.code in set(Code) and QUADRANT[Code(passed_over.code)].is_transient
    why = "It could not answer soon enough" if may_answer_later else "A retry cannot help"
    return Item(
        what=Sentence(text=f"{what}: {words.sentence(passed_over.reason)}", events=call.events[-1:]),
        why=Sentence(text=f"{why}, and the list of planners names another one."),
        decision="failover",
        then=tuple(then),
    )


def compactions(story: Story) -> Iterator[Sentence]:
    """Sentences about conversations that grew too long, so that their oldest turns were summarised."""
    for turn in story.turns:
        if turn.verdict is not ProposalVerdict.TOO_LONG or turn.call.proposed is None:
            continue
        # A conversation that is too long is followed by a request to summarise its oldest turns.
        done = next((call for call in story.history.compactions if call.scheduled > turn.call.scheduled), None)
        number, is_done = turn.call.proposed.compact, done is not None and done.closed is CallEnd.COMPLETED
        oldest, were = ("turn", "was") if number == 1 else (f"{number} turns", "were")
        size = f" ({turn.call.proposed.context:,} tokens)" if turn.call.proposed.context else ""
        became = f"{were}{'' if is_done else ' to be'} summarised"
        text = f"The conversation grew too long{size}: its oldest {oldest} {became}."
        yield Sentence(text=text, events=(*turn.call.events, *(done.events if done else ())))


def proposal_items(story: Story) -> Iterator[Item]:
    """The items of failed or retried requests, of rejected proposals, and of proposals to ask a person or give up."""
    own = [call for call in story.history.calls if call.is_own]
    for _, calls in groupby(own, key=_outage_key):
        yield from _items_of_calls(story, list(calls))
    for turn in story.turns:
        if turn.verdict is ProposalVerdict.REJECTED:
            yield _rejected_item(story, turn)
        if turn.verdict is ProposalVerdict.ACCEPTED and isinstance(turn.proposal, Question | GiveUp):
            yield _no_plan_item(story, turn, turn.proposal)


def _outage_key(call: Call) -> tuple[str, object]:
    """The key that groups adjacent calls: calls of one request that failed with one code have the same key."""
    has_failed = call.closed is CallEnd.FAILED and call.failing is not None
    return call.id, call.failing.code if has_failed and call.failing else call.scheduled


def _items_of_calls(story: Story, calls: Sequence[Call]) -> Iterator[Item]:
    if calls[0].closed is CallEnd.COMPLETED and calls[0].attempt > 1:
        yield faults.retry_item(calls[0])
    items = [
        faults.call_item(story, call, call.failing, story.fault_of(call))
        for call in calls
        if call.closed is CallEnd.FAILED and call.failing is not None
    ]
    if len(items) > 1:
        more = count(len(items) - 1, "more time")
        ends = words.known(*(call.ended for call in calls[1:]))
        again = Sentence(text=f"Asked again after a wait, it failed in the same way {more}.", events=ends)
        cost = sum((item.cost for item in items), Cost())
        last = {"decision": items[-1].decision, "then": (again, *items[-1].then), "cost": cost}
        yield items[0].model_copy(update=last)
    else:
        yield from items


def _rejected_item(story: Story, turn: Turn) -> Item:
    by_hand, is_call = story.is_by_hand(turn), _is_task_one_call(story)
    written = "The call" if is_call else "The hand-written plan"
    reasons = words.sentence(*map(str, turn.reasons))
    if is_call:  # its reader has written no step
        reasons = reasons.removeprefix(f"step {turn.reasons[0].step!r}: ")
    who = written if by_hand else _turn_name(story, turn).capitalize() + f" of the {_planner_word(story)}"
    why = "A proposal is checked before anything is scheduled, so nothing of it was run"
    end, after = story.history.end, _next_turn(story, turn)
    then = _sent_back_sentence(story, after)
    if after is None and end is not None:
        then = Sentence(text=_why_not_sent_back(story, by_hand), events=(end.event,))
    return Item(
        what=Sentence(text=f"{who} was rejected: {reasons}", events=turn.call.events),
        why=Sentence(text=f"{why}; it cost no tool call."),
        steps=tuple(_steps_of_rejected(turn)),
        decision="end" if by_hand else "send_back" if after else "escalate" if end else "undecided",
        then=(then,),
        cost=Cost(planning_calls=0 if by_hand else 1),
    )


def _steps_of_rejected(turn: Turn) -> Iterator[str]:
    """The ids of the steps that the mistakes of a rejected proposal name; all its steps if a mistake names no step."""
    planned = turn.proposal.steps if isinstance(turn.proposal, NewSteps) else ()
    wrong = {mistake.step for mistake in turn.reasons}
    yield from (step for step in dict.fromkeys(step.id for step in planned) if "" in wrong or step in wrong)


def _next_turn(story: Story, turn: Turn) -> Turn | None:
    """The next request for a proposal after `turn`; skips requests that were repeated, or too long for the model."""
    later = (later_turn for later_turn in story.turns if later_turn.call.scheduled > turn.call.scheduled)
    proposals = (later_turn for later_turn in later if later_turn.verdict is not ProposalVerdict.TOO_LONG)
    return next((proposal for proposal in proposals if not story.history.next_call(proposal.call)), None)


def _sent_back_sentence(story: Story, after: Turn | None) -> Sentence:
    if after is None:
        return Sentence(text="It is not decided yet what follows.")
    answer = {
        ProposalVerdict.ACCEPTED: "was accepted",
        ProposalVerdict.REJECTED: "was rejected too",
        ProposalVerdict.UNDECIDED: "is not decided yet",
        ProposalVerdict.UNREADABLE: "cannot be read here",
        ProposalVerdict.FAILED: "never came: the planner could not be asked",
        ProposalVerdict.TOO_LONG: "had to wait until the conversation was shortened",
    }[after.verdict]
    plan = next((plan for plan in story.plans if plan.turn.call is after.call), None)
    became = f" as {plan.name}" if plan and not story.in_turns else ""
    lead = f"It went back to the {_planner_word(story)} with the reasons, and"
    text = f"{lead} {_turn_name(story, after)} {answer}{became}."
    return Sentence(text=text, events=after.call.events)


def _why_not_sent_back(story: Story, by_hand: bool) -> str:
    if by_hand:
        written = "call" if _is_task_one_call(story) else "hand-written plan"
        return f"A mistake in a {written} is not sent to the planner, so the task ended as failed."
    if story.history.outcome and story.history.outcome.code == "proposals_rejected":
        return "No proposal could be run, and a person would have to look: the task ended as escalated."
    return "The task ended before another proposal came."


def _no_plan_item(story: Story, turn: Turn, proposal: Question | GiveUp) -> Item:
    end = story.history.end
    decision: Action = "end"
    if isinstance(proposal, Question):
        what, decision = f"The planner asked: {words.sentence(proposal.text)}{suggested(proposal.options)}", "escalate"
        then: str = words.not_waiting("so it ended as escalated.")
        after = turn.call.ended or turn.call.scheduled
        asked = (asked for asked in story.requests if asked.request.kind is RequestKind.QUESTION)
        exchange = next((exchange for exchange in asked if exchange.events > (after,)), None)
        if exchange is not None:
            about = Sentence(text=what, events=turn.call.events)
            return Item(what=about, decision="ask", then=tuple(people.answer_sentences(story, exchange)))
    else:
        what = f"The planner gave up: {words.sentence(proposal.reason)}"
        then = "Without a plan there is nothing to run, so the task ended as failed."
    sentences = (Sentence(text=then, events=(end.event,)),) if end else ()
    return Item(what=Sentence(text=what, events=turn.call.events), decision=decision, then=sentences)


def _is_task_one_call(story: Story) -> bool:
    return bool(story.history.task and story.history.task.is_call)


def _planner_word(story: Story) -> str:
    return "model" if story.in_turns else "planner"


def _turn_name(story: Story, turn: Turn) -> str:
    return f"{'turn' if story.in_turns else 'proposal'} {turn.call.id.removeprefix(ids.PLAN)}"
