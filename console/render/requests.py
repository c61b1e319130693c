"""Shows the requests of a task to people as lines, with the commands that answer them."""

from datetime import UTC

from client.lines import Line, signed
from client.text import cut, one_line, printable
from client.tree import duration
from client.undo import PlannedCall, PlannedUndo
from client.wording import MAX_REASON, answer_words, closing_words, subject_of, suggested, whole_value
from console.render.command import starter
from workflows.account.outcome import Outcome
from workflows.people.requests import CHOICES, Choice, HumanRequest, ProposedCall, answer_command
from workflows.text import visible

SIGN = "?"


def lines(outcome: Outcome) -> list[str]:
    """Two lines for each open request: what is asked, and the command that answers; none if the task asks nothing."""
    opened = [request for request in outcome.requests if request.is_open]
    return [line for request in opened for line in request_lines(outcome.task_id, request, is_alone=len(opened) == 1)]


def request_lines(task_id: str, request: HumanRequest, *, is_alone: bool) -> list[str]:
    others = ", ".join(choice.value for choice in request.choices[1:])
    first = command(task_id, request, request.choices[0], is_alone=is_alone)
    answers = f"    Answer: {first}" + (f"   (or {others})" if others else "")
    return [asked_line(request), *call_lines(request), answers, *incident_lines(request)]


def asked_line(request: HumanRequest, *, with_numbers: bool = False) -> Line:
    """What a request asks, and until when: `  ? r1 paid: The key was revoked. (until ...)`."""
    until = request.until.astimezone(UTC)
    options = suggested(request.options, with_numbers=with_numbers)
    text = f"{request.id} {subject_of(request)}: {cut(one_line(request.reason), MAX_REASON)}{options}"
    return signed(SIGN, f"{text} (until {until:%Y-%m-%d %H:%MZ})", "yellow")


def incident_lines(request: HumanRequest) -> list[str]:
    """The command that answers the requests of all tasks with the same cause; none if the cause is that of one task."""
    return [f"    All tasks that wait for it: {starter('resolve', request.cause)}"] if request.cause else []


def call_lines(request: HumanRequest) -> list[str]:
    """The calls that a request shows, an argument in each line; none for a request that is not for an approval."""
    if request.call is None:
        return []
    others = [
        line
        for call in request.others
        for line in (
            f"    Also {printable(call.step)}: {printable(cut(one_line(call.reason or request.reason), MAX_REASON))}",
            *_call_lines(call),
        )
    ]
    return [*_call_lines(request.call), *others]


def _call_lines(call: ProposedCall) -> list[str]:
    undo = f", undone by {call.undo}" if call.undo else ", with no tool that undoes it" if call.effect != "read" else ""
    args = [f"      {visible(name)}: {whole_value(value)}" for name, value in (call.args or {}).items()]
    return [f"    Call: {printable(call.kind)} ({call.effect}{printable(undo)})", *args]


def undo_lines(planned: PlannedUndo) -> list[str]:
    """The calls of a rollback, the first at the top, with all of their arguments."""
    return [line for call in planned.calls for line in _undo_call_lines(call)]


def _undo_call_lines(call: PlannedCall) -> list[str]:
    may = "" if call.is_certain else ", if it was applied"
    why = f" ({printable(call.approve)})" if call.approve else ""
    args = [f"      {printable(name)}: {printable(whole_value(value))}" for name, value in call.args.items()]
    return [f"    {printable(call.kind)}{why} undoes {printable(call.step)}{may}", *args]


def command(task_id: str, request: HumanRequest, choice: Choice, *, is_alone: bool, is_whole: bool = False) -> str:
    """The command that gives an answer; `is_alone` says that no other request of the task is open."""
    which, text = "" if is_alone else request.id, one_line(request.options[0]) if request.options else ""
    return printable(answer_command(task_id, choice, request.code, which, text, is_whole=is_whole))


def choices(task_id: str, request: HumanRequest, *, is_alone: bool) -> list[str]:
    """A request with every command that answers it, and what follows each answer."""
    rows: list[str] = [asked_line(request), *call_lines(request)]
    for choice in request.choices:
        typed = command(task_id, request, choice, is_alone=is_alone, is_whole=True)
        rows += [f"    {typed}", f"        {CHOICES[choice].says}"]
    return rows + incident_lines(request)


def answered(request: HumanRequest) -> list[str]:
    """The line about the answer of a request, or about its end without an answer; none while it is open."""
    if answer := request.answer:
        after = duration((answer.at - request.since).total_seconds(), 1)
        return [signed(SIGN, f"{request.id} {subject_of(request)}: {answer_words(answer)} after {after}", "green")]
    if request.closed:
        return [signed(SIGN, f"{request.id} {subject_of(request)}: {closing_words(request)}", "yellow")]
    return []
