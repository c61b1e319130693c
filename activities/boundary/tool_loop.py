"""The event loop of tools, in a thread of its own.

Runs as long as a worker serves, or a gateway that calls Python tools in its own process. An `async def` that blocks
(`time.sleep`, a slow library) stops other tools until it returns. It stops neither the worker's heartbeats nor its
planning, inspection and shutdown: these run on the worker's own event loop.
"""

import asyncio
import contextlib
import functools
import itertools
import selectors
import socket
import sys
import threading
import time
import traceback
from asyncio import Task  # of this name, since a tool may replace that of the package
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self, TypeVar

import structlog

from activities.boundary.intact import OwnProcess, described, failure

BLOCKED_AFTER = 1.0
"""Seconds without an answer after which the event loop counts as blocked."""

MAX_LOOKUPS = 32
"""The most look-ups of names at the same time; a name server that does not answer holds a thread for some seconds."""
POLL_SECONDS = 0.5
END_SECONDS = 1.0
"""Seconds to wait at the exit for the end of the thread; a thread that a tool blocks is then left running."""

log = structlog.get_logger("replan.step")
_CALL: ContextVar[str] = ContextVar("replan_tool_call", default="")

T = TypeVar("T")


class ToolBlocks(Exception):
    """A call did not end in time, because it blocks the event loop of the tools."""


