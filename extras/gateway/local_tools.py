"""The tools of a holder, in its own process: MCP servers and Python tools, without a Temporal server and a worker."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import copy_context
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from mcp import MCPError
from mcp_types import INTERNAL_ERROR
from pydantic import BaseModel, JsonValue

from activities import deadline
from activities.errors import ToolError
from activities.storage.store import Cipher, open_store
from activities.toolbox.declare.kind import Kind
from activities.toolbox.foreign import SUFFIX
from activities.toolbox.http.network import Reach, Web
from activities.toolbox.registry import Registry, ToolMistakes, load_all
from extras.gateway.bridge import name_of, server_variables
from extras.gateway.offers import server_name
from extras.gateway.request import Report
from extras.gateway.results import with_note
from extras.gateway.wire import Hello
from extras.mcp.config import CannotOpen, JsonRpcError, Listing
from extras.mcp.loading import McpTools, ServerTables, read_servers, server_of_command
from extras.mcp.process import ServerProcess
from extras.mcp.servers import McpServers
from workflows.json_values import digest
from workflows.plans.catalogue import Effect

if TYPE_CHECKING:  # at run time only when the first call is made: its imports take a second
    from mcp.shared.dispatcher import ProgressFnT

    from activities.boundary.tool_loop import ToolLoop
    from activities.toolbox.resources import Resources
    from extras.mcp.kinds import ForeignTool

OTHER_SECONDS = 60.0
"""The timeout in seconds of a request that is no call of a tool."""
NOT_MADE = -32000
"""The error code for a request to which the server gave no answer."""
CALL_SECONDS = 600.0
"""The timeout of a call of a server that is named by its command, as clients have it."""
FIRST_SECONDS = 600.0
"""Seconds that a server has for its first start, in which `npx` and `uvx` may install it."""
MAX_RESULT = 1024 * 1024
"""The most bytes of a result as JSON."""
THREADS = 64
NEEDS_TASKS = (
    "{kind} has approve=, and a call of an agent can wait for an approval only as a task: add --tasks, or leave"
    " approve= out."
)
CHANGED = (
    "the gateway takes it as it is when it starts again, which is after --idle seconds without an agent, or over HTTP"
    " by your command"
)
"""What to do about a tool that differs from the one that the agents were told of."""
STARTED_AGAIN = "The server {server} was started again before this call: what it kept in memory is gone."

log = structlog.get_logger("replan.gateway")


class LocalTools:
    """The tools that an agent named, with the connections to their servers."""

    def __init__(
        self, hello: Hello, environment: Mapping[str, str], process: ServerProcess | None, record: Path | None
    ) -> None:
        """`process` is that of the command's server if it was started already. `record` is a file for the processes of
        servers."""
        self.problem = ""
        self.kinds: Mapping[str, Kind] = {}
        self.foreign = McpTools()
        self._hello, self._environment = hello, environment
        self._process, self._record = process, record
        self._servers: McpServers | None = None
        self._resources: asyncio.Future[Resources] = asyncio.get_running_loop().create_future()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tool")
        self._loop: ToolLoop | None = None
        self._reported_restarts = dict[str, int]()
        """By server, how many of its restarts agents were told of."""

    @property
    def list_file(self) -> Path | None:
        """The file with the last list of these tools, which all sessions share; None without a state folder."""
        fields = self._hello.model_copy(update={"session": ""}).model_dump(mode="json")
        return self._record and self._record.with_name(f"{name_of(fields, dict(self._environment))}.tools")

    @asynccontextmanager
    async def loaded(
        self, offer: Callable[[Mapping[str, Any]], None], heard: Callable[[str, dict[str, Any]], None]
    ) -> AsyncIterator[None]:
        """Load the tools; servers end when the block ends.

        `offer` gets what a gateway offers, as `tools_result`, and `heard` the notifications of servers. Raises
        ToolMistakes if something named is wrong.
        """
        files = [name for name in self._hello.tools if name.endswith(SUFFIX)]
        named = [name for name in self._hello.tools if name not in files]
        python = load_all(named) if named else {}
        tables = self._tables(files)
        async with AsyncExitStack() as stack:
            await self._enter_loop(stack, is_needed=bool(python))
            web, options = Web(Reach.of(())), {"open_seconds": FIRST_SECONDS, "record": self._record, "remedy": CHANGED}
            servers = McpServers(tables.configs, None, web, has_layout=True, process=self._process, **options)
            self._servers = await stack.enter_async_context(self._entered(servers.opened()))
            asyncio_loop = asyncio.get_running_loop()
            servers.on_notification(lambda _, method, params: _soon(asyncio_loop, heard, method, dict(params or {})))
            builtin = _builtin() if self._hello.tools else ()
            self.foreign = tables.tools(await self._listings(tables), [*builtin, *python], takes_unread=True)
            servers.expect(self.foreign.listings)
            registry = Registry({**python, **self.foreign.tools}, builtin=builtin, has_model=False)
            self.kinds = {name: kind for name, kind in registry.items() if name in registry.own}
            if not self._hello.tasks:
                _refuse_approvals(self.kinds)
            offer(tools_result(self.kinds, self.foreign))
            yield

    def _tables(self, files: Sequence[str]) -> ServerTables:
        if not self._hello.command:
            return read_servers(files, self._environment) if files else ServerTables({}, {}, {})
        name, timeout = server_name(self._hello.command), self._hello.timeout or CALL_SECONDS
        variables = server_variables(dict(self._environment))
        return server_of_command(name, self._hello.command, self._hello.cwd, variables, timeout)

    async def _enter_loop(self, stack: AsyncExitStack, *, is_needed: bool) -> None:
        """Make the event loop of Python tools, if there are any: one that blocks it must not keep agents waiting."""
        if is_needed:
            from activities.boundary.tool_loop import ToolLoop

            self._loop = await stack.enter_async_context(
                ToolLoop(lambda reason: log.error("gateway_failed", error=reason))
            )

    def _entered(self, context: Any) -> Any:
        return self._loop.entered(context) if self._loop else context

    async def _here(self, work: Callable[[], Awaitable[Any]], call: str = "") -> Any:
        """Run `work` where the connections are."""
        return await (self._loop.run(work, call) if self._loop else work())  # type: ignore[arg-type]

    async def _listings(self, tables: ServerTables) -> dict[str, Listing | str]:
        async def ask(name: str) -> Listing | str:
            try:
                listing: Listing = await self._here(lambda: self.servers.listing(name))
            except CannotOpen as why:
                return str(why)
            return listing

        found = await asyncio.gather(*map(ask, tables.configs))
        return dict(zip(tables.configs, found, strict=True))

    @property
    def servers(self) -> McpServers:
        """The servers of the tools. Raises LookupError before `loaded`."""
        if self._servers is None:
            raise LookupError("the servers are not loaded yet")
        return self._servers

    @asynccontextmanager
    async def opened(self, store: str, cipher: Cipher | None) -> AsyncIterator[None]:
        """Open what the tools take: databases and clients. Raises StoreUnavailable."""
        from activities.storage.store import Datasources
        from activities.toolbox.http.services import Services
        from activities.toolbox.resources import Resources

        async with AsyncExitStack() as stack:
            engine = await self._here(lambda: open_store(store, cipher))
            stack.push_async_callback(self._here, engine.dispose)
            databases = Datasources(engine, [kind.datasource for kind in self.kinds.values()])
            await self._here(lambda: databases.open(stack))
            http = await stack.enter_async_context(self._entered(deadline.client()))
            self.servers.record_in(engine)
            services = Services.of((), (), self._environment, Web(Reach.of(())))
            self._resources.set_result(Resources(engine, http, None, services=services, servers=self.servers))
            yield

    def kind(self, name: str) -> Kind | None:
        """A tool by its kind; None if there is none."""
        return self.kinds.get(name)

    def is_over(self, kind: Kind) -> bool:
        """Whether nothing that a call of this tool has started runs any more, since its server has ended."""
        server = self._server_of.get(kind.spec.kind)
        return server is not None and self.servers.has_ended(server)

    @cached_property
    def _server_of(self) -> Mapping[str, str]:
        return {found.kind: found.source.name for found in self.foreign.classified}

    async def call(self, kind: Kind, args: BaseModel, key: str, called: Callable[[], None]) -> JsonValue:
        """Call a tool, and return its checked result as JSON; `called` is called when it has returned something.

        Raises what the tool raises, and FaultRaised for a result that is none.
        """
        resources = await asyncio.shield(self._resources)
        return await self._here(partial(self._call, resources, kind, args, key, called), kind.spec.kind)  # type: ignore[no-any-return]

    async def _call(
        self, resources: "Resources", kind: Kind, args: BaseModel, key: str, called: Callable[[], None]
    ) -> JsonValue:
        from activities.boundary.attempt import FaultRaised
        from activities.boundary.boundary import encode
        from activities.extent import fault_of_extent
        from activities.toolbox.declare import conditions
        from workflows.calls.header import CallHeader

        before = conditions.condition_value(args.model_dump) if kind.ensure else None
        with deadline.within(kind.spec.timeout):
            async with resources.values_for(kind, CallHeader(key=key)) as values:
                async with asyncio.timeout(kind.spec.timeout):
                    value = await self._invoke(kind, args, values)
                if (fault := fault_of_extent(kind.spec.kind, value, MAX_RESULT)) is not None:
                    raise FaultRaised(fault)
                called()
                return encode(kind, before, value, MAX_RESULT)

    async def _invoke(self, kind: Kind, args: BaseModel, values: Mapping[str, Any]) -> Any:
        if kind.is_async:
            return await kind.function(args, **values)
        work = partial(copy_context().run, kind.function, args, **values)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def pass_on(self, method: str, params: Mapping[str, Any], server: str, report: Report | None) -> Any:
        """Send a request that changes nothing to a server, and return the result as it is. Raises MCPError."""
        seconds = self._timeouts.get((server, str(params.get("name"))), OTHER_SECONDS)
        seconds = seconds if method == "tools/call" else OTHER_SECONDS
        progress = None if report is None else _progress(report)
        try:
            found = await self._here(lambda: self.servers.request(server, method, params, seconds, progress))
        except JsonRpcError as error:
            raise MCPError(error.code, str(error), error.data) from None
        except ToolError as error:
            raise MCPError(NOT_MADE, str(error), {"code": error.fault.code}) from None
        except LookupError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None
        return self.with_news(server, found) if method == "tools/call" else found

    def with_news(self, server: str, result: dict[str, Any]) -> dict[str, Any]:
        """A result of a server's tool, the first one after the server was started again with a text that says so."""
        restarts = self.servers.restarts(server)
        if restarts == self._reported_restarts.get(server, 0) or not isinstance(result.get("content"), list):
            return result
        self._reported_restarts[server] = restarts
        return with_note(result, STARTED_AGAIN.format(server=server))

    @cached_property
    def _timeouts(self) -> Mapping[tuple[str, str], float]:
        """The timeouts of the servers' tools, by the names of the server and the tool."""
        return {
            (found.source.name, found.listed.name): self.kinds[found.kind].spec.timeout
            for found in self.foreign.classified
            if found.kind in self.kinds
        }


