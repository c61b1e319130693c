"""Reads a reply while the provider sends it: tells how much has come, and ends a stream that stalls."""

import asyncio
import contextlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import httpx2

from activities.providers.arguments import for_sdk
from activities.providers.messages import End, NoReply, Usage

IDLE_TIMEOUT = 60.0
"""Seconds without a byte after which a reply counts as stalled. While a model reasons in silence, a provider sends
events that keep the connection alive, after about 30 s: https://github.com/AntigmaLabs/ante/issues/187."""
MAX_BYTES = 2**26
"""The most bytes of a stream. No reply of a model is so long."""
END_SECONDS = 0.05
"""Seconds for which the end of a response is waited for after the whole reply."""


WRONG_SHAPE = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""The exceptions of reading a response that is no JSON, or that has not the fields of the SDK's types."""
DONE = b"[DONE]"
"""The data of the last event of OpenAI's streams; some servers with Anthropic's API send it, too."""
NULL = b"null"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LINE_ENDS = (b"\r", b"\n")
_LINE = re.compile(rb"(?<=[\r\n])")


class ReplyDraft(ABC):
    """A reply of which some events have come."""

    arguments_fields: ClassVar[Sequence[str]] = ("arguments",)
    """The fields with the arguments of a call, or with a part of them."""
    response: Any = None
    """The JSON of the response; None until it is complete."""
    failed: Any = None
    """The error that an event reports, if the SDK did not see it; else None."""
    written: int = 0
    """The bytes of text, reasoning and arguments that have come."""
    has_begun: bool = False
    """Whether an event of the reply has come."""
    sent: bytes = b""
    """The newest event as the server sent it; if none came, the whole body."""
    used: Mapping[str, Any] = MappingProxyType({})
    """The server's counts so far."""
    is_opened: bool = False
    """Whether a part of the reply, such as a text or a call, has begun, even if it is still empty."""

    @property
    def hides_thoughts(self) -> bool:
        """Whether the reply has reasoning that is not shown, or only as a summary."""
        return False

    def add(self, event: Any) -> None:
        """Add the next event of the stream, an object of the SDK; raises an exception of WRONG_SHAPE if it is none."""
        self._add(plain(event))

    @abstractmethod
    def _add(self, event: Mapping[str, Any]) -> None:
        """Add the next event of the stream, as JSON."""

    @abstractmethod
    def text(self) -> str:
        """The text that has come, without reasoning. Another thread may call this while events are added."""

    @abstractmethod
    def calls(self) -> list[tuple[str, Any]]:
        """The name of each call that has begun to come, with the JSON of its arguments as far as it has come."""

    def counted(self) -> Usage:
        """The tokens that the server has counted so far."""
        return Usage()

    def whole_count(self) -> Usage | None:
        """The tokens of the whole reply, if the server has counted them, although the stream may not have ended."""
        return None

    def end(self, *, is_done: bool) -> None:  # noqa: B027 - most protocols say the end in an event
        """Note that the stream has ended without an error; `is_done` says that `[DONE]` came."""


