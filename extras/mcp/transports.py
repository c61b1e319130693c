"""Sends messages to an MCP server and receives its messages: over the pipes of a process, or over HTTP.

Each call has a token in its `_meta`, so that a transport can record for each call what happened to the request.
"""

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, cast

import anyio
import httpx2
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from httpx2._utils import URLPattern, get_environment_proxies  # a client whose transport is given does not use them
from mcp.client.auth import OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from activities import deadline
from activities.borders.address import written
from activities.errors import Refused, ToolError, Unreachable
from activities.scrubbing import text_of
from activities.toolbox.http.network import Web, checked, read_body
from extras.mcp.config import CannotOpen
from extras.mcp.process import ServerProcess
from extras.mcp.questions import ServerQuestion
from extras.mcp.stderr import MAX_LINES, explaining_line
from workflows.faults.fault import Code

UNREADABLE = "the answer is no message of JSON-RPC"
"""The message of the error for a call whose answer cannot be read."""
CALL_NAME = "io.replan/call"
"""The name in `_meta` of the token of a call."""
MAX_MESSAGE = 16 * 1024 * 1024
"""The most bytes of a message of a server; a process that sends a longer message is ended."""
MAX_LINE = 500
"""The most characters that are logged of a line that a server writes to stderr."""
LINES_PER_MINUTE = 20
"""The most lines of a server's stderr that are logged in a minute."""
END_SECONDS = 5.0
"""Seconds that a process has to end after its pipes were closed, including the supervisor's PATIENCE."""
ELSEWHERE_SECONDS = 30.0
"""The most seconds for an exchange with another host than the server, such as an authorization server."""
OF_OLD_TRANSPORT = (400, 404, 405)
"""The statuses with which a server of the transport of 2024-11-05 answers a POST to the URL of its stream."""
OLD_SECONDS = 5.0
"""Seconds that such a server has for the first event of its stream."""
OLD_TRANSPORT = (
    "it has the transport HTTP+SSE of 2024-11-05, which Replan does not speak: use a newer version of the server, or"
    " name by `command` a bridge to it, such as `mcp-proxy`"
)

log = structlog.get_logger("replan.mcp")


@dataclass
class Sent:
    """The state of the request of one call."""

    deadline: float | None
    """The time by `deadline.clock()` from which on the request may not be sent; None for no limit."""
    is_connected: bool = False
    """Whether a connection was made for an HTTP request, if it needed a new one: to the server, or to its proxy."""
    began: bool = False
    status: int | None = None
    """The status of an HTTP response."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    """The body of an HTTP response that is no stream."""
    why: str = ""
    """Why the request has no response, in words for people; empty if it has one, or the whole connection has failed."""
    is_too_large: bool = False
    """Whether the response has more than `MAX_MESSAGE` bytes."""
    no_token: Code | None = None
    """The code of the fault if the authorization server gave no token, so that the request was not made."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """A person's answers to the server's questions."""
    can_ask: bool = True
    """Whether the server may ask something while it works on the request."""
    asked: ServerQuestion | None = None
    """The question that the server asked while it worked on the call, and that nobody has answered."""

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Record that sending begins; `httpcore2` calls this method for each event of an HTTP request."""
        if event.endswith("connect_tcp.complete"):
            self.is_connected = True
        # A CONNECT only asks a proxy for a tunnel.
        elif event.endswith("send_request_headers.started") and info["request"].method != b"CONNECT":
            self.began = True

    @property
    def is_spoken(self) -> bool:
        """Whether an error is the server's own message; false if a transport made it from an HTTP response.

        Also false for each status from 300 on except 400, 404, 422 and 500: such a status says more than the message.
        """
        if self.status is None:  # over pipes
            return True
        kind = self.headers.get("content-type", "").lower()
        if self.status >= 300 and self.status not in (400, 404, 422, 500):
            return False
        if kind.startswith("text/event-stream"):
            return True
        try:
            message = jsonrpc_message_adapter.validate_json(self.body, by_name=False)
        except ValueError:
            return False
        return kind.startswith("application/json") and isinstance(message, JSONRPCError)

    @property
    def is_late(self) -> bool:
        """Whether the request may not be sent any more: the process may have been frozen since the call began."""
        return self.deadline is not None and deadline.clock() >= self.deadline


