"""`cancel`: ask a task to stop, and to undo what it has done where that is wanted."""

from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus

from client.problem import Exit, Problem
from client.tasks import Handle
from client.workflow_task import failing, with_step
from console.options import Common
from console.render import document
from console.render.terminal import printable, starter
from workflows.agent import AgentWorkflow


async def cancel(client: Client, handle: Handle, common: Common, *, undo: bool = False) -> int:
    """Ask a running task to stop; it ends when the steps that run have ended and, with `undo`, are taken back.

    One whose workflow task fails is asked, too, but cannot stop before that succeeds: exit code 3.

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
    found = await failing(client, seen)  # before the request, which begins the count of attempts anew
    if undo:
        await handle.signal(AgentWorkflow.undo_when_cancelled)
    await handle.cancel()
    said = f"{printable(handle.id)} was asked to stop{' and to undo what it has done' if undo else ''}."
    asked = f"{said} See what is done: {starter('show', handle.id)}"
    fields: dict[str, Any] = {"task_id": handle.id, "cancel_requested": True, "undo": undo, "failing": None}
    if found is not None:
        found = await with_step(client, found)
        fields["failing"] = found.document()
        asked = f"{said} It cannot do that yet. {printable(str(found.problem()))}"
    print(document.of_anything(fields) if common.json else asked)
    return Exit.NEEDS_PERSON if found else Exit.COMPLETED