class _Received(httpx2.AsyncByteStream):
    """The events of a response in the one form that both SDKs read, however the server frames them.

    The rules are those of https://html.spec.whatwg.org/multipage/server-sent-events.html. Beyond them, an event may
    lack its name or the empty line after it, `[DONE]` ends the stream, and a body without events is kept in `body`.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, arguments_fields: Sequence[str]) -> None:
        self._stream = stream
        self._fields = [name.encode() for name in arguments_fields]
        self.count = 0
        """How many bytes have come."""
        self.is_done = False
        """Whether `[DONE]` came."""
        self.is_over = False
        """Set by the reader when it has the whole reply: then the stream ends."""
        self.newest = b""
        """The data of the newest event."""
        self.body = bytearray()
        """The lines that belong to no event, such as a whole JSON in place of a stream."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        name, data = b"", list[bytes]()
        async with contextlib.aclosing(self._lines()) as lines:
            async for line in lines:
                field, _, value = line.partition(b":")
                if data and (not line or field == b"event"):  # some servers leave out the empty line
                    yield self._events(name, data)
                    name, data = b"", []
                match field:
                    case b"event":
                        name = value.strip()
                    case b"data":
                        data.append(value)
                    case b"" | b"id" | b"retry":  # an empty line, a comment, and what is for clients that reconnect
                        pass
                    case _:
                        self.body += line + b"\n"
                if self.is_done or self.is_over:
                    # To its end, if that has come, too: then the connection can be used again.
                    with contextlib.suppress(TimeoutError, httpx2.HTTPError):
                        async with asyncio.timeout(END_SECONDS):
                            async for _ in lines:
                                pass
                    return
        if data and (data[-1].strip() == DONE or _is_json(data[-1]) or _is_json(b"\n".join(data))):  # else it is cut
            yield self._events(name, data)

    async def _lines(self) -> AsyncGenerator[bytes]:
        """Yield the lines without their ends, which are CR, LF, or both."""
        begun, last, mark = list[bytes](), b"", BYTE_ORDER_MARK
        async for received in self._stream:
            self.count += len(received)
            for part in filter(None, _LINE.split(received)):
                is_second, last = last.endswith(b"\r") and part == b"\n", part
                if is_second:  # the end of a line that was yielded at its CR
                    continue
                begun.append(part)
                if part.endswith(LINE_ENDS):
                    yield b"".join(begun)[:-1].removeprefix(mark)
                    begun, mark = [], b""
        if begun:
            yield b"".join(begun).removeprefix(mark)

    def _events(self, name: bytes, data: Sequence[bytes]) -> bytes:
        """The event with these lines of data; several events if each line is one, where the empty lines are missing."""
        whole = b"\n".join(data)
        parts = [whole] if len(data) == 1 or _is_json(whole) else data
        return b"".join(self._event(name, part.strip()) for part in parts)

    def _event(self, name: bytes, data: bytes) -> bytes:
        self.is_done |= data == DONE
        if not data or data == NULL or self.is_done:
            return b""
        self.newest = data
        # The SDKs skip events without a name, or raise the errors of those with this one.
        name = b"error" if _is_error(data) else name or b"message"
        return b"event: %b\ndata: %b\n\n" % (name, for_sdk(data.replace(b"\n", b" "), *self._fields))

    async def aclose(self) -> None:
        await self._stream.aclose()


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _is_error(data: bytes) -> bool:
    """Whether an event is an error, in the words of either API."""
    if b'"error"' not in data or not _is_json(data):
        return False
    try:
        event = json.loads(data)
    except RecursionError:
        return False
    return isinstance(event, dict) and (event.get("type") == "error" or bool(event.get("error")))


async def read(
    stream: Any, draft: ReplyDraft, idle_timeout: float, on_event: Callable[[], None], *, waits_for_words: bool = False
) -> None:
    """Add all events of an SDK's stream to `draft` until the reply is whole, and call `on_event` after each.

    With `waits_for_words`, `idle_timeout` counts only after a part of the reply has begun.

    Raises:
        NoReply: no byte came for `idle_timeout` seconds, or more than MAX_BYTES came.
        Exception: any exception of the SDK, or of `draft.add`.
    """
    response = stream.response

    def begins() -> bool:
        return not waits_for_words or draft.is_opened or bool(draft.written)

    response.stream = received = _Received(response.stream, draft.arguments_fields)
    try:
        async with stream, asyncio.timeout(None) as limit, _watched(received, limit, idle_timeout, begins):
            # To its end: generators of the SDK that are left half read are closed at any time, and by several at once.
            async for event in stream:
                if received.is_over:
                    continue
                draft.add(event)
                draft.has_begun = True
                on_event()
                received.is_over = draft.response is not None
        if draft.response is None:
            draft.end(is_done=received.is_done)
    except TimeoutError:
        if not limit.expired():
            raise
        if received.count > MAX_BYTES:
            reason = f"The model's reply exceeds {MAX_BYTES >> 20} MiB."
            raise NoReply(reason, End.TOO_LARGE, code="server_error") from None
        reason = f"The model's reply stopped: no byte came for {idle_timeout:g} s."
        raise NoReply(reason, End.STALLED, code="timeout") from None
    finally:
        draft.has_begun |= bool(received.newest)
        draft.sent = received.newest or bytes(received.body)


def plain(event: Any) -> Mapping[str, Any]:
    """The JSON of an event of an SDK; raises TypeError if it is no object."""
    event = event[0] if isinstance(event, list) and event else event  # Gemini sends an error in a list
    found = event if isinstance(event, Mapping) else event.to_dict(mode="python", warnings=False)
    if not isinstance(found, Mapping):
        raise TypeError(f"the event is a {type(found).__name__}")
    return found


def text_of(value: Any) -> str:
    """The value if it is a text; else an empty text."""
    return value if isinstance(value, str) else ""


def objects_of(value: Any) -> list[Mapping[str, Any]]:
    """The JSON objects of a list, without whatever else is in it; one object in place of a list counts as a list."""
    found = [value] if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return [item for item in found if isinstance(item, Mapping)]


def object_in(value: Any, name: str) -> Mapping[str, Any]:
    """The JSON object in the field `name` of an object; an empty one if there is none."""
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


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
