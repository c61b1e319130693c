"""What a person types to answer a request: the options of each answer, and the words that a prompt takes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from client.people import given_with
from client.problem import Problem, WrongValue
from client.text import one_line
from console.arguments import read_json
from console.render import requests
from workflows.people import Choice, HumanRequest

FOR: Mapping[str, tuple[Choice, ...]] = {
    "hint": (Choice.REPLAN,),
    "reason": (Choice.REJECT, Choice.SKIP, Choice.ABORT),
    "args": (Choice.EDIT,),
    "result": (Choice.PROVIDE,),
    "text": (Choice.REPLY,),
    "undo": (Choice.ABORT,),
    **dict.fromkeys(requests.MORE, (Choice.EXTEND,)),
}
"""By option, the answers that take it."""
NEEDED = {Choice.EDIT: "args", Choice.PROVIDE: "result", Choice.REPLY: "text"}
"""By answer, the option without which it says nothing."""
LABELS: Mapping[str, str] = {
    "hint": "a hint for the planner",
    "reason": "why",
    "args": "the arguments that change as JSON, or @FILE",
    "result": "the result of the step as JSON, or @FILE",
    "text": "your words",
}
"""By option that takes words, what a prompt asks for."""


def given_of(choice: Choice, options: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent with an answer for the options that a person typed.

    Raises:
        Problem: an option goes with another answer, is missing, or cannot be read.
    """
    for name in options:
        if choice not in FOR[name]:
            goes_with = " or ".join(one.value for one in FOR[name])
            raise Problem("usage", f"--{name} goes with {goes_with}, and not with {choice.value}", "leave it out")
    needed = NEEDED.get(choice)
    if needed and not str(options.get(needed, "")).strip():
        raise Problem("usage", f"{choice.value} needs --{needed}", f"write {choice.value} {requests.GIVES[choice][0]}")
    for name, beginning in {"result": "The result is", "args": "The arguments are"}.items():
        if name in options:
            return {name: read_json(options[name], beginning, """write JSON, e.g. '{"id": 7}', or @FILE""")}
    return dict(options)


def check_given(choice: Choice, given: Mapping[str, Any]) -> None:
    """Raise Problem, with the name of the option, for a value that cannot be sent with an answer."""
    try:
        given_with(choice, given)
    except WrongValue as wrong:
        raise wrong.named(f"--{wrong.field.replace('_', '-')}") from wrong


def typed_words(request: HumanRequest) -> dict[str, tuple[Choice, dict[str, Any]]]:
    """By the words that a prompt takes for a request, the answer and the options that they stand for."""
    chosen: dict[str, tuple[Choice, dict[str, Any]]] = {one.value: (one, {}) for one in request.choices}
    if Choice.ABORT in request.choices:
        chosen["abort --undo"] = (Choice.ABORT, {"undo": True})
    if request.options and not request.free_text:
        chosen.pop(Choice.REPLY.value, None)
    replies = [(Choice.REPLY, {"text": text}) for text in request.options]
    numbers = map(str, range(1, len(replies) + 1)) if are_numbered(request) else ()
    return {**chosen, **dict(zip(numbers, replies, strict=False)), **dict(zip(_texts(request), replies, strict=True))}


def are_numbered(request: HumanRequest) -> bool:
    """Whether a number stands for an option: not if it would also be the text of one."""
    texts = _texts(request)
    return bool(texts) and not any(str(number) in texts for number in range(1, len(texts) + 1))


def _texts(request: HumanRequest) -> list[str]:
    return [one_line(text) for text in request.options]


def takes(request: HumanRequest) -> str:
    """What a person may type, such as `retry, skip or abort`."""
    typed = typed_words(request)
    names: list[str] = [one for one in request.choices if one in typed]
    if request.options:
        names = [f"{name} (other words)" if name == Choice.REPLY else name for name in names]
        names.insert(0, "an option or its number" if are_numbered(request) else "an option")
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class Words(NamedTuple):
    """What a prompt asks for beside an answer."""

    option: str
    label: str
    are_needed: bool


def words_for(request: HumanRequest, choice: Choice) -> Words | None:
    """What a person is asked for beside an answer; None if it says all."""
    if choice is Choice.EXTEND:
        limit = request.code
        label = f"how many {limit.replace('_', ' ')} more, e.g. +{requests.MORE[limit]}"
        return Words(limit, label, are_needed=True)
    option = next((name for name in LABELS if choice in FOR[name]), None)
    return Words(option, LABELS[option], are_needed=choice in NEEDED) if option else None
