"""Explains what a task asked of people: who answered what, when and after how long, and what followed."""

from collections.abc import Iterator

from client.explain import words
from client.explain.words import Item, Sentence
from client.history.records import Call, CallEnd
from client.history.story import Asked, Story
from client.remedy import Remedy, Text
from client.text import one_line
from client.wording import change_words
from workflows.people.requests import REPEATED, UNANSWERED, Choice, HumanAnswer, RequestKind
from workflows.plans.proposal import Question


def request_items(story: Story) -> Iterator[Item]:
    """The items of the requests that no other item explains: requests about budgets, and about what cannot be read."""
    faults = (*story.account.faults, *story.account.own_faults)
    ids = {exchange.request.id for fault in faults for exchange in story.requests_about(fault)}
    has_question = any(isinstance(turn.proposal, Question) for turn in story.turns)
    for exchange in story.requests:
        request = exchange.request
        if request.id in ids or (request.kind is RequestKind.QUESTION and has_question):
            continue
        about = f"about {request.step}" if request.step else "what to do"
        about = "for more of a budget" if request.kind is RequestKind.BUDGET else about
        what = f"A person was asked {about} ({request.code}). {words.sentence(request.reason)}"
        yield Item(
            steps=request.steps,
            what=Sentence(text=what, events=exchange.events),
            decision="ask",
            then=tuple(answer_sentences(story, exchange)),
        )


def answer_sentences(story: Story, exchange: Asked) -> Iterator[Sentence]:
    """Sentences about the answer to a request, or about the end of a request without an answer, and what followed."""
    request, answer, timer = exchange.request, exchange.request.answer, exchange.timer
    together = f", about {words.listed(request.steps)} together" if request.others else ""
    was_asked = f"A person was asked ({request.id}{together})"
    if answer is None:
        events = words.known(timer.started, timer.ended) if timer else ()
        if request.closed == REPEATED:
            again = _last_call_while_open(story, exchange)
            after = f" after {words.seconds((again.at - request.since).total_seconds())}" if again else ""
            text = f"{was_asked}; the task tried again by itself{after}, and went on."
            events = again.events if again else events
        elif request.closed == UNANSWERED:
            within = words.seconds((request.until - request.since).total_seconds())
            text = f"{was_asked}, and nobody answered within {within}."
        elif request.closed or story.history.end:
            text = f"{was_asked}; the task ended before an answer came."
        else:
            text = f"{was_asked}, and has not answered yet."
        yield Sentence(text=text, events=events)
        return
    after = words.seconds((answer.at - request.since).total_seconds())
    for_all = f" for all tasks that waited for {one_line(request.cause)}," if answer.resolution else ""
    clause = f"{answer.choice.value}{for_all} after {after}, at {words.moment(answer.at)}{_answer_clause(answer)}"
    text = f"{was_asked}, and {one_line(answer.by) or 'somebody'} answered {clause}."
    yield Sentence(text=text, events=(*exchange.events, *words.known(exchange.answered)))
    if request.refused:
        what = "arguments were" if answer.choice is Choice.EDIT else "result was"
        yield Sentence(text=f"The {what} not accepted: {words.sentence(request.refused)}")
    elif follows := _what_followed(story, exchange):
        yield follows


def _last_call_while_open(story: Story, exchange: Asked) -> Call | None:
    timer, calls = exchange.timer, story.history.of_step(exchange.request.step or "")
    since = [call for call in calls if timer and timer.started < call.scheduled]
    during = [call for call in since if not (timer and timer.ended and call.scheduled > timer.ended)]
    return during[-1] if during else None


def _answer_clause(answer: HumanAnswer) -> str:
    """The text, amounts or changes in an answer, as a clause: `: "Pay by invoice"`."""
    if answer.extended:
        more = (f"{amount} {name.replace('_', ' ')}" for name, amount in answer.extended.items())
        return f": {words.listed(more)} more"
    if answer.edited:
        return f": {change_words(answer.edited)}"
    undo = " with the effects of the task undone" if answer.undo else ""
    return undo + (f': "{words.sentence(answer.text).rstrip(".")}"' if answer.text else "")


def _what_followed(story: Story, exchange: Asked) -> Sentence | None:
    request, choice = exchange.request, exchange.request.answer.choice if exchange.request.answer else None
    if choice is Choice.SKIP:
        return Sentence(text="The task went on without the step.")
    if choice is Choice.REJECT:
        return Sentence(text="The call was not made.")
    is_call = choice in (Choice.APPROVE, Choice.APPROVE_ALL, Choice.EDIT, Choice.RETRY, Choice.PROVIDE)
    if not is_call or exchange.answered is None or request.step is None:
        return None
    later = (call for call in story.history.of_step(request.step) if call.scheduled > exchange.answered)
    call = next((call for call in later if not story.is_check(call)), None)
    if choice is Choice.PROVIDE:
        text = "Instead of another call, the result that the person gave was taken."
        return Sentence(text=text, events=call.events if call else ())
    which = "The same call" if choice is Choice.RETRY else "This call"
    which += " with these arguments" if choice is Choice.EDIT else ""
    again = " again" if choice is Choice.RETRY else ""
    if call is None:
        return Sentence(text=f"{which} is to be made{again}.")
    became = {CallEnd.COMPLETED: "succeeded", CallEnd.FAILED: "failed", CallEnd.CANCELLED: "was stopped"}
    end = became[call.closed] if call.closed else "has not ended yet"
    return Sentence(text=f"{which} was made{again}, and {end}.", events=call.events)


def now(story: Story) -> list[Sentence]:
    """Sentences about the open requests, with the remedy that shows the answers."""
    answer = Remedy("answer", story.history.task_id)
    sentences = list[Sentence]()
    for exchange in story.requests:
        request = exchange.request
        if request.is_open:
            about = f"{request.id}: {' '.join(filter(None, [request.step, request.code]))}"
            waits = f"The task waits for a person ({about}) since {words.moment(request.since)}: "
            sentences.append(Sentence(text=Text(waits, answer, " shows the answers."), events=exchange.events))
    return sentences


def extensions(story: Story) -> Iterator[Sentence]:
    """Sentences about the extensions of the budget that no request had asked for."""
    answers = [request.request.answer for request in story.requests]
    for extension in story.account.extensions:
        if extension not in answers:
            extending = (answer for answer in story.history.answers if answer.choice is Choice.EXTEND)
            events = tuple(answer.event for answer in extending if answer.at >= extension.at)[:1]
            who = one_line(extension.by) or "Somebody"
            yield Sentence(text=f"{who} extended the budget{_answer_clause(extension)}.", events=events)
