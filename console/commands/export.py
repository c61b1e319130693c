"""`export`: a task's history as one JSON file that replays, with the explanation beside it."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter

from client.history.reader import Reading
from client.problem import Exit, Problem
from client.redaction import Redaction
from client.tasks import Handle
from console.explain import explanation
from console.options import Common
from console.render import document

STDOUT = "-"


def require_writable(file: str, *, force: bool) -> None:
    """Say before anything is asked of a server that a file cannot be written.

    Raises:
        Problem: it exists and may not be overwritten, or its folder takes no file.
    """
    if file == STDOUT:
        return
    path = Path(file)
    if path.exists() and not path.is_file():
        raise Problem("no_file", f"{file!r} is a folder or a device, no file", "name a file")
    if path.exists() and not force:
        raise Problem("file_exists", f"The file {file!r} exists", "add --force to overwrite it, or name another")
    if not path.parent.is_dir():
        raise Problem("no_file", f"{file!r} cannot be written (there is no folder {str(path.parent)!r})", "make it")


async def export(client: Client, handle: Handle, common: Common, file: str, *, redact: bool, force: bool) -> int:
    """Write a task's newest run, redacted if wanted, to a file or to standard output.

    Raises:
        Problem: the file cannot be written.
    """
    run_id = (await handle.describe()).run_id
    history = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
    events, redaction = list(history.events), Redaction()
    task_id = redaction.text(handle.id) if redact else handle.id
    events = redaction.events(events) if redact else events
    fields = {"task_id": task_id, "run_id": run_id, "redacted": redact}
    fields["explain"] = await _explained(task_id, events, client.data_converter)
    fields |= WorkflowHistory(task_id, events).to_json_dict()
    _write(document.of_anything(fields), file, force=force)
    _notes(history.events[0].workflow_execution_started_event_attributes, redaction)
    if file != STDOUT:
        said = {"task_id": handle.id, "run_id": run_id, "file": file, "events": len(events), "redacted": redact}
        line = f"{handle.id}: {len(events)} events in {file}{', redacted' if redact else ''}"
        print(document.of_anything(said) if common.json else line)
    return Exit.COMPLETED


async def _explained(task_id: str, events: Sequence[HistoryEvent], converter: DataConverter) -> dict[str, Any]:
    """What `explain` says of these events, so that the two halves of a file have the same placeholders."""
    reading = Reading(task_id, converter)
    for event in events:
        await reading.add(event)
    return explanation.document(explanation.of(reading.history))


def _notes(began: WorkflowExecutionStartedEventAttributes, redaction: Redaction) -> None:
    """Say what a reader of the file will miss."""
    if redaction.opaque:
        what = f"{redaction.opaque} payloads, which a codec wrote or which lie in external storage, are as they were"
        print(f"note: {what}", file=sys.stderr)
    if began.continued_execution_run_id:
        print(f"note: the task began in earlier runs, the last {began.continued_execution_run_id}", file=sys.stderr)


def _write(text: str, file: str, *, force: bool) -> None:
    if file == STDOUT:
        print(text)
        return
    path = Path(file).resolve()  # a link stays one
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as rough:
            try:
                rough.write(text + "\n")
                rough.close()
                _put(Path(rough.name), path, force=force)
            finally:
                Path(rough.name).unlink(missing_ok=True)
    except OSError as error:
        raise Problem("no_file", f"{file!r} cannot be written ({error.strerror})", "name another file") from error


def _put(rough: Path, path: Path, *, force: bool) -> None:
    """Give a complete file its name; one that came there meanwhile is not overwritten."""
    try:
        path.touch(exist_ok=force)
    except FileExistsError as error:
        raise Problem("file_exists", f"The file {str(path)!r} exists", "add --force to overwrite it") from error
    rough.replace(path)
