"""Whether a task queue that has another store, or none yet, is free for the store of a worker that starts.

Runs at the start of a worker, before it opens its store.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from temporalio.client import Client

from client.history.account import replayed_progress
from client.replay import unfinished
from client.wording import count
from client.workers import is_served
from runtime.queue_store import NamedStore, OtherStore, Record
from workflows.agent import AgentWorkflow
from workflows.rollback import UndoWorkflow
from workflows.text import few

MAX_UNFINISHED = 200
"""The most unfinished tasks that are looked at."""
MAX_NAMED = 5
LOST = " If that store is lost, terminate its tasks with the `temporal` program."
OF_TASKS = (AgentWorkflow.__name__, UndoWorkflow.__name__)


class _Task(NamedTuple):
    id: str
    store: str | None
    """The id of the store in which its effects are recorded; None if its history does not say it here."""


async def require_free(client: Client, queue: str, own: NamedStore, found: Record | None) -> None:
    """Check that no unfinished task and no worker of a queue has another store than `own`; `found` is its record.

    Raises:
        OtherStore: there is one.
    """
    tasks = [task async for task in _begun(client, queue)]
    theirs = [task for task in tasks if task.store != own.id and (task.store or found)]
    if found is None and len(theirs) < len(tasks):  # without a record, whoever has tasks here may go on with them
        return
    if theirs:
        named = few([task.id for task in theirs], MAX_NAMED)
        store = found.store if found else NamedStore(theirs[0].store or "")
        why = f"{count(len(theirs), 'unfinished task')} began with the store of the queue ({named})"
        raise OtherStore(queue, store, own, why, LOST)
    if found and await is_served(client, queue):
        raise OtherStore(queue, found.store, own, "another worker serves the queue with its store")


async def _begun(client: Client, queue: str) -> AsyncIterator[_Task]:
    async for history in unfinished(client, queue, MAX_UNFINISHED):
        started = history.events[0].workflow_execution_started_event_attributes
        if started.workflow_type.name not in OF_TASKS:
            continue
        progress = await replayed_progress(history.workflow_id, history.events, client.data_converter)
        if progress is None or progress.store:  # else its catalogue was not read yet
            yield _Task(history.workflow_id, progress.store if progress else None)
