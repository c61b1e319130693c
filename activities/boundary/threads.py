"""Tools that are plain functions run in threads, and nothing can stop a thread.

So an attempt that may have an effect waits for its thread even after its timeout or a cancel, up to a limit
(`routing.overtime`). A thread that still runs then is left running, and counted until it ends.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import structlog
from temporalio import activity

from activities import deadline
from activities.boundary.attempt import FaultRaised, is_shutdown
from workflows import routing
from workflows.catalogue import Effect, ToolSpec
from workflows.faults import Applied, Code, Fault

log = structlog.get_logger("replan.step")

MAX_THREADS = 64
"""The most plain functions that run at the same time, including those that outlived their timeout."""


class StillRunning(FaultRaised):
    """The attempt ends while its thread still runs, so the effect may be applied later."""

    def __init__(self, fault: Fault, thread: asyncio.Future[Any]) -> None:
        super().__init__(fault.model_copy(update={"applied": Applied.UNKNOWN, "still_running": True}))
        self.thread = thread


class Threads:
    """Runs those tools of one worker that are plain functions, each call in a thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="tool")
        self._calls = set[Future[Any]]()

    @property
    def live(self) -> int:
        """How many tools run in a thread now."""
        return sum(call.running() for call in tuple(self._calls))

    async def run(self, spec: ToolSpec, function: Callable[[], Any], time: asyncio.Timeout) -> Any:
        """Call `function` in a thread and return its result; `time` ends the attempt at its timeout.

        Raises:
            DeadlinePassed: no thread was free before the deadline; nothing was called.
            StillRunning: a tool that may have an effect still ran at the limit, or when the worker shut down.
            CancelledError: the attempt was cancelled, and the tool only reads or was not yet started.
        """
        call = self._pool.submit(copy_context().run, _call, function)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        if spec.effect is Effect.READ:
            return await asyncio.wrap_future(call)
        time.reschedule(None)  # `_wait` keeps the time: this timeout would cancel the wait for the thread
        return await self._wait(spec, call)

    async def _wait(self, spec: ToolSpec, call: Future[Any]) -> Any:
        ended, extra, began = asyncio.wrap_future(call), _overtime(spec), deadline.clock()
        due = began + (deadline.left() or 0.0)
        limit = due + extra
        while not ended.done():
            until = limit if call.running() else due
            try:
                await asyncio.wait([ended], timeout=max(0.0, until - deadline.clock()))
            except asyncio.CancelledError:
                if call.cancel():  # it still waited for a free thread
                    raise
                if is_shutdown():  # the process ends soon, and the thread with it
                    reason = f"The worker was shut down while {spec.kind} ran in a thread, which cannot be stopped."
                    raise self._still_running(spec, Code.WORKER_SHUTDOWN, reason, ended) from None
                # Cancelled by the workflow: the wait for the thread is at most as long as after a timeout.
                limit = min(limit, deadline.clock() + extra)
            now = deadline.clock()
            if now >= due and call.cancel():
                raise deadline.DeadlinePassed
            if now >= limit and not ended.done():
                reason = (
                    f"{spec.kind} still ran after {now - began:.3g} s, and its thread cannot be stopped: its effect may"
                    " be applied later."
                )
                raise self._still_running(spec, Code.TIMEOUT, reason, ended)
        return ended.result()

    def _still_running(self, spec: ToolSpec, code: Code, reason: str, ended: asyncio.Future[Any]) -> StillRunning:
        info = activity.info()
        log.warning("thread_left", task=info.workflow_id, step=info.activity_id, kind=spec.kind, live=self.live)
        return StillRunning(Fault.of(code, reason), ended)


def _overtime(spec: ToolSpec) -> float:
    """Seconds that the attempt may last beyond its timeout, within the start-to-close timeout that was scheduled."""
    limit = activity.info().start_to_close_timeout or routing.STEP_DEADLINE
    room = (limit - routing.GRACE).total_seconds() - spec.timeout
    return max(0.0, min(routing.overtime(spec), room))


def _call(function: Callable[[], Any]) -> Any:
    """Call the function; raise DeadlinePassed if it had to wait for a free thread until the deadline."""
    deadline.check()
    try:
        return function()
    except StopIteration as error:  # no future can carry it: the attempt would wait for ever
        raise RuntimeError("a tool raised StopIteration") from error
