"""docker-compose.yml in containers is what its page says: it runs tasks, for this machine alone, and not as root."""

import asyncio
import json
import time

import pytest

from console.demo import TASK
from runtime.temporal_cli import spoken
from tests.containers.composed import TOKEN, Composed, published
from tests.containers.engine import EngineFailed
from tests.whole.deploy.composition import services

pytestmark = pytest.mark.timeout(3000)  # the first one waits for images, and until everything is up
PATIENCE = 120
USERS = {"worker": 10001}
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"


async def test_everything_is_healthy(composed: Composed) -> None:
    assert set((await composed.health()).values()) == {"healthy"}


async def test_tasks_from_the_host_and_from_inside(composed: Composed, figures: list[str]) -> None:
    """The demo on the machine meets a changed world and completes, and names the web UI there; nothing is broken.

    The line of the page runs a task in the worker's container.
    """
    began = time.monotonic()
    done = await composed.starter("--task", TASK)
    figures.append(f"demo from the host: {spoken(time.monotonic() - began)}")
    said = await composed.line('docker compose exec -T worker replan --task "calculate 18% of 2450"')
    doctor = await composed.starter("doctor")

    assert done.returncode == 0, done.stdout + done.stderr
    assert all(words in done.stdout for words in ("http://localhost:8233", "Plan 2", "Completed in")), done.stdout
    assert ("441" in said, doctor.returncode) == (True, 0), doctor.stdout


async def test_the_ports(composed: Composed) -> None:
    found = {
        (name, int(one["HostPort"]), one["HostIp"])
        for name in services()
        for container in await composed.containers(name)
        for bound in container["NetworkSettings"]["Ports"].values()
        for one in bound or ()
    }
    up = {name for name in services() if await composed.containers(name)}
    wanted = {(name, port, "127.0.0.1") for name, ports in published().items() if name in up for port in ports}
    [worker, *_] = await composed.containers("worker")
    [network] = worker["NetworkSettings"]["Networks"].values()
    answers = {
        (address, port): (await composed.host("python3", "-c", CONNECT, address, str(port))).returncode == 0
        for _, port, _ in wanted
        for address in ("127.0.0.1", network["Gateway"])
    }

    assert found == wanted
    assert answers == {(address, port): address == "127.0.0.1" for address, port in answers}


async def test_the_pages_of_others(composed: Composed) -> None:
    namespaces = await composed.get("http://127.0.0.1:8233/api/v1/namespaces")
    for _ in range(PATIENCE):
        targets = json.loads(await composed.get("http://127.0.0.1:9090/api/v1/targets"))["data"]["activeTargets"]
        if len(targets) == 2 and {target["health"] for target in targets} == {"up"}:
            break
        await asyncio.sleep(0.5)

    assert '"default"' in namespaces
    assert [target["health"] for target in targets] == ["up", "up"], targets


async def test_nobody_is_root(composed: Composed) -> None:
    """A worker has a user of its own, no capability and no way to get one, and writes only its state and /tmp."""
    lines = (await composed.exec("worker", "cat", "/proc/self/status")).splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    foreign = ("postgresql", "temporal", "ui", "prometheus")
    users = {name: int(await composed.exec(name, "id", "-u")) for name in foreign}
    with pytest.raises(EngineFailed, match="Read-only file system"):
        await composed.exec("worker", "touch", "/app/file")
    await composed.exec("worker", "touch", "/tmp/file", "/var/lib/replan/file")  # noqa: S108  # of the container

    assert status["Uid"].split() == [str(USERS["worker"])] * 4
    assert (int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"]) == (0, 0, "1")
    assert 0 not in users.values()


async def test_a_log_does_not_grow_for_ever(composed: Composed, figures: list[str]) -> None:
    size = await composed.log_of("-c", "yes replan | head -c 30000000")
    figures.append(f"log of 30 MB: {size / 1e6:.1f} MB are kept")

    assert 0 < size < 51e6


async def test_the_web_server(composed: Composed) -> None:
    await composed.compose("--profile", "web", "up", "--detach", "--no-build", "serve")
    await composed.is_healthy()
    ready = await composed.get("http://127.0.0.1:8300/health/ready")
    await composed.compose("--profile", "web", "rm", "--stop", "--force", "serve")

    assert ready
    assert TOKEN not in ready
