"""Whether this process is still the one that started as a worker, and can still work, after it ran code of tools.

Runs after a worker has loaded its tools, after each call of a tool, and at intervals while the worker serves. What a
tool breaks of the process that it shares with Replan costs the worker, which must not look as if it served.
"""

import asyncio
import inspect
import json
import os
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from temporalio.converter import JSONPlainPayloadConverter

_SHARED: Sequence[tuple[ModuleType, str, Any]] = (
    (json, "dumps", json.dumps),
    (json, "loads", json.loads),
    (asyncio, "Task", asyncio.Task),
)
"""What the SDK takes from a module at each use, so that a tool can replace it: module, name, and the original."""
_SAMPLE: dict[str, Any] = {"a": [1, "b", None, {"c": 0.5}]}


def failure(loop: asyncio.AbstractEventLoop | None = None) -> str:
    """Why what tools share with the SDK does not work any more, as a sentence; empty if it does.

    `loop` is the running event loop, if there is one. If it does not work, what was replaced is put back, so that the
    worker can stop in order.
    """
    try:
        _try(loop)
    except Exception as error:
        kind = type(error).__name__
    else:
        return ""
    found = [(module, name, own, getattr(module, name, None)) for module, name, own in _SHARED]
    replaced = [each for each in found if each[2] is not each[3]]
    for module, name, own, _ in replaced:
        setattr(module, name, own)
    named = " and ".join(f"{module.__name__}.{name} by {described(now)}" for module, name, _, now in replaced)
    what = f"replaced {named}, which does not work" if named else "changed the module json or asyncio"
    return f"A tool or its library {what} ({kind}), so no task can go on: remove that from the tools."


def _try(loop: asyncio.AbstractEventLoop | None) -> None:
    """Do what the SDK does with each payload and each workflow. Raises what fails; ValueError for wrong values."""
    converter = JSONPlainPayloadConverter()
    payload = converter.to_payload(_SAMPLE)
    if payload is None or converter.from_payload(payload) != _SAMPLE:
        raise ValueError("another value came back")
    if loop is not None:
        work = _nothing()
        try:
            asyncio.Task(work, loop=loop).cancel()
        except Exception:
            work.close()
            raise


async def _nothing() -> None:
    pass


def described(function: object) -> str:
    """What a function is called, and in which file and line it begins, as far as it tells."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else getattr(function, "__module__", None)
    return f"{name} of {where}" if where else str(name)


class OwnProcess:
    """The process in which this object was made."""

    def __init__(self) -> None:
        self._id = os.getpid()

    def require(self, calls: Callable[[], Iterable[str]]) -> None:
        """End this process with exit code 1 if it is a child that a tool has forked; `calls` names the likely calls.

        The child has only the thread that forked it, and shares the parent's sockets: it would take and lose what the
        parent waits for.
        """
        if os.getpid() != self._id:
            _leave_child(sorted(calls()))


def _leave_child(calls: Iterable[str]) -> NoReturn:
    named = ", ".join(filter(None, calls)) or "A tool"
    text = (
        f"{named} forked the worker's process, and went on in the child (process {os.getpid()}), which serves nothing."
        " The child ends, and the worker goes on: end a child with os._exit, or start a program instead.\n"
    )
    os.write(2, text.encode(errors="replace"))
    os._exit(1)
