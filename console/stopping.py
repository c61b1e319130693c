"""`cancel`: ask a task to stop."""

from temporalio.client import Client, WorkflowExecutionStatus

from console import document
from console.cells import printable
from console.options import Common
from console.outcome import Handle
from console.problem import Exit, Problem
from console.shown import starter


async def cancel(client: Client, handle: Handle, common: Common) -> int:
    """Ask a running task to stop; it ends when the steps that run have ended.

    Raises:
        Problem: it has ended already.
    """
    seen = await handle.describe()
    if seen.status is not WorkflowExecutionStatus.RUNNING:
        how = seen.status.name.lower() if seen.status else "closed"
        reason = f"Task {handle.id!r} has ended already ({how})"
        raise Problem("closed", reason, f"`{starter('show', handle.id)}` shows how", Exit.FAILED)
    await handle.cancel()
    asked = f"{printable(handle.id)} was asked to stop. See what is done: {starter('show', handle.id)}"
    print(document.of_anything({"task_id": handle.id, "cancel_requested": True}) if common.json else asked)
    return Exit.COMPLETED
