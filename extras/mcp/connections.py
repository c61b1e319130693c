"""The connections to MCP servers: one to each, opened when it is needed and again when it has ended."""

import asyncio
import contextvars
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import structlog
from mcp import Client, MCPError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import get_default_environment
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    InputRequiredResult,
    ListRootsResult,
    Request,
    Root,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json, to_jsonable_python

from activities import deadline, sends
from activities.errors import AsksPerson, NeedsPerson, Refused, ToolError, Unreachable, answered, unproven, unsent
from activities.extent import MAX_BYTES
from activities.progress import current_progress
from activities.toolbox.http.network import Reach, Web
from activities.toolbox.schemas.drafts import BadSchema
from extras.mcp import faults, questions, replies
from extras.mcp.answers import AnswerTexts, answer_of, json_of, tool_error, with_rest, words_of
from extras.mcp.config import CannotOpen, Config, JsonRpcError, Listing, ServerTool
from extras.mcp.process import ServerProcess, program
from extras.mcp.schema import ForeignResult
from extras.mcp.transports import CALL_NAME, Link, Sent, Streams, over_http, over_pipes
from workflows.faults.fault import Code

OPEN_SECONDS = 30.0
"""Seconds that a server has to start and to list its tools; `npx` and `uvx` may install it first."""
READY_SHARE = 0.9
"""The share of an attempt's time within which the connection must be ready."""
BACKOFF = (0.0, 0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds until a server is started again, by how often it has ended soon after its start."""
REST_SECONDS = 5.0
"""Seconds in which the session can still read the answers that came before a connection ended."""
STABLE_SECONDS = 60.0
"""After a connection that lasted for more seconds than this, failures are counted from 0 again."""
MAX_UNANSWERED = 3
"""After so many calls in a row without an answer in their time, a new connection is opened for the next one."""
MAX_AT_ONCE = 10_000
"""The most bytes of a structured result that is checked on the event loop; a larger one is checked in a thread."""
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that the process of a server has from the worker: where a network has certificates of its own, `uvx` and
`npx` can install nothing without them."""
MAX_ROUNDS = 5
"""The most times that one call is sent, since a server may ask for something each time."""

CAN_ASK = ("tools/call", "resources/read", "prompts/get")
"""The methods during which a server may ask something."""
TOOLS_CHANGED = "notifications/tools/list_changed"
PASSED_ON = (
    "notifications/message",
    "notifications/resources/updated",
    "notifications/resources/list_changed",
    "notifications/prompts/list_changed",
    TOOLS_CHANGED,
)
"""The notifications with which `Kept.heard` is called."""

T = TypeVar("T")
_RAW: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
"""Takes a result as it is; the SDK declares only models."""

log = structlog.get_logger("replan.mcp")


@dataclass
class _Connection:
    """An open connection; the task `keeper` keeps it open."""

    client: Client
    link: Link
    listing: Listing
    texts: AnswerTexts
    closing: asyncio.Event
    keeper: asyncio.Task[None] | None = None
    is_stale: bool = False
    """Whether the server has reported that its list of tools changed since the list was read."""
    is_retired: bool = False
    """Whether the connection takes no new calls; calls under way go on."""
    unanswered: int = 0
    """How many calls in a row had no answer in their time."""
    streams: dict[str, AsyncExitStack] = field(default_factory=dict)
    """With the newer protocol, what ends the subscription to a resource, by its URI."""

    @property
    def is_newer(self) -> bool:
        """Whether the connection uses the newer protocol, one of `MODERN_PROTOCOL_VERSIONS`."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def is_open(self) -> bool:
        return not (self.link.ended.is_set() or self.is_retired or (self.keeper and self.keeper.done()))

    async def close(self) -> None:
        self.is_retired = True
        self.closing.set()
        if self.keeper is not None:
            await asyncio.wait([self.keeper])


class Kept:
    """The connection to one server, which is opened when a call needs it, and again when it has ended."""

    def __init__(
        self,
        config: Config,
        web: Web,
        *,
        logs: bool = True,
        has_layout: bool = False,
        open_seconds: float = OPEN_SECONDS,
        process: ServerProcess | None = None,
        record: Path | None = None,
        remedy: str = "start the worker again",
    ) -> None:
        """With `logs`, log stderr and why the server ended; with `has_layout`, `ToolAnswer.layout` is filled in.

        The first connection has `open_seconds` to be opened, and uses `process` if that was started already. Each
        process of the server is recorded in the file `record`. `remedy` says what to do if a tool has changed.
        """
        self.starts = 0
        """How many processes of the server have served; 0 of a server behind a URL."""
        self._remedy = remedy
        self._has_layout = has_layout
        self._open_seconds, self._process, self._record = open_seconds, process, record
        self._processes = list[ServerProcess]()
        """The processes of the server that may still run."""
        self._config = config
        self._logs = logs
        self._web = web
        self.expected: Mapping[str, ServerTool] = {}
        self.heard: Callable[[str, Mapping[str, Any] | None], None] = lambda method, params: None
        """Called with the method and the params of each notification of PASSED_ON."""
        self._connection: _Connection | None = None
        self._opening: asyncio.Task[_Connection] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._opened_at = 0.0
        self._last_failure = CannotOpen("it ended")
        self._mode = "auto"
        self._asks = False
        self._asking_lock = asyncio.Lock()
        self._left = list[_Connection]()
        self._leaving = set[asyncio.Task[None]]()
        self._kept_up = dict[str, tuple[str, Mapping[str, Any]]]()
        """Requests whose effect ends with a connection: they are made again on a new one. By resource or method."""

    @property
    def has_ended(self) -> bool:
        """Whether the server is certainly gone, with all that it has started: only known of one on this machine."""
        return bool(self._config.command) and all(process.has_ended for process in self._processes)

    async def connection(self) -> _Connection:
        """Return the open connection; if there is none, open one. Raises CannotOpen if that fails.

        The connection is opened for all calls: a call that stops waiting for it does not stop the opening.
        """
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._reopen())
            self._opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._opening)

    async def _reopen(self) -> _Connection:
        """Open a new connection in place of the last one. Raises CannotOpen if that fails, or is not allowed yet."""
        if self._connection is not None:
            await self._leave(self._connection)
        if (wait := self._not_before - time.monotonic()) > 0:
            last = self._last_failure
            raise CannotOpen(f"{last.why}; it is started again in {wait:.0f} s", last.words, last.code)
        self._opened_at = time.monotonic()
        try:
            try:
                self._connection = await self._open()
            except CannotOpen:
                if self._mode != "auto" or not self._config.command:
                    raise
                self._mode = "legacy"  # some old servers end when they get a request that they do not know
                self._connection = await self._open()
        except CannotOpen as why:
            self._mode = "auto"
            self._failed(why)
            raise
        self.starts += 1 if self._config.command else 0
        if self._kept_up:
            self._in_background(self._restore(self._connection))
        return self._connection

    async def _restore(self, connection: _Connection) -> None:
        """Set on a new connection the subscriptions and the level of logging that were set on earlier connections."""
        failures = (JsonRpcError, ToolError, MCPError, ValidationError, httpx2.HTTPError, TimeoutError)
        for method, params in list(self._kept_up.values()):
            # Of no call, as when a connection is opened.
            with suppress(*failures), sends.counted(sends.Sends()), deadline.within(OPEN_SECONDS):
                async with asyncio.timeout(OPEN_SECONDS):
                    await self._ask(connection, method, params, uuid.uuid4().hex, {}, None)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self._leaving.add(task := asyncio.create_task(work))
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Close all connections, and cancel what is under way on them."""
        ending = [*self._leaving, *([self._opening] if self._opening else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        connections = [*self._left, *([self._connection] if self._connection else [])]
        await asyncio.gather(*(connection.close() for connection in connections))

    async def _leave(self, connection: _Connection) -> None:
        """Close a connection that has ended; if it has only stopped taking calls, close it later, after its calls."""
        self._connection = None
        if not connection.link.ended.is_set():
            self._left.append(connection)
            self._in_background(self._close_when_idle(connection))
            return
        await connection.close()
        if time.monotonic() - self._opened_at > STABLE_SECONDS:
            self._failures = 0
        self._failed(CannotOpen(connection.link.why, connection.link.words))

    async def _close_when_idle(self, connection: _Connection) -> None:
        while connection.link.calls and not connection.link.ended.is_set():  # noqa: ASYNC110  # for minutes
            await asyncio.sleep(0.5)
        await connection.close()
        self._left.remove(connection)

    def _failed(self, why: CannotOpen) -> None:
        """Count a failure, set the time before which the server is not started again, and log the reason."""
        wait = BACKOFF[min(self._failures, len(BACKOFF) - 1)]
        self._failures += 1
        self._not_before, self._last_failure = time.monotonic() + wait, why
        if self._logs:
            log.warning("mcp_server_ended", server=self._config.name, reason=why.why, wait=wait, line=why.words)

    async def _open(self) -> _Connection:
        """Open a connection. Raises CannotOpen if that fails, or takes too long."""
        opened: asyncio.Future[_Connection] = asyncio.get_running_loop().create_future()
        link, closing = Link(), asyncio.Event()
        # Of no call: what the connection sends must not count as sent by the call that happened to open it.
        with sends.counted(sends.Sends()), deadline.within(float("inf")):
            context = contextvars.copy_context()
            context.run(structlog.contextvars.clear_contextvars)  # nor are its log lines those of that call
            keeper = asyncio.create_task(
                self._keep(link, closing, opened), name=f"mcp {self._config.name}", context=context
            )
        try:
            async with asyncio.timeout(self._open_seconds):
                connection = replace(await asyncio.shield(opened), keeper=keeper)
        except TimeoutError:
            closing.set()
            keeper.cancel()
            raise CannotOpen(f"it gave no answer within {self._open_seconds:g} s{link.through}") from None
        except asyncio.CancelledError:
            closing.set()
            keeper.cancel()
            await asyncio.wait([keeper])
            raise
        self._open_seconds = OPEN_SECONDS
        return connection

    async def _keep(self, link: Link, closing: asyncio.Event, opened: "asyncio.Future[_Connection]") -> None:
        """Open a connection and keep it, in one task as anyio requires; `opened` gets the connection or CannotOpen."""
        try:
            async with Client(
                replies.by_part(self._config.name, self._streams(link)),
                cache=None,
                mode=self._mode,
                client_info=Implementation(name="replan", version="1"),
                list_roots_callback=self._roots if self._config.roots else None,
                elicitation_callback=partial(self._elicit, link),
                message_handler=self._on_message,
            ) as client:
                listing = await self._list(client)
                if not opened.done():
                    texts = AnswerTexts(self._config.errors, listing.server_name, self._config.checks_first)
                    opened.set_result(_Connection(client, link, listing, texts, closing))
                async with _listening(client):
                    await _wait_for_first(link.ended.wait(), closing.wait())
                    if link.ended.is_set():
                        await self._read_rest(link)
        except BaseException as error:
            link.end(*faults.why_of(error, link))
            if not opened.done():
                opened.set_exception(CannotOpen(link.why, link.words, faults.code_of(link)))
                opened.exception()  # it may be that nobody waits any more
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
                raise
        finally:
            link.end("the connection was closed")

    async def _read_rest(self, link: Link) -> None:
        """Wait until the session has read what the server sent before it ended, and has failed the unanswered calls."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while link.calls:  # noqa: ASYNC110  # for milliseconds
                    await asyncio.sleep(0.01)

    def _streams(self, link: Link) -> AbstractAsyncContextManager[Streams]:
        config = self._config
        if config.command:
            trusted = {name: os.environ[name] for name in CERTIFICATES if name in os.environ}
            environment = {**get_default_environment(), **trusted, **config.env}
            process, self._process = self._process, None
            self._processes = [old for old in self._processes if not old.has_ended]
            if process is None:
                command = [program(config.command[0], environment.get("PATH")), *config.command[1:]]
                process = ServerProcess(command, environment, config.cwd, self._record)
            self._processes.append(process)
            return over_pipes(link, config.name, process, logs=self._logs)
        auth: httpx2.Auth | None = None
        if config.client_id:
            auth = ClientCredentialsOAuthProvider(
                config.url,
                _Tokens(),
                config.client_id,
                config.client_secret,
                scope=config.scope,
                issuer=config.issuer or str(httpx2.URL(config.url).copy_with(raw_path=b"/")),
            )
        return over_http(link, config.url, config.headers, auth, self._web)

    async def _list(self, client: Client) -> Listing:
        """What the server lists and reports about itself. Raises MCPError if it answers with an error at once."""
        read = replies.ToolList()
        can = client.server_capabilities
        while True:
            try:
                page = await client.list_tools(cursor=read.cursor)
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND and can.tools is None:
                    break  # it has only resources or prompts
                is_unreadable = faults.is_unreadable(error)
                if error.code == CONNECTION_CLOSED or (read.cursor is None and not is_unreadable):
                    raise
                stops = "is no message of JSON-RPC" if is_unreadable else f"stops with the error {error.code}"
                read.unread = f"its list of tools {stops}"
                break
            if not read.add(page):
                break
        info = client.server_info
        introduction = {
            "info": _as_json(info),
            "capabilities": _as_json(can),
            "instructions": client.instructions,
            "protocol": str(client.protocol_version),
        }
        name, protocol = info.name if info else "", str(client.protocol_version)
        return Listing(read.tools, name, protocol, introduction, read.left_out, read.unread)

    async def _elicit(self, link: Link, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Answer a question that a server asks during a call, or decline it and record it at the calls under way.

        With the older protocol, a server does not name the call, so the calls of a server that has asked are made one
        after the other from then on.
        """
        self._asks = True
        calls = [sent for sent in link.calls.values() if sent.can_ask]
        for sent in calls:
            if (answer := questions.elicited(params, sent.answers)) is not None:
                return answer
        for sent in calls:
            sent.asked = questions.of(params)
        return ElicitResult(action="decline")

    async def _roots(self, context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=Path(root).as_uri()) for root in self._config.roots])

    async def _on_message(self, message: Any) -> None:
        """Pass a notification to `heard`. If the tools have changed, the next call reads the list of tools again."""
        method = getattr(message, "method", None)
        if method not in PASSED_ON:
            return
        if method == TOOLS_CHANGED and self._connection is not None:
            self._connection.is_stale = True
        params = message.model_dump(by_alias=True, mode="json", exclude_unset=True).get("params")
        if params and SUBSCRIPTION_ID_META_KEY in (meta := params.get("_meta") or {}):  # it is one of the connection
            del meta[SUBSCRIPTION_ID_META_KEY]
            params = {**params, "_meta": meta} if meta else {key: params[key] for key in params if key != "_meta"}
        self.heard(method, params or None)

    def _check(self, connection: _Connection, tool: str) -> None:
        """Raise NeedsPerson if the tool is gone, or has changed since the worker started."""
        if tool not in self.expected:
            return
        listing, kind = connection.listing, f"{self._config.name}.{tool}"
        now = next((listed for listed in listing.tools if listed.name == tool), None)
        if now is None and listing.unread:
            connection.is_stale = True  # the next call reads the list again
            raise unsent(Unreachable(f"The server did not list {kind}, since {listing.unread}; nothing was sent."))
        if now is None and tool in listing.left_out:
            why = listing.left_out[tool]
            raise unsent(NeedsPerson(f"The server lists {kind} in a way that cannot be read now, since {why}."))
        if now is None:
            raise unsent(NeedsPerson(f"The server has no tool {kind} any more: {self._remedy}."))
        if now.digest != self.expected[tool].digest:
            changed = _difference(self.expected[tool].schema, now.schema)
            raise unsent(NeedsPerson(f"The tool {kind} of the server has changed{changed}: {self._remedy}."))

    async def call(
        self,
        tool: str,
        args: dict[str, JsonValue],
        answers: Mapping[str, JsonValue],
        result: type[BaseModel] | None,
        *,
        is_read: bool,
    ) -> JsonValue:
        """Call a tool once, and return its result as JSON; the parameters and errors are those of `Servers.call`."""
        kind, reported = f"{self._config.name}.{tool}", current_progress()

        async def note_progress(progress: float, total: float | None, message: str | None) -> None:
            reported.report(progress, total, message)

        async def ask(connection: _Connection, token: str) -> CallToolResult | questions.ServerQuestion:
            # Not `call_tool`, which asks for the list of tools by itself, and raises for a result after its effect.
            params = {"name": tool, "arguments": args}
            found = await self._ask(connection, "tools/call", params, token, answers, note_progress)
            if isinstance(found, questions.ServerQuestion):
                return found
            return CallToolResult.model_validate(found, by_name=False)  # after `tidy_result`

        made = Sent(deadline.at(), answers=answers)
        connection, sent, found = await self._exchange(kind, tool, made, ask, self._fault, is_read=is_read)
        return await self._result(connection, kind, tool, found, sent, result, is_read=is_read)

    async def request(
        self, method: str, params: Mapping[str, Any], seconds: float, report: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """Send a request that changes nothing, and return the server's result as it is. `report` gets the progress.

        Raises:
            JsonRpcError: the server answered with this error, or not within `seconds`.
            ToolError: there is no connection or no answer; or the server asks something, which needs a task; or the
                tool to call is gone, or differs from the tool with this name when the worker started.
        """
        tool = str(params.get("name")) if method == "tools/call" else None
        name = f"{self._config.name}.{tool or method}"

        async def ask(connection: _Connection, token: str) -> dict[str, Any] | questions.ServerQuestion:
            return await self._ask(connection, method, params, token, {}, report)

        with sends.counted(sends.Sends()), deadline.within(seconds) as limit:
            try:
                async with asyncio.timeout(seconds):
                    made = Sent(limit.at, can_ask=method in CAN_ASK)
                    _, sent, found = await self._exchange(name, tool, made, ask, self._raw_fault, is_read=True)
            except TimeoutError:
                raise JsonRpcError(REQUEST_TIMEOUT, f"{name} gave no answer within {seconds:g} s.") from None
        if isinstance(found, questions.ServerQuestion):
            raise AsksPerson(found.refusal(name))
        if sent.asked is not None:
            raise AsksPerson(sent.asked.refusal(name))
        match method:
            case "resources/subscribe":
                self._kept_up[str(params.get("uri"))] = method, params
            case "resources/unsubscribe":
                self._kept_up.pop(str(params.get("uri")), None)
            case "logging/setLevel":
                self._kept_up[method] = method, params
        return found

    async def _exchange(
        self,
        kind: str,
        tool: str | None,
        initial: Sent,
        ask: "Callable[[_Connection, str], Awaitable[T]]",
        fault: "Callable[[_Connection, str, Exception, Sent], Exception]",
        *,
        is_read: bool,
    ) -> "tuple[_Connection, Sent, T]":
        """Send a request, and return the connection, the state of the request, and the answer.

        `initial` is the state before sending; `tool` is the tool that the request calls, or None. `ask` sends the
        request with a token, and `fault` makes the exception for a request without a result. If the connection was over
        before it could take the request, the request is sent again, once, on a new connection.
        """
        for is_last in (False, True):
            async with AsyncExitStack() as stack:
                connection = await self._ready(kind, tool, stack, can_ask=initial.can_ask)
                token, sent = uuid.uuid4().hex, replace(initial)
                connection.link.calls[token] = sent
                try:
                    found = await ask(connection, token)
                except (MCPError, ValidationError, httpx2.HTTPError) as error:
                    if not is_last and self._is_over(error, sent):
                        connection.is_retired = True  # the session is gone, and nothing was done: once more
                        continue
                    raise fault(connection, kind, error, sent) from None
                except asyncio.CancelledError:
                    connection.unanswered += 1 if sent.is_late else 0
                    connection.is_retired |= connection.unanswered >= MAX_UNANSWERED
                    raise
                finally:
                    del connection.link.calls[token]
                    if sent.began:
                        sends.add(changes=not is_read)
                connection.unanswered = 0
                return connection, sent, found
        raise AssertionError

    async def _ready(self, kind: str, tool: str | None, stack: AsyncExitStack, *, can_ask: bool) -> _Connection:
        """Return a connection that takes new calls; `stack` gets the lock of a server that takes one call at a time.

        The lock is only for calls during which the server may ask something (`can_ask`). Raises ToolError if no
        connection is ready in time, or `tool` (None for another request) has changed; nothing was sent then.
        """
        try:
            async with asyncio.timeout(ready_seconds()):
                if self._asks and can_ask:
                    await stack.enter_async_context(self._asking_lock)
                connection = await self.connection()
                if connection.is_stale:
                    connection.is_stale = False
                    connection.listing = await self._list(connection.client)
        except (TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and deadline.left() != 0:
                raise  # by the workflow, and not by the end of the attempt, which may come before that of the wait
            reason = f"The server of {kind} was not ready before the attempt ended; nothing was sent."
            raise unsent(Unreachable(reason, code="timeout")) from None
        except CannotOpen as error:
            raise faults.unreachable(kind, error, self._config.url) from None
        except MCPError as error:
            failed = CannotOpen(*faults.why_of(error, connection.link))
            raise faults.unreachable(kind, failed, self._config.url) from None
        if tool is not None:
            self._check(connection, tool)
        return connection

    async def _ask(
        self,
        connection: _Connection,
        method: str,
        params: Mapping[str, Any],
        token: str,
        answers: Mapping[str, JsonValue],
        report: ProgressFnT | None,
    ) -> dict[str, Any] | questions.ServerQuestion:
        """Send a request, and again with the answers to what the server asks for before it works on the request.

        Return the result, or the first question of the server to which `answers` has no answer.
        """
        if connection.is_newer and method in ("resources/subscribe", "resources/unsubscribe"):
            await self._subscribe(connection, str(params.get("uri")), ends=method == "resources/unsubscribe")
            return {}
        resumed, meta = dict[str, Any](), {**params.get("_meta", {}), CALL_NAME: token}
        for _ in range(MAX_ROUNDS):
            request = Request[dict[str, Any], str](method=method, params={**params, **resumed, "_meta": meta})
            deadline.check()
            found: dict[str, Any] = await connection.client.session.send_request(
                request, _RAW, progress_callback=report
            )
            if (whole := (found.get("_meta") or {}).get(replies.RAW)) is not None:
                return replies.tidy_result(whole)
            if found.get("resultType") != "input_required":
                return found
            asked = InputRequiredResult.model_validate(found, by_name=False)
            responses, question = questions.answered(asked, answers, self._config.roots)
            if question is not None:
                return question
            plain = to_jsonable_python(responses, by_alias=True, exclude_none=True)
            resumed = {"inputResponses": plain, "requestState": asked.request_state}
        return questions.ServerQuestion("the same again and again", {})

    async def _subscribe(self, connection: _Connection, uri: str, *, ends: bool) -> None:
        """Begin a subscription to a resource over the newer protocol, which has a stream for each; with `ends`, end it.

        Raises JsonRpcError if the server takes no such subscription.
        """
        if (earlier := connection.streams.pop(uri, None)) is not None:
            await earlier.aclose()
        if ends:
            return
        async with AsyncExitStack() as stack:
            try:
                stream = await stack.enter_async_context(connection.client.listen(resource_subscriptions=[uri]))
            except MCPError as error:
                raise JsonRpcError(error.code, error.message, error.data) from None
            except RuntimeError as error:  # SubscriptionLost
                raise JsonRpcError(CONNECTION_CLOSED, str(error)) from None
            if not stream.honored.resource_subscriptions:
                raise JsonRpcError(METHOD_NOT_FOUND, f"{self._config.name} takes no subscriptions to resources.")
            connection.streams[uri] = stack.pop_all()  # its events come to the handler of messages, as all others do

    def _is_over(self, error: Exception, sent: Sent) -> bool:
        """Whether a request was not handled only because the connection or the server's session had ended before."""
        is_closed = isinstance(error, MCPError) and error.code == CONNECTION_CLOSED
        return sent.status == 404 or (is_closed and not sent.began)

    def _raw_fault(self, connection: _Connection, kind: str, error: Exception, sent: Sent) -> Exception:
        """The exception for a request that has no result: the server's own error, unchanged, if it sent one."""
        is_status = sent.status is not None and sent.status >= 300 and not sent.is_spoken
        is_own = sent.began and sent.no_token is None and not (sent.why or is_status) and sent.is_spoken
        if isinstance(error, MCPError) and is_own and not self._is_cut(connection, error):
            return JsonRpcError(error.code, error.message, error.data)
        return self._fault(connection, kind, error, sent)

    def _fault(self, connection: _Connection, kind: str, error: Exception, sent: Sent) -> ToolError:
        """The exception for a call that has no result; it records what the failure proves about the effect."""
        if sent.no_token is not None:
            return faults.unreachable(kind, CannotOpen(sent.why, code=sent.no_token), self._config.url)
        if sent.status is not None and sent.status >= 300 and not sent.why and not sent.is_spoken:
            return faults.of_status(kind, sent, self._config.errors, connection.link.through)
        if not sent.began:
            if sent.is_late:
                return unsent(Unreachable(f"The attempt of {kind} ended before it was sent.", code="timeout"))
            why = sent.why or connection.link.why or "the connection failed"
            where = faults.place(self._config.url)
            return unsent(Unreachable(f"The server of {kind}{where} cannot be reached: {why}; nothing was sent."))
        if isinstance(error, ValidationError):
            reason = f"{kind} answered with a result that the protocol does not have."
            return unproven(Refused(reason, code="unexpected_result"))
        if isinstance(error, MCPError) and not sent.why and not self._is_cut(connection, error):
            if faults.is_unreadable(error) or not sent.is_spoken:
                return unproven(Refused(f"The answer of {kind} cannot be read.", code="unexpected_result"))
            return faults.of_error(kind, error)
        why = sent.why or connection.link.why or "the connection was cut"
        is_large_event = isinstance(error, MCPError) and "exceeded the" in error.message
        if connection.link.is_too_large or sent.is_too_large or is_large_event:
            return unproven(NeedsPerson(f"{kind} gave no answer: {why}.", code="too_large"))
        where = faults.place(self._config.url)
        return unproven(Unreachable(f"{kind}{where} gave no answer: {why}."))

    def _is_cut(self, connection: _Connection, error: MCPError) -> bool:
        """Whether an error reports a connection that was cut, and is no answer of the server."""
        is_over = connection.link.ended.is_set() or connection.closing.is_set()
        return error.code == CONNECTION_CLOSED and (is_over or error.message.startswith("SSE stream"))

    async def _result(
        self,
        connection: _Connection,
        kind: str,
        tool: str,
        found: CallToolResult | questions.ServerQuestion,
        sent: Sent,
        result: type[BaseModel] | None,
        *,
        is_read: bool,
    ) -> JsonValue:
        """The result of a call as JSON. Raises ToolError for a question, an error, or a wrong result."""
        if isinstance(found, questions.ServerQuestion):
            raise answered(AsksPerson(found.sentence(kind)))  # by the protocol, the call is not made so far
        fault = connection.texts.fault(kind, tool, found, is_read=is_read)
        if sent.asked:
            asks = AsksPerson(sent.asked.sentence(kind))
            raise unproven(asks) if fault is None or fault.proves_nothing else asks
        if fault is not None:
            raise fault
        if result is None or not issubclass(result, ForeignResult):
            convert = partial(answer_of, found, is_read=is_read, has_layout=self._has_layout)
            is_plain = found.structured_content is None
            answer = convert() if is_plain else await asyncio.to_thread(convert)  # it may have megabytes to compare
            untyped: JsonValue = answer.model_dump(mode="json")
            return untyped
        whole = json_of(found.structured_content)
        value: JsonValue = from_json(whole)
        if len(whole) > MAX_BYTES:
            return value  # it is refused for its size, as an effect that was applied
        listed = next((listed for listed in connection.listing.tools if listed.name == tool), None)
        wrong = ["it is missing"] if value is None else []
        if value is not None and listed is not None:
            try:
                if listed.checks and len(whole) > MAX_AT_ONCE:
                    wrong = await asyncio.to_thread(listed.checks.broken_rules, value)
                elif listed.checks:
                    wrong = listed.checks.broken_rules(value)
            except BadSchema as bad:
                wrong = [f"it cannot be checked, since {bad}"]
        if wrong:
            reason = f"The structured result of {kind} does not fit its schema: {'; '.join(wrong)}."
            raise tool_error(Code.UNEXPECTED_RESULT, reason, words_of(found), proves_none=False)
        return with_rest(found, value, len(whole), has_layout=self._has_layout, is_read=is_read)


def ready_seconds() -> float | None:
    """Seconds that a wait before sending may take, to end shortly before the attempt does; None for no limit."""
    left = deadline.left()
    return None if left is None else left * READY_SHARE


def _as_json(model: BaseModel | None) -> JsonValue:
    return None if model is None else model.model_dump(by_alias=True, mode="json", exclude_unset=True)


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The names of arguments that are new, gone or changed, in brackets; empty if no argument has changed."""
    old, new = before.get("properties", {}), now.get("properties", {})
    required = {*now.get("required", ())} - {*before.get("required", ())}
    parts = [f"{name!r} is gone" for name in old if name not in new]
    parts += [f"{name!r} is new{' and required' if name in required else ''}" for name in new if name not in old]
    parts += [f"{name!r} has another rule" for name in new if name in old and new[name] != old[name]]
    return f" ({'; '.join(parts[:5])})" if parts else ""


@asynccontextmanager
async def _listening(client: Client) -> AsyncIterator[None]:
    """While the block runs, ask a server of the newer protocol to send a notification when one of its lists changes."""
    can = client.server_capabilities
    tools = bool(can.tools and can.tools.list_changed)
    prompts = bool(can.prompts and can.prompts.list_changed)
    resources = bool(can.resources and can.resources.list_changed)

    async def listen() -> None:
        with suppress(MCPError, RuntimeError, TimeoutError):  # it does not offer it, or it ends
            async with client.listen(
                tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
            ) as events:
                async for _ in events:
                    pass

    is_newer = client.protocol_version in MODERN_PROTOCOL_VERSIONS
    listener = asyncio.create_task(listen()) if is_newer and (tools or prompts or resources) else None
    try:
        yield
    finally:
        if listener is not None:
            listener.cancel()
            await asyncio.wait([listener])


async def _wait_for_first(*events: Awaitable[object]) -> None:
    waiting = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


class _Tokens:
    """Keeps the tokens of an OAuth client in memory."""

    def __init__(self) -> None:
        self._tokens: Any = None
        self._client: Any = None

    async def get_tokens(self) -> Any:
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> Any:
        return self._client

    async def set_client_info(self, client_info: Any) -> None:
        self._client = client_info


def listings(configs: Mapping[str, Config], reach: Reach) -> dict[str, Listing | str]:
    """Connect to each server for a moment; return, by server, what it lists, or the reason why it cannot be asked."""

    async def ask(config: Config) -> Listing | str:
        kept = Kept(config, Web(reach), logs=False)
        try:
            return (await kept.connection()).listing
        except CannotOpen as why:
            return str(why)
        finally:
            await kept.close()

    async def ask_all() -> dict[str, Listing | str]:
        found = await asyncio.gather(*map(ask, configs.values()))
        return dict(zip(configs, found, strict=True))

    with ThreadPoolExecutor(1) as pool:  # this thread may run an event loop
        return pool.submit(lambda: asyncio.run(ask_all())).result()
