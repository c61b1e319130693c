"""The inbox: what waits for a person."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from temporalio.service import RPCError

from client import tasks
from client.client import Client
from client.listing import MAX_WAITING, Waiting, list_waiting
from client.problem import Problem
from client.tasks import query_progress
from client.workers import serving
from console.serving.access import Visitor
from extras.web.api import client_of
from extras.web.page.cards import RequestCard, cards_of
from extras.web.page.reaching import PageRoute
from extras.web.page.rendering import ASK_SECONDS, KINDS, render
from workflows.people.card import Asker, more_text
from workflows.people.requests import Choice, HumanRequest, RequestKind
from workflows.text import capitalised

router = APIRouter(include_in_schema=False, route_class=PageRoute)

PAGE = 25
"""Entries on a page of the inbox; for each approval on the page, a worker is asked for the call."""
MANY = 10
"""With more entries than this, each card is shown as one line that opens to the card."""


class IncidentCard(NamedTuple):
    """Several tasks that wait for the same repair."""

    cause: str
    queue: str
    reason: str
    """The newest reason."""
    tasks: Sequence[Waiting]
    """The longest wait first."""
    request: None = None
    """Always None: a template distinguishes this card from the RequestCard of a request by it."""


Entry = Waiting | IncidentCard


@router.get("/ui/inbox")
async def inbox(
    request: Request,
    page: Annotated[int, Query(ge=1)] = 1,
    answered: str = "",
    choice: str = "",
    left: Annotated[int, Query(ge=0, le=100)] = 0,
    kind: str = "",
    mine: bool = False,
) -> Response:
    """The inbox; with `kind` only requests of this kind, with `mine` only requests of tasks that the visitor started.

    `answered` is the request that was just answered, as `TASK REQUEST`, and `choice` is the answer.
    `left` people more must give it, too.
    """
    client = client_of(request)
    visitor: Visitor | None = request.state.visitor
    waiting = await list_waiting(client.temporal)
    # The server's list is a moment behind what was answered just now.
    over = "" if left else answered
    waiting = [task for task in waiting if f"{task.task_id} {task.request.id}" != over]
    own = _entries([task for task in waiting if visitor and visitor.name and task.by == visitor.name])
    everything = _entries(waiting)
    entries = [entry for entry in (own if mine else everything) if kind in ("", _kind_of(entry))]
    pages = max(1, -(-len(entries) // PAGE))
    shown = entries[(min(page, pages) - 1) * PAGE :][:PAGE]
    alone = [entry for entry in shown if isinstance(entry, Waiting)]
    # An empty inbox may be empty because no worker runs.
    queues = sorted({entry.queue for entry in shown} if waiting else {client.queue})
    requests, silent = await asyncio.gather(
        asyncio.gather(*(_open_requests(client, task.task_id, task.request) for task in alone)),
        asyncio.gather(*(_is_silent(client, queue) for queue in queues)),
    )
    cards = await _cards(request, alone, requests, over)
    hidden = {task.queue for task in alone if any(not card.is_known for card in cards[task.task_id])}
    known = {task.queue for task in alone if any(card.request.call for card in cards[task.task_id])}
    counts = {which: _counts(found, cards) for which, found in ((True, own), (False, everything))}
    total = counts[False].total()
    number = {"page": min(page, pages), "pages": pages, "total": total, "is_cut": len(waiting) >= MAX_WAITING}
    return render(
        request,
        "inbox.html",
        entries=[card for entry in shown for card in (cards[entry.task_id] if isinstance(entry, Waiting) else [entry])],
        silent=[queue for queue, is_silent in zip(queues, silent, strict=True) if is_silent or queue in hidden - known],
        answered=answered.rpartition(" ")[0],
        choice=choice if choice in [*Choice] else "",
        left=capitalised(more_text(left)) if left else "",
        tasks=len(waiting),
        is_compact=len(entries) > MANY,
        chips=_chips(counts[mine], counts[True].total(), kind, mine=mine, has_owners=any(task.by for task in waiting)),
        filter=urlencode(_query(kind, mine=mine)) + "&" * bool(kind or mine),
        **number,
    )


def _kind_of(entry: Entry) -> RequestKind:
    return entry.request.kind if isinstance(entry, Waiting) else entry.tasks[0].request.kind


def _counts(entries: Sequence[Entry], cards: Mapping[str, Sequence[RequestCard]]) -> Counter[RequestKind]:
    """How many cards there are of each kind; an entry without cards on this page counts as one."""
    found = Counter[RequestKind]()
    for entry in entries:
        shown = cards.get(entry.task_id, ()) if isinstance(entry, Waiting) else ()
        found.update([card.request.kind for card in shown] or [_kind_of(entry)])
    return found


def _entries(waiting: Sequence[Waiting]) -> list[Entry]:
    """One entry for each task, and one for all tasks of a queue that wait for the same repair; the order stays."""
    together = dict[tuple[str, str], list[Waiting]]()
    for task in waiting:
        together.setdefault((task.request.cause or f" {task.task_id}", task.queue), []).append(task)
    return [
        found[0] if len(found) == 1 else IncidentCard(cause, queue, found[-1].request.reason, found)
        for (cause, queue), found in together.items()
    ]


async def _cards(
    request: Request, alone: Sequence[Waiting], requests: Sequence[Sequence[HumanRequest]], answered: str
) -> Mapping[str, list[RequestCard]]:
    """By task id, the cards of the open requests of each task in `alone`, except the request `answered`."""
    open_ones = [
        (Asker(task.task_id, task.task, task.by), task.queue, asked)
        for task, found in zip(alone, requests, strict=True)
        for asked in found
        if f"{task.task_id} {asked.id}" != answered
    ]
    cards: dict[str, list[RequestCard]] = {task.task_id: [] for task in alone}
    for card in await cards_of(request, open_ones):
        cards[card.task_id].append(card)
    return cards


async def _open_requests(client: Client, id: str, request: HumanRequest) -> Sequence[HumanRequest]:
    """The open requests of a task, with their calls; only `request` if it is no approval, or if no worker answers."""
    if request.kind is not RequestKind.APPROVAL:
        return [request]
    try:
        async with asyncio.timeout(ASK_SECONDS):
            progress = await query_progress(await tasks.find_task(client.temporal, id))
    except (TimeoutError, Problem):
        return [request]
    return progress.open_requests if progress else [request]


async def _is_silent(client: Client, queue: str) -> bool:
    """Whether no worker has asked for work of a queue lately; False if the server does not say."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return not await serving(client.temporal, queue)
    except (TimeoutError, RPCError):
        return False


def _query(kind: str, *, mine: bool) -> dict[str, str]:
    return {**({"kind": kind} if kind else {}), **({"mine": "true"} if mine else {})}


def _chips(
    counts: Counter[RequestKind], own_cards: int, kind: str, *, mine: bool, has_owners: bool
) -> list[tuple[str, str, int, bool]]:
    """The filters as links: the address, the words, the number of cards, and whether the filter is in use."""
    kinds = [("", "All", counts.total()), *((one.value, KINDS[one], counts[one]) for one in RequestKind if counts[one])]
    chips = [
        (f"/ui/inbox?{urlencode(_query(value, mine=mine))}", label, number, value == kind)
        for value, label, number in kinds
    ]
    if mine or has_owners:
        chips.append((f"/ui/inbox?{urlencode(_query(kind, mine=not mine))}", "Started by me", own_cards, mine))
    return chips
