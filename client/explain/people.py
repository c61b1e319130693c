"""Explains what a task asked of people: who answered what, when and after how long, and what followed.

Runs when a task is explained, for each of its requests to people.
"""

from collections.abc import Iterator, Sequence

from client.explain import prose
from client.explain.prose import Item, Sentence, said
from client.history.records import Call, CallEnd, Event, Timer
from client.history.story import RecordedRequest, Story
from client.remedy import Remedy, Text
from client.text import one_line
from client.wording import change_text, person_text
from workflows.account.entries_of_people import Extended
from workflows.people.card import more_text, needs_text
from workflows.people.requests import ENDED, REPEATED, UNANSWERED, Choice, HumanAnswer, HumanRequest, RequestKind
from workflows.plans.proposal import Question


def request_items(story: Story) -> Iterator[Item]:
    """The items of the requests that no other item explains: requests about budgets, and about what cannot be read."""
    explained = [request.id for failure in story.failures for request in failure.requests]
    has_question = any(isinstance(turn.proposal, Question) for turn in story.turns)
    for exchange in story.requests:
        request = exchange.request
        if request.id in explained or (request.kind is RequestKind.QUESTION and has_question):
            continue
        about = f"about {request.step}" if request.step else "what to do"
        about = "for more of a budget" if request.kind is RequestKind.BUDGET else about
        what = f"A person was asked {about} ({request.code}). {prose.sentence(request.reason)}"
        yield Item.of(said(what, *exchange.events), "", "ask", *answer_sentences(story, exchange), steps=request.steps)


def answer_sentences(story: Story, exchange: RecordedRequest) -> Iterator[Sentence]:
    """Sentences about the answer to a request, or about the end of a request without an answer, and what followed."""
    request, answer, timer = exchange.request, exchange.request.answer, exchange.timer
    together = f", about {prose.listed(request.steps)} together" if request.others else ""
    was_asked = f"A person was asked ({request.id}{together})"
    if request.approvers is not None:
        yield said(f"The call needs {request.approvers.text(request.since, request.needed)}.")
    for number, (one, event) in enumerate(zip(request.endorsed, exchange.endorsed, strict=False), 1):
        begin = f"{was_asked}, and " * (number == 1)
        gave = f"{_answered(request, one)}, as {number} of {request.needed}"
        yield said(f"{begin}{gave}.", *exchange.events * (number == 1), event)
    if answer is None and request.endorsed:
        nobody = {UNANSWERED: "Nobody else answered in time.", ENDED: "The task ended before anybody else answered."}
        more = f"It needs {more_text(request.needed - len(request.endorsed))}."
        yield said(nobody.get(request.closed, nobody[ENDED] if story.history.end else more), *_events(timer))
        return
    if answer is None:
        again = _last_call_while_open(story, exchange) if request.closed == REPEATED else None
        after = f" after {prose.seconds((again.at - request.since).total_seconds())}" if again else ""
        within = prose.seconds((request.until - request.since).total_seconds())
        became = {
            REPEATED: f"; the task tried again by itself{after}, and went on.",
            UNANSWERED: f", and nobody answered within {within}.",
            "": "; the task ended before an answer came." if story.history.end else ", and has not answered yet.",
        }.get(request.closed, "; the task ended before an answer came.")
        yield said(f"{was_asked}{became}", *(again.events if again else _events(timer)))
        return
    if request.endorsed:
        yield said(f"{_answered(request, answer)}, as the last.", exchange.answered)
    else:
        yield said(f"{was_asked}, and {_answered(request, answer)}.", *exchange.events, exchange.answered)
    if request.refused:
        what = "arguments were" if answer.choice is Choice.EDIT else "result was"
        yield said(f"The {what} not accepted: {prose.sentence(request.refused)}")
    else:
        yield from _what_followed(story, exchange, answer.choice)


def _events(timer: Timer | None) -> Sequence[Event]:
    return timer.events if timer else ()


