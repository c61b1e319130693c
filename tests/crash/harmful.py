"""Tools that harm the process that runs them: they exit, break what they share with it, or take what it has."""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

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


def _broken(*_args: Any, **_options: Any) -> Any:
    raise RuntimeError("it is broken")


@tool.keyed
async def pay(args: Note, key: Key) -> Noted:
    """Pay, as a tool of another task does."""
    return _note(args)


@tool.keyed
def pay_in_thread(args: Note, key: Key) -> Noted:
    """Pay in a thread."""
    return _note(args)


@tool.keyed(timeout=60)
async def pay_slowly(args: Note, key: Key) -> Noted:
    """Pay after some seconds."""
    noted = _note(args)
    await asyncio.sleep(args.seconds)
    return noted


# Exits


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


# What is shared: the event loop, the module json, the process


@tool.unkeyed
async def replace_factory(args: Note) -> Noted:
    """Replace what makes the tasks of the event loop."""
    asyncio.get_running_loop().set_task_factory(_broken)
    return _note(args)


@tool.unkeyed
async def spoil_tasks(args: Note) -> Noted:
    """Replace the class of the tasks."""
    asyncio.Task = _broken  # type: ignore[misc,assignment]  # the mistake that is tested
    return _note(args)


@tool.unkeyed
def replace_dumps(args: Note) -> Noted:
    """Replace a function of the module json."""
    json.dumps = _broken
    return _note(args)


@tool.unkeyed
def replace_loads(args: Note) -> Noted:
    """Replace another function of the module json."""
    json.loads = _broken
    return _note(args)


@tool.unkeyed
async def use_factory(args: Note) -> Noted:
    """Replace what makes the tasks by what makes them as well, as libraries do that trace."""
    asyncio.get_running_loop().set_task_factory(lambda loop, work, **options: asyncio.Task(work, loop=loop, **options))
    return _note(args)


@tool.unkeyed
def use_json(args: Note) -> Noted:
    """Replace functions of the module json by ones that work as well."""
    dumps, loads = json.dumps, json.loads
    json.dumps = lambda *args, **options: dumps(*args, **options)
    json.loads = lambda *args, **options: loads(*args, **options)
    return _note(args)


@tool.read
def fork_in_thread(args: Note) -> Noted:
    """Fork, and return in both processes."""
    os.fork()
    return _note(args)


@tool.read
def fork_and_raise(args: Note) -> Noted:
    """Fork, and fail in the child."""
    if os.fork() == 0:
        raise ValueError("in the child")
    return _note(args)


@tool.read
async def fork_on_loop(args: Note) -> Noted:
    """Fork, and return in both processes."""
    os.fork()
    return _note(args)


@tool.read
async def fork_and_wait(args: Note) -> Noted:
    """Fork, and go on with other work in both processes."""
    os.fork()
    await asyncio.sleep(0.2)
    return _note(args)


@tool.read
def fork_for_long(args: Note) -> Noted:
    """Fork a child that has work of its own for a minute."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    args.file.write_text(str(child))
    return Noted(word=args.word)


@tool.read
def fork_and_exit(args: Note) -> Noted:
    """Fork as it is meant: the child does something, and exits."""
    child = os.fork()
    if child == 0:
        _note(args)
        os._exit(0)
    os.waitpid(child, 0)
    return Noted(word=args.word)


# Slots, threads and time


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


@tool.read(timeout=300)
async def ignore_cancel(args: Note) -> Noted:
    """Go on when it is cancelled."""
    _note(args)
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(args.seconds)
