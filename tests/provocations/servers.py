"""A broker on loopback for the provocations; where it cannot be had, Missing says why."""

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
from tests.provocations.environment import CACHE, digest

HERE = Path(__file__).parent
START_SECONDS = 60
BUILD_SECONDS = 900


class Missing(RuntimeError):
    """A server is not here and cannot be made; the message says why."""


@asynccontextmanager
async def kafka(folder: Path, port: int, advertised: int) -> AsyncIterator[None]:
    """A broker on `port`, from Maven's jars in a JVM, which tells its clients to connect to the port `advertised`."""
    command = [_program("java"), "-Xmx384m", "-cp", f"{_kafka()}/*"]
    settings = folder / "server.properties"
    settings.write_text(_KAFKA.format(port=port, advertised=advertised, controller=free_port(), data=folder / "data"))
    _said([*command, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAA", "-c", str(settings)])
    process, began = spawn([*command, "kafka.Kafka", str(settings)], log := folder / "kafka.log"), time.monotonic()
    try:
        while not _answers(port):
            if await exited(process, 0.1) or time.monotonic() - began > START_SECONDS:
                raise Missing(f"Kafka does not start: {last_line(log)}")
        yield
    finally:
        await end(process)


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


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _kafka() -> Path:
    """The folder with Kafka's jars, which stays in the user's cache."""
    source = HERE / "kafka"
    target = CACHE / f"kafka-{digest(*(file.read_text() for file in sorted(source.iterdir())))}"
    if not target.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="building-") as folder:
            made = Path(folder, "made")
            made.mkdir()
            copy = ["-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={made}"]
            _said([_program("mvn"), *copy], cwd=source)
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
