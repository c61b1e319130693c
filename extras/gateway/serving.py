"""Serves a gateway over HTTP in the foreground: the holder of its tools over another transport.

The endpoint finds the sender and the session of each request, and records the delivery of each answer.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from client.problem import Problem
from console.serving.access import Access, Denied, Visitor, is_loopback
from console.serving.connections import Connection, most_connections
from console.serving.listening import serve
from console.serving.problems import denial
from extras.gateway.bridge import peer_is_gone
from extras.gateway.request import MAX_KEY
from extras.gateway.session import Agent, RequestOrigin
from extras.gateway.sessions import MAX_SESSION, SESSION_NAME, Session
from extras.gateway.toolset import Toolset
from extras.gateway.wire import Hello
from runtime import telemetry
from runtime.settings import LogStyle
from workflows.json_values import digest

PATH = "/mcp"
SESSION_HEADER, KEY_HEADER = "replan-session", "replan-key"
QUEUE_SECONDS = 15.0
"""Seconds within which a worker must name its tools."""
MAX_BODY = 8 * 1024 * 1024
"""The most bytes of a request body."""
MAX_CALLS, MAX_CANCEL = 2_000, 10_000
"""Of how many calls it is known what a cancel of them means, the last ones; and the most bytes of a cancel."""
OF_PROXIES = ("via", "forwarded", "x-forwarded-for", "x-real-ip")
"""Headers that a proxy adds."""


@dataclass(frozen=True)
class ListenAddress:
    """Where a gateway listens."""

    host: str
    port: int
    access: Access


async def serve_http(state: Path, hello: Hello, place: ListenAddress, *, say: Callable[[str], None]) -> None:
    """Serve the tools that `hello` names until a signal.

    Raises:
        Problem: another gateway over HTTP has these tools, there are no tools, or the port cannot be used.
    """
    from extras.gateway import holder
    from extras.gateway.bridged import opened_tools

    telemetry.configure(LogStyle.TEXT, None)
    with holder.alone(state, hello.model_copy(update={"session": "http"})) as record:
        if record is None:
            reason = f"A gateway with these tools runs in {state} already"
            raise Problem("usage", reason, "end it, or choose another folder with --state")
        async with opened_tools(state, hello, None, record, session=None) as tools:
            is_patient = bool(hello.command or hello.tools)  # a first start may fetch a server
            if not await tools.ready(float("inf") if is_patient else QUEUE_SECONDS):
                raise Problem("usage", f"The gateway has no tools: {tools.problem}", "mend that, and start it again")
            defaults = Session(hello.session, hello.doubt, hello.patience)
            app = make_app(tools, place.access, defaults, attended=hello.attended)
            how = "for this machine only" if place.access.is_open else "with a token"

            def ready(address: str) -> None:
                say(f"ready  {address}{PATH}  {how}  {len(tools.offers)} tools")

            await serve(app, place.host, place.port, most_connections(), on_ready=ready, on_stop=lambda: None)


def make_app(tools: Toolset, access: Access, defaults: Session, *, attended: bool) -> ASGIApp:
    """The gateway in front of `tools`, which must be ready; `defaults` has the settings of sessions."""
    agent = Agent(tools, defaults, _origin_of_call, attended=attended)
    tools.on_notification["http"] = agent.tell
    manager = StreamableHTTPSessionManager(agent.server(is_ready=True), max_request_body_size=MAX_BODY)
    endpoint = _Endpoint(manager.handle_request, tools, access)
    routes = [Route("/health/live", _live), Route(PATH, endpoint), Route(f"{PATH}/{{session}}", endpoint)]
    return Starlette(routes=routes, lifespan=lambda _: manager.run())


async def _live(_: Any) -> Response:
    return JSONResponse({"status": "ok"})


class _Exchange:
    """One request over HTTP, and the delivery of its answer."""

    def __init__(
        self, origin: RequestOrigin, connection: Connection, tools: Toolset, begun: "Callable[[Any, _Exchange], None]"
    ) -> None:
        """`begun` is called with the id that its client gave to the call of a tool, and with this."""
        self._begun = begun
        self.origin = replace(origin, is_gone=lambda: self._is_over or _is_lost(connection))
        self.is_call = False
        """Whether the request calls a tool, so that the delivery of its answer counts."""
        self._connection = connection
        self._tools = tools
        self._is_stream = self._is_written = self._is_over = False

    def begin(self, number: Any) -> RequestOrigin:
        """Note that the request is the call of a tool, with this id of its client's; returns its RequestOrigin."""
        self.is_call = True
        self._begun(number, self)
        return self.origin

    def cancel(self) -> None:
        """Note that the client does not wait for the answer any more, or has not read it."""
        self._is_over = True
        self._tools.answer_failed(self.origin.request)

    async def send(self, message: Message, send: Send) -> None:
        """Pass an ASGI message on; record the delivery if the message has the answer."""
        if message["type"] == "http.response.start":
            kind = Headers(raw=message["headers"]).get("content-type", "")
            self._is_stream = kind.startswith("text/event-stream")
        elif self.is_call and not self._is_written and self._has_answer(message.get("body", b"")):
            if self._connection.is_lost:
                return
            self._is_written = True
            await send(message)
            if not await self._connection.taken():
                self._tools.answer_failed(self.origin.request)
            return
        await send(message)

    def _has_answer(self, body: bytes) -> bool:
        """Whether a part of the response has the answer: on a stream, progress and keep-alive messages come first."""
        if not self._is_stream:
            return bool(body)
        for line in body.splitlines():
            with suppress(ValueError):
                name, _, data = line.partition(b":")
                if name == b"data" and "method" not in from_json(data):
                    return True
        return False

    def end(self) -> None:
        """Note that the request is over or its client is gone; an answer not written yet counts as not handed over."""
        self._is_over = True
        if self.is_call and not self._is_written:
            self._tools.answer_failed(self.origin.request)


