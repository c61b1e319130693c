"""The inbox: what waits for a person."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from client import tasks
from client.client import Client
from client.listing import MAX_WAITING, list_waiting
from client.problem import Problem
from client.tasks import query_progress
from server.api import client_of
from server.page.cards import card_of
from server.page.rendering import ASK_SECONDS, render
from workflows.people.requests import (
    HumanRequest,
    RequestKind,
)

router = APIRouter(include_in_schema=False)
PAGE = 25
"""Requests on a page of the inbox; the workers of those that ask for an approval are asked for the call."""


@router.get("/ui/inbox")
async def inbox(request: Request, page: Annotated[int, Query(ge=1)] = 1, answered: str = "") -> Response:
    client = client_of(request)
    waiting = await list_waiting(client.temporal)
    # The server's list is a moment behind what was answered just now.
    waiting = [task for task in waiting if f"{task.task_id} {task.request.id}" != answered]
    pages = max(1, -(-len(waiting) // PAGE))
    shown = waiting[(min(page, pages) - 1) * PAGE :][:PAGE]
    requests = await asyncio.gather(*(_open_requests(client, task.task_id, task.request) for task in shown))
    cards = [
        card_of(task.task_id, task.task, human_request)
        for task, found in zip(shown, requests, strict=True)
        for human_request in found
        if f"{task.task_id} {human_request.id}" != answered
    ]
    number = {"page": min(page, pages), "pages": pages, "total": len(waiting), "is_cut": len(waiting) >= MAX_WAITING}
    return render(request, "inbox.html", cards=cards, answered=answered.rpartition(" ")[0], **number)


async def _open_requests(client: Client, id: str, request: HumanRequest) -> Sequence[HumanRequest]:
    """The open requests of a task, with their calls; only the oldest one, without its call, if no worker answers."""
    if request.kind is not RequestKind.APPROVAL:
        return [request]
    try:
        async with asyncio.timeout(ASK_SECONDS):
            progress = await query_progress(await tasks.find_task(client.temporal, id))
    except (TimeoutError, Problem):
        return [request]
    return progress.open_requests if progress else [request]
