"""Tools that are plain functions run in threads, and nothing can stop a thread.

Runs when an attempt calls such a tool, until the thread has ended. So an attempt that may have an effect waits for its
thread even after its timeout or a cancel, up to a limit (`retries.overtime`). A thread that still runs then is left
running, and counted until it ends.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import structlog
from temporalio import activity

from activities import deadline
from activities.boundary.attempt import FaultRaised, is_shutdown
from activities.boundary.intact import OwnProcess
from activities.errors import Busy
from workflows.faults import retries
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans.catalogue import Effect, ToolSpec

log = structlog.get_logger("replan.step")

THREADS = 64
"""The most plain functions that run at the same time, including functions that outlived their timeout."""
THREADS_RETRY_AFTER = 5.0
"""Seconds until a call is repeated if its worker had no free thread; a supervisor may restart the worker meanwhile."""


class StillRunning(FaultRaised):
    """The attempt ends while its thread still runs, so the effect may be applied after the attempt."""

    def __init__(self, fault: Fault, thread: asyncio.Future[Any]) -> None:
        super().__init__(fault.model_copy(update={"applied": Applied.UNKNOWN, "still_running": True}))
        self.thread = thread


class Threads:
    """Runs the tools of a worker that are plain functions, each call in a thread."""

    def __init__(self, size: int = THREADS, on_exhausted: Callable[[str], None] = lambda reason: None) -> None:
        """`on_exhausted` is called once, with a sentence, when calls that outlived their attempts hold all threads."""
        self.size = size
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="tool")
        # Threads of their own, since calls of other tools may hold all threads for longer than a pure tool may wait.
        self._pure = ThreadPoolExecutor(size, thread_name_prefix="pure")
        self._calls = set[Future[Any]]()
        self._outlived = dict[Future[Any], str]()
        self._on_exhausted = on_exhausted
        self._process = OwnProcess()

    @property
    def live(self) -> int:
        """How many calls of tools run in a thread now."""
        return sum(call.running() for call in tuple(self._calls))

    @property
    def outlived(self) -> int:
        """How many threads still run a call whose attempt has ended."""
        return sum(call.running() for call in tuple(self._outlived))

    async def run(self, spec: ToolSpec, function: Callable[[], Any], time: asyncio.Timeout) -> Any:
        """Call `function` in a thread and return its result; `time` ends the attempt at its timeout.

        Raises:
            DeadlinePassed: no thread was free before the deadline; nothing was called.
            StillRunning: a tool that may have an effect still ran at the limit, or when the worker shut down.
            CancelledError: the attempt was cancelled, and the tool only reads or was not yet started.
            Busy: calls that outlived their attempts hold all threads; nothing was called.
        """
        if self.outlived >= self.size:
            raise Busy(_exhausted_reason(self._outlived.values()), retry_after=THREADS_RETRY_AFTER)
        pool = self._pure if spec.pure else self._pool
        call = pool.submit(copy_context().run, _call, function, spec.kind, self._process)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        if spec.effect is Effect.READ:
            try:
                return await asyncio.wrap_future(call)
            except asyncio.CancelledError:  # by the timeout, too
                self._leave(spec, call)
                raise
        time.reschedule(None)  # `_wait` keeps the time: this timeout would cancel the wait for the thread
        return await self._wait(spec, call)

    async def _wait(self, spec: ToolSpec, call: Future[Any]) -> Any:
        """Return the result of a thread; wait until the timeout, then for the overtime. Raises as `run`."""
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
                    self._leave(spec, call)
                    raise StillRunning(Fault.of(Code.WORKER_SHUTDOWN, reason), ended) from None
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
                self._leave(spec, call)
                raise StillRunning(Fault.of(Code.TIMEOUT, reason), ended)
        return ended.result()

    def _leave(self, spec: ToolSpec, call: Future[Any]) -> None:
        """Count `call` as outlived until its thread ends; its attempt ends now."""
        if not call.running():
            return
        self._outlived[call] = spec.kind
        call.add_done_callback(lambda call: self._outlived.pop(call, None))
        left = self.outlived
        log.warning("thread_left", live=self.live, outlived=left, threads=self.size)
        if left >= self.size:
            self._on_exhausted(_exhausted_reason(self._outlived.values()))


def _exhausted_reason(kinds: Iterable[str]) -> str:
    counts = Counter(kinds)
    busiest = ", ".join(f"{kind} {count}" for kind, count in counts.most_common(3))
    return f"All {counts.total()} threads for tools are held by calls that do not return ({busiest})."


def _overtime(spec: ToolSpec) -> float:
    """Seconds that an attempt may last beyond the tool's timeout and still end before its start-to-close timeout."""
    limit = activity.info().start_to_close_timeout or retries.STEP_DEADLINE
    room = (limit - retries.GRACE - retries.HEARTBEAT).total_seconds() - spec.timeout
    return max(0.0, min(retries.overtime(spec), room))


def _call(function: Callable[[], Any], kind: str, process: OwnProcess) -> Any:
    """Call the function of a kind. Raises DeadlinePassed if no thread was free before the deadline."""
    deadline.check()
    try:
        return function()
    except StopIteration as error:  # no future can carry it: the attempt would wait for ever
        raise RuntimeError("a tool raised StopIteration") from error
    finally:
        process.require(lambda: [kind])
