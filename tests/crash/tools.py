"""Tools for crash tests: each call leaves a line in a file, so that the test can count what really ran."""

import asyncio
from pathlib import Path

from pydantic import BaseModel

from activities.toolbox import tool


class Note(BaseModel):
    """Where to note the call, and how it goes on."""

    file: Path
    word: str
    seconds: float = 0.0
    """How long it takes."""
    patience: int = 0
    """How many calls hang before one goes through."""


class Noted(BaseModel):
    """How many calls of this word there were, this one included."""

    calls: int


@tool.idempotent(timeout=60)
async def note(args: Note) -> Noted:
    """Note the call in a file, then take a while."""
    with args.file.open("a") as file:  # one short line, appended atomically
        file.write(f"{args.word}\n")
    calls = args.file.read_text().split().count(args.word)  # see above
    await asyncio.sleep(60 if calls <= args.patience else args.seconds)
    return Noted(calls=calls)
