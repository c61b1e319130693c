"""The daemon of a state folder: one Temporal server, one worker for each set of tools, and all agents of the folder.

Run as a program with the folder; agents' processes start it, and it outlives them.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import sys
import traceback
from collections.abc import AsyncIterator
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
from runtime.process import version
from runtime.settings import LogStyle
from server.gateway.calls import Calls
from server.gateway.journal import Journal
from server.gateway.matching import Delivery
from server.gateway.session import Agent
from server.gateway.sessions import Session
from server.gateway.toolset import ToolSet, digest_of
from server.gateway.wire import JOURNAL, LOCK, MAX_LINE, FromAgent, Hello, ToAgent, line_of, read_line, socket_path
from workflows.account.search_attributes import TYPES

IDLE_SECONDS = 3600.0
"""Seconds without an agent and without an open call after which the daemon ends."""
LOOK_SECONDS = 1.0
MAX_OPEN = 2_000
"""The most requests of one agent that are under way."""

log = structlog.get_logger("replan.gateway")


class Daemon:
    """What runs in one state folder."""

    def __init__(self, state: Path, idle: float) -> None:
        self._state = state
        self._idle = idle
        self._page: str | None = None
        self._sets = dict[str, ToolSet]()
        self._keepers = dict[str, asyncio.Task[None]]()
        self._agents = set[asyncio.Task[None]]()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._address = ""
        self._journal = Journal(state / JOURNAL)
        self.calls = Calls(self._journal, self._link)
        self.stop = asyncio.Event()

    def _link(self, task_id: str) -> str:
        """Where a person answers for a task."""
        if self._page:
            return f"{self._page}/ui/tasks/{task_id}"
        return f"`replan answer {task_id}` (with REPLAN_STATE={self._state})"

    async def run(self) -> None:
        """Serve agents until nobody needs it, or until a signal."""
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
            serving = await stack.enter_async_context(_background(self._serve_tasks()))
            stack.callback(listening.close)
            idle = asyncio.create_task(self._until_idle())
            stack.callback(idle.cancel)
            stopping = asyncio.create_task(self.stop.wait())
            await asyncio.wait([serving, idle, stopping], return_when=asyncio.FIRST_COMPLETED)
            if serving.done() and not serving.cancelled() and (error := serving.exception()):
                raise error

    async def _serve_tasks(self) -> None:
        """Have a Temporal server, and the page for the people who answer."""
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
            temporal = await connect(address=self._address, plain=not named)
            await register_search_attributes(temporal, TYPES)
            self._client.set_result(Client(temporal))
            await stack.enter_async_context(self._page_served())
            raise RuntimeError(await failed)

    @asynccontextmanager
    async def _page_served(self) -> AsyncIterator[None]:
        """Serve the page on this machine, in a process of its own; its address is known a little later."""
        file = self._state / "gateway-page.log"
        command = [sys.executable, "-P", "-m", "replan", "serve", "--port", str(free_port())]
        environment = {**os.environ, "TEMPORAL_ADDRESS": self._address, "REPLAN_STATE": str(self._state)}
        process = spawn(command, file, environment=environment)
        looking = asyncio.create_task(self._find_page(file))
        try:
            yield
        finally:
            looking.cancel()
            await end(process)

    async def _find_page(self, file: Path) -> None:
        while self._page is None:
            await asyncio.sleep(LOOK_SECONDS / 4)
            written = await asyncio.to_thread(file.read_text, errors="replace")
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
        except (ValidationError, ValueError) as error:
            writer.write(line_of(ToAgent(refused=f"Not understood: {str(error)[:300]}")))
            return
        if hello.version != version():
            words = f"a daemon of version {version()} serves {self._state}: end its agents first"
            writer.write(line_of(ToAgent(refused=words)))
            if len(self._agents) == 1 and not self.calls.running:
                self.stop.set()
            return
        tools = self._tool_set(hello)
        await _Connection(self.calls, tools, hello, reader, writer).serve()

    def _tool_set(self, hello: Hello) -> ToolSet:
        id = digest_of(hello)
        keeper = self._keepers.get(id)
        if keeper is None or keeper.done():
            self._sets[id] = tools = ToolSet(self._state, hello, self.calls)
            self._keepers[id] = asyncio.create_task(tools.keep(self._client, lambda: self._address))
        return self._sets[id]


class _Connection:
    """One agent's process, between its socket and the SDK's server."""

    def __init__(
        self,
        calls: Calls,
        tools: ToolSet,
        hello: Hello,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._calls = calls
        self._tools = tools
        self._hello = hello
        self._reader = reader
        self._writer = writer
        self._requests = dict[Any, str]()
        """By number of JSON-RPC, the ids of the requests whose answers matter to the journal."""
        self._resent = set[Any]()
        self._silent = set[Any]()
        self._written = dict[int, str]()
        self._turn = asyncio.Lock()
        self._open = set[Any]()
        """The numbers of the requests that have no answer yet."""
        self._agent = Agent(
            tools,
            Session(hello.session, hello.doubt, hello.patience),
            connection=hello.process,
            durable_reads=hello.durable_reads,
            note_request=self._requests.__setitem__,
            is_resent=self._resent.__contains__,
        )

    async def serve(self) -> None:
        to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        self._tools.on_notification[self._hello.process] = self._pass_on
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
            self._calls.left(self._hello.process)
            if self._tools.on_notification.get(self._hello.process) == self._pass_on:
                del self._tools.on_notification[self._hello.process]

    async def _read(self, to_server: Any) -> None:
        while (line := await self._next_line()) is not None:
            told = FromAgent.model_validate(line)
            if told.failed is not None and (request := self._written.pop(told.failed, None)):
                self._calls.handed_over(request, Delivery.BROKEN)
            if told.is_leaving:
                self._calls.left(self._hello.process)
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
                self._cancelled(told.message.get("params"))
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

    def _cancelled(self, params: Any) -> None:
        """An answer that the agent does not wait for any more is not handed over; the call goes on."""
        number = params.get("requestId") if isinstance(params, dict) else None
        if not isinstance(number, int | str):
            return
        self._open.discard(number)
        if request := self._requests.pop(number, None):
            self._calls.handed_over(request, Delivery.BROKEN)

    async def _refuse_all(self) -> None:
        """Say why there are no tools, if what the agent named is wrong."""
        await self._tools.is_over.wait()
        await self._send(ToAgent(refused=f"{self._tools.problem.rstrip('.')} (see {self._tools.log})"))

    async def _refuse(self, number: Any) -> None:
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
                    self._calls.handed_over(request, Delivery.WRITTEN)
                    self._written = {**dict(list(self._written.items())[-MAX_OPEN:]), number: request}
                    line = ToAgent(message=plain, number=number)
            await self._send(line)

    async def _send(self, line: ToAgent) -> None:
        async with self._turn:
            self._writer.write(line_of(line))
            await self._writer.drain()

    def _pass_on(self, method: str, params: dict[str, Any]) -> None:
        told = asyncio.ensure_future(self._agent.notify(method, params))
        told.add_done_callback(lambda done: done.cancelled() or done.exception())


@asynccontextmanager
async def _background(work: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _run(state: Path, idle: float) -> None:
    daemon = Daemon(state, idle)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, daemon.stop.set)
    await daemon.run()


def main(state: Path, idle: float) -> int:
    """Run the daemon, unless one runs already."""
    with (state / LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n".encode())
        lock.flush()
        telemetry.configure(LogStyle.TEXT, None)
        try:
            asyncio.run(_run(state, idle))
        except Exception as error:  # the log is all that is left of it
            traceback.print_exc()
            log.error("gateway_failed", error=type(error).__name__)
            return 1
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else IDLE_SECONDS))
