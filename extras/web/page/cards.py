"""A request of a task as a person sees it, with what its forms need."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from fastapi import Request

from client.wording import answer_text, asked_calls, closing_text, subject_of
from extras.web.page.inputs import Field, fields_of, with_defaults
from extras.web.page.rendering import ASK_SECONDS
from extras.web.page.schemas import Schema, Schemas
from workflows.account.outcome import Outcome
from workflows.people.card import CALL, DEFAULT, MAX_CALL, TASK, Asker, Fact, facts
from workflows.people.requests import HumanRequest, RequestKind
from workflows.text import shorten

FROM = "Come from"
"""What a fact is about that has the origin of several arguments."""


class RequestCard(NamedTuple):
    """A request as a person sees it, with what its forms need."""

    task_id: str
    task: str
    by: str
    """Who started the task; empty if nobody said so."""
    request: HumanRequest
    heading: str
    """What is asked, on the page of the task: `Approve this call?`; what a closed request was about."""
    line: str
    """What the request asks, in a line: the call, or the question."""
    facts: Sequence[Fact]
    """What a person must know of an open request, as the page shows it; empty for a request that was closed."""
    fields: Sequence[Field]
    """The arguments as fields of the form that edits them."""
    is_known: bool
    """Whether the call that is to be approved is known."""
    answered: str
    """Who answered what, or why the request was closed without an answer; empty for an open request."""
    calls: Sequence[str]
    """The calls that a closed request was about, in words; empty for an open request."""


def card_of(task: Asker, asked: HumanRequest, schema: Schema | None, outcome: Outcome | None) -> RequestCard:
    """Make the card of a request; `schema` is the schema of the arguments of the call to approve; None if not known.

    `outcome` is the Outcome of the task, which has the calls of a closed request.
    """
    call, known = asked.call, facts(asked, task) if asked.is_open else []
    answered = answer_text(asked) or (closing_text(asked) if asked.closed else "")
    line = next((fact.text for fact in known if fact.about == CALL), "") or shorten(asked.reason, MAX_CALL)
    is_known = call is not None or asked.kind is not RequestKind.APPROVAL
    fields = fields_of(call, schema) if call and asked.is_open else []
    calls = asked_calls(outcome, asked) if outcome and answered else []
    return RequestCard(
        task.id,
        task.text,
        task.by,
        asked,
        _heading(asked),
        line,
        _on_page(known, asked),
        fields,
        is_known,
        answered,
        calls,
    )


def _heading(asked: HumanRequest) -> str:
    if asked.is_open and asked.kind is RequestKind.APPROVAL:
        return f"Approve these {len(asked.others) + 1} calls?" if asked.others else "Approve this call?"
    if asked.is_open and asked.kind is RequestKind.BUDGET:
        return "Raise the limit?"
    return subject_of(asked)


def _on_page(known: Sequence[Fact], asked: HumanRequest) -> list[Fact]:
    """The facts without what the page says elsewhere: the task, and in a call its arguments, which follow it whole.

    An origin that all arguments of a call share stands once, below them.
    """
    calls = iter([asked.call, *asked.others] if asked.call else [])
    groups = list[list[Fact]]()
    for fact in known:
        if fact.about == TASK and not fact.is_argument:
            continue
        if not fact.is_argument and fact.about.startswith(CALL) and (call := next(calls, None)):
            fact = fact._replace(text=call.kind)
        if groups and groups[-1][-1].is_argument == fact.is_argument:
            groups[-1].append(fact)
        else:
            groups.append([fact])
    return [fact for group in groups for fact in (_with_one_origin(group) if group[0].is_argument else group)]


def _with_one_origin(arguments: Sequence[Fact]) -> list[Fact]:
    chosen = [fact for fact in arguments if fact.origin != DEFAULT]
    origins = {fact.origin for fact in chosen}
    if len(chosen) < 2 or len(origins) > 1 or "" in origins or any(fact.is_untrusted for fact in chosen):
        return [*arguments]
    shared = [fact if fact.origin == DEFAULT else fact._replace(origin="") for fact in arguments]
    return [*shared, Fact(FROM, f"{'all' if len(chosen) == len(arguments) else 'all others'}: {origins.pop()}")]


async def cards_of(
    request: Request, requests: Sequence[tuple[Asker, str, HumanRequest]], outcome: Outcome | None = None
) -> list[RequestCard]:
    """Make the cards of requests, each given with its task and the task's queue; workers are asked for the schemas.

    `outcome` is the Outcome of the task, if all requests are of one task.
    """

    async def card(task: Asker, queue: str, asked: HumanRequest) -> RequestCard:
        whole, schema = await with_all_arguments(request, queue, asked)
        return card_of(task, whole, schema, outcome)

    return await asyncio.gather(*(card(*one) for one in requests))


async def with_all_arguments(request: Request, queue: str, asked: HumanRequest) -> tuple[HumanRequest, Schema | None]:
    """The request with the arguments that tools add to its calls, also those that only a schema of a tool declares.

    Also returns the schema of the arguments of its first call; None if the request is closed or has no call, or if no
    worker answers within ASK_SECONDS.
    """
    if not asked.is_open or asked.call is None:
        return asked, None
    schemas: Schemas = request.app.state.schemas
    calls = [asked.call, *asked.others]
    # At the same time, since a worker that does not answer is waited for.
    known = await asyncio.gather(*(schemas.of(queue, call.kind, ASK_SECONDS) for call in calls))
    first, *others = map(with_defaults, calls, known)
    return asked.model_copy(update={"call": first, "others": tuple(others)}), known[0]
