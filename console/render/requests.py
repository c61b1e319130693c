"""Shows the requests of a task to people as lines, with the commands that answer them."""

from datetime import UTC

from client.lines import Line, signed
from client.text import cut, one_line, printable
from client.tree import duration
from client.undo import PlannedUndo, PlannedUndoCall
from client.wording import MAX_REASON, answer_text, asked_calls, closing_text, person_text, subject_of, suggested
from console.render.command import starter
from workflows.account.outcome import Outcome
from workflows.people.card import TO_PROVIDE, Asker, Fact, call_text, facts, more_text, needs_text, value_line
from workflows.people.requests import CHOICES, Choice, HumanRequest, answer_command
from workflows.text import service_words, visible

SIGN = "?"
MAY_BE_MADE = "may this call be made?"


def lines(outcome: Outcome) -> list[str]:
    """The lines of all open requests: what each asks, and the command that answers it; empty without open requests."""
    opened = [request for request in outcome.requests if request.is_open]
    return [line for request in opened for line in request_lines(request, asker(outcome), is_alone=len(opened) == 1)]


def asker(outcome: Outcome) -> Asker:
    """The task of an outcome, as cards and commands name it."""
    return Asker(outcome.task_id, outcome.task, outcome.by)


def request_lines(request: HumanRequest, task: Asker, *, is_alone: bool) -> list[str]:
    """What a request asks, and the commands that answer it; `is_alone`: no other request of the task is open."""
    others = ", ".join(choice.value for choice in request.choices[1:])
    first = command(task.id, request, request.choices[0], is_alone=is_alone)
    answers = f"    Answer: {first}" + (f"   (or {others})" if others else "")
    lines = [f"    {one_line(service_words(request.words))}"] if request.words else []
    if request.call is None and (needs := needs_text(request)):  # else the card has it
        lines.append(f"    {TO_PROVIDE}: {one_line(needs)}")
    return [asked_line(request), *lines, *call_lines(request, task), answers, *incident_lines(request)]


def asked_line(request: HumanRequest, *, with_numbers: bool = False) -> Line:
    """What a request asks: `  ? r1 paid: The key was revoked. (until ...)`; `with_numbers` numbers its options."""
    until = request.until.astimezone(UTC)
    options = suggested(request.options, with_numbers=with_numbers)
    asked = cut(one_line(request.reason), MAX_REASON) if request.call is None else MAY_BE_MADE
    about = f"{request.id} {subject_of(request)}"
    return signed(SIGN, f"{about}: {asked}{options} (until {until:%Y-%m-%d %H:%MZ})", "yellow")


def closed_lines(outcome: Outcome, request: HumanRequest) -> list[str]:
    """What a closed request asked, with the calls that it was about."""
    return [asked_line(request), *(f"    {printable(call)}" for call in asked_calls(outcome, request))]


def incident_lines(request: HumanRequest) -> list[str]:
    """A line with the command that answers all requests with the same cause; empty if other tasks cannot share it."""
    return [f"    All tasks that wait for it: {starter('resolve', request.cause)}"] if request.cause else []


def call_lines(request: HumanRequest, task: Asker) -> list[str]:
    """The card of a request for an approval, a fact in each line; empty for another request, which needs no card."""
    return card_lines(request, task) if request.call else []


def card_lines(request: HumanRequest, task: Asker) -> list[str]:
    """The card of a request, a fact in each line."""
    return [_fact_line(fact) for fact in facts(request, task)]


def _fact_line(fact: Fact) -> str:
    # Whole: no two values look alike, and nobody approves what is cut.
    text = printable(value_line(fact.text))
    if not fact.is_argument:
        return f"    {printable(one_line(fact.about))}: {text}"
    line = f"      {visible(fact.about)}: {text}"
    origin = f"   ({one_line(fact.origin_text)})" if fact.origin else ""
    return Line(line + origin, "bold yellow", len(line)) if fact.is_untrusted else line + origin


def undo_lines(planned: PlannedUndo) -> list[str]:
    """The calls of a rollback, the first at the top, with all of their arguments."""
    return [line for call in planned.calls for line in _undo_call_lines(call)]


def _undo_call_lines(call: PlannedUndoCall) -> list[str]:
    may = "" if call.is_certain else ", if it was applied"
    why = f" ({printable(call.approve)})" if call.approve else ""
    args = [f"      {printable(name)}: {printable(value_line(value))}" for name, value in call.args.items()]
    undone = f"      (the call was: {printable(call_text(call.undoes_kind, call.undoes_args))})"
    return [f"    {printable(call.kind)}{why} undoes {printable(call.step)}{may}", *args, undone]


def command(task_id: str, request: HumanRequest, choice: Choice, *, is_alone: bool, is_whole: bool = False) -> str:
    """The command that gives an answer, with `is_whole` also its options. `is_alone`: no other request is open."""
    which, text = "" if is_alone else request.id, one_line(request.options[0]) if request.options else ""
    return printable(answer_command(task_id, choice, request.code, which, text, is_whole=is_whole))


def choices(request: HumanRequest, task: Asker, *, is_alone: bool) -> list[str]:
    """A request with every command that answers it, and what follows each answer."""
    rows: list[str] = [asked_line(request), *card_lines(request, task)]
    for choice in request.choices:
        typed = command(task.id, request, choice, is_alone=is_alone, is_whole=True)
        rows += [f"    {typed}", f"        {CHOICES[choice].says}"]
    return rows + incident_lines(request)


def _endorsed_line(request: HumanRequest, number: int) -> Line:
    """The line about the answer number `number`, from 1, of several people who must answer a request alike."""
    answer = request.endorsed[number - 1]
    after, more = duration((answer.at - request.since).total_seconds(), 1), more_text(request.needed - number)
    said = f"{person_text(answer)} answered {answer.choice.value} after {after}; {more}"
    return signed(SIGN, f"{request.id} {subject_of(request)}: {said}", "yellow")


def endorsed(request: HumanRequest) -> list[str]:
    """The lines about the answers so far of several people who must answer a request alike."""
    return [_endorsed_line(request, number) for number in range(1, len(request.endorsed) + 1)]


def answered(request: HumanRequest) -> list[str]:
    """The line about the answer of a request, or about its end without an answer; empty while the request is open."""
    if answer := request.answer:
        after = duration((answer.at - request.since).total_seconds(), 1)
        return [signed(SIGN, f"{request.id} {subject_of(request)}: {answer_text(request)} after {after}", "green")]
    if request.closed:
        return [signed(SIGN, f"{request.id} {subject_of(request)}: {closing_text(request)}", "yellow")]
    return []
