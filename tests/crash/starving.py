"""Tools that take what a worker has: its slots, its threads, the event loop of its tools."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from replan import Key, tool


class Note(BaseModel):
    """Where to note the call, by which word, and how long it takes."""

    file: Path
    word: str
    seconds: float = 600.0


class Noted(BaseModel):
    """The word that was noted."""

    word: str


def _note(args: Note) -> Noted:
    with args.file.open("a") as file:  # one short line, appended atomically
        file.write(f"{args.word}\n")
    return Noted(word=args.word)


@tool.read(timeout=100)
async def wait_for_gate(args: Note) -> Noted:
    """Hold a slot until the file `gate` is beside the notes."""
    noted = _note(args)
    while not args.file.with_name("gate").exists():  # quick
        await asyncio.sleep(0.05)
    return noted


@tool.read(timeout=0.5)
def hang(args: Note) -> Noted:
    """Hold a thread much longer than the timeout."""
    noted = _note(args)
    time.sleep(args.seconds)
    return noted


@tool.read(timeout=60)
async def block(args: Note) -> Noted:
    """Block the event loop, as a slow library does."""
    noted = _note(args)
    time.sleep(args.seconds)  # noqa: ASYNC251  # the mistake that is tested
    return noted


@tool.keyed(timeout=1)
async def block_once(args: Note, key: Key) -> Noted:
    """Block the event loop beyond the timeout, the first time."""
    is_first = not args.file.exists()  # quick
    noted = _note(args)
    time.sleep(args.seconds if is_first else 0)  # noqa: ASYNC251  # the mistake that is tested
    return noted


@tool.keyed(timeout=60)
async def pay(args: Note, key: Key) -> Noted:
    """Pay after some seconds."""
    noted = _note(args)
    await asyncio.sleep(args.seconds)
    return noted


@tool.read(timeout=300)
async def ignore_cancel(args: Note) -> Noted:
    """Go on when it is cancelled."""
    _note(args)
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(args.seconds)