Calls = dict[str, Sent]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@dataclass
class Link:
    """One connection to a server."""

    calls: Calls = field(default_factory=dict)
    """The calls under way, by their tokens."""
    other: Sent = field(default_factory=lambda: Sent(None))
    """The state of the last HTTP request that is no call, such as the handshake."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    why: str = ""
    """Why the connection ended, in words for people; empty while it is open."""
    words: str = ""
    """The last words of the server itself, which are untrusted."""
    through: str = ""
    """The proxy to the server, as part of a sentence: ` through the proxy HOST:PORT`; empty without one."""
    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_LINES))
    """The last lines of the server's stderr, which often say why its process ended."""
    is_too_large: bool = False
    """Whether the connection ended because the server sent a message of more than `MAX_MESSAGE` bytes."""

    def end(self, why: str, words: str = "") -> None:
        """Record that the connection has ended; only the first reason is kept."""
        if not self.why:
            self.why, self.words = why, words
        self.ended.set()

    def sent(self, message: Any) -> Sent | None:
        """The state of the call whose request `message` is; None if it is no request of a call."""
        params = message.params if isinstance(message, JSONRPCRequest) else None
        token = ((params or {}).get("_meta") or {}).get(CALL_NAME)
        return self.calls.get(token) if isinstance(token, str) else None


@asynccontextmanager
async def over_pipes(link: Link, server: str, process: ServerProcess, *, logs: bool) -> AsyncIterator[Streams]:
    """Yield the streams of messages over the pipes of a server's process; the process ends when the block ends.

    With `logs`, the log has what the process writes to stderr.
    """
    pipes = (process.popen.stdin, process.popen.stdout, process.popen.stderr)
    stdin, stdout, stderr = (cast("Any", pipe) for pipe in pipes)
    writer, reader, errors = await _writer(stdin), await _reader(stdout), await _reader(stderr)
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read(link, server, reader, to_session)),
        asyncio.create_task(_write(link, writer, from_session, to_session)),
        asyncio.create_task(_log_errors(link, server, errors, LINES_PER_MINUTE if logs else 0)),
    ]
    try:
        yield from_server, to_server
    finally:
        for task in tasks[:2]:
            task.cancel()
        writer.close()
        for stream in (to_session, from_server, to_server, from_session):
            stream.close()
        if not await _ended(process, 0.5):  # a server ends when its input does
            process.let_go()
            if not await _ended(process, END_SECONDS):
                process.popen.kill()
                await _ended(process, END_SECONDS)
        process.let_go()
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if process.popen.returncode:
            link.why = f"its process ended with {process.popen.returncode}"
            link.words = text_of(explaining_line([*link.stderr]), str, MAX_LINE)
        for pipe in (reader, errors):  # where a grandchild holds a pipe, they have no end
            pipe._transport.close()  # type: ignore[attr-defined]


async def _reader(pipe: Any) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=MAX_MESSAGE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


async def _writer(pipe: Any) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _ended(process: ServerProcess, seconds: float) -> bool:
    """Wait at most `seconds` for the end of a process; returns whether it has ended."""
    until = time.monotonic() + seconds
    while process.popen.poll() is None and time.monotonic() < until:  # noqa: ASYNC110  # at its end only
        await asyncio.sleep(0.01)
    return process.popen.poll() is not None


