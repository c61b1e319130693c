"""Explains rejected proposals, planners that could not be used, questions to the user, and compactions.

Runs when a task is explained, for each of its turns.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from client.explain import faults, people, prose
from client.explain.prose import Cost, Item, Sentence, said
from client.history.records import Call, CallEnd
from client.history.story import Failure, PlannerTurn, ProposalVerdict, Story
from client.wording import count, suggested
from workflows.faults.fault import QUADRANT, Code
from workflows.people.requests import RequestKind
from workflows.plans.proposal import GiveUp, NewSteps, PassedOver, Question


def failover_items(story: Story) -> Iterator[Item]:
    """One item for each pair of a planner that could not be used and the code with which its requests failed."""
    found = dict[tuple[str, str], list[tuple[Call, PassedOver]]]()
    for call in story.history.planning:
        for passed_over in call.proposed.passed_over if call.proposed else ():
            found.setdefault((passed_over.planner, passed_over.code), []).append((call, passed_over))
    for (call, passed_over), *later in found.values():
        then = [said(f"So {call.proposed.planner if call.proposed else ''} was asked in its place.", *call.events)]
        if later:
            again = f"It was tried first again at {count(len(later), 'later request')}, and could not be used either."
            then.append(said(again, *(event for call, _ in later for event in call.events[-1:])))
        what = f"The planner {passed_over.planner} could not be used ({passed_over.code})"
        may_answer_later = passed_over.code in set(Code) and QUADRANT[Code(passed_over.code)].is_transient
        why = "It could not answer soon enough" if may_answer_later else "A retry cannot help"
        why = f"{why}, and the list of planners names another one."
        what = f"{what}: {prose.sentence(passed_over.reason)}"
        yield Item.of(said(what, *call.events[-1:]), why, "failover", *then)


def compactions(story: Story) -> Iterator[Sentence]:
    """Sentences about conversations that grew too long, so that their oldest turns were summarised."""
    for turn in story.turns:
        if turn.verdict is not ProposalVerdict.TOO_LONG or turn.call.proposed is None:
            continue
        # A conversation that is too long is followed by a request to summarise its oldest turns.
        done = next((call for call in story.history.compactions if call.scheduled > turn.call.scheduled), None)
        number, is_done = turn.call.proposed.compact, done is not None and done.closed is CallEnd.COMPLETED
        oldest = "turn was" if number == 1 else f"{number} turns were"
        size = f" ({turn.call.proposed.context:,} tokens)" if turn.call.proposed.context else ""
        text = f"The conversation grew too long{size}: its oldest {oldest}{'' if is_done else ' to be'} summarised."
        yield said(text, *turn.call.events, *(done.events if done else ()))


def proposal_items(story: Story) -> Iterator[Item]:
    """The items of failed or retried requests, of rejected proposals, and of proposals to ask a person or give up."""
    yield from (faults.retry_item(call) for call in story.history.calls if call.is_own and faults.is_retried(call))
    own = [failure for failure in story.failures if failure.call and failure.call.is_own and failure.failing]
    for _, outage in groupby(own, key=lambda failure: (failure.id, failure.failing and failure.failing.code)):
        yield _outage_item(story, list(outage))
    for turn in story.turns:
        if turn.verdict is ProposalVerdict.REJECTED:
            yield _rejected_item(story, turn)
        elif turn.verdict is ProposalVerdict.ACCEPTED and isinstance(turn.proposal, Question):
            yield _question_item(story, turn, turn.proposal)
        elif turn.verdict is ProposalVerdict.ACCEPTED and isinstance(turn.proposal, GiveUp):
            end, what = story.history.end, f"The planner gave up: {prose.sentence(turn.proposal.reason)}"
            then = (
                [said("Without a plan there is nothing to run, so the task ended as failed.", end.event)] if end else []
            )
            yield Item.of(said(what, *turn.call.events), "", "end", *then)


def _outage_item(story: Story, outage: Sequence[Failure]) -> Item:
    """The item of calls of one request that failed with one code."""
    first, *later = [faults.failure_item(story, failure, failure.failing) for failure in outage if failure.failing]
    if not later:
        return first
    ends = (failure.call.ended for failure in outage[1:] if failure.call)
    again = f"Asked again after a wait, it failed in the same way {count(len(later), 'more time')}."
    last = {"decision": later[-1].decision, "then": (said(again, *ends), *later[-1].then)}
    return first.model_copy(update={**last, "cost": sum((item.cost for item in later), first.cost)})


def _rejected_item(story: Story, turn: PlannerTurn) -> Item:
    end, after, reasons = story.history.end, _next_turn(story, turn), prose.sentence(*map(str, turn.reasons))
    who = f"{_turn_name(story, turn).capitalize()} of the {_planner_word(story)}"
    if is_call := bool(story.history.task and story.history.task.is_call):  # its reader has written no step
        reasons = reasons.removeprefix(f"step {turn.reasons[0].step!r}: ")
    written = "call" if is_call else "hand-written plan"
    if after or not end:
        then = _sent_back_sentence(story, after)
    elif turn.is_by_hand:
        text = f"A mistake in a {written} is not sent to the planner, so the task ended as failed."
        then = said(text, end.event)
    elif end.code == "proposals_rejected":
        text = "No proposal could be run, and a person would have to look: the task ended as escalated."
        then = said(text, end.event)
    else:
        then = said("The task ended before another proposal came.", end.event)
    return Item.of(
        said(f"{f'The {written}' if turn.is_by_hand else who} was rejected: {reasons}", *turn.call.events),
        "A proposal is checked before anything is scheduled, so nothing of it was run; it cost no tool call.",
        "end" if turn.is_by_hand else "send_back" if after else "escalate" if end else "undecided",
        then,
        Cost(planning_calls=0 if turn.is_by_hand else 1),
        steps=_steps_of_rejected(turn),
    )


def _steps_of_rejected(turn: PlannerTurn) -> Iterator[str]:
    """The ids of the steps that the mistakes of a rejected proposal name; all its steps if a mistake names no step."""
    planned = turn.proposal.steps if isinstance(turn.proposal, NewSteps) else ()
    wrong = {mistake.step for mistake in turn.reasons}
    yield from (step for step in dict.fromkeys(step.id for step in planned) if "" in wrong or step in wrong)


def _next_turn(story: Story, turn: PlannerTurn) -> PlannerTurn | None:
    """The next request for a proposal after `turn`; skips requests that were repeated, or too long for the model."""
    later = (later_turn for later_turn in story.turns if later_turn.call.scheduled > turn.call.scheduled)
    proposals = (later_turn for later_turn in later if later_turn.verdict is not ProposalVerdict.TOO_LONG)
    return next((proposal for proposal in proposals if not story.history.next_call(proposal.call)), None)


_BECAME: Mapping[ProposalVerdict, str] = {
    ProposalVerdict.ACCEPTED: "was accepted",
    ProposalVerdict.REJECTED: "was rejected too",
    ProposalVerdict.UNDECIDED: "is not decided yet",
    ProposalVerdict.UNREADABLE: "cannot be read here",
    ProposalVerdict.FAILED: "never came: the planner could not be asked",
    ProposalVerdict.TOO_LONG: "had to wait until the conversation was shortened",
}


def _sent_back_sentence(story: Story, after: PlannerTurn | None) -> Sentence:
    if after is None:
        return said("It is not decided yet what follows.")
    plan = next((plan for plan in story.plans if plan.turn.call is after.call), None)
    became = f"{_BECAME[after.verdict]}{f' as {plan.name}' if plan and not story.in_turns else ''}"
    lead = f"It went back to the {_planner_word(story)} with the reasons, and"
    return said(f"{lead} {_turn_name(story, after)} {became}.", *after.call.events)


def _question_item(story: Story, turn: PlannerTurn, question: Question) -> Item:
    end, after = story.history.end, turn.call.ended or turn.call.scheduled
    what = said(f"The planner asked: {prose.sentence(question.text)}{suggested(question.options)}", *turn.call.events)
    asked = (exchange for exchange in story.requests if exchange.request.kind is RequestKind.QUESTION)
    if exchange := next((exchange for exchange in asked if exchange.events > (after,)), None):
        return Item.of(what, "", "ask", *people.answer_sentences(story, exchange))
    then = [said(prose.not_waiting("so it ended as escalated."), end.event)] if end else []
    return Item.of(what, "", "escalate", *then)


def _planner_word(story: Story) -> str:
    return "model" if story.in_turns else "planner"


def _turn_name(story: Story, turn: PlannerTurn) -> str:
    return f"{'turn' if story.in_turns else 'proposal'} {turn.number}"