def tools_result(kinds: Mapping[str, Kind], foreign: McpTools) -> dict[str, Any]:
    """The tools that a gateway offers, with what their servers report about themselves, and what cannot be offered."""
    classified = {found.kind: found for found in foreign.classified}
    offered = {name: kind for name, kind in kinds.items() if not kind.is_hidden}
    return {
        "tools": [_tool_entry(kind, classified.get(name)) for name, kind in offered.items()],
        "servers": {name: listing.introduction for name, listing in foreign.listings.items()},
        "left_out": dict(foreign.left_out),
    }


def _tool_entry(kind: Kind, classified: "ForeignTool | None") -> dict[str, Any]:
    spec = kind.spec
    return {
        "kind": spec.kind,
        "server": classified.source.name if classified else None,
        "name": classified.listed.name if classified else spec.kind,
        "effect": "pure" if spec.pure else spec.effect.value,
        "approve": spec.approve or "never",
        "tool": classified.listed.as_listed(classified.filled) if classified else _python_tool_as_mcp(kind),
    }


def _python_tool_as_mcp(kind: Kind) -> dict[str, Any]:
    is_read, is_idempotent = kind.spec.effect is Effect.READ, kind.spec.effect is Effect.IDEMPOTENT
    # A result is written by the names of its fields, whatever their aliases are.
    result = kind.result.json_schema(mode="serialization", by_alias=False)
    return {
        "name": kind.spec.kind,
        "description": kind.description,
        "inputSchema": {"type": "object", **kind.args_schema},
        **({"outputSchema": result} if result.get("type") == "object" else {}),  # MCP has only these
        "annotations": {
            "readOnlyHint": is_read,
            "idempotentHint": is_read or is_idempotent,
            "destructiveHint": not is_read,
        },
    }


