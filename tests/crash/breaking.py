"""Tools that break what they share with the worker: its event loop, the module json, its process."""

import asyncio
import json
import os
import time
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
def fork_and_exit(args: Note) -> Noted:
    """Fork as it is meant: the child does something, and exits."""
    child = os.fork()
    if child == 0:
        _note(args)
        os._exit(0)
    os.waitpid(child, 0)
    return Noted(word=args.word)
