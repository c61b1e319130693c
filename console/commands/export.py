"""`export`: a task's history as one JSON file that Temporal can replay, with the explanation beside it."""

import sys
from typing import Annotated

import typer
from temporalio.client import Client, WorkflowHistory

from client import document, export as exporting, tasks
from client.explain import explanation
from client.export import Export
from client.remedy import as_command
from client.tasks import Handle
from client.text import printable
from console.exits import Exit
from console.files import STDOUT, require_writable, write_file
from console.options import Common, TaskId


async def export_command(
    *,
    id: TaskId = None,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file; `-` is standard output.")] = "-",
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace values by placeholders, so that the file can be given away.")
    ] = False,
    common: Common,
) -> int:
    require_writable(file)
    client = await common.connected()
    return await export(client, await tasks.find_task(client, id), common, file, redact=redact)


async def export(client: Client, handle: Handle, common: Common, file: str, *, redact: bool) -> int:
    """Write the history of a task's newest run, redacted if wanted, to a file or to standard output."""
    done = await exporting.export(client, handle, redact=redact)
    fields = {"task_id": done.task_id, "run_id": done.run_id, "redacted": redact}
    fields["explain"] = explanation.explain_task(done.history).document(as_command)
    fields |= WorkflowHistory(done.task_id, done.events).to_json_dict()
    if file == STDOUT:
        print(document.of_anything(fields))
    else:
        write_file(document.of_anything(fields), file)
    _print_notes(done)
    if file != STDOUT:
        count = len(done.events)
        summary = {"task_id": handle.id, "run_id": done.run_id, "file": file, "events": count, "redacted": redact}
        line = f"{printable(handle.id)}: {count} events in {file}{', redacted' if redact else ''}"
        print(document.of_anything(summary) if common.json else line)
    return Exit.COMPLETED


def _print_notes(done: Export) -> None:
    # On stderr, since stdout may be the exported document.
    if done.opaque:
        what = f"{done.opaque} payloads, which a codec wrote or which lie in external storage, are as they were"
        print(f"note: {what}", file=sys.stderr)
    if done.continues:
        print(f"note: the task began in earlier runs, the last {done.continues}", file=sys.stderr)