class _Endpoint:
    """The app in front of the SDK's app: checks access, and follows each answer to the client."""

    def __init__(self, app: ASGIApp, tools: Toolset, access: Access) -> None:
        self._app, self._tools, self._access = app, tools, access
        self._agents = dict[str, dict[str, Connection]]()
        """By id of what proves a delivery, the open connections of TCP of that agent, by their ids."""
        self._calls = dict[tuple[str, str, Any], _Exchange | None]()
        """By principal, session of MCP and the client's id of the request, the last calls; None for one that was
        cancelled before it came, on another connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            visitor = self._visitor(headers)
            origin = self._origin(scope, headers, visitor)
        except Denied as denied:
            await denial(denied)(scope, receive, send)
            return
        client = (visitor.name, headers.get("mcp-session-id", ""))
        exchange = _Exchange(origin, scope["state"]["connection"], self._tools, partial(self._note_call, client))
        scope["state"]["exchange"] = exchange
        # The SDK binds its sessions to it, so that the id of a session is of no use to another principal.
        scope["user"] = AuthenticatedUser(AccessToken(token="-", client_id=f"={visitor.name}", scopes=[]))  # noqa: S106
        try:
            hearing = partial(self._receive, receive, client)
            await self._app(scope, hearing, partial(exchange.send, send=send))
        finally:
            exchange.end()

    def _note_call(self, client: tuple[str, str], number: Any, exchange: _Exchange | None) -> None:
        key = (*client, number)
        if exchange is not None and key in self._calls and self._calls[key] is None:
            exchange.cancel()
        self._calls[key] = exchange
        if len(self._calls) > MAX_CALLS:
            self._calls.pop(next(iter(self._calls)))

    def _note_cancel(self, client: tuple[str, str], number: Any) -> None:
        if exchange := self._calls.get((*client, number)):
            exchange.cancel()
        elif number is not None:
            self._note_call(client, number, None)

    async def _receive(self, receive: Receive, client: tuple[str, str]) -> Message:
        """Receive a part of a request; a cancel that comes after the answer says that this was not read, and one
        that comes before its call says that this is not to be made."""
        message = await receive()
        body = message.get("body", b"") if client[1] else b""
        if b"cancelled" in body and len(body) < MAX_CANCEL:
            with suppress(ValueError, AttributeError, TypeError):
                notice = from_json(body)
                if notice["method"] == "notifications/cancelled":
                    self._note_cancel(client, notice["params"]["requestId"])
        return message

    def _visitor(self, headers: Headers) -> Visitor:
        """The sender of a request, without cookies. Raises Denied for other websites, and without the right token.

        A program needs the scope `start`.
        """
        self._access.check_site("POST", headers)
        visitor = self._access.visitor(Headers(raw=[one for one in headers.raw if one[0] != b"cookie"]))
        if visitor is None:
            raise Denied(401, "no_token", "The gateway wants a token", "send `Authorization: Bearer TOKEN`")
        if "start" not in visitor.scopes:
            reason = f"The tools need the scope start, and {visitor.name} has {', '.join(visitor.scopes) or 'none'}"
            raise Denied(403, "no_scope", reason, "use a token that has it")
        return visitor if visitor.is_known else Visitor("")

    def _origin(self, scope: Scope, headers: Mapping[str, str], visitor: Visitor) -> RequestOrigin:
        """The RequestOrigin of a request. Raises Denied if its session name or key cannot be used."""
        connection: Connection = scope["state"]["connection"]
        path = scope.get("path_params", {}).get("session", "")
        session = headers.get(SESSION_HEADER, "") or path
        if session and not SESSION_NAME.fullmatch(session):
            reason = f"{session[:MAX_SESSION]!r} is no name of a session"
            raise Denied(400, "usage", reason, f"use a name like {SESSION_NAME.pattern}")
        key = headers.get(KEY_HEADER, "")
        if len(key) > MAX_KEY:
            raise Denied(400, "usage", f"The key is longer than {MAX_KEY} characters", "use a shorter one")
        of_agent = headers.get("mcp-session-id", "")
        number = secrets.token_hex(8)
        # A later call on this connection proves that the agent has the answers before it. But a proxy's connection
        # carries requests of several agents, and a network can lose an answer unnoticed while the agent makes other
        # calls: so it is none, one of TCP, or, on this machine, the SDK's session of one client.
        proof = connection.id
        if visitor.name or any(name in headers for name in OF_PROXIES):
            proof = number
        elif of_agent and is_loopback(scope["client"][0]):
            proof = f"mcp-{digest(of_agent)[:16]}"
        else:
            # Each request does so: the client has read the whole response to the one before it.
            self._tools.went_on(proof, time.monotonic())
        if proof != number:
            self._note_agent(proof, connection)
        return RequestOrigin(
            number,
            proof,
            session or (f"http-{digest(of_agent)[:16]}" if of_agent else f"http-{connection.id}"),
            key,
            owner=digest(visitor.name)[:12] if visitor.name else "",
        )

    def _note_agent(self, agent: str, connection: Connection) -> None:
        """Note that an agent is there until its last connection of TCP is lost."""
        if connection.is_lost or connection.id in self._agents.get(agent, ()):
            return
        opened = self._agents.setdefault(agent, {})
        opened[connection.id] = connection
        self._tools.connection_opened(agent, lambda: all(map(_is_lost, opened.values())))
        connection.on_lost.append(partial(self._note_lost, agent, connection))

    def _note_lost(self, agent: str, connection: Connection) -> None:
        opened = self._agents[agent]
        opened.pop(connection.id, None)
        if not opened:
            del self._agents[agent]
            self._tools.connection_closed(agent)


def _is_lost(connection: Connection) -> bool:
    return connection.is_lost or peer_is_gone(connection.transport.get_extra_info("socket"))


def _origin_of_call(context: Any) -> RequestOrigin:
    """Mark the request in the SDK's context as the call of a tool, and return its RequestOrigin."""
    exchange: _Exchange = context.request.scope["state"]["exchange"]
    return exchange.begin(context.request_id)
