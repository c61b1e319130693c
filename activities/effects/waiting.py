"""Whether the client of a call still waits for it, where that shows: a framework gives up without a word.

The client of an `async def` is told by its cancel. A plain function runs in a thread, which no cancel reaches; but the
future that its event loop waits for is cancelled, and stands in the frames below the function.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

ATTACHING_SECONDS = 0.3
"""The longest time that a thread that has made its call gives its event loop to begin to wait for it."""


class ThreadClient:
    """Who waits for the call of the current thread, where that is an event loop.

    Known are threads of `concurrent.futures`, so also of `asyncio.to_thread`, and those of anyio.
    """

    def __init__(self) -> None:
        self._sources = list(_sources(sys._getframe(1)))

    def has_left(self) -> bool:
        """Whether it has certainly given up."""
        return any(future.cancelled() for future in self._futures())

    def when_left(self, note: Callable[[], object]) -> None:
        """Call `note` if it has given up, or does so before its event loop has handed over the result of the thread."""
        self._let_loop_wait()
        for future in self._futures():
            with suppress(RuntimeError):  # its event loop is closed
                future.get_loop().call_soon_threadsafe(_watch, future, note)

    def _let_loop_wait(self) -> None:
        """Return when somebody waits for this thread: it may have begun, and ended, before its event loop does."""
        until = time.monotonic() + ATTACHING_SECONDS
        while any(_is_unawaited(source) for source in self._sources) and time.monotonic() < until and _runs_loop():
            time.sleep(0.001)

    def _futures(self) -> Iterator[asyncio.Future[Any]]:
        # Each time anew: a thread may begin before the event loop waits for it.
        return (future for source in self._sources for future in _waiting_for(source))


def _watch(future: asyncio.Future[Any], note: Callable[[], object]) -> None:
    future.add_done_callback(lambda done: note() if done.cancelled() else None)


def _sources(frame: FrameType | None) -> Iterator[Any]:
    """The futures that get the result of this thread's work."""
    while frame is not None:
        module, name = frame.f_globals.get("__name__"), frame.f_code.co_name
        if module == "concurrent.futures.thread" and name == "run":
            yield getattr(frame.f_locals.get("self"), "future", None)
        elif module == "anyio._backends._asyncio" and name == "run":
            yield frame.f_locals.get("future")
        frame = frame.f_back


def _is_unawaited(source: Any) -> bool:
    """Whether nobody waits for a future of `concurrent.futures`, as far as can be seen."""
    waiters = ("_done_callbacks", "_waiters")
    if isinstance(source, asyncio.Future) or not all(hasattr(source, name) for name in waiters):
        return False
    condition: Any = source._condition
    return not (any(getattr(source, name) for name in waiters) or condition._waiters)


def _runs_loop() -> bool:
    """Whether another thread runs an event loop."""
    for found in sys._current_frames().values():
        frame: FrameType | None = found
        while frame is not None:
            if frame.f_globals.get("__name__") in ("asyncio.base_events", "asyncio.runners"):
                return True
            frame = frame.f_back
    return False


def _waiting_for(source: Any) -> Iterator[asyncio.Future[Any]]:
    """The futures of event loops that wait for a future: itself, or those of `asyncio.wrap_future`."""
    if isinstance(source, asyncio.Future):
        yield source
        return
    for callback in list(getattr(source, "_done_callbacks", ())):
        for cell in getattr(callback, "__closure__", None) or ():
            if isinstance(cell.cell_contents, asyncio.Future):
                yield cell.cell_contents
