"""A unix socket through which a gateway on this machine reaches the MCP servers of the worker, in the same processes.

The socket passes on requests that change nothing: reads of tools, resources, prompts, completions and the level of
logging. Effects go through tasks. docs/mcp.md has the protocol: lines of JSON.
"""

import asyncio
import errno
import os
import socket
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from pathlib import Path
from stat import S_ISSOCK
from typing import TYPE_CHECKING, Any

import structlog
from pydantic_core import from_json, to_json

from activities.errors import ToolError, Unreachable
from activities.toolbox.declare.kind import Kind
from activities.toolbox.mcp.config import JsonRpcError
from activities.toolbox.mcp.loading import ForeignTools
from activities.toolbox.mcp.servers import Servers
from workflows.plans.catalogue import Effect
from workflows.text import legible, nearest

if TYPE_CHECKING:  # at run time only where a server is named: it imports the SDK
    from activities.toolbox.mcp.kinds import ForeignTool

MAX_LINE = 8 * 1024 * 1024
"""The most bytes of a line from a client."""
MAX_WAITING = 1024 * 1024
"""The most bytes that wait for a client which does not read."""
MAX_TOLD = 16 * 1024 * 1024
"""The most bytes of notifications and progress that wait for a client, even for one that reads."""
STALLED_SECONDS = 2.0
"""After this many seconds in which a client took nothing, Replan decides that the client does not read."""
MAX_ID = 200  # characters
OTHER_SECONDS = 60.0
"""The timeout in seconds of a request that is no call of a tool; each tool has its own timeout."""
TOOLS = "replan/tools"
METHODS = (
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
)
"""The methods that are passed on."""
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
NOT_MADE = -32000
"""The error code for a request to which the server gave no answer."""
REMEDY = "Send it again, since the worker starts a server that ended; if that does not help, see the worker's log."

log = structlog.get_logger("replan.mcp")


class BadSocket(Exception):
    """The socket cannot be opened; the message says why, and what to do."""


@asynccontextmanager
async def listening(
    path: Path | None, kinds: Mapping[str, Kind], foreign: ForeignTools, servers: Servers
) -> AsyncIterator[None]:
    """Serve clients on a socket at `path`, for this user only, until the block ends; without a path, do nothing.

    Enter the block on the event loop of the connections of `servers`. Raises BadSocket if the socket cannot be opened.
    """
    if path is None:
        yield
        return
    bound = _bound(path)
    try:
        inode = path.stat().st_ino  # noqa: ASYNC240  # once, at the start
        door = _Door(kinds, foreign, servers)
        servers.on_notification(door.tell_all)
        server = await asyncio.start_unix_server(door.serve, sock=bound, limit=MAX_LINE)
    except BaseException:
        bound.close()
        raise
    try:
        yield
    finally:
        server.close()
        await door.close()
        _remove_if_same(path, inode)


