"""What the daemon of a state folder runs: a Temporal server, a worker for each set of tools, and all its agents."""

import asyncio
import os
import re
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import structlog
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError
from temporalio.service import RPCError

from client.client import Client
from runtime import telemetry
from runtime.child import end, spawn
from runtime.client import connect, register_search_attributes
from runtime.dev_server import dev_server, free_port
from runtime.keys import cipher_of
from runtime.process import version
from runtime.settings import LogStyle
from server.gateway.bridge import MAX_LINE
from server.gateway.calls import Calls
from server.gateway.journal import Journal
from server.gateway.matching import Delivery
from server.gateway.session import Agent, Origin
from server.gateway.sessions import Session
from server.gateway.toolset import ToolSet, digest_of
from server.gateway.wire import JOURNAL, FromAgent, Hello, ToAgent, line_of, read_line, socket_path
from workflows.account.search_attributes import TYPES

LOOK_SECONDS = 1.0
KEYS, CODEC = "REPLAN_KEYS", "REPLAN_CODEC"
OF_DAEMON = ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", KEYS, CODEC)
"""Variables that say which server and keys the daemon uses: one for all agents of its folder."""
MAX_OPEN = 2_000
"""The most requests of one agent that are under way."""

log = structlog.get_logger("replan.gateway")


