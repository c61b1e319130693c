"""Fetches the history of a task from the server: the events of all its runs, and of its rollbacks.

Runs before a task is explained, reported, undone or reset, and when it has ended, for the values of its Outcome.

A task has several runs after a continue-as-new or a reset. A rollback is the workflow that undoes a closed task.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from client.history.account import replayed_progress
from client.history.reader import HistoryBuilder, read_history
from client.history.records import History
from client.history.story import Story, with_values
from client.pauses import pauses
from client.tasks import CLOSED, Handle, closing_outcome, converter_of, existing, memo_field
from client.workflow_task import UNREADABLE, failing
from workflows.account import search_attributes
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.records import StepStatus
from workflows.faults.fault import number_of, parse_faults, parse_held
from workflows.ids import reset_rollback_id, rollback_id
from workflows.people.requests import ENDED

ROLLBACK_OF = "origin"
"""The memo field of a rollback that has the id of the first run of the undone task."""
WAITING = (PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED, PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED)
"""The states of an open activity of which no attempt runs."""


async def fetch_history(client: Client, handle: Handle, *, journal: bool = False) -> History:
    """The whole history of a task, and the server's state of its open calls. No worker is asked.

    `journal` is needed to explain the task.
    """
    description = await handle.describe()
    reading = await _read_runs(client, handle.id, await _chain(client, handle.id, description.run_id), journal=journal)
    for activity in description.raw_description.pending_activities:
        failure = activity.last_failure if activity.HasField("last_failure") else None
        number = await number_of_attempt(converter_of(client, handle.id), activity)
        await reading.pending(activity.activity_id, number, failure, running=activity.state not in WAITING)
    reading.history.paused = pauses(client, description)
    if found := await failing(client, description):  # `describe` has the attempt, which no event has
        reading.history.failing = found
    if reading.history.end is not None:
        reading.history.rollback = await rollback(client, handle.id, reading.history.end.at)
    await _read_earlier(client, reading.history)
    if reading.history.earlier:
        reading.history.rollbacks = await rollbacks(client, handle.id, reading.history.first_run)
    return reading.history


async def fetch_story(client: Client, handle: Handle, *, journal: bool = False) -> Story:
    """The whole history of a task (see `fetch_history`), read as its turns, plans, faults and requests."""
    return Story(await fetch_history(client, handle, journal=journal))


async def number_of_attempt(converter: DataConverter, activity: PendingActivityInfo) -> int:
    """The number of the attempt that runs or comes next; a reset by an operator does not restart the count."""
    try:
        details = await converter.decode(activity.heartbeat_details.payloads)
    except UNREADABLE:  # the codec is missing here
        return activity.attempt
    faults, began = parse_faults(details), activity.last_started_time.ToDatetime(UTC)
    is_own = activity.HasField("last_started_time") and activity.last_heartbeat_time.ToDatetime(UTC) >= began
    if is_own and parse_held(details):  # the running attempt has just failed, and told it before it ended
        faults = faults[:-1]
    return number_of(activity.attempt, faults)


async def final_outcome(client: Client, handle: Handle) -> Outcome:
    """Wait for the end of a task and return its Outcome, with the values that only the history has.

    If the task was closed from outside, the Outcome has what the task had done until then.
    """
    outcome = await closing_outcome(handle)
    if outcome.code != CLOSED and not any(step.in_history for step in outcome.steps):
        return outcome
    history = await read_history(handle.id, handle.fetch_history_events(), converter_of(client, handle.id))
    outcome = _as_closed(history.account, outcome) if outcome.code == CLOSED and history.replayed else outcome
    return with_values(outcome, Story(history))


def _as_closed(account: Outcome, closed: Outcome) -> Outcome:
    """The last account of a task that was closed from outside, with the status, reason, code and times of `closed`."""
    stopped = {StepStatus.RUNNING: StepStatus.CANCELLED, StepStatus.WAITING: StepStatus.CANCELLED}
    stopped[StepStatus.PENDING] = StepStatus.SKIPPED
    steps = (step.model_copy(update={"status": stopped.get(step.status, step.status)}) for step in account.steps)
    requests = (
        request if request.answer else request.model_copy(update={"closed": request.closed or ENDED})
        for request in account.requests
    )
    ended = {name: getattr(closed, name) for name in ("status", "reason", "code", "ended_at")}
    spent = account.spent.model_copy(update={"seconds": closed.spent.seconds})
    return account.model_copy(update={**ended, "steps": tuple(steps), "requests": tuple(requests), "spent": spent})


async def replayed(client: Client, id: str, run_id: str) -> Progress | None:
    """The state of a task as the query `progress` answers it, by a replay of one run here.

    None if no worker has ever decided for the task, or if this version cannot replay the history.
    """
    events = [event async for event in client.get_workflow_handle(id, run_id=run_id).fetch_history_events()]
    if not any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED for event in events):
        return None
    progress = await replayed_progress(id, events, converter_of(client, id))
    return progress and Progress.model_validate_json(progress.model_dump_json())


async def fetch_runs(client: Client, id: str, run_id: str) -> History:
    """The history of a run and of the runs that continued as new into it, without the server's state of open calls."""
    return (await _read_runs(client, id, await _chain(client, id, run_id))).history