def _answered(request: HumanRequest, answer: HumanAnswer) -> str:
    """Who answered, how a door knew that person, when, and what, as a clause."""
    after = prose.seconds((answer.at - request.since).total_seconds())
    for_all = f" for all tasks that waited for {one_line(request.cause)}," if answer.resolution else ""
    signed = f", signed with the key {one_line(answer.statement.key)}" if answer.statement else ""
    clause = f"{answer.choice.value}{for_all} after {after}, at {prose.moment(answer.at)}{signed}"
    return f"{person_text(answer)} answered {clause}{_answer_clause(answer)}"


def _last_call_while_open(story: Story, exchange: RecordedRequest) -> Call | None:
    timer, calls = exchange.timer, reversed(story.history.of_step(exchange.request.step or ""))
    made = (call for call in calls if timer and timer.started < call.scheduled <= (timer.ended or call.scheduled))
    return next(made, None)


def _answer_clause(answer: HumanAnswer) -> str:
    """The text, amounts or changes in an answer, as a clause: `: "Pay by invoice"`."""
    if answer.extended:
        more = (f"{amount} {name.replace('_', ' ')}" for name, amount in answer.extended.items())
        return f": {prose.listed(more)} more"
    if answer.edited:
        return f": {change_text(answer.edited)}"
    undo = " with the effects of the task undone" if answer.undo else ""
    return undo + (f': "{prose.sentence(answer.text).rstrip(".")}"' if answer.text else "")


_WITHOUT_CALL = {Choice.SKIP: "The task went on without the step.", Choice.REJECT: "The call was not made."}
_CALLED = {
    Choice.APPROVE: ("This call", ""),
    Choice.APPROVE_ALL: ("This call", ""),
    Choice.EDIT: ("This call with these arguments", ""),
    Choice.RETRY: ("The same call", " again"),
    Choice.PROVIDE: ("", ""),
}
"""By answer that a call follows, how it is told: `The same call was made again`."""
_BECAME = {
    CallEnd.COMPLETED: "succeeded",
    CallEnd.FAILED: "failed",
    CallEnd.CANCELLED: "was stopped",
    None: "has not ended yet",
}


def _what_followed(story: Story, exchange: RecordedRequest, choice: Choice) -> Iterator[Sentence]:
    if choice in _WITHOUT_CALL:
        yield said(_WITHOUT_CALL[choice])
    answered, step = exchange.answered, exchange.request.step
    if choice not in _CALLED or answered is None or step is None:
        return
    later = (call for call in story.history.of_step(step) if call.scheduled > answered)
    # A failed call that no decision followed only checked what the person gave.
    call = next((call for call in later if call.closed is not CallEnd.FAILED or story.fault_of(call)), None)
    which, again = _CALLED[choice]
    text = f"{which} was made{again}, and {_BECAME[call.closed]}." if call else f"{which} is to be made{again}."
    instead = "Instead of another call, the result that the person gave was taken."
    yield said(instead if choice is Choice.PROVIDE else text, *(call.events if call else ()))


def now(story: Story) -> list[Sentence]:
    """Sentences about the open requests, with the remedy that shows the answers."""
    answer, sentences = Remedy("answer", story.history.task_id), list[Sentence]()
    for exchange in story.requests:
        request = exchange.request
        if request.is_open:
            about = f"{request.id}: {' '.join(filter(None, [request.step, request.code]))}"
            waits = f"The task waits for a person ({about}) since {prose.moment(request.since)}: "
            sentences.append(said(Text(waits, answer, " shows the answers."), *exchange.events))
            if needs := needs_text(request):
                sentences.append(said(f"It needs {needs}"))
    return sentences


def extension(story: Story, entry: Extended) -> Sentence | None:
    """The sentence about an extension of the budget; None if it answered a request."""
    answers = [exchange.request.answer for exchange in story.requests if exchange.request.answer]
    if any((answer.at, answer.extended) == (entry.at, entry.answer.extended) for answer in answers):
        return None
    text = f"{person_text(entry.answer, 'Somebody')} extended the budget{_answer_clause(entry.answer)}."
    return said(text, story.answer_event(entry.answer))
