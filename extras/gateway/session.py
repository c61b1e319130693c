"""One connection of an agent: an MCP server in front of tools, whoever makes their calls."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from pydantic import ConfigDict

from extras.gateway import attending, offers, results
from extras.gateway.offers import Offer
from extras.gateway.request import MAX_KEY, AgentGone, AgentRequest, Report
from extras.gateway.results import Do
from extras.gateway.sessions import LIST_WAIT, SESSION_NAME, Session
from extras.gateway.toolset import Toolset
from workflows.plans.catalogue import Effect

PASSED: Mapping[str, type[types.Result]] = {
    "resources/list": types.ListResourcesResult,
    "resources/templates/list": types.ListResourceTemplatesResult,
    "resources/read": types.ReadResourceResult,
    "resources/subscribe": types.EmptyResult,
    "resources/unsubscribe": types.EmptyResult,
    "prompts/list": types.ListPromptsResult,
    "prompts/get": types.GetPromptResult,
    "completion/complete": types.CompleteResult,
    "logging/setLevel": types.EmptyResult,
}
"""The methods that pass through to the servers, with the types of their results, as the agent's protocol has them."""
LISTS: Mapping[str, str] = {
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""The methods whose results of several servers are joined, with the name of the list in the result."""
TOOLS_CHANGED = "notifications/tools/list_changed"
KEY_META, SESSION_META, RUN_META = "replan/key", "replan/session", "replan/run"
NOT_READY = (
    "Replan is starting: it fetches or builds what it needs, once, which can take minutes. Tools are listed when it is"
    " ready."
)
NOT_LISTED = (
    "The other tools are not in this list, since their server is still starting: list the tools again."
    " notifications/tools/list_changed says when they are there."
)
LISTED_BEFORE = (
    "The other tools are listed as they were the last time, since their server is still starting."
    " notifications/tools/list_changed says if they have changed."
)
ABOUT = (
    "These tools are called through Replan: each effect is done once, and an answer that is lost is not lost with the"
    " next equal call. If a call waits for a person, `replan_outcome` has its result later."
)


class AnyParams(types.RequestParams):
    """Parameters that are passed on as they are."""

    model_config = ConfigDict(extra="allow")


HELLO_SECONDS = 2.0
"""How long a handshake waits for servers that are starting, to say what they report about themselves: agents read that
once. Some clients wait 5 s for a handshake."""
CALL_SECONDS = 60.0
MAX_PEERS = 1_000
"""The most connections to which notifications of servers are passed on, the newest."""


@dataclass(frozen=True)
class RequestOrigin:
    """The origin of a request, as far as the gateway's transport (socket or HTTP) knows it."""

    request: str
    """The id of the request, unique in all sessions."""
    connection: str
    """The id of the connection: a later call on it proves that the agent has the answers that were written before."""
    session: str
    """The name of the session, if the request names none."""
    key: str = ""
    """The key, if the request has none in its `_meta`."""
    is_resent: bool = False
    """Whether the agent's own process sends the request again, after the gateway was restarted."""
    is_gone: Callable[[], bool] = lambda: False
    """Whether the agent can certainly not be reached any more."""
    owner: str = ""
    """Distinguishes the sessions of one principal from equally named sessions of others; empty for none."""


class Agent:
    """An MCP server in front of the tools of a holder, for one connection or for all connections of a transport."""

    def __init__(
        self,
        tools: Toolset,
        defaults: Session,
        origin: Callable[[Any], RequestOrigin],
        *,
        attended: bool,
        list_wait: float = LIST_WAIT,
    ) -> None:
        """`origin` makes a RequestOrigin from the SDK's context; `defaults` has the doubt and patience of a session.

        At `attended` clients, persons may be asked. A list waits at most `list_wait` seconds for the tools.
        """
        self._tools = tools
        self._attended = attended
        self._defaults = defaults
        self._origin = origin
        self._list_wait = list_wait
        self._listed: Mapping[str, Offer] | None = None
        """The tools that were listed last; None before the first list."""
        self._early = set[str]()
        """The other notifications that agents get when the tools are known, since their lists were too early."""
        self._of_uri = dict[str, str]()
        self._of_prompt = dict[str, str]()
        self._peers = dict[str, Any]()
        """By connection, the SDK's session of its newest request, to which notifications go."""
        self._notifying = set[asyncio.Future[None]]()
        self._bus = InMemorySubscriptionBus()
        """Carries notifications to agents of the protocol of 2026-07-28, which subscribe to them."""
        self._listening = ListenHandler(self._bus)

    async def serve(self, read: Any, write: Any) -> None:
        """Serve one connection until its streams end."""
        server = self.server(is_ready=await self._tools.ready(HELLO_SECONDS))
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        await server.run(read, write, server.create_initialization_options(changes))

    def server(self, *, is_ready: bool) -> Server[Any]:
        """Make the SDK's server, with what the servers behind it report about themselves if the tools are known."""
        behind = list(self._tools.servers.values())
        only = behind[0] if len(behind) == 1 else None
        info = (only["info"] if only else None) or {}
        said = [about["instructions"] for about in behind if about.get("instructions")]
        server: Server[Any] = Server(
            info.get("name") or "replan",
            version=info.get("version") or "1",
            title=info.get("title"),
            instructions="\n\n".join([*said, ABOUT] if is_ready else [NOT_READY, ABOUT]),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=self._listen,
            get_tool_input_schema=self._input_schema,
        )
        for method in PASSED:
            if not is_ready or self._has_server_for(method):
                server.add_request_handler(method, AnyParams, self._pass_handler(method))
        return server

    def _has_server_for(self, method: str) -> bool:
        has = [about["capabilities"].get(_feature(method)) for about in self._tools.servers.values()]
        if method in ("resources/subscribe", "resources/unsubscribe"):
            return any(one.get("subscribe") for one in has if one)
        return any(one is not None for one in has)

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Pass a notification of a server on to the agents."""
        if (event := _event(method, params)) is not None:
            await self._bus.publish(event)
        notification = types.server_notification_adapter.validate_python({"method": method, "params": params})
        sent = [peer.send_notification(notification) for peer in self._peers.values()]
        await asyncio.gather(*sent, return_exceptions=True)  # some of them may have left

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Pass a notification on in the background; `tools/list_changed` only if agents have listed other tools."""
        # Clients of the SDK before version 2 fail on a message that comes while they end their session, and some end it
        # with each answer: so an agent that waits for its first list is not told that there is another.
        methods = [method]
        if method == TOOLS_CHANGED:
            methods = [] if self._listed in (None, self._tools.offers) else methods
            methods += sorted(self._early)
            self._early.clear()
        for each in methods:
            self._tell(each, params)

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        notifying = asyncio.ensure_future(self.notify(method, params))
        self._notifying.add(notifying)
        notifying.add_done_callback(self._notifying.discard)
        notifying.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _register_for_notifications(self, context: Any) -> None:
        connection = str(getattr(context.request, "headers", {}).get("mcp-session-id", ""))
        self._peers.pop(connection, None)
        self._peers[connection] = context.session
        if len(self._peers) > MAX_PEERS:
            self._peers.pop(next(iter(self._peers)))

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        offer = self._tools.offers.get(name)
        return offer.tool.get("inputSchema") if offer else None

    async def _listen(self, context: Any, params: types.SubscriptionsListenRequestParams) -> Any:
        if self._has_server_for("resources/subscribe"):
            for uri in params.notifications.resource_subscriptions or ():
                await self._route("resources/subscribe", {"uri": uri})
        return await self._listening(context, params)

    async def _list_tools(self, context: Any, params: Any) -> Any:
        self._register_for_notifications(context)
        is_ready = await self._tools.ready(self._list_wait)
        self._listed = self._tools.offers if is_ready else self._tools.last_offers
        shown = [dict(offer.tool) for offer in self._listed.values()]
        starting = LISTED_BEFORE if shown else NOT_LISTED
        note = offers.not_offered(self._tools.left_out) if is_ready else starting
        own = offers.listed(self._tools.own_tools, set(self._listed), note=note)
        listed = {"tools": [*shown, *own]}
        return types.ListToolsResult.model_validate(listed, by_name=False)

    async def _call_tool(
        self, context: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self._register_for_notifications(context)
        request = self._request(context, dict(context.meta or {}))
        try:
            found = await self._answer(params, request)
        except AgentGone:
            raise MCPError(types.CONNECTION_CLOSED, "The connection ended before the call was begun") from None
        except asyncio.CancelledError:
            # The agent does not wait for the answer any more; the call goes on.
            self._tools.answer_failed(request.id)
            raise
        kind = types.InputRequiredResult if found.get("resultType") == "input_required" else types.CallToolResult
        return kind.model_validate(found, by_name=False)

    async def _answer(self, params: types.CallToolRequestParams, request: AgentRequest) -> dict[str, Any]:
        if not await self._tools.ready(CALL_SECONDS):
            return results.fault(Do.WAIT, code="not_ready", reason=NOT_READY, is_structured=True, wait=30)
        offer = self._tools.offers.get(params.name)
        if request.attended and params.request_state is not None and offer is not None:
            said = (params.input_responses or {}).get(attending.INPUT)
            fields = said.model_dump() if isinstance(said, types.ElicitResult) else {}
            resumed: dict[str, Any] = await self._tools.resume(
                offer, params.arguments or {}, params.request_state, fields, request
            )
            return resumed
        if offer is None:
            own = self._tools.own_tools.get(params.name)
            if own is None:
                raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}")
            if own.is_read:
                self._tools.went_on(request.connection, request.arrived)
            return await self._tools.call_own(params.name, params.arguments or {}, request)
        is_passed = offer.effect is Effect.READ and offer.server and not offer.asks
        if is_passed:
            self._tools.went_on(request.connection, request.arrived)
            passed = {"name": offer.name_there, "arguments": params.arguments or {}}
            found = await self._tools.pass_on("tools/call", passed, offer.server or "", request.report)
            return results.presentable(found)
        return await self._tools.call(offer, params.arguments or {}, request)

    def _request(self, context: Any, meta: Mapping[str, Any]) -> AgentRequest:
        def text(name: str, most: int) -> str:
            value = meta.get(name, "")
            if not isinstance(value, str) or len(value) > most:
                raise MCPError(types.INVALID_PARAMS, f"{name} is a text of at most {most} characters")
            return value

        origin = self._origin(context)
        name = text(SESSION_META, 200) or origin.session
        if not SESSION_NAME.fullmatch(name):
            raise MCPError(types.INVALID_PARAMS, f"A session's name is {SESSION_NAME.pattern}")
        session = replace(self._defaults, name=f"{name}.{origin.owner}" if origin.owner else name)
        key, run = text(KEY_META, MAX_KEY) or origin.key, text(RUN_META, MAX_KEY)
        report = self._reporter(context) if "progress_token" in meta or "progressToken" in meta else None
        key = f"{run}\n{key}" if key and run else key
        resent = origin.request if origin.is_resent else ""
        person = attending.Person.at(context) if self._attended else None
        return AgentRequest(session, origin.request, origin.connection, key, resent, report, person, origin.is_gone)

    def _reporter(self, context: Any) -> Report:
        highest = 0.0

        async def report(progress: float, total: float | None, words: str) -> None:
            nonlocal highest
            highest = progress if progress > highest else highest + 0.001  # it must increase
            await context.session.report_progress(highest, total, words or None)

        return report

    # What passes through.

    def _pass_handler(self, method: str) -> Callable[[Any, AnyParams], Awaitable[Any]]:
        async def handle(context: Any, params: AnyParams) -> Any:
            self._register_for_notifications(context)
            is_ready = await self._tools.ready(self._list_wait)
            if not is_ready and method in LISTS:
                self._early.add(f"notifications/{_feature(method)}/list_changed")
            if not is_ready:
                return PASSED[method].model_validate({LISTS[method]: []} if method in LISTS else {})
            said = params.model_dump(mode="json", by_alias=True, exclude_unset=True)
            said.pop("_meta", None)
            return PASSED[method].model_validate(await self._route(method, said), by_name=False)

        return handle

    async def _route(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request to the server that can answer it, or to all that might, and return the result."""
        feature = _feature(method)
        able = [name for name, about in self._tools.servers.items() if about["capabilities"].get(feature) is not None]
        if method == "logging/setLevel":
            for server in able:
                await self._tools.pass_on(method, params, server, None)
            return {}
        if method in LISTS and len(able) != 1:
            return await self._joined(method, params, able)
        if len(able) > 1:
            reference = params.get("ref") or params
            known = self._of_uri.get(reference.get("uri", "")) or self._of_prompt.get(reference.get("name", ""))
            able = [known] if known else able
        last: MCPError | None = None
        for server in able:  # of an address in no list, each server is asked
            try:
                return await self._tools.pass_on(method, params, server, None)
            except MCPError as error:
                last = error
        raise last or MCPError(types.METHOD_NOT_FOUND, f"No server here has {method}")

    async def _joined(self, method: str, params: dict[str, Any], servers: Sequence[str]) -> Any:
        """The result of a list method with the lists of all these servers, all pages joined."""
        found, name = list[Any](), LISTS[method]
        for server in servers:
            cursor: str | None = None
            while True:
                page = await self._tools.pass_on(method, {**params, "cursor": cursor} if cursor else {}, server, None)
                for one in page[name]:
                    self._of_uri.setdefault(str(one.get("uri", "")), server)
                    self._of_prompt.setdefault(str(one.get("name", "")), server)
                found += page[name]
                if not (cursor := page.get("nextCursor")):
                    break
        return {name: found}


def _feature(method: str) -> str:
    """The name of the server capability to which a method belongs."""
    name = method.partition("/")[0]
    return "completions" if name == "completion" else name


def _event(method: str, params: Mapping[str, Any]) -> Any:
    """A notification as an event that agents can subscribe to; None if there is no such event."""
    match method:
        case _ if method == TOOLS_CHANGED:
            return ToolsListChanged()
        case "notifications/prompts/list_changed":
            return PromptsListChanged()
        case "notifications/resources/list_changed":
            return ResourcesListChanged()
        case "notifications/resources/updated":
            return ResourceUpdated(uri=str(params.get("uri", "")))
    return None
