"""The process that an agent starts: passes MCP between its stdin and stdout and the daemon, which it starts."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from runtime.child import last_line
from server.gateway.bridge import MAX_LINE, CannotServe as CannotServe
from server.gateway.wire import LOG, FromAgent, Hello, ToAgent, line_of, read_line, socket_path

START_SECONDS = 60.0
"""Seconds within which the daemon must listen."""
STEADY_SECONDS, MAX_FAILURES = 20.0, 10
"""At most MAX_FAILURES daemons in a row may end within STEADY_SECONDS of their start."""
LOOK_SECONDS = 0.05
LAST_ANSWERS_SECONDS = 1.0
"""Seconds for which the open requests of an agent that has closed its end are still answered."""
REPLAYED = ("initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe")
"""The methods of messages that are sent again to a new daemon."""


class AgentEnd(Protocol):
    """The agent's end: its messages, and where they go."""

    async def next(self) -> bytes | None:
        """The next line of the agent; None when the agent has closed its end."""

    async def write(self, line: bytes) -> None:
        """Write a whole line. Raises OSError if that is impossible."""


class Pipes:
    """An agent at stdin and stdout."""

    def __init__(self) -> None:
        # Whatever else prints must not reach the agent.
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        # A thread, since stdin may be a file; it ends with the process.
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        source = sys.stdin.buffer
        with suppress(RuntimeError):  # the loop has ended
            while line := source.readline(MAX_LINE):
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

    async def next(self) -> bytes | None:
        return await self._lines.get()

    async def write(self, line: bytes) -> None:
        await asyncio.to_thread(self._write, line)

    def _write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._out, line) :]


