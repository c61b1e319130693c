"""`undo`: take back what a closed task did, by a workflow of its own that is followed to its end."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError

from console import document, watching
from console.cells import cut, one_line, printable
from console.connection import ui_url
from console.follow import Follower
from console.options import Common
from console.outcome import Handle, account
from console.problem import Exit, Problem
from console.shown import ROLLBACK_OF, rollback_id, starter
from console.sight import Sight
from console.step_lines import MAX_REASON
from console.view import Aside
from workflows.agent import AgentWorkflow
from workflows.details import SIGNS, summary
from workflows.outcome import Outcome
from workflows.progress import Progress
from workflows.record import StepStatus, UndoRecord
from workflows.undo import Undo, UndoWorkflow


class Rollback(Aside):
    """Says of each effect what became of it, as soon as that is known."""

    def __init__(self, common: Common) -> None:
        """Say nothing but who is silent where one JSON document is wanted."""
        super().__init__(common)
        self._is_quiet = common.json
        self._told = 0

    def see(self, sight: Sight) -> None:
        """Tell what is new."""
        self._tell(sight.outcome)

    def end(self, outcome: Outcome) -> None:
        """Tell the rest."""
        self._tell(outcome)

    def _tell(self, outcome: Outcome) -> None:
        for one in outcome.undo[self._told :]:
            self._told += 1
            if not self._is_quiet:
                watching.say(_line(outcome, one))


async def undo(client: Client, handle: Handle, common: Common) -> int:
    """Undo what a closed task did; where that is being done already, follow it.

    Raises:
        Problem: the task runs, no worker answers for it or can replay it, or the rollback ended without a word.
    """
    seen = await handle.describe()
    _require_closed(seen)
    common = await common.at(handle)
    progress = await _progress(client, handle, common)
    running = await _started(client, seen, progress)
    try:
        with Rollback(common) as view:
            await Follower(client, running, view, is_attended=watching.is_attended(common)).to_the_end()
    except asyncio.CancelledError:
        print(f"\ndetached; it goes on. Follow: {starter('undo', handle.id)}", file=sys.stderr)
        raise
    outcome = await _ended(running, handle.id)
    if common.json:
        print(_document(client, running, handle.id, outcome))
    else:
        for line in _closing(handle.id, outcome.undo):
            watching.say(line)
    return Exit.COMPLETED if _is_all(outcome.undo) else Exit.NEEDS_PERSON


def _require_closed(seen: WorkflowExecutionDescription) -> None:
    if seen.status is WorkflowExecutionStatus.RUNNING:
        remedy = f"`{starter('cancel', seen.id, '--undo')}` stops it and takes back what it has done"
        raise Problem("still_running", f"Task {seen.id!r} is running", remedy, Exit.FAILED)


async def _progress(client: Client, handle: Handle, common: Common) -> Progress:
    """What the task did, as a worker makes it out of its history, with the run that its keys begin with."""
    try:
        known = await account(handle)
    except WorkflowQueryFailedError as error:
        said = cut(one_line(error.message), MAX_REASON).rstrip(".")
        reason = f"The worker that answers cannot replay task {handle.id!r} ({said})"
        remedy = "run workers with the code that the task ran on, or with code that is mended, and try again"
        raise Problem("workflow_task_fails", reason, remedy, Exit.NEEDS_PERSON) from error
    if known is None:
        reason = f"No worker tells what task {handle.id!r} did"
        remedy = f"start one with `python worker.py{common.at_queue}`, with the tools of the task, and try again"
        raise Problem("no_worker", reason, remedy, Exit.UNREACHABLE)
    async for event in client.get_workflow_handle(handle.id).fetch_history_events(page_size=1):
        first = event.workflow_execution_started_event_attributes.first_execution_run_id
        return known.model_copy(update={"origin": first, "undo": []})
    raise Problem("unknown_id", f"Task {handle.id!r} has no history any more", "it was deleted: nothing can be undone")


async def _started(client: Client, seen: WorkflowExecutionDescription, progress: Progress) -> Handle:
    """The rollback that runs already, or a new one; both do nothing twice, since they use the same keys."""
    id = rollback_id(seen.id)
    await client.start_workflow(
        UndoWorkflow.run,
        Undo(progress=progress),
        id=id,
        task_queue=seen.task_queue,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        memo={ROLLBACK_OF: progress.origin},
        static_summary=summary(f"undo {seen.id}"),
        static_details=f"`{starter('undo', seen.id)}` shows it in a terminal, or does it once more.",
    )
    return client.get_workflow_handle_for(AgentWorkflow.run, id)  # it answers and ends as a task does


async def _ended(running: Handle, id: str) -> Outcome:
    """What a rollback that is over came to.

    Raises:
        Problem: it was closed from outside, or no worker could begin it.
    """
    try:
        return await running.result()
    except WorkflowFailureError as failure:
        cause = failure.cause
        if isinstance(cause, ApplicationError) and cause.details:
            return Outcome.model_validate(cause.details[0])
        said = cause.message if isinstance(cause, ApplicationError) else "it was stopped from outside"
        reason = f"The rollback of {id!r} ended early ({one_line(said).rstrip('.')})"
        raise Problem("not_undone", reason, f"run `{starter('undo', id)}` again", Exit.NEEDS_PERSON) from failure


def _is_all(undo: Sequence[UndoRecord]) -> bool:
    return all(one.done for one in undo)


def _line(outcome: Outcome, one: UndoRecord) -> str:
    kind = next((f" ({step.kind})" for step in outcome.steps if step.id == one.step_id), "")
    sign = SIGNS[StepStatus.UNDONE if one.done else StepStatus.FAILED]
    what = f"undone with {one.kind}" if one.done else f"stays: {cut(one_line(one.reason), MAX_REASON)}"
    return printable(f"  {sign} {one.step_id}{kind} {what}")


def _closing(id: str, undo: Sequence[UndoRecord]) -> list[str]:
    """How it ended, in a sentence, and what is left to do."""
    done, name = sum(one.done for one in undo), printable(id)
    if not undo:
        return [f"There is nothing to undo: {name} has changed nothing that still stands."]
    of = f"{len(undo)} effect{'' if len(undo) == 1 else 's'}"
    said = [f"{done} of {of} of {name} undone."]
    if not _is_all(undo):
        said.append(f"See what is known: {starter('effects', id)}")
    return said


def _document(client: Client, running: Handle, id: str, outcome: Outcome) -> str:
    fields: dict[str, Any] = {
        "task_id": id,
        "undo_id": running.id,
        "undone": _is_all(outcome.undo),
        "undo": [one.model_dump(mode="json") for one in outcome.undo],
        "ui_url": ui_url(client.service_client.config.target_host, client.namespace, running.id),
    }
    return document.of_anything(fields)
