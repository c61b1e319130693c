"""A request of a task as a person sees it, with what its forms need."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from fastapi import Request

from client.wording import answer_words, closing_words, subject_of
from server.page.inputs import Field, fields_of, is_text, value_text
from server.page.rendering import ASK_SECONDS
from server.page.schemas import Schema, Schemas
from workflows.people.requests import CUT, Choice, HumanRequest, ProposedCall, RequestKind


class Card(NamedTuple):
    """A request as a person sees it, with what its forms need."""

    task_id: str
    task: str
    request: HumanRequest
    about: str
    args: Sequence[tuple[str, str, bool, bool]]
    """By argument: its name, its value as text, whether it is a text, whether it was cut and cannot be edited."""
    fields: Sequence[Field]
    """The arguments as fields of the form that edits them."""
    others: Sequence[tuple[ProposedCall, Sequence[tuple[str, str, bool, bool]]]]
    """Further calls that may be approved with it, each with its arguments."""
    is_seen: bool
    """Whether the call that is to be approved is known."""
    answered: str
    """Who answered what; empty while it is open."""


def card_of(task_id: str, task: str, request: HumanRequest, schema: Schema | None = None) -> Card:
    """`schema` is that of the arguments of the call that is to be approved, if it is known."""
    call = request.call
    others = [(other, arguments_of(other)) for other in request.others]
    answered = closing_words(request) if request.closed else ""
    answered = answer_words(request.answer) if request.answer else answered
    is_seen = call is not None or request.kind is not RequestKind.APPROVAL
    args = arguments_of(call) if call else []
    fields = fields_of(call.args or {}, schema) if call else []
    return Card(task_id, task, request, subject_of(request), args, fields, others, is_seen, answered)


async def cards_of(request: Request, requests: Sequence[tuple[str, str, str, HumanRequest]]) -> list[Card]:
    """The cards of requests, each given with the id, the text and the queue of its task; workers tell the schemas."""
    schemas: Schemas = request.app.state.schemas

    async def card(id: str, text: str, queue: str, asked: HumanRequest) -> Card:
        is_edited = asked.is_open and asked.call is not None and Choice.EDIT in asked.choices
        schema = await schemas.of(queue, asked.call.kind, ASK_SECONDS) if is_edited and asked.call else None
        return card_of(id, text, asked, schema)

    return await asyncio.gather(*(card(*one) for one in requests))


def arguments_of(call: ProposedCall) -> list[tuple[str, str, bool, bool]]:
    return [
        (name, value_text(value), is_text(value), isinstance(value, str) and value.endswith(CUT))
        for name, value in (call.args or {}).items()
    ]