def _builtin() -> Sequence[Any]:
    from activities.toolbox import builtin

    return builtin.tools(has_model=False)


def _refuse_approvals(kinds: Mapping[str, Kind]) -> None:
    """Raise ToolMistakes if a person would have to approve calls."""
    if mistakes := [NEEDS_TASKS.format(kind=name) for name, kind in kinds.items() if kind.spec.approve is not None]:
        raise ToolMistakes(mistakes)


def tools_file(state: Path, hello: Hello, variables: Sequence[str]) -> Path:
    """Write the tools file with which a worker has the server of a command, and return its path."""
    lines = [
        f"[servers.{server_name(hello.command)}]",
        f"command = {json.dumps(list(hello.command))}",
        f"cwd = {json.dumps(hello.cwd)}",
        f"env = {{ {', '.join(f'{json.dumps(name)} = {json.dumps(name)}' for name in variables)} }}",
        f"timeout = {hello.timeout or CALL_SECONDS}",
    ]
    text = "\n".join(lines) + "\n"
    path = state / "gateway" / f"{server_name(hello.command)}-{digest(text)[:8]}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _progress(report: Report) -> "ProgressFnT":
    async def passed(progress: float, total: float | None, message: str | None) -> None:
        await report(progress, total, message or "")

    return passed


def _soon(loop: asyncio.AbstractEventLoop, heard: Callable[[str, dict[str, Any]], None], *args: Any) -> None:
    loop.call_soon_threadsafe(heard, *args)
