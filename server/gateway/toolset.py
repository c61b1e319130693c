"""The worker of one set of tools, as a child process of the daemon, and what it offers."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

import structlog
from pydantic import JsonValue

from client.client import Client
from runtime.child import end, exited, last_line, spawn
from server.gateway.bridge import VOLATILE, server_variables
from server.gateway.calls import Calls
from server.gateway.offers import offers_of, server_name
from server.gateway.side_door import DoorClosed, DoorError, SideDoor
from server.gateway.task_desk import TaskDesk
from server.gateway.wire import Hello, socket_path
from workflows.json_values import digest

RESTS = (0.2, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds until a worker that has ended is started again, by how often it has ended in a row."""
STEADY_SECONDS = 30.0
LOOK_SECONDS = 0.1

log = structlog.get_logger("replan.gateway")


class ToolSet(TaskDesk):
    """The tools of agents that name the same tools with the same environment."""

    def __init__(self, state: Path, hello: Hello, calls: Calls) -> None:
        super().__init__(calls)
        self.id = digest_of(hello)
        self.queue = f"mcp-{self.id}"
        self.problem = ""
        """Why the worker does not start; empty if it does."""
        self._state = state
        self._hello = hello
        self.is_over = asyncio.Event()
        """Set when the worker cannot start, since what the agent named is wrong."""
        self._process: Popen[bytes] | None = None
        self._socket = socket_path(state, self.id)
        self.door = SideDoor(self._socket, lambda _, method, params: self.notify(method, params))

    @property
    def log(self) -> Path:
        return self._state / f"gateway-worker-{self.id}.log"

    async def ready(self, seconds: float) -> bool:
        """Wait at most `seconds` until the tools are known; returns whether they are. Ends early without a worker."""
        if self.is_ready.is_set():
            return True
        waits = [asyncio.ensure_future(one.wait()) for one in (self.is_ready, self.is_over)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self.is_ready.is_set()

    async def keep(self, connecting: "asyncio.Future[Client]", address: Callable[[], str]) -> None:
        """Keep a worker running: start it again when it ends, unless the tools that the agent named are wrong.

        `connecting` has the client as soon as the server answers at the address that `address` then returns.
        """
        self.client = Client((await asyncio.shield(connecting)).temporal, queue=self.queue)
        failures = 0
        try:
            while True:
                began = asyncio.get_running_loop().time()
                self._process = spawn(self._worker_command(), self.log, environment=self._worker_environment(address()))
                listing = asyncio.create_task(self._list())
                await exited(self._process, float("inf"))
                listing.cancel()
                if asyncio.get_running_loop().time() - began > STEADY_SECONDS:
                    failures = 0
                rest = RESTS[min(failures, len(RESTS) - 1)]
                failures += 1
                self.problem = last_line(self.log)
                log.warning("gateway_worker_ended", queue=self.queue, reason=self.problem, wait=rest)
                if not self.is_ready.is_set() and self._process.returncode == 2:
                    self.is_over.set()  # bad usage: it would end each time
                    return
                await asyncio.sleep(rest)
        finally:
            await self.close()

    async def _list(self) -> None:
        """Ask the worker for its tools, as soon as it answers."""
        while self.door is not None:
            with suppress(DoorClosed, DoorError):
                found = await self.door.request("replan/tools")
                named = {one.name: one for one in offers_of(found["tools"])}
                is_changed = self.is_ready.is_set() and named != self.offers
                self.offers, self.servers, self.problem = named, found["servers"], ""
                self.left_out = found.get("left_out", {})
                if not self.is_ready.is_set():
                    log.info("gateway_tools", queue=self.queue, tools=len(named))
                self.is_ready.set()
                if is_changed or self.on_notification:
                    self.notify("notifications/tools/list_changed", {})
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _worker_command(self) -> list[str]:
        named = list(self._hello.tools)
        if self._hello.command:
            named.append(str(self._write_file()))
        tools = [word for name in named for word in ("--tools", name)]
        where = ["--queue", self.queue, "--state", str(self._state), "--mcp-socket", str(self._socket)]
        return [sys.executable, "-P", "-m", "replan", "worker", *where, *tools]

    def _worker_environment(self, address: str) -> dict[str, str]:
        ours = {name: os.environ[name] for name in ("REPLAN_KEYS", "REPLAN_CODEC") if name in os.environ}
        return {**server_variables(self._hello.environment), **ours, "TEMPORAL_ADDRESS": address}

    def _write_file(self) -> Path:
        """Write the tools file of a server that is named by its command, and return the path."""
        path = self._state / f"gateway-{self.id}.toml"
        names = sorted(server_variables(self._hello.environment))
        lines = [
            f"[servers.{server_name(self._hello.command)}]",
            f"command = {json.dumps(list(self._hello.command))}",
            f"cwd = {json.dumps(self._hello.cwd)}",
            f"env = {{ {', '.join(f'{json.dumps(name)} = {json.dumps(name)}' for name in names)} }}",
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    async def close(self) -> None:
        if self.door is not None:
            await self.door.close()
        if self._process is not None:
            await end(self._process)


def digest_of(hello: Hello) -> str:
    """A digest that is equal for agents that share a worker. It reveals no value of the environment."""
    told: dict[str, JsonValue] = {
        name: value for name, value in server_variables(hello.environment).items() if not VOLATILE.fullmatch(name)
    }
    where = hello.cwd if hello.command else ""
    return digest(list(hello.tools), list(hello.command), where, told)[:12]
