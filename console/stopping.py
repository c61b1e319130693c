"""`cancel`: ask a task to stop, and to undo what it has done where that is wanted."""

from temporalio.client import Client, WorkflowExecutionStatus

from console import document
from console.cells import printable
from console.options import Common
from console.outcome import Handle
from console.problem import Exit, Problem
from console.shown import starter
from workflows.agent import AgentWorkflow


async def cancel(client: Client, handle: Handle, common: Common, *, undo: bool = False) -> int:
    """Ask a running task to stop; it ends when the steps that run have ended and, with `undo`, are taken back.

    Raises:
        Problem: it has ended already.
    """
    seen = await handle.describe()
    if seen.status is not WorkflowExecutionStatus.RUNNING:
        how = seen.status.name.lower() if seen.status else "closed"
        reason = f"Task {handle.id!r} has ended already ({how})"
        shows = f"`{starter('show', handle.id)}` shows how"
        remedy = f"`{starter('undo', handle.id)}` takes back what it did" if undo else shows
        raise Problem("closed", reason, remedy, Exit.FAILED)
    if undo:
        await handle.signal(AgentWorkflow.undo_when_cancelled)
    await handle.cancel()
    said = f"{printable(handle.id)} was asked to stop{' and to undo what it has done' if undo else ''}."
    asked = f"{said} See what is done: {starter('show', handle.id)}"
    fields = {"task_id": handle.id, "cancel_requested": True, "undo": undo}
    print(document.of_anything(fields) if common.json else asked)
    return Exit.COMPLETED