class Daemon:
    """The daemon of one state folder."""

    def __init__(self, state: Path, idle: float, *, client: Client | None = None, page: str | None = None) -> None:
        """`client` is connected to the server that all tool sets use; without it, TEMPORAL_ADDRESS names a server, or
        the daemon starts one. `page` is the address where people answer; without it, the daemon serves a page on this
        machine. After `idle` seconds without an agent and an open call, `run` ends."""
        self._state = state
        self._idle = idle
        self._page = page
        self._given = client
        self._sets = dict[str, ToolSet]()
        self._keepers = dict[str, asyncio.Task[None]]()
        self._agents = set[asyncio.Task[None]]()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._address = ""
        self._journal = Journal(state / JOURNAL, cipher=cipher_of(os.environ.get(KEYS)))
        self.calls = Calls(self._journal, self._link)
        self.stop = asyncio.Event()

    def _link(self, task_id: str) -> str:
        """The address, or the command, with which a person answers for a task."""
        if self._page:
            return f"{self._page}/ui/tasks/{task_id}"
        if self._given is not None:
            return f"`replan answer {task_id}`"
        return f"`replan answer {task_id}` (with REPLAN_STATE={self._state})"

    async def run(self, door: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Serve agents until the daemon is idle or `stop` is set; with `door`, for other agents, until `door` ends."""
        path = socket_path(self._state)
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listening = await asyncio.start_unix_server(self._accept, str(path), limit=MAX_LINE, backlog=256)
        finally:
            os.umask(before)
        async with AsyncExitStack() as stack:
            stack.callback(path.unlink, missing_ok=True)
            stack.callback(self._journal.close)
            stack.push_async_callback(self._close_all)
            serving = await stack.enter_async_context(background(self._serve_tasks()))
            stack.callback(listening.close)
            ending = await stack.enter_async_context(background(door() if door else self._until_idle()))
            stopping = await stack.enter_async_context(background(self.stop.wait()))
            await asyncio.wait([serving, ending, stopping], return_when=asyncio.FIRST_COMPLETED)
            for part in (serving, ending):
                if part.done() and not part.cancelled() and (error := part.exception()):
                    raise error

    async def _serve_tasks(self) -> None:
        """Connect to a Temporal server, or start one, and serve the page for the people who answer."""
        if self._given is not None:
            self._address = self._given.temporal.service_client.config.target_host
            self._client.set_result(self._given)
            await asyncio.Event().wait()
        async with AsyncExitStack() as stack:
            named = os.environ.get("TEMPORAL_ADDRESS")
            failed = asyncio.get_running_loop().create_future()
            if named:
                self._address = named
            else:
                starting = dev_server(
                    self._state, say=lambda line: log.info("gateway_server", line=line), fail=failed.set_result
                )
                self._address = (await stack.enter_async_context(starting)).address
            keys, codec = os.environ.get(KEYS), os.environ.get(CODEC)
            temporal = await connect(address=self._address, plain=not named, keys=keys, codec=codec)
            await register_search_attributes(temporal, TYPES)
            self._client.set_result(Client(temporal))
            if self._page is None:
                await stack.enter_async_context(self._page_served())
            raise RuntimeError(await failed)

    @asynccontextmanager
    async def _page_served(self) -> AsyncIterator[None]:
        """Serve the page on this machine, in a process of its own; `_page` gets its address when it listens."""
        file = self._state / "gateway-page.log"
        command = [sys.executable, "-P", "-m", "replan", "serve", "--port", str(free_port())]
        environment = {**os.environ, "TEMPORAL_ADDRESS": self._address, "REPLAN_STATE": str(self._state)}
        process = spawn(command, file, environment=environment)
        looking = asyncio.create_task(self._read_page_address(file))
        try:
            yield
        finally:
            looking.cancel()
            await end(process)

    async def _read_page_address(self, log_file: Path) -> None:
        while self._page is None:
            await asyncio.sleep(LOOK_SECONDS / 4)
            written = await asyncio.to_thread(log_file.read_text, encoding="utf-8", errors="replace")
            found = re.search(r"^ready  (http://\S+)", written, re.MULTILINE)
            self._page = found.group(1) if found else None

    async def _until_idle(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while loop.time() - last < self._idle:
            await asyncio.sleep(min(LOOK_SECONDS, self._idle / 4))
            is_idle = not (self._agents or self.calls.running)
            is_due = loop.time() - last >= self._idle
            if not is_idle or (is_due and await self._has_open_tasks()):
                last = loop.time()
        log.info("gateway_idle", seconds=self._idle)

    async def _has_open_tasks(self) -> bool:
        if not self._client.done() or not self._sets:
            return False
        with suppress(RPCError):
            queues = " OR ".join(f"TaskQueue = '{tools.queue}'" for tools in self._sets.values())
            query = f"ExecutionStatus = 'Running' AND ({queues})"
            return bool((await self._client.result().temporal.count_workflows(query)).count)
        return False

    async def _close_all(self) -> None:
        for task in [*self._agents, *self._keepers.values()]:
            task.cancel()
        await asyncio.gather(*self._agents, *self._keepers.values(), return_exceptions=True)

    # Agents.

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._agents.add(task)
        try:
            await self._serve_agent(reader, writer)
        except (OSError, ValueError, asyncio.CancelledError):
            pass
        except BaseExceptionGroup as group:
            traceback.print_exception(group)
            log.warning("gateway_agent_failed", error=type(group.exceptions[0]).__name__)
        finally:
            self._agents.discard(task)
            writer.close()

    async def _serve_agent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = Hello.model_validate(await read_line(reader))
        except ValueError as error:
            writer.write(line_of(ToAgent(refused=f"Not understood: {str(error)[:300]}")))
            return
        if hello.version != version():
            words = f"a daemon of version {version()} serves {self._state}: end its agents first"
            writer.write(line_of(ToAgent(refused=words)))
            if len(self._agents) == 1 and not self.calls.running:
                self.stop.set()
            return
        if other := self._other_daemon(hello):
            writer.write(line_of(ToAgent(refused=other)))
            return
        await _Connection(self.tool_set(hello), hello, reader, writer).serve()

    def _other_daemon(self, hello: Hello) -> str:
        """Why an agent that names another server or other keys cannot be served; empty if the daemon can serve it."""
        for name in OF_DAEMON:
            named, ours = hello.environment.get(name), os.environ.get(name)
            if named and named != ours and self._given is None:
                used = f"{name}={ours}" if ours else f"what it has by itself, without {name}"
                return f"the daemon of {self._state} uses {used}: end its other agents, or choose another --state"
        return ""

    def tool_set(self, hello: Hello) -> ToolSet:
        """The set of the tools that an agent names, with a worker; agents that name the same tools share one set."""
        id = digest_of(hello)
        keeper = self._keepers.get(id)
        if keeper is None or keeper.done():
            self._sets[id] = tools = ToolSet(self._state, hello, self.calls)
            self._keepers[id] = asyncio.create_task(tools.keep(self._client, lambda: self._address))
        return self._sets[id]


class _Connection:
    """One agent's process, between its socket and the SDK's server."""

    def __init__(
        self, tools: ToolSet, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._journal = tools.calls.journal
        self._tools = tools
        self._hello = hello
        self._reader = reader
        self._writer = writer
        self._requests = dict[Any, str]()
        """By JSON-RPC id, the gateway's ids of the requests whose answers matter to the journal."""
        self._resent = set[Any]()
        self._silent = set[Any]()
        self._written = dict[int, str]()
        self._turn = asyncio.Lock()
        self._open = set[Any]()
        """The numbers of the requests that have no answer yet."""
        defaults = Session(hello.session, hello.doubt, hello.patience)
        self._agent = Agent(
            tools,
            defaults,
            self._origin,
            durable_reads=hello.durable_reads,
            attended=hello.attended,
            list_wait=hello.list_wait,
        )

    def _origin(self, context: Any) -> Origin:
        number = context.request_id
        id = f"{self._hello.process}/{number!r}"
        self._requests[number] = id
        return Origin(id, self._hello.process, self._hello.session, is_resent=number in self._resent)

    async def serve(self) -> None:
        to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        self._tools.on_notification[self._hello.process] = self._agent.tell
        try:
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(self._agent.serve(read, write))
                writing = group.create_task(self._write(from_server))
                refusing = group.create_task(self._refuse_all())
                await self._read(to_server)
                # The agent is gone. What it has asked for goes on without it: its calls are durable.
                to_server.close()
                from_server.close()  # what the server still says is for nobody
                for task in (serving, writing, refusing):
                    task.cancel()
        finally:
            self._journal.left(self._hello.process)
            if self._tools.on_notification.get(self._hello.process) == self._agent.tell:
                del self._tools.on_notification[self._hello.process]

    async def _read(self, to_server: Any) -> None:
        while (line := await self._next_line()) is not None:
            told = FromAgent.model_validate(line)
            if told.failed is not None and (request := self._written.pop(told.failed, None)):
                self._journal.note_request(request, Delivery.BROKEN)
            if told.is_leaving:
                self._journal.left(self._hello.process)
            if told.message is None:
                continue
            number = told.message.get("id")
            if isinstance(number, int | str) and "method" in told.message:
                if len(self._open) >= MAX_OPEN:
                    await self._refuse(number)
                    continue
                self._open.add(number)
                if told.resent:
                    self._resent.add(number)
                if told.is_replayed:
                    self._silent.add(number)
            if told.message.get("method") == "notifications/cancelled":
                self._record_cancel(told.message.get("params"))
            try:
                message = jsonrpc_message_adapter.validate_python(told.message, by_name=False)
            except ValidationError as error:
                await to_server.send(error)
                continue
            await to_server.send(SessionMessage(message))

    async def _next_line(self) -> Any:
        with suppress(ConnectionError):
            return await read_line(self._reader)
        return None

    def _record_cancel(self, params: Any) -> None:
        """Record that the answer to a cancelled request is not handed over; the call goes on."""
        number = params.get("requestId") if isinstance(params, dict) else None
        if not isinstance(number, int | str):
            return
        self._open.discard(number)
        if request := self._requests.pop(number, None):
            self._journal.note_request(request, Delivery.BROKEN)

    async def _refuse_all(self) -> None:
        """Wait until the worker has failed for good, then refuse the agent with the reason."""
        await self._tools.is_over.wait()
        await self._send(ToAgent(refused=f"{self._tools.problem.rstrip('.')} (see {self._tools.log})"))

    async def _refuse(self, number: Any) -> None:
        """Answer the request `number` with an error: too many requests are under way."""
        error = {"code": -32000, "message": f"More than {MAX_OPEN} requests are under way: wait for their answers."}
        await self._send(ToAgent(message={"jsonrpc": "2.0", "id": number, "error": error}))

    async def _write(self, from_server: Any) -> None:
        number = 0
        async for sent in from_server:
            message = sent.message
            plain = message.model_dump(mode="json", by_alias=True, exclude_unset=True)
            line = ToAgent(message=plain)
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self._open.discard(message.id)
                self._resent.discard(message.id)
                if message.id in self._silent:
                    self._silent.discard(message.id)
                    continue
                if request := self._requests.pop(message.id, None):
                    number += 1
                    # Before it is sent: if this process ends now, nobody knows whether it was read.
                    self._journal.note_request(request, Delivery.WRITTEN)
                    self._written = {**dict(list(self._written.items())[-MAX_OPEN:]), number: request}
                    line = ToAgent(message=plain, number=number)
            await self._send(line)

    async def _send(self, line: ToAgent) -> None:
        async with self._turn:
            self._writer.write(line_of(line))
            await self._writer.drain()


@asynccontextmanager
async def background(work: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Run a coroutine as a task until the block ends, which cancels it."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def run(state: Path, idle: float) -> None:
    """Serve the agents of a state folder, whose lock is ours, until a signal or `idle` seconds without agents."""
    telemetry.configure(LogStyle.TEXT, None)
    daemon = Daemon(state, idle)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, daemon.stop.set)
    try:
        await daemon.run()
    except Exception as error:
        log.error("gateway_failed", error=type(error).__name__)
        raise
