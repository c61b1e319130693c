"""A Temporal server on this machine: one that runs already, or one that is started here and stopped at the end.

`python -m runtime.dev_server [PREFIX]` only finds or fetches the `temporal` program and prints its path. Each line of
its output begins with PREFIX.
"""

import asyncio
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from temporalio.service import RPCError

from runtime import state_folder
from runtime.child import POLL_SECONDS, end, exited, last_line, spawn
from runtime.client import (
    DEFAULT_ADDRESS,
    DEFAULT_NAMESPACE,
    NotConnected,
    answers,
    connect,
    register_search_attributes,
)
from runtime.temporal_cli import Say, ServerUnavailable, find_cli

__all__ = ["DevServer", "RunningDevServer", "ServerSpec", "ServerUnavailable", "dev_server", "find_cli", "free_port"]

START_SECONDS = 60.0
STEADY_SECONDS = 10.0
"""Seconds: a server that ends sooner than this after a restart would end each time, so it is not started again."""
LAST_PORT = 65535
UI_PORT_OFFSET = 1000
"""The Temporal CLI serves the web UI at the server's port plus this number."""
FREE_PORTS = range(20_000, 31_000)
"""The ports of `free_port`, below the ports for outgoing connections of Linux (from 32768) and macOS (from 49152)."""

FAST_AND_DURABLE = (
    *("--sqlite-pragma", "journal_mode=wal"),
    *("--sqlite-pragma", "synchronous=2"),
    *("--dynamic-config-value", "history.transferProcessorMaxPollRPS=10000"),
    *("--dynamic-config-value", "history.timerProcessorMaxPollRPS=10000"),
    *("--dynamic-config-value", "history.visibilityProcessorMaxPollRPS=10000"),
    *("--dynamic-config-value", 'history.timerProcessorMaxTimeShift="10ms"'),
    *("--dynamic-config-value", "system.enableActivityEagerExecution=true"),
    *("--dynamic-config-value", "matching.numTaskqueueReadPartitions=1"),
    *("--dynamic-config-value", "matching.numTaskqueueWritePartitions=1"),
)
"""Options that make the server five times as fast as the defaults (meant for many shards), and just as durable."""