async def _read(
    link: Link,
    server: str,
    stdout: asyncio.StreamReader,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Pass on the messages of a server. Any other line is dropped, or fails the call that has the id in the line."""
    dropped = 0
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            try:
                line = await stdout.readline()
            except ValueError:
                link.is_too_large = True
                link.end(f"it sent a message of more than {MAX_MESSAGE} bytes")
                break
            if not line:
                link.end("its process ended, or closed its output")
                break
            try:
                await to_session.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
                continue
            except (ValueError, RecursionError):
                pass
            if not line.endswith(b"\n"):
                link.end("its process ended in the middle of a message")
                break
            if named := re.match(rb'\s*\{.{0,200}?"id"\s*:\s*(\d{1,18}|"[^"\\]{1,100}")', line, re.DOTALL):
                error = ErrorData(code=PARSE_ERROR, message=UNREADABLE)
                failed = JSONRPCError(jsonrpc="2.0", id=json.loads(named[1]), error=error)
                await to_session.send(SessionMessage(failed))
            elif line.strip():
                dropped += 1
                if dropped in (1, 100, 10_000):
                    log.warning("mcp_output_dropped", server=server, lines=dropped)
    to_session.close()


async def _write(
    link: Link,
    stdin: asyncio.StreamWriter,
    from_session: MemoryObjectReceiveStream[SessionMessage],
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Write the outgoing messages to a server; a call whose deadline has passed fails instead."""
    try:
        async for outgoing in from_session:
            message = outgoing.message
            data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            sent = link.sent(message)
            if sent is not None and sent.is_late and isinstance(message, JSONRPCRequest):
                late = ErrorData(code=PARSE_ERROR, message="too late")
                await to_session.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=late)))
                continue
            if sent is not None:
                sent.began = True
            stdin.write(data)
            await stdin.drain()
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        link.end("its process ended, or closed its input")
        to_session.close()


async def _log_errors(link: Link, server: str, stderr: asyncio.StreamReader, most: int) -> None:
    """Log what a server writes to stderr, without secrets, at most `most` lines a minute; `link` gets all lines."""
    rest, minute, logged = b"", 0.0, 0
    while chunk := await stderr.read(64 * 1024):
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[: 4 * MAX_LINE]
        for line in lines:
            words = line[: 4 * MAX_LINE].decode(errors="replace").rstrip()
            if not words:
                continue
            link.stderr.append(words)
            if time.monotonic() - minute > 60:
                minute, logged = time.monotonic(), 0
            logged += 1
            if logged <= most:
                log.info("mcp_stderr", server=server, line=text_of(words.strip(), str, MAX_LINE))
    link.stderr.append(rest.decode(errors="replace"))  # a line that the end of the process has cut off


