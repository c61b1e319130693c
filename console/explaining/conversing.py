"""What happened to the conversation with a model: planners that could not be used, and older turns summarised."""

from collections.abc import Iterator

from console.call import Call, Closed
from console.explaining import words
from console.explaining.item import Item, Sentence
from console.explaining.story import Story, Verdict
from workflows.plan import PassedOver


def failovers(story: Story) -> Iterator[Item]:
    """Each planner that could not be used, once for each reason, however often it was tried."""
    found = dict[tuple[str, str], list[tuple[Call, PassedOver]]]()
    for call in story.history.planning:
        for one in call.proposed.passed_over if call.proposed else ():
            found.setdefault((one.planner, one.code), []).append((call, one))
    for tries in found.values():
        yield _failover(tries)


def _failover(tries: list[tuple[Call, PassedOver]]) -> Item:
    (call, one), *later = tries
    took_over = call.proposed.planner if call.proposed else ""
    then = [Sentence(text=f"So {took_over} was asked in its place.", events=call.events)]
    if later:
        again = f"It was tried first again at {words.count(len(later), 'later request')}, and could not be used either."
        then.append(Sentence(text=again, events=tuple(event for call, _ in later for event in call.events[-1:])))
    return Item(
        what=Sentence(
            text=f"The planner {one.planner} could not be used ({one.code}): {words.sentence(one.reason)}",
            events=call.events[-1:],
        ),
        why=Sentence(text="Time does not cure this, and the list of planners names another."),
        decision="failover",
        then=tuple(then),
    )


def compactions(story: Story) -> Iterator[Sentence]:
    """Each time that the oldest turns of the conversation were summarised, where it happened."""
    for turn in story.turns:
        if turn.verdict is not Verdict.TOO_LONG or turn.call.proposed is None:
            continue
        done = next((call for call in story.history.compactions if call.scheduled > turn.call.scheduled), None)
        number, is_done = turn.call.proposed.compact, done is not None and done.closed is Closed.COMPLETED
        oldest, were = ("turn", "was") if number == 1 else (f"{number} turns", "were")
        size = f" ({turn.call.proposed.context:,} tokens)" if turn.call.proposed.context else ""
        text = (
            f"The conversation grew too long{size}: its oldest {oldest} {were}{'' if is_done else ' to be'} summarised."
        )
        yield Sentence(text=text, events=(*turn.call.events, *(done.events if done else ())))
