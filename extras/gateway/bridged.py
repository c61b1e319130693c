"""What a holder does for its agents, from its first connection to its end: each agent is behind a bridge."""

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import structlog
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from activities.storage.store import sqlite_url
from extras.gateway import bridge
from extras.gateway.bridge import MAX_LINE, HolderPlace, server_variables
from extras.gateway.local_tools import LocalTools, tools_file
from extras.gateway.older import left_open
from extras.gateway.session import Agent, RequestOrigin
from extras.gateway.sessions import Session
from extras.gateway.toolset import Toolset
from extras.gateway.wire import Hello, TaskServer
from extras.mcp.process import ServerProcess
from runtime.process import read_secrets

LOOK_SECONDS = 0.5
REFUSING_SECONDS = 2.0
"""Seconds in which agents are told why the tools cannot be served, before the holder ends."""
WRITING_SECONDS = 0.2
"""Seconds in which the answers of the last calls are written, before a holder ends."""
MAX_OPEN = 2_000
"""The most requests of one agent that are under way."""

log = structlog.get_logger("replan.gateway")


class Holder:
    """One holder: the tools of a session, and the agents that use them."""

    def __init__(self, place: HolderPlace, tools: Toolset, idle: float) -> None:
        """After `idle` seconds without an agent and without a call, `run` ends."""
        self._place, self._idle, self._version = place, idle, bridge.version()
        self.tools = tools
        self._agents = set[asyncio.Task[None]]()
        self.stop = asyncio.Event()
        self.is_ending = asyncio.Event()
        """Set when the holder takes no new messages, and only ends its calls."""

    async def run(self, listener: socket.socket) -> None:
        """Serve the bridges that connect to `listener` until nobody needs the holder, or `stop` is set."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop.set)
        server = await asyncio.start_unix_server(self._accept, sock=listener, limit=MAX_LINE)
        try:
            await self._until_over()
        finally:
            self._hide()
            server.close()
            for task in list(self._agents):
                task.cancel()
            await asyncio.gather(*self._agents, return_exceptions=True)

    def _hide(self) -> None:
        """Remove the socket, still under the lock: a bridge that comes now starts a new holder."""
        Path(self._place.socket).unlink(missing_ok=True)

    async def _until_over(self) -> None:
        waits: list[Coroutine[Any, Any, Any]] = [self._until_idle(), self.stop.wait(), self._until_refused()]
        waits.append(self._until_calls_ended())
        tasks = [asyncio.create_task(wait) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    async def _until_idle(self) -> None:
        last = time.monotonic()
        while time.monotonic() - last < self._idle:
            await asyncio.sleep(min(LOOK_SECONDS, self._idle / 4))
            if self._agents or self.tools.running:
                last = time.monotonic()
            bridge.cut_log(2)
        log.info("gateway_idle", seconds=self._idle)

    async def _until_refused(self) -> None:
        """Wait until the tools have turned out to be wrong, and the agents were told."""
        await self.tools.is_over.wait()
        await asyncio.sleep(0.1)
        until = time.monotonic() + REFUSING_SECONDS
        while self._agents and time.monotonic() < until:  # noqa: ASYNC110  # for a moment
            await asyncio.sleep(0.05)

    async def _until_calls_ended(self) -> None:
        """Wait until the holder is to make room for one of another version, and its calls have ended."""
        await self.is_ending.wait()
        self._hide()
        log.info("gateway_other_version", reason=f"{self._version}, {self.tools.running} calls run")
        while self.tools.running:  # noqa: ASYNC110  # of no hurry
            await asyncio.sleep(0.05)
        await asyncio.sleep(WRITING_SECONDS)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._agents.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, ValueError, asyncio.CancelledError):
            pass
        except BaseExceptionGroup as group:
            log.warning("gateway_agent_failed", error=type(group.exceptions[0]).__name__)
        finally:
            self._agents.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not line.startswith(bridge.HELLO):
            return
        try:
            hello = Hello.model_validate(from_json(line[1:]))
        except ValueError as error:  # of an older or newer format
            hello = None
            log.warning("gateway_hello_not_understood", reason=str(error)[:300])
        is_other = hello is None or hello.format != bridge.FORMAT
        if is_other or (hello and hello.version != self._version and not hello.is_again):
            self.is_ending.set()
        if self.is_ending.is_set() or hello is None:
            writer.write(bridge.ENDING + b"\n")
            return
        await _BridgeConnection(self, hello, reader, writer).serve()


class _BridgeConnection:
    """One agent's bridge, between its socket and the SDK's server."""

    def __init__(
        self, holder: Holder, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._holder, self._tools, self._hello = holder, holder.tools, hello
        self._reader, self._writer = reader, writer
        self._requests = dict[Any, str]()
        """By JSON-RPC id, the gateway's ids of the requests whose delivery counts."""
        self._resent, self._silent, self._open = set[Any](), set[Any](), set[Any]()
        self._written = dict[int, str]()
        self._answered = dict[Any, str]()
        """The newest requests with an answer: a cancel that comes after it says that it was not read."""
        self._waits = dict[Any, asyncio.Event]()
        """By JSON-RPC id, an event that is set when the agent does not wait for the answer any more."""
        self._cancelled = dict[Any, None]()
        """The last requests that the agent has cancelled, also those that nothing has begun with yet."""
        self._is_gone = False
        self._writing = asyncio.Lock()
        self._agent = Agent(
            self._tools,
            Session(hello.session, hello.doubt, hello.patience),
            self._origin,
            attended=hello.attended,
            list_wait=hello.list_wait,
        )

    def _origin(self, context: Any) -> RequestOrigin:
        number = context.request_id
        id = f"{self._hello.process}/{number!r}"
        self._requests[number] = id
        is_resent = number in self._resent

        def is_gone() -> bool:
            return self._is_gone or number in self._cancelled

        return RequestOrigin(id, self._hello.process, self._hello.session, is_resent=is_resent, is_gone=is_gone)

    async def serve(self) -> None:
        """Serve the agent until it leaves or is lost; what it has called for goes on."""
        to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        self._tools.on_notification[self._hello.process] = self._agent.tell
        ours = self._writer.get_extra_info("socket")
        self._tools.connection_opened(self._hello.process, lambda: self._is_gone or bridge.peer_is_gone(ours))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._agent.serve(read, write)), group.create_task(self._write(from_server))]
                tasks.append(group.create_task(self._refuse_all()))
                await self._read(to_server)
                self._leave()
                to_server.close()
                from_server.close()  # what the server still says is for nobody
                for task in tasks:
                    task.cancel()
        finally:
            self._leave()
            if self._tools.on_notification.get(self._hello.process) == self._agent.tell:
                del self._tools.on_notification[self._hello.process]

    def _leave(self) -> None:
        if not self._is_gone:
            self._is_gone = True
            self._tools.connection_closed(self._hello.process)

    async def _read(self, to_server: Any) -> None:
        """Take the lines of the bridge; none any more when the holder ends, so that the next one gets them."""
        ending = asyncio.ensure_future(self._holder.is_ending.wait())
        try:
            while True:
                reading = asyncio.ensure_future(self._reader.readline())
                await asyncio.wait([reading, ending], return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    await asyncio.Event().wait()
                line = reading.result()
                if not line.endswith(b"\n"):
                    return
                await self._take(line[:1], line[1:], to_server)
        except ConnectionError:
            return
        finally:
            ending.cancel()

    async def _take(self, letter: bytes, rest: bytes, to_server: Any) -> None:
        if letter == bridge.LEAVING:
            self._leave()
        elif letter == bridge.FAILED:
            if request := self._written.pop(int(rest), None):
                self._tools.answer_failed(request)
        elif letter in (bridge.MESSAGE, bridge.RESENT, bridge.SETUP):
            await self._pass(letter, rest, to_server)

    async def _pass(self, letter: bytes, text: bytes, to_server: Any) -> None:
        message = from_json(text)
        number, method = message.get("id"), message.get("method")
        if isinstance(number, int | str) and method is not None:
            if len(self._open) >= MAX_OPEN:
                await self._refuse(number)
                return
            self._open.add(number)
            self._cancelled.pop(number, None)  # an id that is used again: on a pipe, a cancel comes after its request
            self._waits[number] = asyncio.Event()
            if letter == bridge.RESENT:
                self._resent.add(number)
            elif letter == bridge.SETUP:
                self._silent.add(number)
        if method == "notifications/cancelled":
            self._note_cancel(message.get("params"))
        try:
            checked = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except ValidationError as error:
            await to_server.send(error)
            return
        await to_server.send(SessionMessage(checked))

    def _note_cancel(self, params: Any) -> None:
        """Note that the answer to a cancelled request is not handed over; the call goes on."""
        number = params.get("requestId") if isinstance(params, dict) else None
        if not isinstance(number, int | str):
            return
        self._open.discard(number)
        self._cancelled[number] = None
        if len(self._cancelled) > MAX_OPEN:
            self._cancelled.pop(next(iter(self._cancelled)))
        # At once, since an equal call may follow, which must not count as another one beside this one.
        if wait := self._waits.pop(number, None):
            wait.set()
        if request := self._requests.pop(number, None) or self._answered.pop(number, None):
            self._tools.answer_failed(request)

    async def _refuse_all(self) -> None:
        """Wait until the tools have turned out to be wrong, then refuse the agent with the reason."""
        await self._tools.is_over.wait()
        await self._send(bridge.REFUSED + self._tools.problem.replace("\n", " ").encode())
        self._writer.close()

    async def _refuse(self, number: Any) -> None:
        """Answer the request `number` with an error: too many requests are under way."""
        error = {"code": -32000, "message": f"More than {MAX_OPEN} requests are under way: wait for their answers."}
        await self._send(_answer(0, number, to_json({"jsonrpc": "2.0", "id": number, "error": error})))

    async def _write(self, from_server: Any) -> None:
        number = 0
        async for sent in from_server:
            message = sent.message
            text = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            if not isinstance(message, JSONRPCResponse | JSONRPCError):
                await self._send(bridge.OTHER + text)
                continue
            self._open.discard(message.id)
            self._resent.discard(message.id)
            self._waits.pop(message.id, None)
            if message.id in self._silent:
                self._silent.discard(message.id)
                continue
            request = self._requests.pop(message.id, None)
            if request is not None:
                number += 1
                self._written[number] = self._answered[message.id] = request
                self._written.pop(number - MAX_OPEN, None)
                if len(self._answered) > MAX_OPEN:
                    self._answered.pop(next(iter(self._answered)))
            await self._send(_answer(number if request else 0, message.id, text))

    async def _send(self, line: bytes) -> None:
        async with self._writing:
            self._writer.write(line + b"\n")
            await self._writer.drain()


def _answer(number: int, id: Any, text: bytes) -> bytes:
    return b"%b%d\t%b\t%b" % (bridge.ANSWER, number, json.dumps(id).encode(), text)


@asynccontextmanager
async def opened_tools(
    state: Path, hello: Hello, process: ServerProcess | None, record: Path, *, session: str | None
) -> AsyncIterator[Toolset]:
    """The Toolset of the tools that a Hello names, with the store of effects of a state folder, or of REPLAN_STORE.

    `session` is that of all calls, None for any. `process` is that of the command's server, if it was started already;
    processes of servers are noted in `record`.
    """
    environment = dict(os.environ)
    read_secrets()
    url, tasks = os.environ.get("REPLAN_STORE"), None
    tools: Any = LocalTools(hello, environment, process, record)
    if hello.tasks is not None:
        os.environ["REPLAN_STATE"] = str(state)
        tasks, tools = await asyncio.to_thread(_of_tasks, hello, hello.tasks, state, tools)
    offered = Toolset(tools, tasks)
    if why := left_open(state, session):
        offered.fail(why)
        yield offered
        return
    store, url = url or str(state / "store.db"), url or sqlite_url(state)
    async with offered.opened(store, url, os.environ.get("REPLAN_KEYS")):
        yield offered


def _of_tasks(hello: Hello, server: TaskServer, state: Path, tools: Any) -> tuple[Any, Any]:
    """The tasks of a gateway, and its tools: those of the workers, unless the agent names some."""
    from extras.gateway.queue_tools import QueueTools
    from extras.gateway.tasks import Tasks

    files = list(hello.tools)
    if hello.command:
        files.append(str(tools_file(state, hello, sorted(server_variables(os.environ)))))
    tasks = Tasks(server, files)
    return tasks, tools if files else QueueTools(tasks)


async def run(
    place: HolderPlace, data: dict[str, Any], idle: float, listener: socket.socket, process: ServerProcess | None
) -> None:
    """Be the holder at `place`, whose lock is ours, until nobody needs it."""
    hello, record = Hello.model_validate(data), Path(place.file("servers"))
    async with opened_tools(Path(place.state), hello, process, record, session=hello.session) as offered:
        await Holder(place, offered, idle).run(listener)