@asynccontextmanager
async def over_http(
    link: Link, url: str, headers: Mapping[str, str], auth: httpx2.Auth | None, web: Web
) -> AsyncIterator[Streams]:
    """Yield the streams of messages to and from a server at a URL, through the proxy that the environment names.

    Raises CannotOpen if the environment names one that cannot be used.
    """
    async with (
        _CarefulClient(
            link,
            transport=_Watched(link, httpx2.URL(url), web),
            headers=dict(headers),
            auth=auth,
            timeout=httpx2.Timeout(None, connect=10.0, pool=10.0),
            follow_redirects=False,
            trust_env=True,
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams  # type: ignore[misc]  # streams with a context, which have the same methods


class _CarefulClient(httpx2.AsyncClient):
    """Returns a response for errors such as a missing token: an exception would end the connection for all calls."""

    def __init__(self, link: Link, **options: Any) -> None:
        super().__init__(**options)
        self._link = link

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return await super().send(request, **options)
        except (OAuthFlowError, ToolError, CannotOpen, TimeoutError, httpx2.HTTPError) as error:
            sent = _sent(self._link, request)
            sent.no_token = Code.UNREACHABLE
            if isinstance(error, OAuthFlowError):
                sent.why, sent.no_token = "its authorization server gives no token", Code.UNAUTHORIZED
            elif isinstance(error, ToolError | CannotOpen):
                is_lasting = isinstance(error, ToolError) and not error.fault.quadrant.is_transient
                sent.why = f"of its authorization server: {error}"
                sent.no_token = Code.UNAUTHORIZED if is_lasting else Code.UNREACHABLE
            else:
                sent.why = "its authorization server gives no answer"
            return _failed(request, sent.why)


def _sent(link: Link, request: httpx2.Request) -> Sent:
    """The state of the call that an HTTP request makes; for any other request, `link.other`."""
    try:
        return link.sent(jsonrpc_message_adapter.validate_json(request.content, by_name=False)) or link.other
    except (ValueError, httpx2.RequestNotRead):
        return link.other


class _Watched(httpx2.AsyncBaseTransport):
    """Records what happens to each call. Reaches hosts other than the server's only where they are public.

    For a request that fails, the SDK gets a response, too: an exception would end the connection for all other calls.
    """

    def __init__(self, link: Link, server: httpx2.URL, web: Web) -> None:
        self._link = link
        self._server = server
        self._web = web
        proxy = proxy_to(server)
        self._named = httpx2.AsyncHTTPTransport(proxy=proxy)
        self._proxy = _address(proxy) if proxy else ""
        link.through = f" through the proxy {self._proxy}" if proxy else ""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if _origin(request.url) != _origin(self._server):
            return await self._elsewhere(request)
        if request.method != "POST":
            return await self._named.handle_async_request(request)
        sent = _sent(self._link, request)
        sent.why, sent.status, sent.no_token, sent.is_connected = "", None, None, False
        if sent.is_late:
            return _failed(request, "too late")
        request.extensions = {**request.extensions, "trace": sent.trace}
        try:
            response = await self._named.handle_async_request(request)
            if response.status_code in OF_OLD_TRANSPORT and sent is self._link.other and await self._is_old(request):
                await response.aclose()
                sent.why = OLD_TRANSPORT
                return _failed(request, sent.why)
            sent.status, sent.headers = response.status_code, response.headers
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                await self._read(response)
                sent.body = response.content
            return response
        except _TooLarge:
            sent.why, sent.is_too_large = f"it sent a response of more than {MAX_MESSAGE} bytes", True
        except httpx2.HTTPError as error:
            sent.why = _failure_text(error, sent, self._proxy)
        return _failed(request, sent.why)

    async def _is_old(self, request: httpx2.Request) -> bool:
        """Whether a server that rejects a POST of the handshake has the transport of 2024-11-05, and no session."""
        if "mcp-session-id" in request.headers:
            return False
        kept = {name: value for name, value in request.headers.items() if not name.startswith("content-")}
        headers = {**kept, "accept": "text/event-stream"}
        begin = b""
        try:
            async with asyncio.timeout(OLD_SECONDS):
                response = await self._named.handle_async_request(httpx2.Request("GET", request.url, headers=headers))
                async with aclosing(response), aclosing(response.aiter_bytes()) as parts:
                    async for part in parts:
                        begin += part
                        if b"data:" in begin or len(begin) > MAX_MESSAGE:
                            break
        except (httpx2.HTTPError, TimeoutError):
            return False
        return re.search(rb"^event: ?endpoint\s", begin, re.MULTILINE) is not None

    async def _read(self, response: httpx2.Response) -> None:
        """Read the body of a response that is no stream: a body that is cut off fails here. Raises _TooLarge."""
        content = bytearray()
        async with aclosing(response.aiter_bytes()) as parts:
            async for part in parts:
                content += part
                if len(content) > MAX_MESSAGE:
                    raise _TooLarge
        response._content = bytes(content)

    async def _elsewhere(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to another host than the server's, e.g. to an authorization server.

        A proxy looks the name up itself, so it is used only for a host that may have any address.
        """
        url, content = checked(request.url), await request.aread()
        proxy = proxy_to(url)
        if proxy and self._web.allows_name(url.host):
            return await _elsewhere_through(proxy, request)
        try:
            async with self._web.exchange(url, request.method, dict(request.headers), content) as answer:
                return await _whole(answer, request)
        except ToolError as error:
            if not proxy:
                raise
            failed = Unreachable if error.fault.quadrant.is_transient else Refused
            raise failed(f"{error} Through the proxy only hosts are reached that --allow-host names.") from None

    async def aclose(self) -> None:
        await self._named.aclose()


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


async def _elsewhere_through(proxy: httpx2.Proxy, request: httpx2.Request) -> httpx2.Response:
    """Send a request to another host than the server's through a proxy. Raises Unreachable if there is no response."""
    sent = Sent(None)
    request.extensions = {**request.extensions, "trace": sent.trace}
    try:
        async with httpx2.AsyncHTTPTransport(proxy=proxy) as transport, asyncio.timeout(ELSEWHERE_SECONDS):
            answer = await transport.handle_async_request(request)
            try:
                return await _whole(answer, request)
            finally:
                await answer.aclose()
    except httpx2.HTTPError as error:
        raise Unreachable(f"{request.url.host}: {_failure_text(error, sent, _address(proxy))}.") from None


async def _whole(answer: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
    """A response with its whole body, which another host than the server's has sent."""
    body = await read_body(answer, 1024 * 1024, ELSEWHERE_SECONDS)
    kept = {name: value for name, value in answer.headers.items() if name not in _OF_CODING}
    return httpx2.Response(answer.status_code, headers=kept, content=body.content, request=request)


_OF_CODING = ("content-encoding", "content-length", "transfer-encoding")


class _TooLarge(Exception):
    """A body has more than MAX_MESSAGE bytes."""


def _failed(request: httpx2.Request, why: str) -> httpx2.Response:
    """A response by which the SDK fails one call, and no other."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": why}}
    return httpx2.Response(500, json=error, request=request)


def _failure_text(error: httpx2.HTTPError, sent: Sent, proxy: str) -> str:
    """Why a request has no response; `proxy` is the address of the proxy to the host, empty without one."""
    through = f" through the proxy {proxy}" if proxy else ""
    match error:
        case httpx2.ProxyError():  # its message begins with the status, and goes on with the proxy's own words
            status = str(error)[:3]
            shown = f" (HTTP status {status})" if status.isdecimal() else ""
            return f"the proxy {proxy} does not let the request through{shown}"
        case httpx2.ConnectError() | httpx2.ConnectTimeout() if proxy and not sent.is_connected:
            return f"the proxy {proxy} takes no connection"
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return f"it takes no connection{through}"
        case httpx2.TimeoutException():
            return f"it is silent{through}"
    return f"the connection{through} was cut"


def proxy_to(url: httpx2.URL) -> httpx2.Proxy | None:
    """The proxy for a URL by the environment: HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, unless NO_PROXY has the host.

    Raises CannotOpen if the value is no address of a proxy. The message does not quote it: it may have a password.
    """
    rows = sorted((URLPattern(pattern), value) for pattern, value in get_environment_proxies().items())
    pattern, value = next(((row, value) for row, value in rows if row.matches(url)), (None, None))
    if pattern is None or value is None:
        return None
    variable = f"{(pattern.scheme or 'all').upper()}_PROXY"
    try:
        proxy = httpx2.Proxy(value)
    except (ValueError, httpx2.InvalidURL):
        proxy = None
    if proxy is None or not _address(proxy):
        raise CannotOpen(f"{variable} has no address of a proxy: write it as http://HOST:PORT")
    if proxy.url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise CannotOpen(f"{variable} has a SOCKS proxy, which needs a package: `pip install 'httpx2[socks]'`")
    return proxy


def _address(proxy: httpx2.Proxy) -> str:
    """Host and port of a proxy, without its user and password; empty if it has none."""
    return written(proxy.url.host, proxy.url.port or _PORTS[proxy.url.scheme])


_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
