"""Explains what a task asked of people: who answered what, when and after how long, and what followed."""

from collections.abc import Iterator

from client.explain import words
from client.explain.words import Item, Sentence
from client.history.records import Call, CallEnd, Event
from client.history.story import Asked, Story
from client.text import one_line, starter
from workflows.faults import Code
from workflows.people import Choice, Given, GivenAbort, GivenEdit, GivenExtend, Resolution
from workflows.plan import Question, canonical


def request_items(story: Story) -> Iterator[Item]:
    """The items of the requests that no other item tells of: those about budgets, and about what cannot be read."""
    told = {id(story.request_after(call)) for call in story.history.calls if call.closed is CallEnd.FAILED}
    has_question = any(isinstance(turn.proposal, Question) for turn in story.turns)
    for one in story.requests:
        if id(one) in told or (one.is_question and has_question):
            continue
        about = "for more of a budget" if one.is_budget else f"about {one.step}" if one.step else "what to do"
        reason = f" {words.sentence(one.recorded.reason)}" if one.recorded else ""
        what = Sentence(text=f"A person was asked {about} ({one.code}).{reason}", events=(one.timer.started,))
        yield Item(
            steps=(one.step,) if one.step else (),
            what=what,
            decision="ask",
            then=tuple(answer_sentences(story, one)),
        )


def answer_sentences(story: Story, asked: Asked) -> Iterator[Sentence]:
    """Sentences about the answer of a request, or about its end without one, and about what followed."""
    timer, answer = asked.timer, asked.answer
    if answer is None:
        events = words.known(timer.started, timer.ended)
        if again := _tried_again(story, asked):
            after = words.seconds((again.at - timer.at).total_seconds())
            text = f"A person was asked ({asked.id}); the task tried again by itself after {after}, and went on."
            events = again.events
        elif timer.fired:
            text = f"A person was asked ({asked.id}), and nobody answered within {words.seconds(timer.seconds)}."
        elif timer.ended or story.history.end:
            text = f"A person was asked ({asked.id}); the task ended before an answer came."
        else:
            text = f"A person was asked ({asked.id}), and has not answered yet."
        yield Sentence(text=text, events=events)
        return
    who = one_line(answer.given.by) if answer.given and answer.given.by else "somebody"
    after = words.seconds((answer.at - timer.at).total_seconds())
    for_all = ""
    if isinstance(answer.given, Resolution):
        for_all = f" for all tasks that waited for {one_line(answer.given.cause)},"
    said = f"{answer.choice.value}{for_all} after {after}, at {words.moment(answer.at)}{_given(answer.given)}"
    text = f"A person was asked ({asked.id}), and {who} answered {said}."
    yield Sentence(text=text, events=(timer.started, answer.event))
    if asked.recorded and asked.recorded.refused:
        what = "arguments were" if answer.choice is Choice.EDIT else "result was"
        yield Sentence(text=f"The {what} not accepted: {words.sentence(asked.recorded.refused)}")
    elif follows := _follows(story, asked):
        yield follows


def _tried_again(story: Story, asked: Asked) -> Call | None:
    """The call with which a task itself found that it needs no answer any more; None if there is none."""
    timer = asked.timer
    if timer.ended is None or timer.fired or asked.step is None:
        return None
    during = [one for one in story.history.of_step(asked.step) if timer.started < one.scheduled < timer.ended]
    is_over = during and not _is_missing(during[-1]) and during[-1].closed in (CallEnd.COMPLETED, CallEnd.FAILED)
    return during[-1] if is_over else None


def _is_missing(call: Call) -> bool:
    fault = call.failing.fault if call.failing else None
    return fault is not None and fault.code is Code.MISSING_TOOL


def _given(given: Given | Resolution | None) -> str:
    """What was said with an answer, as a clause: `: "Pay by invoice"`."""
    if isinstance(given, GivenExtend):
        more = (f"{amount} {name.replace('_', ' ')}" for name, amount in given.amounts.items())
        return f": {words.listed(more)} more"
    if isinstance(given, GivenEdit):
        return f": {words.listed(f'{name} = {one_line(canonical(value))}' for name, value in given.args.items())}"
    text = next((str(value) for name in ("hint", "reason", "text", "note") if (value := getattr(given, name, ""))), "")
    undo = " with the effects of the task undone" if isinstance(given, GivenAbort) and given.undo else ""
    return undo + (f': "{words.sentence(text).rstrip(".")}"' if text else "")


def _follows(story: Story, asked: Asked) -> Sentence | None:
    choice = asked.answer.choice if asked.answer else None
    if choice is Choice.SKIP:
        return Sentence(text="The task went on without the step.")
    if choice is Choice.REJECT:
        return Sentence(text="The call was not made.")
    is_call = choice in (Choice.APPROVE, Choice.EDIT, Choice.RETRY, Choice.PROVIDE)
    if not is_call or asked.answer is None or asked.step is None:
        return None
    calls = [one for one in story.history.of_step(asked.step) if one.scheduled > asked.answer.event]
    if choice is Choice.EDIT:
        calls = calls[1:]  # the first only checked the arguments
    call = calls[0] if calls else None
    if choice is Choice.PROVIDE:
        text = "Instead of another call, the result that the person gave was taken."
        return Sentence(text=text, events=_events(call))
    which = "The same call" if choice is Choice.RETRY else "This call"
    which += " with these arguments" if choice is Choice.EDIT else ""
    again = " again" if choice is Choice.RETRY else ""
    if call is None:
        return Sentence(text=f"{which} is to be made{again}.")
    became = {CallEnd.COMPLETED: "succeeded", CallEnd.FAILED: "failed", CallEnd.CANCELLED: "was stopped"}
    end = became[call.closed] if call.closed else "has not ended yet"
    return Sentence(text=f"{which} was made{again}, and {end}.", events=_events(call))


def _events(call: Call | None) -> tuple[Event, ...]:
    return call.events if call else ()


def now(story: Story) -> list[Sentence]:
    """The requests that are open now, with the command that answers them."""
    command = starter("answer", story.history.task_id)
    return [
        Sentence(
            text=f"The task waits for a person ({one.id}: {' '.join(filter(None, [one.step, one.code]))}) since "
            f"{words.moment(one.timer.at)}: `{command}` shows the answers.",
            events=(one.timer.started,),
        )
        for one in story.requests
        if one.timer.ended is None
    ]


def extensions(story: Story) -> list[Sentence]:
    """The extensions that no request had asked for."""
    answers = [one.answer.event for one in story.requests if one.answer]
    return [
        Sentence(
            text=f"{one_line(one.given.by) or 'Somebody'} extended the budget{_given(one.given)}.", events=(one.event,)
        )
        for one in story.history.answers
        if isinstance(one.given, GivenExtend) and one.event not in answers
    ]