async def fetch_run(client: Client, id: str, run_id: str) -> History:
    """The history of one run, without the runs that continued as new into it."""
    return (await _read_runs(client, id, [run_id])).history


async def _read_runs(client: Client, id: str, runs: Sequence[str], *, journal: bool = False) -> HistoryBuilder:
    reading = HistoryBuilder(id, converter_of(client, id), journal=journal)
    for run in runs:
        reading.history.run_ids.append(run)
        async for event in client.get_workflow_handle(id, run_id=run).fetch_history_events():
            await reading.add(event)
    await reading.complete()
    return reading


async def _read_earlier(client: Client, newest: History) -> None:
    """Read the task's runs that resets replaced, and add them to `newest.earlier`; events name the ids of the runs."""
    known, waiting = set(newest.run_ids), newest.related - set(newest.run_ids)
    while waiting:
        run = waiting.pop()
        known.add(run)
        history = await existing(fetch_run(client, newest.task_id, run))
        if history is None:
            newest.deleted.append(run)
            continue
        waiting |= history.related - known
        if history.first_run == newest.first_run:
            newest.earlier.append(history)
    newest.earlier.sort(key=lambda history: history.last_at)


async def rollbacks(client: Client, id: str, first_run: str) -> list[History]:
    """The histories of all rollbacks of a task, the oldest first: rollbacks before a reset, and after the task's end.

    Rollbacks of an earlier task with the same id, which had another first run, are left out.
    """
    found = list[History]()
    for rollback in (reset_rollback_id(id), rollback_id(id)):
        for run in await _runs_of(client, rollback):
            description = await client.get_workflow_handle(rollback, run_id=run).describe()
            if await memo_field(description, ROLLBACK_OF, str) == first_run:
                found.append(await fetch_run(client, rollback, run))
    return sorted(found, key=lambda history: history.last_at)


async def _runs_of(client: Client, id: str) -> list[str]:
    # The list of the server lags behind, so the newest run is asked for by itself.
    newest = await existing(client.get_workflow_handle(id).describe())
    if newest is None:
        return []
    listed = set[str]()
    if search_attributes.is_quotable(id):
        listed = {workflow.run_id async for workflow in client.list_workflows(f"WorkflowId = '{id}'")}
    return list(listed | {newest.run_id})


async def rollback(client: Client, id: str, ended: datetime) -> str | None:
    """Temporal's status, in lower case, of the rollback that began after the task's end at `ended`; else None."""
    description = await existing(client.get_workflow_handle(rollback_id(id)).describe())
    if description is None or not description.status or description.start_time < ended:
        return None
    return description.status.name.lower()


async def _chain(client: Client, id: str, newest: str) -> list[str]:
    """The ids of the runs that continued as new into the run `newest`, the oldest first, and `newest` itself."""
    chain = [newest]
    while True:
        try:
            first = await anext(client.get_workflow_handle(id, run_id=chain[0]).fetch_history_events(page_size=1))
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND or len(chain) == 1:
                raise
            return chain[1:]  # the history of the oldest run was deleted
        before = first.workflow_execution_started_event_attributes.continued_execution_run_id
        if not before:
            return chain
        chain.insert(0, before)
