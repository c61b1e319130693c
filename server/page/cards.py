"""A request of a task as a person sees it, with what its forms need."""

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import JsonValue

from client import document
from client.wording import answer_words, closing_words, subject_of
from workflows.people.requests import (
    CUT,
    HumanRequest,
    ProposedCall,
    RequestKind,
)
from workflows.text import visible


class Card(NamedTuple):
    """A request as a person sees it, with what its forms need."""

    task_id: str
    task: str
    request: HumanRequest
    about: str
    args: Sequence[tuple[str, str, bool, bool]]
    """By argument: its name, its value as text, whether it is a text, whether it was cut and cannot be edited."""
    others: Sequence[tuple[ProposedCall, Sequence[tuple[str, str, bool, bool]]]]
    """Further calls that may be approved with it, each with its arguments."""
    is_seen: bool
    """Whether the call that is to be approved is known."""
    answered: str
    """Who answered what; empty while it is open."""


def card_of(task_id: str, task: str, request: HumanRequest) -> Card:
    call = request.call
    others = [(other, arguments_of(other)) for other in request.others]
    answered = closing_words(request) if request.closed else ""
    answered = answer_words(request.answer) if request.answer else answered
    is_seen = call is not None or request.kind is not RequestKind.APPROVAL
    args = arguments_of(call) if call else []
    return Card(task_id, task, request, subject_of(request), args, others, is_seen, answered)


def arguments_of(call: ProposedCall) -> list[tuple[str, str, bool, bool]]:
    return [
        (name, value_text(value), is_text(value), isinstance(value, str) and value.endswith(CUT))
        for name, value in (call.args or {}).items()
    ]


def is_text(value: JsonValue) -> bool:
    """Whether a value is shown as it is; all others are JSON, in which invisible characters are escaped."""
    return isinstance(value, str) and visible(value, kept="\n\t") == value


def value_text(value: JsonValue) -> str:
    return value if isinstance(value, str) and is_text(value) else document.written(value, indent=None)
