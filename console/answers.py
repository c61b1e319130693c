"""What a person types to answer a request: the options of each answer, and the words that a prompt takes."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from client.problem import Problem
from client.text import one_line
from console.arguments import read_json
from workflows.commands import Option, option_of
from workflows.limits.budget import Amounts
from workflows.people.requests import CHOICES, Choice, HumanRequest, options_for
from workflows.text import capitalised

WRITE_JSON = """write JSON, e.g. '{"id": 7}', or @FILE"""


def takers(name: str) -> list[Choice]:
    """The answers that have an option with this name."""
    return [choice for choice, row in CHOICES.items() if any(option.name == name for option in row.options)]


def options_of(*choices: Choice) -> list[inspect.Parameter]:
    """The command-line options of these answers, each option once, as parameters for `with_common`."""
    options = {option.name: option for choice in choices for option in CHOICES[choice].options}
    return [_parameter(option) for option in options.values()]


def _parameter(option: Option) -> inspect.Parameter:
    kind: Any = bool if option.type == "switch" else str
    help = f"With {either(takers(option.name))}: {option.asks}."
    if option.type == "number":
        kind, help = Amounts.model_fields[option.name].annotation, f"{capitalised(option.asks)}."
    default = typer.Option(None, option_of(option.name), metavar=option.metavar or None, help=help)
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind | None)


def either(names: Sequence[str]) -> str:
    """Names as a choice: `a, b or c`."""
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def given_of(choice: Choice, options: Mapping[str, Any]) -> dict[str, Any]:
    """The values to send with an answer, by name, from the typed `options`. Raises Problem if these do not fit."""
    for name in options:
        if choice not in takers(name):
            reason = f"{option_of(name)} goes with {either(takers(name))}, and not with {choice.value}"
            raise Problem("usage", reason, "leave it out")
    row = CHOICES[choice]
    typed = {option: options[option.name] for option in row.options if option.name in options}
    if row.needs_option and not any(str(value).strip() for value in typed.values()):
        needed = either([option_of(option.name) for option in row.options])
        raise Problem("usage", f"{choice.value} needs {needed}", f"write {choice.value} {row.options[0].typed}")
    return {
        option.name: read_json(value, f"{option_of(option.name)} is", WRITE_JSON) if option.is_json else value
        for option, value in typed.items()
    }


def typed_answers(request: HumanRequest) -> dict[str, tuple[Choice, dict[str, Any]]]:
    """For each text that a prompt accepts for `request`: the answer that it stands for, and the answer's options."""
    chosen: dict[str, tuple[Choice, dict[str, Any]]] = {offered.value: (offered, {}) for offered in request.choices}
    for choice in request.choices:
        switches = [option for option in CHOICES[choice].options if option.type == "switch"]
        chosen |= {f"{choice.value} {switch.typed}": (choice, {switch.name: True}) for switch in switches}
    if request.options and not request.free_text:
        chosen.pop(Choice.REPLY.value, None)
    replies = [(Choice.REPLY, {"text": text}) for text in request.options]
    numbers = map(str, range(1, len(replies) + 1)) if are_numbered(request) else ()
    texts = zip(_option_texts(request), replies, strict=True)
    return {**chosen, **dict(zip(numbers, replies, strict=False)), **dict(texts)}


def are_numbered(request: HumanRequest) -> bool:
    """Whether a number may stand for an option: False without options, or if such a number is an option's text."""
    texts = _option_texts(request)
    return bool(texts) and not any(str(number) in texts for number in range(1, len(texts) + 1))


def _option_texts(request: HumanRequest) -> list[str]:
    return [one_line(text) for text in request.options]


def takes(request: HumanRequest) -> str:
    """What a person may type, such as `retry, skip or abort`."""
    typed = typed_answers(request)
    names: list[str] = [choice for choice in request.choices if choice in typed]
    if request.options:
        names = [f"{name} (other words)" if name == Choice.REPLY else name for name in names]
        names.insert(0, "an option or its number" if are_numbered(request) else "an option")
    return either(names)


def text_option(request: HumanRequest, choice: Choice) -> Option | None:
    """The option whose text a prompt asks for after the answer `choice`; None if this answer has no such option."""
    return next((option for option in options_for(choice, request.code) if option.type != "switch"), None)
