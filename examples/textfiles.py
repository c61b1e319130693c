"""Saves texts on a shared drive, or in a local outbox if that fails; the tools are plain functions, run in threads.

The environment variables TEXTS_DRIVE and TEXTS_OUTBOX name the two folders.
"""

import os
from pathlib import Path

from pydantic import BaseModel, Field

from replan import Busy, NeedsPerson, tool


class Text(BaseModel):
    """A text and its name."""

    name: str = Field(description="File name, e.g. minutes.txt", pattern=r"^[\w-]{1,60}\.txt$")
    text: str = Field(max_length=100_000)


class Saved(BaseModel):
    """Where it is now."""

    folder: str
    bytes: int


@tool.idempotent(content=["text"])
def keep_text(args: Text) -> Saved:
    """Keep a text in the outbox of this machine, for somebody to move it."""
    return _write(_folder("TEXTS_OUTBOX"), args)


@tool.idempotent(content=["text"], fallback=keep_text, ensure="result.bytes >= len(args.text)", timeout=10)
def save_text(args: Text) -> Saved:
    """Save a text on the shared drive, over what was there under its name."""
    drive = _folder("TEXTS_DRIVE")
    if (drive / "backup.lock").exists():
        raise Busy("A backup has locked the drive.")
    return _write(drive, args)


def _folder(variable: str) -> Path:
    folder = Path(os.environ.get(variable, ""))
    if variable not in os.environ or not folder.is_dir():
        raise NeedsPerson(f"{variable} names no folder: start the worker with one that exists.")
    return folder


def _write(folder: Path, args: Text) -> Saved:
    part = folder / f".{args.name}.part"
    size = part.write_bytes(args.text.encode())
    part.replace(folder / args.name)  # atomic: nobody reads half a text
    return Saved(folder=str(folder), bytes=size)
