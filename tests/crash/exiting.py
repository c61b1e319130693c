"""Tools that end what runs them: their process, or the event loop of all tools."""

import asyncio
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from replan import Key, tool


class Note(BaseModel):
    """Where to note the call, and by which word."""

    file: Path
    word: str


class Noted(BaseModel):
    """The word that was noted."""

    word: str


def _note(args: Note) -> Noted:
    with args.file.open("a") as file:  # one short line, appended atomically
        file.write(f"{args.word}\n")
    return Noted(word=args.word)


@tool.keyed
async def pay(args: Note, key: Key) -> Noted:
    """Pay, as a tool of another task does."""
    return _note(args)


@tool.unkeyed
async def leave(args: Note) -> Noted:
    """Exit, as a script does."""
    _note(args)
    sys.exit(3)


@tool.unkeyed
def leave_thread(args: Note) -> Noted:
    """Exit in a thread."""
    _note(args)
    sys.exit(3)


@tool.unkeyed
async def interrupt(args: Note) -> Noted:
    """Raise what Ctrl-C raises."""
    _note(args)
    raise KeyboardInterrupt


@tool.unkeyed
async def stop_loop(args: Note) -> Noted:
    """Stop the event loop, as the end of a script does."""
    noted = _note(args)
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    return noted


@tool.unkeyed
async def break_loop(args: Note) -> Noted:
    """Take from the event loop what it cannot do without."""
    loop: Any = asyncio.get_running_loop()
    loop._selector.close()
    return _note(args)


@tool.unkeyed
def count(args: Note) -> list[int]:
    """Return what has no end."""
    _note(args)
    endless: Any = _numbers()
    return endless  # type: ignore[no-any-return]  # the mistake that is tested


def _numbers() -> Iterator[int]:
    yield from itertools.count()