class ToolLoop:
    """An event loop in a thread; a watchdog logs the tool that blocks it (`tool_blocks`) or did so (`tool_blocked`)."""

    def __init__(self, on_ended: Callable[[str], None] = lambda reason: None) -> None:
        """`on_ended` is called with a sentence, from any thread, if calls cannot be made here before the block ends."""
        self._process = OwnProcess()
        self._loop = _Loop(self._process)
        self._loop.set_task_factory(_named_task)
        self._on_ended = on_ended
        self._thread = threading.Thread(target=self._run_until_ended, name="tools", daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        self._watchdog = asyncio.create_task(self._log_blocking_tools())
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._watchdog.cancel()
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._loop.end)
        await asyncio.to_thread(self._thread.join, END_SECONDS)  # not for ever: a tool may block the loop

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], call: str = "", limit: float | None = None) -> T:
        """Run `work` on this loop; return or raise what `work` does. `call` names `work` in the watchdog's log lines.

        A cancel is passed on to `work`, whose end is still awaited. Without a `limit`, the wait is not limited.

        Raises:
            ToolBlocks: after `limit` seconds `work` itself blocks the loop; `work` is not stopped.
        """
        ended, tasks = Future[Task[Callable[[], T]]](), list[Task[Callable[[], T]]]()

        def begin() -> None:
            _CALL.set(call)
            tasks.append(self._made_task(self._of_call(work)))
            tasks[0].add_done_callback(ended.set_result)

        self._loop.call_soon_threadsafe(begin)  # it runs in a copy of this context, and so does the task
        here = asyncio.wrap_future(ended)
        # The probe of the loop: False once it was sent, True when the loop came round to it.
        began, probe = time.monotonic(), list[bool]()
        while not here.done():
            try:
                await asyncio.wait(
                    [here], timeout=None if limit is None else max(POLL_SECONDS, began + limit - time.monotonic())
                )
            except asyncio.CancelledError:
                self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            if limit is None or time.monotonic() - began < limit or here.done():
                continue
            # A call that only waits for another one that blocks is left to the server: it is no attempt of its tool;
            # and one that runs just now, on a loop that goes round, does not block it.
            holder = asyncio.current_task(self._loop)
            if probe == [False] and holder and holder.get_name() == call:
                raise ToolBlocks
            if probe != [False]:
                probe = [False]
                self._loop.call_soon_threadsafe(probe.append, True)
        return here.result().result()()

    @contextlib.asynccontextmanager
    async def entered(self, context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Enter and leave `context` on this loop, for connections that belong to this loop."""
        value = await self.run(context.__aenter__)
        try:
            yield value
        finally:
            await self.run(lambda: context.__aexit__(None, None, None))

    async def _of_call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Callable[[], T]:
        try:
            return await contained(work)
        finally:
            self._process.require(lambda: [_CALL.get()])

    def _made_task(self, work: Coroutine[Any, Any, T]) -> Task[T]:
        """A task of the loop. A task factory of a tool that fails is replaced, and reported as the end of the loop."""
        try:
            task = self._loop.create_task(work)
            task.add_done_callback  # noqa: B018  # a factory may return anything
            return task
        except Exception as error:
            factory = described(self._loop.get_task_factory())
            self._loop.set_task_factory(_named_task)  # so that the worker can stop in order
            self._on_ended(
                f"A tool replaced the task factory of the event loop of all tools by {factory}, which does not work"
                f" ({type(error).__name__}): remove that from the tools."
            )
            return self._loop.create_task(work)

    def _run_until_ended(self) -> None:
        try:
            while not self._loop.is_ended:
                # Of a task that a tool started: asyncio passes these two on to whoever runs the loop.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()
        except BaseException as error:  # a tool closed what the loop works with
            self._on_ended(f"The event loop of the tools ended ({type(error).__name__}), so no tool can be called.")
            return
        if not asyncio.all_tasks(self._loop):  # else a call that could not be stopped still needs it
            self._loop.close()

    async def _log_blocking_tools(self) -> None:
        while True:
            answered, began = asyncio.Event(), time.monotonic()
            answer = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, answered.set)
            self._loop.call_soon_threadsafe(lambda: self._made_task(_answered(answer)))  # noqa: B023  # awaited below
            if reason := failure(asyncio.get_running_loop()):
                self._on_ended(reason)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(answered.wait(), BLOCKED_AFTER)
            # Without a current task the loop only waits for the processor, as on a busy machine.
            if not answered.is_set() and (task := asyncio.current_task(self._loop)) and not self._imports_for_replan():
                remedy = "write `def`, which runs in a thread, or await"
                log.warning("tool_blocks", call=task.get_name(), at=self._frames(), remedy=remedy)
                await answered.wait()
                log.warning("tool_blocked", call=task.get_name(), seconds=round(time.monotonic() - began, 1))
            await asyncio.sleep(BLOCKED_AFTER)

    def _frames(self, last: int = 3) -> list[str]:
        """Where the loop's thread is now, as `file:line function` without libraries, with the innermost frame last."""
        stack = [entry for entry in self._stack() if not _is_of_library(entry)]
        return [f"{Path(entry.filename).name}:{entry.lineno} {entry.name}" for entry in stack[-last:]]

    def _imports_for_replan(self) -> bool:
        """Whether the loop's thread imports a module for Replan (a table or a library), which no tool can prevent."""
        stack = self._stack()
        outside = list(itertools.takewhile(lambda entry: not entry.filename.startswith(_IMPORT), stack))
        importer = next((entry for entry in reversed(outside) if not _is_of_library(entry)), None)
        return (
            len(outside) < len(stack) and importer is not None and Path(importer.filename).is_relative_to(_ACTIVITIES)
        )

    def _stack(self) -> traceback.StackSummary:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return traceback.extract_stack(frame) if frame else traceback.StackSummary()


_IMPORT = "<frozen importlib."
"""How the file names of Python's import system begin."""
_ACTIVITIES = Path(__file__).parents[1]


def _is_of_library(entry: traceback.FrameSummary) -> bool:
    return "/lib/python" in entry.filename and not Path(entry.filename).is_relative_to(_ACTIVITIES)


class _Selector(selectors.DefaultSelector):
    """The selector of an event loop; `check` is called whenever the loop comes round."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self._check = check

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._check()
        return super().select(timeout)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that raises an exception if a tool tries to stop it.

    It looks up host names in threads of its own, since `asyncio.to_thread` of tools may use all other threads.
    """

    def __init__(self, process: OwnProcess) -> None:
        super().__init__(
            _Selector(lambda: process.require(lambda: [task.get_name() for task in asyncio.all_tasks(self)]))
        )
        self.is_ended = False
        self._lookups = ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix="lookup")

    def stop(self) -> None:
        raise RuntimeError("A tool may not stop the event loop, on which the calls of all tools run.")

    def end(self) -> None:
        self.is_ended = True
        super().stop()

    async def getaddrinfo(self, host: Any, port: Any, **options: int) -> list[Any]:
        return await self.run_in_executor(self._lookups, lambda: socket.getaddrinfo(host, port, **options))


async def _answered(answer: Callable[[], object]) -> None:
    answer()


async def contained(work: Callable[[], Coroutine[Any, Any, T]]) -> Callable[[], T]:
    """Await `work`, and return a function that returns or raises what `work` did; only a cancel is raised here.

    asyncio passes SystemExit and KeyboardInterrupt of a task on to the code that runs the loop, which would end.
    """
    try:
        result = await work()
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return functools.partial(_raise, error)
    return lambda: result


def _raise(error: BaseException) -> Any:
    try:
        raise error
    finally:
        del error  # its traceback has this frame: they would keep each other until the next garbage collection


def _named_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """A task with the name of the call that it belongs to; tasks that a tool starts belong to its call, too."""
    return Task(work, loop=loop, **{**options, "name": _CALL.get() or options.get("name")})
