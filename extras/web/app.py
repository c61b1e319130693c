"""The web server: the API for programs and the page for people, on one port, with the same rules for both."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from anyio import BrokenResourceError
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from temporalio.service import RPCError

from client.client import Client
from client.problem import Problem
from client.tasks import similar_ids
from console.serving.access import Access, Denied, Visitor
from console.serving.problems import MEDIA_TYPE, ProblemDocument, body_of, denial, problem_of, status_of
from extras.web import api, codec
from extras.web.page import answers, inbox, lists, sign_in, task
from extras.web.page.rendering import ASK_SECONDS, PLACES, TASK_PAGES, problem_page
from extras.web.page.schemas import Schemas
from extras.web.remedies import as_request, on_page
from extras.web.scopes import MAX_PATH, check_scope
from extras.web.streams import Streams
from runtime.client import namespace_id
from runtime.payloads import NoKey
from runtime.process import version
from runtime.validation import expected
from workflows.text import shorten

if TYPE_CHECKING:
    from extras.web.provider import IdentityProvider

MAX_BODY = 1024 * 1024
"""The most bytes of a request body; a task and an answer are smaller."""
OPEN = ("/health/", "/static/", "/login")
"""The paths that need no token and no session."""
LOGOUT = "/logout"
PAGES = "/ui"
HEADERS: Mapping[str, str] = {
    # Nothing inline, and nothing from elsewhere.
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def make_app(
    client: Client, access: Access, *, max_streams: int, web_ui: str = "", provider: "IdentityProvider | None" = None
) -> FastAPI:
    """Make the server of one task queue; `access` has the rules of access, `max_streams` is the limit of event streams.

    `web_ui` is the origin of a Temporal web UI for which this server is the codec endpoint; empty for none. With a
    `provider`, the people that it knows sign in at the page, and programs send their ID tokens.
    """
    streams = Streams(client.temporal, client.queue, max_streams)

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        yield
        streams.close()

    app = _AppWithProblemSchema(
        title="Replan",
        version=version(),
        description="Start tasks, follow them, and answer what they ask. Errors are `application/problem+json`.",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        lifespan=living,
    )
    app.state.client, app.state.access, app.state.streams = client, access, streams
    app.state.schemas, app.state.places = Schemas(client.temporal), PLACES
    app.include_router(api.router)
    if web_ui:
        app.include_router(codec.router)
    for part in (sign_in, inbox, task, answers, lists):
        app.include_router(part.router)
    if provider is not None:
        from extras.web.page.provider import sign_in_place  # of an extra of its own

        app.router.routes.append(sign_in_place(provider, lambda person: access.session_with_provider(*person)))
    app.add_api_route("/static/{name}", static, include_in_schema=False)
    app.add_api_route("/health/live", live, include_in_schema=False)
    app.add_api_route("/health/ready", _ready, include_in_schema=False)
    for error in (Problem, Denied, NoKey, RPCError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(error, error_response)
    app.add_middleware(Gate, access=access, web_ui=web_ui, provider=provider)
    return app


class _AppWithProblemSchema(FastAPI):
    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        # As the `model` of a response it would be documented as application/json.
        document["components"]["schemas"]["ProblemDocument"] = ProblemDocument.model_json_schema()
        return document


async def live() -> dict[str, str]:
    return {"status": "ok"}


@cache
def _statics() -> Mapping[str, Response]:
    # Read from the disk for each request, they would take a second file for each connection.
    files = Path(__file__).with_name("static").iterdir()
    return {file.name: Response(file.read_bytes(), media_type=guess_type(file.name)[0]) for file in files}


async def static(name: str) -> Response:
    found = _statics().get(name)
    if found is None:
        raise HTTPException(404)
    return found


async def _ready(request: Request) -> Response:
    try:
        await namespace_id(request.app.state.client.temporal)
    except RPCError as error:
        return JSONResponse({"status": "unreachable", "reason": problem_of(error).reason}, 503)
    return JSONResponse({"status": "ok"})


async def error_response(request: Request, error: Exception) -> Response:
    """The response to a request that raised an error: a page for a browser, else a problem document."""
    more: dict[str, Any] = {}
    headers = dict[str, str]()
    is_page = request.scope["path"].startswith(PAGES)
    match error:
        case Problem() | NoKey() | RPCError():
            problem = problem_of(error)
            fields = problem.fields(on_page if is_page else as_request)
            status, code, reason, remedy = status_of(problem), problem.code, fields["reason"], fields["remedy"]
        case Denied():
            status, code, reason, remedy = error.status, error.code, error.reason, error.remedy
            headers = {"www-authenticate": "Bearer"} if status == 401 else {}
        case RequestValidationError():
            mistakes = [
                {"field": ".".join(map(str, mistake["loc"][1:])), "message": expected(mistake)}
                for mistake in error.errors()
            ]
            status, code, remedy = 422, "usage", "see /openapi.json"
            reason, more = f"{mistakes[0]['field'] or 'The body'} {mistakes[0]['message']}", {"errors": mistakes}
        case HTTPException(status_code=413):
            status, code, reason, remedy = 413, "too_large", "The body is too large", error.detail
        case HTTPException():
            status, code, headers = error.status_code, "http", dict(error.headers or {})
            reason, remedy = _of_address(request, error, is_page=is_page)
        case _:
            status, code = 500, "bug"
            reason, remedy = "The server has a bug", "see its log; tasks are not affected"
    if status == 204:
        return Response(status_code=204)
    headers |= HEADERS  # that of a bug does not pass the Gate
    if is_page:
        page = problem_page(request, status, code, reason, remedy, await _similar_tasks(request, code))
        page.headers.update(headers)
        return page
    return Response(body_of(status, code, reason, remedy, **more), status, headers, MEDIA_TYPE)


async def _similar_tasks(request: Request, code: str) -> Sequence[str]:
    """The ids of tasks that a person may have meant by the address of a page; empty if the server does not say soon."""
    path = request.scope["path"]
    if code not in ("unknown_id", "many_ids") or not path.startswith(TASK_PAGES):
        return ()
    named = unquote(path.removeprefix(TASK_PAGES).partition("/")[0])
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await similar_ids(request.app.state.client.temporal, named)
    except (RPCError, TimeoutError):
        return ()


def _of_address(request: Request, error: HTTPException, *, is_page: bool) -> tuple[str, str]:
    """Why an address cannot be used, and what to do."""
    path, methods = shorten(request.scope["path"], MAX_PATH), (error.headers or {}).get("allow", "another method")
    there = "start from the inbox or the tasks" if is_page else "see /openapi.json for those there are"
    match error.status_code:
        case 404:
            return f"There is no page at {path}" if is_page else f"There is no {path} here", there
        case 405:
            return f"{path} takes no {request.method}, but {methods}", there
    return str(error.detail), there


class Gate:
    """Middleware before all routes: checks the sender and the site of a request, and sets headers of each response."""

    def __init__(self, app: ASGIApp, access: Access, web_ui: str, provider: "IdentityProvider | None" = None) -> None:
        self._app, self._access, self._web_ui, self._provider = app, access, web_ui, provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Paths are matched as they were sent: the id of a task may have a slash, which is sent as %2F.
        scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("ascii", "replace")

        is_of_web_ui = (
            bool(self._web_ui)
            and Headers(scope=scope).get("origin") == self._web_ui
            and scope["path"].startswith(codec.PATH)
        )
        more = {**HEADERS, **(codec.cors(self._web_ui) if is_of_web_ui else {})}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in more.items():
                    headers.setdefault(name, value)
            await send(message)

        size = 0

        async def receive_at_most() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BODY:
                # Any other exception would be a 400 of FastAPI.
                raise HTTPException(413, f"send at most {MAX_BODY:,} bytes")
            return message

        respond = await self._response(scope, is_of_web_ui=is_of_web_ui) or self._app
        try:
            await respond(scope, receive_at_most, send_with_headers)
        except* (BrokenResourceError, ClientDisconnect):
            pass  # the client left, while FastAPI passed an event on to it or before its whole body was there

    async def _response(self, scope: Scope, *, is_of_web_ui: bool) -> Response | None:
        """The response to a request that ends here, such as a denial; None if the request may reach its route.

        `is_of_web_ui`: a page of the Temporal web UI sent the request, and the request is for the codec endpoint.
        """
        path, headers = scope["path"], Headers(scope=scope)
        is_page = path == "/" or path.startswith(PAGES)
        try:
            self._access.check_site("GET" if is_of_web_ui else scope["method"], headers)
            if is_of_web_ui and scope["method"] == "OPTIONS":  # a browser asks before it sends, without who asks
                return Response(status_code=204)
        except Denied as denied:
            return None if path.startswith(OPEN[:2]) else denial(denied)
        visitor, state = None, scope.setdefault("state", {})
        try:
            visitor = await self._visitor(scope)
        except Denied as denied:
            if is_page:
                state["visitor"] = None
                return await error_response(Request(scope), denied)
            # Who may not come in any more can sign in as somebody else, and out.
            if not path.startswith((*OPEN, LOGOUT)):
                return denial(denied)
        state.update(visitor=visitor, find_visitor=partial(self._visitor, scope))
        if visitor or path.startswith((*OPEN, LOGOUT)):
            return None
        if not is_page:
            return denial(Denied(401, "no_token", "The request has no token", "send `Authorization: Bearer TOKEN`"))
        if headers.get("sec-fetch-site") == "cross-site" and scope["method"] == "GET":
            # A link in a message: the browser holds the session back, but not when the page loads itself again.
            return Response('<!doctype html><meta http-equiv="refresh" content="0">', media_type="text/html")
        query = f"?{scope['query_string'].decode('ascii', 'replace')}" if scope["query_string"] else ""
        return RedirectResponse(f"/login?next={quote(path + query, safe='')}", 303)

    async def _visitor(self, scope: Scope) -> Visitor | None:
        """Who sends a request, as of now; None if nobody says. Raises Denied if they may not send it."""
        path, headers = scope["path"], Headers(scope=scope)
        visitor = await self._known_by_provider(headers) or self._access.visitor(headers)
        if visitor and not path.startswith((*OPEN, LOGOUT)):
            check_scope(visitor, scope["method"], path)
        return visitor

    async def _known_by_provider(self, headers: Headers) -> Visitor | None:
        """The person of an ID token; None for a request without one. Raises Denied if the token is wrong."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self._provider is None or scheme.lower() != "bearer" or token.count(".") != 2:
            return None
        return self._access.from_provider(*await self._provider.of_token(token.strip()))
