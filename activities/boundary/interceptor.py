"""The worker's interceptor of activities: it reads the header of a call, and lets threads send heartbeats.

Runs at the start of each attempt of an activity, and with each of its heartbeats.
"""

import asyncio
import random
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput, Interceptor

from workflows.calls.header import HEADER, CallHeader, Provided

CALL: ContextVar[CallHeader | None] = ContextVar("replan_boundary_call", default=None)
"""The header of the current call; None for an activity that was scheduled without one."""
JITTER: ContextVar[Callable[[], float]] = ContextVar("replan_backoff_jitter", default=random.random)
"""Returns a random number in [0, 1), for the wait before a retry."""
LOGS_VALUES: ContextVar[bool] = ContextVar("replan_logs_values", default=False)
"""Whether log lines have arguments, results and the messages of exceptions."""


class HeaderInterceptor(Interceptor):
    """Reads the header `CallHeader`, with which Replan sends an activity its key and other data besides the arguments.

    `jitter` returns a random number in [0, 1); the wait before a retry is the longest backoff times this number.
    With `logs_values`, log lines have arguments, results and the messages of exceptions.
    """

    def __init__(self, jitter: Callable[[], float] = random.random, *, logs_values: bool = False) -> None:
        self._jitter = jitter
        self._logs_values = logs_values

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Inbound(next, self._jitter, self._logs_values)


class _Outbound(ActivityOutboundInterceptor):
    """Lets a plain function send heartbeats from its thread; the SDK can only send them from the loop's thread."""

    def __init__(self, next: ActivityOutboundInterceptor) -> None:
        super().__init__(next)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def heartbeat(self, *details: Any) -> None:
        if threading.get_ident() == self._thread:
            self.next.heartbeat(*details)
        else:
            self._loop.call_soon_threadsafe(self.next.heartbeat, *details)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, jitter: Callable[[], float], logs_values: bool) -> None:
        super().__init__(next)
        self._jitter = jitter
        self._logs_values = logs_values

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        payload = input.headers.get(HEADER)
        if payload is not None:
            CALL.set(self._read_header(payload, input))
        JITTER.set(self._jitter)
        LOGS_VALUES.set(self._logs_values)
        return await super().execute_activity(input)

    def _read_header(self, payload: Payload, input: ExecuteActivityInput) -> CallHeader:
        """The header of the call; moves a provided result, which is sent as a second argument, into the header."""
        converter = activity.payload_converter()
        header = converter.from_payload(payload, CallHeader)
        if len(input.args) == 2:  # the SDK has then decoded both without their types
            args, provided = input.args
            header = header.model_copy(update={"provided": Provided.model_validate(provided)})
            input.args = [RawValue(converter.to_payload(args))]
        return header
