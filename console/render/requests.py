"""Shows the requests of a task to people as lines, with the commands that answer them."""

from collections.abc import Mapping
from datetime import UTC

from pydantic import JsonValue

from client.text import cut, one_line, printable, starter
from client.undo import PlannedCall, PlannedUndo
from client.wording import MAX_REASON, suggested
from console.render.terminal import Line, signed
from console.render.tree import duration
from workflows.outcome import Outcome
from workflows.people import CHOICES, Change, Choice, HumanAnswer, HumanRequest, RequestKind, answer_command
from workflows.plan import canonical
from workflows.text import visible

SIGN = "?"


def lines(outcome: Outcome) -> list[str]:
    """Two lines for each open request: what is asked, and the command that answers; none if the task asks nothing."""
    opened = [one for one in outcome.requests if one.is_open]
    return [line for one in opened for line in request_lines(outcome.task_id, one, is_alone=len(opened) == 1)]


def request_lines(task_id: str, request: HumanRequest, *, is_alone: bool) -> list[str]:
    others = ", ".join(choice.value for choice in request.choices[1:])
    first = command(task_id, request, request.choices[0], is_alone=is_alone)
    answers = f"    Answer: {first}" + (f"   (or {others})" if others else "")
    return [asked_line(request), *call_lines(request), answers, *incident_lines(request)]


def asked_line(request: HumanRequest, *, with_numbers: bool = False) -> Line:
    """What a request asks, and until when: `  ? r1 paid: The key was revoked. (until ...)`."""
    until = request.until.astimezone(UTC)
    options = suggested(request.options, with_numbers=with_numbers)
    text = f"{request.id} {about(request)}: {cut(one_line(request.reason), MAX_REASON)}{options}"
    return signed(SIGN, f"{text} (until {until:%Y-%m-%d %H:%MZ})", "yellow")


def incident_lines(request: HumanRequest) -> list[str]:
    """The command that answers the requests of all tasks with the same cause; none if the cause is that of one task."""
    return [f"    All tasks that wait for it: {starter('resolve', request.cause)}"] if request.cause else []


def call_lines(request: HumanRequest) -> list[str]:
    """The call that a request shows, an argument in each line; none for a request that is not for an approval."""
    call = request.call
    if call is None:
        return []
    undo = f", undone by {call.undo}" if call.undo else ", with no tool that undoes it" if call.effect != "read" else ""
    args = [f"      {visible(name)}: {_value(value)}" for name, value in (call.args or {}).items()]
    return [f"    Call: {printable(call.kind)} ({call.effect}{printable(undo)})", *args]


def undo_lines(planned: PlannedUndo) -> list[str]:
    """The calls of a rollback, the first at the top, with all of their arguments."""
    return [line for call in planned.calls for line in _undo_call_lines(call)]


def _undo_call_lines(call: PlannedCall) -> list[str]:
    may = "" if call.is_certain else ", if it was applied"
    why = f" ({printable(call.approve)})" if call.approve else ""
    args = [f"      {printable(name)}: {printable(_value(value))}" for name, value in call.args.items()]
    return [f"    {printable(call.kind)}{why} undoes {printable(call.step)}{may}", *args]


def _value(value: JsonValue) -> str:
    """A value that a person approves: on one line, and whole, so that no two values look alike."""
    return " ".join(visible(value if isinstance(value, str) else canonical(value), kept="\n\t").split())


def about(request: HumanRequest) -> str:
    """What a request is about: its step, or the planner or the budget."""
    if request.kind is RequestKind.QUESTION:
        return "The planner asks"
    return one_line(request.step or ("budget" if request.kind is RequestKind.BUDGET else "the task"))


def command(task_id: str, request: HumanRequest, choice: Choice, *, is_alone: bool, is_whole: bool = False) -> str:
    """The command that gives an answer; `is_alone` says that no other request of the task is open."""
    which, text = "" if is_alone else request.id, one_line(request.options[0]) if request.options else ""
    return printable(answer_command(task_id, choice, request.code, which, text, is_whole=is_whole))


def choices(task_id: str, request: HumanRequest, *, is_alone: bool) -> list[str]:
    """A request with every command that answers it, and what follows each answer."""
    said: list[str] = [asked_line(request), *call_lines(request)]
    for choice in request.choices:
        typed = command(task_id, request, choice, is_alone=is_alone, is_whole=True)
        said += [f"    {typed}", f"        {CHOICES[choice].says}"]
    return said + incident_lines(request)


def answered(request: HumanRequest) -> list[str]:
    """The line about the answer of a request, or about its end without an answer; none while it is open."""
    if answer := request.answer:
        after = duration((answer.at - request.since).total_seconds(), 1)
        return [signed(SIGN, f"{request.id} {about(request)}: {given(answer)} after {after}", "green")]
    if request.closed:
        return [signed(SIGN, f"{request.id} {about(request)}: {closed(request)}", "yellow")]
    return []


def given(answer: HumanAnswer) -> str:
    """Who answered what: `ann answered replan ("Pay by invoice.")`."""
    who = one_line(answer.by) or "somebody"
    words = f' ("{cut(one_line(answer.text), MAX_REASON)}")' if answer.text else ""
    more = f" ({amounts(answer.extended)})" if answer.extended else ""
    undo = " with its effects undone" if answer.undo else ""
    edited = f" ({changed(answer.edited)})" if answer.edited else ""
    whole = " for all tasks that waited for it" if answer.resolution else ""
    return f"{who} answered {answer.choice.value}{whole}{undo}{words}{more}{edited}"


def changed(edited: Mapping[str, Change]) -> str:
    """The arguments that a person changed: `amount 900 -> 400`."""
    said = (f"{name} {_value(one.was)} -> {_value(one.now)}" for name, one in edited.items())
    return cut(one_line(", ".join(said)), MAX_REASON)


def closed(request: HumanRequest) -> str:
    if request.closed == "repeated":
        return "the task went on by itself, since the cause is gone"
    return "nobody answered in time" if request.closed == "unanswered" else "the task ended before an answer"


def amounts(extended: Mapping[str, int | float]) -> str:
    """Additions to limits: `+10 tool calls, +1.5 usd`."""
    return ", ".join(f"+{amount} {name.replace('_', ' ')}" for name, amount in extended.items())
