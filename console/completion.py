"""The completions that Tab offers in a shell for ids, kinds, states and answers.

Ids and kinds come from the server, if it answers within SECONDS; else Tab offers nothing, without a message.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:  # the SDK takes half a second, which the help does not have
    from temporalio.client import Client

SECONDS = 2.0
"""The most seconds that a person who pressed Tab waits."""
MAX_IDS = 100


def task_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The ids of the newest tasks that begin with `incomplete`."""
    return _begins(_fetched(context, partial(_ids, incomplete)), incomplete)


def kinds(context: typer.Context, incomplete: str) -> list[str]:
    """The kinds of a worker's tools that begin with `incomplete`."""
    return _begins(_fetched(context, _kinds), incomplete)


def states(incomplete: str) -> list[str]:
    """The states of tasks that begin with `incomplete`."""
    from workflows.account.task import TaskStatus

    return _begins(TaskStatus, incomplete)


def choices(incomplete: str) -> list[str]:
    """The answers to requests that begin with `incomplete`."""
    from workflows.people.requests import Choice

    return _begins((choice for choice in Choice if choice is not Choice.EXTEND), incomplete)


Fetch = Callable[["Client", str], Awaitable[Iterable[str]]]
"""Fetches words from the server of a connection; the second argument is the task queue."""


async def _ids(begin: str, client: "Client", queue: str) -> Iterable[str]:
    from client import tasks
    from workflows.account.search_attributes import is_quotable

    narrowed = f" AND WorkflowId STARTS_WITH '{begin}'" if begin and is_quotable(begin) else ""
    return [task.id for task in await tasks.newest_tasks(client, tasks.TASKS + narrowed, MAX_IDS)]


async def _kinds(client: "Client", queue: str) -> Iterable[str]:
    from client.workers import ask
    from workflows.inquiries import ToolsInquiry

    return [card.spec.kind for card in (await ask(client, queue, ToolsInquiry())).tools]


def _fetched(context: typer.Context, fetch: Fetch) -> Iterable[str]:
    from temporalio.service import RPCError

    from client.connection import connected
    from client.problem import Problem

    typed = context.params

    async def answered() -> Iterable[str]:
        async with asyncio.timeout(SECONDS):
            client = await connected(typed["address"], typed["namespace"], typed["profile"])
            return await fetch(client, typed["queue"])

    try:
        return asyncio.run(answered())
    except (Problem, RPCError, TimeoutError):
        return ()


def _begins(choices: Iterable[str], incomplete: str) -> list[str]:
    """The words that begin with `incomplete`, without blanks, quotes and colons: bash ends a word at a colon."""
    begin = (word for word in choices if word.startswith(incomplete))
    return [str(word) for word in begin if shlex.quote(word) == word and ":" not in word]