class Proxy:
    """Passes messages on, and sends open requests again to a new daemon."""

    def __init__(self, state: Path, hello: Hello, agent: AgentEnd, idle: float) -> None:
        self._state = state
        self._hello = hello
        self._agent = agent
        self._idle = idle
        self._open = dict[Any, dict[str, Any]]()
        self._setup = dict[tuple[str, str], dict[str, Any]]()
        """The newest messages of the methods in REPLAYED, by method and, for a subscription, address."""
        self._writer: asyncio.StreamWriter | None = None
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Serve the agent until it closes its end. Raises CannotServe without a daemon that stays and serves it."""
        reading = asyncio.create_task(self._read_agent())
        try:
            is_first, failures = True, 0
            while not self._is_over.is_set():
                reader, writer = await self._connect()
                began = time.monotonic()
                self._greet(writer, is_first=is_first)
                is_first, self._writer = False, writer
                answering = asyncio.create_task(self._read_daemon(reader, writer))
                over = asyncio.create_task(self._is_over.wait())
                await asyncio.wait([answering, over], return_when=asyncio.FIRST_COMPLETED)
                over.cancel()
                self._writer = None
                if answering.done():
                    answering.result()
                answering.cancel()
                writer.close()
                failures = failures + 1 if time.monotonic() - began < STEADY_SECONDS else 0
                if failures > MAX_FAILURES:
                    raise CannotServe(
                        f"the daemon ends again and again ({self._last_log_line}): look into {self._state / LOG}"
                    )
        finally:
            reading.cancel()

    def _greet(self, writer: asyncio.StreamWriter, *, is_first: bool) -> None:
        """Send the Hello, the answered messages that a new daemon needs, and the open requests."""
        writer.write(line_of(self._hello))
        for message in self._setup.values():
            if message.get("id") not in self._open:
                writer.write(line_of(FromAgent(message=message, is_replayed=True)))
        for message in self._open.values():
            writer.write(line_of(FromAgent(message=message, resent=not is_first)))

    async def _read_agent(self) -> None:
        while (line := await self._agent.next()) is not None:
            if not line.strip():
                continue
            try:
                message = from_json(line)
                messages = message if isinstance(message, list) else [message]  # batches of old versions
                if not all(isinstance(one, dict) for one in messages):
                    raise ValueError("it is no object")
            except ValueError as error:
                await self._reject(str(error))
                continue
            for one in messages:
                await self._take(one)
        # At once, since the agent's successor may be quicker than the wait for the last answers.
        await self._send(FromAgent(is_leaving=True))
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWERS_SECONDS):
                while self._open:  # noqa: ASYNC110  # at most for a second
                    await asyncio.sleep(LOOK_SECONDS)
        self._is_over.set()

    async def _reject(self, why: str) -> None:
        error = {"code": -32700, "message": f"No message of JSON-RPC: {why[:200]}"}
        with suppress(OSError):
            await self._agent.write(to_json({"jsonrpc": "2.0", "id": None, "error": error}) + b"\n")

    async def _take(self, message: dict[str, Any]) -> None:
        """Pass a message of the agent on, and keep what a new daemon needs."""
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        uri = str(params.get("uri", "")) if isinstance(params, dict) else ""
        if method in REPLAYED:
            self._setup[method, uri] = message
        elif method == "resources/unsubscribe":
            self._setup.pop(("resources/subscribe", uri), None)
        if isinstance(number, int | str) and isinstance(method, str):
            self._open[number] = message
        elif method == "notifications/cancelled" and isinstance(params, dict):
            cancelled = params.get("requestId")
            if isinstance(cancelled, int | str):
                self._open.pop(cancelled, None)
        await self._send(FromAgent(message=message))

    async def _send(self, line: FromAgent) -> None:
        writer = self._writer
        if writer is not None:
            with suppress(OSError):  # then a new connection sends it again, if it waits for an answer
                writer.write(line_of(line))
                await writer.drain()

    async def _read_daemon(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                line = await read_line(reader)
            except (OSError, ValueError):
                return
            if line is None:
                return
            told = ToAgent.model_validate(line)
            if told.refused is not None:
                raise CannotServe(told.refused)
            if told.message is None:
                continue
            if "method" not in told.message:
                self._open.pop(told.message.get("id"), None)
            try:
                await self._agent.write(to_json(told.message) + b"\n")
            except OSError:
                if told.number is not None:
                    with suppress(OSError):
                        writer.write(line_of(FromAgent(failed=told.number)))
                        await writer.drain()
                self._is_over.set()
                return

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the daemon, which is started if there is none."""
        path, deadline, process = socket_path(self._state), time.monotonic() + START_SECONDS, None
        while True:
            with suppress(OSError):
                return await asyncio.open_unix_connection(str(path), limit=MAX_LINE)
            if process is None or process.poll() not in (None, 0):
                if process is not None and time.monotonic() > deadline - START_SECONDS + 10:
                    raise CannotServe(f"the daemon ends at once ({self._last_log_line}): look into {self._state / LOG}")
                process = self._start_daemon()
            if time.monotonic() > deadline:
                raise CannotServe(f"the daemon does not listen after {START_SECONDS:g} s: see {self._state / LOG}")
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def _last_log_line(self) -> str:
        return last_line(self._state / LOG).rstrip(".")

    def _start_daemon(self) -> subprocess.Popen[bytes]:
        # -P: a `server.py` where the agent works must not be taken for our room. A wheel has the room elsewhere.
        command = [sys.executable, "-P", "-m", f"{__package__}.daemon", str(self._state), str(self._idle)]
        with (self._state / LOG).open("ab") as output:
            return subprocess.Popen(  # noqa: S603  # our own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=_daemon_environment(os.environ),
                cwd=self._state,
            )


def _daemon_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the first agent that the daemon gets: the others may have secrets of MCP servers."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "USER", "LOGNAME", "VIRTUAL_ENV", "PYTHONPATH", "SSL_CERT_FILE")
    begins, ends = ("TEMPORAL_", "REPLAN_", "LC_", "XDG_", "GO"), ("_PROXY", "_proxy")
    return {
        name: value
        for name, value in environment.items()
        if name in kept or name.startswith(begins) or name.endswith(ends)
    }


def refused(error: ValidationError) -> str:
    """The first mistake in the fields of a model, in words."""
    wrong = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