def _bound(path: Path) -> socket.socket:
    """Bind a new socket to `path` with the rights 0600, in place of one that nobody listens on; raises BadSocket."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_old(path)
        umask = os.umask(0o177)  # with a chmod afterwards, others could connect before it
        try:
            bound.bind(str(path))
        finally:
            os.umask(umask)
    except OSError as error:
        bound.close()
        long = "" if error.errno else " (the path of a socket has at most about 100 bytes)"
        why = error.strerror or str(error)
        raise BadSocket(f"--mcp-socket {path} cannot be opened: {why}{long}: choose another path.") from None
    except BadSocket:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


def _remove_old(path: Path) -> None:
    """Remove a socket on which nobody listens any more. Raises BadSocket for one in use, and for any other file."""
    try:
        is_socket = S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise BadSocket(f"--mcp-socket {path} is a file that is no socket: choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.setblocking(False)
        if other.connect_ex(str(path)) in (0, errno.EAGAIN):
            raise BadSocket(f"Another process listens on --mcp-socket {path}: stop it, or choose another path.")
    path.unlink(missing_ok=True)


def _remove_if_same(path: Path, inode: int) -> None:
    with suppress(OSError):
        if path.stat().st_ino == inode:  # else it is another worker's
            path.unlink()


class _Door:
    """What all clients share: the list of the tools, the servers of these tools, and the subscriptions."""

    def __init__(self, kinds: Mapping[str, Kind], foreign: ForeignTools, servers: Servers) -> None:
        self._kinds = kinds
        self._foreign = foreign
        self._servers = servers
        self._clients = dict[_GatewayClient, asyncio.Task[None] | None]()
        self._subscribers = defaultdict[tuple[str, str], set[_GatewayClient]](set)
        """By server and URI of a resource, the clients that subscribed to it."""
        self._ending = set[asyncio.Task[Any]]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client until it closes its connection."""
        client = _GatewayClient(self, reader, writer)
        self._clients[client] = asyncio.current_task()
        try:
            await client.serve()
        except asyncio.CancelledError:
            pass  # by `close`: asyncio would log it
        finally:
            del self._clients[client]
            for server, uri in [key for key, clients in self._subscribers.items() if client in clients]:
                self._ending.add(task := asyncio.create_task(self._unsubscribe(client, server, {"uri": uri})))
                task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        tasks = [*filter(None, self._clients.values()), *self._ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def tell_all(self, server: str, method: str, params: Mapping[str, Any] | None) -> None:
        notification = {"method": method} | ({} if params is None else {"params": params})
        line = _line({"server": server, "notification": notification})
        for client in list(self._clients):
            client.tell(line)

    @cached_property
    def _tools_result(self) -> dict[str, Any]:
        return tools_result(self._kinds, self._foreign)

    @cached_property
    def _kinds_by_tool(self) -> dict[tuple[str, str], Kind]:
        """The kinds of the servers' tools, by the name of the server and the name of the tool."""
        return {(found.source.name, found.listed.name): self._kinds[found.kind] for found in self._foreign.classified}

    async def answer(self, client: "_GatewayClient", message: Mapping[str, Any], report: Any) -> dict[str, Any]:
        """Pass on a client's request and return the result; `report` is called with the progress, unless it is None.

        Raises JsonRpcError for the server's error or a request that is not passed on, ToolError without an answer.
        """
        method, server, params = message.get("method"), message.get("server"), message.get("params", {})
        if method == TOOLS:
            return await asyncio.to_thread(lambda: self._tools_result)
        if not isinstance(method, str) or method not in METHODS:
            known = ", ".join([TOOLS, *METHODS])
            raise JsonRpcError(METHOD_NOT_FOUND, f"This worker passes no {_quoted(method)} on: it takes {known}.")
        if not isinstance(server, str) or server not in self._foreign.listings:
            names = ", ".join(self._foreign.listings) or "no server"
            raise JsonRpcError(INVALID_PARAMS, f"No tools file names the server {_quoted(server)}: there is {names}.")
        meta = params.get("_meta", {}) if isinstance(params, dict) else None
        if not isinstance(meta, dict):
            raise JsonRpcError(INVALID_PARAMS, "params and its _meta are objects: correct the request.")
        seconds = self._timeout(server, params) if method == "tools/call" else OTHER_SECONDS
        # The token of a client would be that of another request on the connection, which is shared.
        meta = {name: value for name, value in meta.items() if name != "progressToken"}
        params = {**params, "_meta": meta}
        if method == "resources/unsubscribe":
            return await self._unsubscribe(client, server, params)
        result = await self._servers.request(server, method, params, seconds, report)
        if method == "resources/subscribe":
            self._subscribers[server, str(params.get("uri"))].add(client)
        return result

    async def _unsubscribe(self, client: "_GatewayClient", server: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """End a client's subscription to a resource, and the worker's own if no other client has subscribed to it."""
        others = self._subscribers.pop(key := (server, str(params.get("uri"))), set()) - {client}
        if others:
            self._subscribers[key] = others
            return {}
        return await self._servers.request(server, "resources/unsubscribe", params, OTHER_SECONDS)

    def _timeout(self, server: str, params: Mapping[str, Any]) -> float:
        """The timeout of a tool's calls in seconds. Raises JsonRpcError unless the tool is a read without approval."""
        name = params.get("name")
        kind = self._kinds_by_tool.get((server, name)) if isinstance(name, str) else None
        if kind is None:
            names = [tool for owner, tool in self._kinds_by_tool if owner == server]
            near = nearest(name, names) if isinstance(name, str) else ""
            told = f"The tools file offers no tool {_quoted(name)} of {server}{near}: {TOOLS} lists those that it does."
            raise JsonRpcError(INVALID_PARAMS, told)
        if kind.spec.effect is not Effect.READ:
            told = f"{kind.spec.kind} has an effect ({kind.spec.effect}), and effects go through tasks: start a task."
            raise JsonRpcError(INVALID_PARAMS, told)
        if kind.spec.approve is not None:
            told = f"A person approves calls of {kind.spec.kind}, which only a task can ask: start a task."
            raise JsonRpcError(INVALID_PARAMS, told)
        return kind.spec.timeout


class _GatewayClient:
    def __init__(self, door: _Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # so that a line counts as waiting until it was taken
        self._door = door
        self._reader = reader
        self._writer = writer
        self._requests = dict[int | str, asyncio.Task[None]]()
        self._running = set[asyncio.Task[None]]()
        self._lines = deque[tuple[bytes, bool]]()
        self._waiting = 0
        """Bytes of the lines that the client has not taken yet."""
        self._told = 0
        """The part of these bytes that is notifications and progress."""
        self._added = asyncio.Event()
        self._taken = asyncio.Event()
        self._cut = asyncio.Event()

    async def serve(self) -> None:
        """Answer requests until the connection ends; requests that are under way at that time are cancelled."""
        parts = [
            asyncio.create_task(part, name="mcp gateway") for part in (self._read(), self._send(), self._cut.wait())
        ]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ending := [*parts, *self._running]):
                task.cancel()
            self._writer.transport.abort()
            await asyncio.gather(*ending, return_exceptions=True)

    # From the client

    async def _read(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                try:
                    line = await self._reader.readuntil()
                except asyncio.LimitOverrunError:
                    told = f"A line has more than {MAX_LINE} bytes: the connection is closed."
                    self._add(_error(None, JsonRpcError(INVALID_REQUEST, told)))
                    await self._flush()
                    return
                try:
                    self._take(line)
                except JsonRpcError as error:
                    await self._answer(_error(None, error))

    def _take(self, line: bytes) -> None:
        """Begin or cancel a request, as a line demands. Raises JsonRpcError if the line is no valid request."""
        if not line.strip():
            return
        try:
            message = from_json(line, allow_inf_nan=False)
        except ValueError:
            raise JsonRpcError(PARSE_ERROR, "A line is no JSON, or is nested too deeply.") from None
        if not isinstance(message, dict):
            raise JsonRpcError(INVALID_REQUEST, "A line is no JSON object.")
        if "cancel" in message:
            if request := self._requests.pop(_id(message["cancel"]), None):
                request.cancel()
            return
        name = _id(message.get("id"))
        if name in self._requests:
            told = "A request with this id is under way: give each its own."
            raise JsonRpcError(INVALID_REQUEST, told, {"id": name})
        task = asyncio.create_task(self._handle_request(name, message), name="mcp gateway")
        self._requests[name] = task
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda done: self._requests.get(name) is done and self._requests.pop(name))

    async def _handle_request(self, name: int | str, message: Mapping[str, Any]) -> None:
        async def report(progress: float, total: float | None, words: str | None) -> None:
            told = {"id": name, "progress": progress, "total": total, "message": words}
            self.tell(_line({"progress": {key: value for key, value in told.items() if value is not None}}))

        try:
            result = await self._door.answer(self, message, report if message.get("progress") is True else None)
            line = _line({"id": name, "result": result})
        except JsonRpcError as error:
            line = _error(name, error)
        except ToolError as error:
            remedy = f" {REMEDY}" if isinstance(error, Unreachable) else ""
            line = _error(name, JsonRpcError(NOT_MADE, f"{error}{remedy}", {"code": error.fault.code}))
        except Exception as error:
            log.error("mcp_request_failed", error=type(error).__name__)
            line = _error(name, JsonRpcError(INTERNAL_ERROR, "The worker failed with the request: see its log."))
        await self._answer(line)

    # To the client

    def tell(self, line: bytes) -> None:
        """Send a notification or progress. The client is cut off if more than `MAX_TOLD` bytes of these would wait."""
        if self._told + len(line) > MAX_TOLD:
            self._cut_off()
        else:
            self._told += len(line)
            self._add(line, is_asked=False)

    async def _answer(self, line: bytes) -> None:
        """Send an answer, as soon as at most `MAX_WAITING` bytes wait for the client."""
        while self._waiting > MAX_WAITING:
            self._taken.clear()
            await self._taken.wait()
        self._add(line)

    def _add(self, line: bytes, *, is_asked: bool = True) -> None:
        """Add a line to the queue; `is_asked` is false for notifications and progress."""
        self._lines.append((line, is_asked))
        self._waiting += len(line)
        self._added.set()

    async def _send(self) -> None:
        with suppress(OSError):
            while True:
                while not self._lines:
                    self._added.clear()
                    await self._added.wait()
                line, is_asked = self._lines.popleft()
                self._writer.write(line)
                while not await self._is_taken():
                    pass
                self._waiting -= len(line)
                self._told -= 0 if is_asked else len(line)
                self._taken.set()

    async def _is_taken(self) -> bool:
        """Wait at most `STALLED_SECONDS`, and return whether the client has taken all that was written.

        The client is cut off if it took nothing in this time and more than `MAX_WAITING` bytes wait.
        """
        left = self._writer.transport.get_write_buffer_size()
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await self._writer.drain()
                return True
        except TimeoutError:
            if self._waiting > MAX_WAITING and self._writer.transport.get_write_buffer_size() == left:
                self._cut_off()
            return False

    async def _flush(self) -> None:
        """Wait until the client has taken all lines, at most `STALLED_SECONDS`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STALLED_SECONDS):
                while self._waiting:
                    self._taken.clear()
                    await self._taken.wait()

    def _cut_off(self) -> None:
        """End the connection, since the client does not read or does not read fast enough."""
        if not self._cut.is_set():
            log.warning("mcp_client_cut_off", waiting=self._waiting)
            self._cut.set()


def tools_result(kinds: Mapping[str, Kind], foreign: ForeignTools) -> dict[str, Any]:
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
        "authority": spec.authority_of([*kind.args_schema.get("properties", {})]),
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


def _id(value: Any) -> int | str:
    """Return `value` if it can be the id of a request. Raises JsonRpcError if it cannot."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if is_number or (isinstance(value, str) and len(value) <= MAX_ID):
        return value  # type: ignore[no-any-return]  # checked above
    raise JsonRpcError(INVALID_REQUEST, f"An id is a whole number or a text of up to {MAX_ID} characters.")


def _quoted(value: Any) -> str:
    return repr(legible(value, MAX_ID)) if isinstance(value, str) else "without a name"


def _error(name: int | str | None, error: JsonRpcError) -> bytes:
    """The line with the error of a request; `name` is the id of the request, None if there is none."""
    told = {"code": error.code, "message": str(error)} | ({} if error.data is None else {"data": error.data})
    return _line({"id": name, "error": told})


def _line(message: Mapping[str, Any]) -> bytes:
    return to_json(message, inf_nan_mode="null") + b"\n"
