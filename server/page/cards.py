"""A request of a task as a person sees it, with what its forms need."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from fastapi import Request

from client.wording import answer_words, closing_words, subject_of
from server.page.inputs import Field, fields_of
from server.page.rendering import ASK_SECONDS
from server.page.schemas import Schema, Schemas
from workflows.people.card import CALL, MAX_CALL, Asker, Fact, facts
from workflows.people.requests import Choice, HumanRequest, RequestKind
from workflows.text import shorten


class Card(NamedTuple):
    """A request as a person sees it, with what its forms need."""

    task_id: str
    task: str
    request: HumanRequest
    about: str
    facts: Sequence[Fact]
    """What a person must know of an open request; empty for one that was closed."""
    fields: Sequence[Field]
    """The arguments as fields of the form that edits them."""
    is_seen: bool
    """Whether the call that is to be approved is known."""
    answered: str
    """Who answered what; empty while it is open."""

    @property
    def words(self) -> str:
        """What it asks, in a line: the call, or the question."""
        call = next((fact.text for fact in self.facts if fact.about == CALL), "")
        return call or shorten(self.request.reason, MAX_CALL)


def card_of(task: Asker, request: HumanRequest, schema: Schema | None = None) -> Card:
    """`schema` is that of the arguments of the call that is to be approved, if it is known."""
    call = request.call
    known = facts(request, task) if request.is_open else []
    answered = closing_words(request) if request.closed else ""
    answered = answer_words(request.answer) if request.answer else answered
    is_seen = call is not None or request.kind is not RequestKind.APPROVAL
    fields = fields_of(call.args or {}, schema) if call else []
    return Card(task.id, task.text, request, subject_of(request), known, fields, is_seen, answered)


async def cards_of(request: Request, requests: Sequence[tuple[Asker, str, HumanRequest]]) -> list[Card]:
    """The cards of requests, each given with its task and the queue of that; workers tell the schemas."""
    schemas: Schemas = request.app.state.schemas

    async def card(task: Asker, queue: str, asked: HumanRequest) -> Card:
        is_edited = asked.is_open and asked.call is not None and Choice.EDIT in asked.choices
        schema = await schemas.of(queue, asked.call.kind, ASK_SECONDS) if is_edited and asked.call else None
        return card_of(task, asked, schema)

    return await asyncio.gather(*(card(*one) for one in requests))
