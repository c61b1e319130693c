"""Reads a reply while the provider sends it: tells how much has come, and ends a stream that stalls."""

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import httpx2

from activities.providers.arguments import for_sdk
from activities.providers.billing import End
from activities.providers.messages import NoReply, Usage

IDLE_TIMEOUT = 60.0
"""Seconds without a byte after which a reply counts as stalled. While a model reasons in silence, a provider sends
events that keep the connection alive, after about 30 s: https://github.com/AntigmaLabs/ante/issues/187."""
MAX_BYTES = 2**26
"""The most bytes of a stream. No reply of a model is so long."""


WRONG_SHAPE = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""The exceptions of reading a response that is no JSON, or that has not the fields of the SDK's types."""
DONE = re.compile(rb"data:\s*\[DONE\]")
"""Matches the last event of OpenAI's streams, which the SDK passes over."""
_LINE = re.compile(rb"(?<=[\r\n])")


class Draft(ABC):
    """A reply of which some events have come."""

    arguments_field: ClassVar[str] = "arguments"
    """The field with the arguments of a call."""
    response: Any = None
    """The SDK's response; None until it is complete."""
    failed: Any = None
    """The error that an event reports, if the SDK did not see it; else None."""
    written: int = 0
    """The bytes of text, reasoning and arguments that have come."""
    has_begun: bool = False
    """Whether an event of the reply has come."""
    is_opened: bool = False
    """Whether a part of the reply, such as a text or a call, has begun, even if it is still empty."""

    @property
    def hides_thoughts(self) -> bool:
        """Whether the reply has reasoning that is not shown, or only as a summary."""
        return False

    @abstractmethod
    def add(self, event: Any) -> None:
        """Add the next event of the stream."""

    @abstractmethod
    def text(self) -> str:
        """The text that has come, without reasoning. Another thread may call this while events are added."""

    @abstractmethod
    def calls(self) -> list[tuple[str, Any]]:
        """The name of each call that has begun to come, with the JSON of its arguments as far as it has come."""

    def counted(self) -> Usage:
        """The tokens that the server has counted so far."""
        return Usage()

    def end(self, *, is_done: bool) -> None:  # noqa: B027 - most protocols say the end in an event
        """Note that the stream has ended without an error; `is_done` says that `[DONE]` came."""


class _Received(httpx2.AsyncByteStream):
    """The bytes of a response, line by line, as `for_sdk` makes them from those of the server."""

    def __init__(self, stream: httpx2.AsyncByteStream, arguments_field: str) -> None:
        self._stream = stream
        self._field = arguments_field.encode()
        self.count = 0
        """How many bytes have come."""
        self.is_done = False
        """Whether `[DONE]` came."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        begun = list[bytes]()
        async for part in self._stream:
            self.count += len(part)
            *whole, rest = _LINE.split(part)
            if whole:
                yield b"".join(map(self._read, [b"".join([*begun, whole[0]]), *whole[1:]]))
                begun = []
            begun.append(rest)
        yield self._read(b"".join(begun))

    def _read(self, line: bytes) -> bytes:
        self.is_done |= DONE.match(line) is not None
        return for_sdk(line, self._field)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def read(
    stream: Any, draft: Draft, idle_timeout: float, on_event: Callable[[], None], *, waits_for_words: bool = False
) -> None:
    """Add all events of an SDK's stream to `draft`, and call `on_event` after each.

    With `waits_for_words`, `idle_timeout` counts only after a part of the reply has begun.

    Raises:
        NoReply: no byte came for `idle_timeout` seconds, or more than MAX_BYTES came.
        Exception: any exception of the SDK, or of `draft.add`.
    """
    response = stream.response

    def begins() -> bool:
        return not waits_for_words or draft.is_opened or bool(draft.written)

    response.stream = received = _Received(response.stream, draft.arguments_field)
    try:
        async with stream, asyncio.timeout(None) as limit, _watched(received, limit, idle_timeout, begins):
            async for event in stream:
                draft.add(event)
                draft.has_begun = True
                on_event()
        draft.end(is_done=received.is_done)
    except TimeoutError:
        if not limit.expired():
            raise
        if received.count > MAX_BYTES:
            reason = f"The model's reply exceeds {MAX_BYTES >> 20} MiB."
            raise NoReply(reason, End.TOO_LARGE, code="server_error") from None
        reason = f"The model's reply stopped: no byte came for {idle_timeout:g} s."
        raise NoReply(reason, End.STALLED, code="timeout") from None


@contextlib.asynccontextmanager
async def _watched(
    received: _Received, limit: asyncio.Timeout, idle_timeout: float, begins: Callable[[], bool]
) -> AsyncIterator[None]:
    """Let `limit` expire after MAX_BYTES, and, once `begins()` is true, after `idle_timeout` idle seconds."""

    # Bytes, not events: a comment of the protocol keeps the connection alive, and the SDK skips it.
    async def watch() -> None:
        loop, downloaded = asyncio.get_running_loop(), -1
        while received.count <= MAX_BYTES:
            if begins() and received.count != downloaded:
                downloaded = received.count
                limit.reschedule(loop.time() + idle_timeout)
            await asyncio.sleep(min(1.0, idle_timeout / 4))
        limit.reschedule(loop.time())

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