@dataclass(frozen=True)
class ServerSpec:
    """A development server: where it listens, and where it keeps its state."""

    folder: Path
    """The folder of the database, which every start uses again, and of the log file, which every start overwrites."""
    host: str = "localhost"
    port: int = 7233
    ui_port: int = 8233
    attributes: Mapping[str, str] = field(default_factory=dict)
    """The search attributes of the namespace, name to type."""
    dynamic: Mapping[str, str] = field(default_factory=dict)
    """More dynamic config values, key to JSON, as in `{"limit.historyCount.suggestContinueAsNew": "100"}`."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def ui_url(self) -> str:
        return f"http://{self.host}:{self.ui_port}"

    @property
    def database(self) -> Path:
        return self.folder / "temporal.db"

    @property
    def log(self) -> Path:
        return self.folder / "temporal.log"

    @property
    def ip(self) -> str:
        return "127.0.0.1" if self.host == "localhost" else self.host

    def command(self, binary: Path) -> list[str]:
        listen = ["--ip", self.ip, "--port", str(self.port), "--ui-port", str(self.ui_port)]
        # The server runs in the folder, and reads a path as the path of a URL.
        file = self.database.name if set("?#%") & set(str(self.folder)) else str(self.database.absolute())
        keep = ["--db-filename", file, "--namespace", DEFAULT_NAMESPACE, "--log-level", "warn"]
        more = [word for key, value in self.dynamic.items() for word in ("--dynamic-config-value", f"{key}={value}")]
        return [str(binary.absolute()), "server", "start-dev", *listen, *keep, *FAST_AND_DURABLE, *more]


class DevServer:
    """A server process, which runs inside `async with`; on Linux it also ends when this process is killed.

    Start it from the main thread. If the server was killed, `start` starts another server on the same database.
    """

    def __init__(self, spec: ServerSpec, binary: Path) -> None:
        self.spec = spec
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return self.spec.address

    @property
    def ui_url(self) -> str:
        return self.spec.ui_url

    @property
    def pid(self) -> int | None:
        """The id of the server's process; None before `start` and after `stop`."""
        return self._process.pid if self._process else None

    async def __aenter__(self) -> "DevServer":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the server, and return when it serves its namespace.

        Raises:
            ServerUnavailable: the server cannot be started, or is not ready within START_SECONDS.
            RPCError: the server answers, but its search attributes cannot be registered.
        """
        await self.stop()
        self._process = _spawn(self.spec, self._binary)
        try:
            await self._until_ready(self._process)
        except BaseException:  # also a cancellation: it must not leave a server behind
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._process:
            await end(self._process)
            self._process = None

    async def keep_running(self, say: Say) -> None:
        """Start the server again whenever it ends by itself.

        Raises:
            ServerUnavailable: the server does not start, or ended again within STEADY_SECONDS.
            RPCError: as `start`.
        """
        began = -math.inf
        while self._process:
            await exited(self._process, math.inf)
            code = self._process.returncode
            how = signal.Signals(-code).name if code < 0 else last_line(self.spec.log)
            if time.monotonic() - began < STEADY_SECONDS:
                raise ServerUnavailable(f"The Temporal server ended again ({how}): look into {self.spec.log}.")
            say(f"The Temporal server ended ({how}): it is started again on the same database.")
            await self.start()
            say("The Temporal server runs again.")
            began = time.monotonic()

    async def _until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(NotConnected):
                return await _connect_and_register(self.spec)
            has_ended = process.poll() is not None
            if has_ended or time.monotonic() > deadline:
                how = "ended while it started" if has_ended else f"is not ready after {START_SECONDS:.0f} s"
                raise ServerUnavailable(
                    f"The Temporal server {how} ({last_line(self.spec.log)}): look into {self.spec.log}, or start one"
                    " by hand and set TEMPORAL_ADDRESS."
                )
            await asyncio.sleep(POLL_SECONDS)


def _spawn(spec: ServerSpec, binary: Path) -> subprocess.Popen[bytes]:
    spec.folder.mkdir(parents=True, exist_ok=True)
    for port in (spec.port, spec.ui_port):
        if (problem := _why_not_free(spec.ip, port)) is not None:
            raise ServerUnavailable(
                f"Port {port} on {spec.ip} cannot be used for a Temporal server ({problem}), perhaps because another"
                f" program listens there: choose another, for example with --port {free_port()}."
            )
    try:
        # The server inherits the lock, and holds it as long as it runs, even after this process ended.
        with state_folder.lock(spec.folder) as lock:
            state_folder.announce(spec.folder, spec.address, spec.ui_url)
            return spawn(spec.command(binary), spec.log, folder=spec.folder, keep_open=[lock.fileno()])
    except BlockingIOError as error:
        raise ServerUnavailable(
            f"Another Temporal server uses {spec.database} already: stop it, set TEMPORAL_ADDRESS to it, or choose"
            " another state folder."
        ) from error


def _why_not_free(ip: str, port: int) -> str | None:
    try:
        socket.create_server((ip, port)).close()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return None


async def _connect_and_register(spec: ServerSpec) -> None:
    client = await connect(address=spec.address, plain=True)
    # Not by --search-attribute: the server reads that flag only when it makes a new database.
    await register_search_attributes(client, spec.attributes)


def free_port() -> int:
    """A free port for a server and, UI_PORT_OFFSET above, its web UI, which no other caller gets for a minute."""
    # Not a port that the system chooses: an outgoing connection could take it before the server listens.
    while True:
        port = FREE_PORTS.start + secrets.randbelow(len(FREE_PORTS))
        try:
            _reserve(port)
            _reserve(port + UI_PORT_OFFSET)
        except OSError:  # another process has the port, or had it a moment ago
            continue
        return port


def _reserve(port: int) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))  # without SO_REUSEADDR it fails if the port is reserved
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # with it, a server can bind in spite of that
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            # Closed from this side first, the connection leaves the port in TIME_WAIT: free to listen on for servers.
            listener.accept()[0].close()


@dataclass(frozen=True)
class RunningDevServer:
    """The server that `--dev` uses; connect to it with `plain=True`."""

    address: str
    ui_url: str
    whose: str
    """Who started the server: `ours` if this process did, with a reason for its port; else `was running already`."""


@asynccontextmanager
async def dev_server(
    folder: Path,
    *,
    say: Say,
    fail: Callable[[str], None],
    address: str | None = None,
    usual: str = DEFAULT_ADDRESS,
    attributes: Mapping[str, str] | None = None,
) -> AsyncIterator[RunningDevServer]:
    """Use the server of `folder`, which listens at `address` if given; else start one there.

    Without an `address`, the server at TEMPORAL_ADDRESS is used, if set. A new server keeps its database in `folder`.
    Without an address it listens at `usual`, or at free ports if another program uses the ports there. If the new
    server ends by itself, it is started again; if that is impossible, `fail` is called with the reason. `say` is called
    with lines about slow steps and restarts.

    Raises:
        ServerUnavailable: no server can be started, the server at `address` is of another folder, or an address is not
            on this machine.
        NotConnected: the server cannot be used.
        RPCError: as `DevServer.start`.
    """
    named = address or os.environ.get("TEMPORAL_ADDRESS")
    host, port = _local_host_and_port(named or usual)
    running = await _running(folder, None if address else named)
    if address and running and _local_host_and_port(running)[1] != port:
        running = None
    if address and not running and await answers(address):
        raise ServerUnavailable(
            f"The Temporal server at {address} is not that of the state folder {str(folder)!r}: choose another port, as"
            f" in --port {free_port()}, or leave out --port and set TEMPORAL_ADDRESS={address} to use it."
        )
    if running:
        host, port = _local_host_and_port(running)
    whose = "ours"
    if not (running or named) and any(_why_not_free("127.0.0.1", number) for number in (port, port + UI_PORT_OFFSET)):
        whose, port = f"ours; port {port} or {port + UI_PORT_OFFSET} is in use", free_port()
    ui_port = port + UI_PORT_OFFSET if port + UI_PORT_OFFSET <= LAST_PORT else free_port()
    spec = ServerSpec(folder, host, port, ui_port, attributes=attributes or {})
    if running:
        await _connect_and_register(spec)
        yield RunningDevServer(
            spec.address, spec.ui_url, "was running already" + (", not ours" if named and not address else "")
        )
        return
    async with DevServer(spec, await find_cli(say)) as server:
        keeper = asyncio.create_task(_keep_running(server, say, fail))
        try:
            yield RunningDevServer(spec.address, spec.ui_url, whose)
        finally:
            keeper.cancel()
            await asyncio.wait([keeper])


async def _running(folder: Path, named: str | None) -> str | None:
    """The address of a server that answers: at `named` if it is given, else at that in `folder`; None if none does."""
    deadline = time.monotonic() + START_SECONDS
    while address := named or state_folder.server_address(folder):
        if await answers(address):
            return address
        if named or time.monotonic() > deadline:
            break
        await asyncio.sleep(POLL_SECONDS)  # another worker starts the server at this moment
    return None


async def _keep_running(server: DevServer, say: Say, fail: Callable[[str], None]) -> None:
    try:
        await server.keep_running(say)
    except (ServerUnavailable, RPCError) as problem:
        fail(str(problem))


def _local_host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (host == "localhost" or host.startswith("127.")) or not port.isdecimal():
        raise ServerUnavailable(
            f"--dev starts a server on this machine, and {address!r} is no localhost:PORT: correct TEMPORAL_ADDRESS,"
            " or leave out --dev to use that server."
        )
    return host, int(port)


def _main(prefix: str) -> int:
    def say(line: str) -> None:
        sys.stdout.write(f"{prefix}{line}\n")
        sys.stdout.flush()

    # SIGTERM then raises KeyboardInterrupt, as Ctrl-C does, so that a download in progress is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        say(f"temporal is {asyncio.run(find_cli(say))}")
    except ServerUnavailable as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(_main(" ".join([*sys.argv[1:], ""])))
