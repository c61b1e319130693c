"""What the tools note of each call of theirs: one line in a file that all workers append to."""

import os
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel
from temporalio import activity

FILE = "REPLAN_CHAOS_NOTES"
"""The environment variable that names the file."""


class Note(BaseModel):
    """One call of a tool."""

    task: str
    run: str
    step: str
    kind: str
    attempt: int
    scheduled: datetime
    """When the server scheduled this attempt, by its clock."""
    worker: int


def take() -> None:
    """Note the call that runs now, outside every transaction: what is rolled back was called all the same."""
    info = activity.info()
    note = Note(
        task=info.workflow_id or "",
        run=info.workflow_run_id or "",
        step=info.activity_id,
        kind=info.activity_type,
        attempt=info.attempt,
        scheduled=info.current_attempt_scheduled_time,
        worker=os.getpid(),
    )
    with Path(os.environ[FILE]).open("a") as file:  # one short line, appended atomically
        file.write(f"{note.model_dump_json()}\n")


def read(file: Path) -> list[Note]:
    """All calls so far, the oldest first."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [Note.model_validate_json(line) for line in lines]
