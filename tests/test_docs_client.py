"""What docs/client.md shows, and examples/service.py, work as they stand, with the worker of `--dev`."""

import json
import re
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.dev_server import free_port
from tests.gate import sampled
from tests.processes import PATIENCE, ROOT, Processes

PAGE = (ROOT / "docs" / "client.md").read_text()
FOUND = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
BLOCKS = [one for one in FOUND if "from orders" not in one]  # tests/test_plugin.py has a worker with workflows
SAID = {0: "= 441.", 1: "", 2: "completed"}
"""The last word that each block prints."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(f"localhost:{free_port()}", tmp_path_factory.mktemp("client"))
    with processes.worker("--dev"):
        yield processes


@pytest.mark.parametrize("number", sampled({str(number): [number] for number in range(len(BLOCKS))}, "0"))
def test_a_block_of_the_page_runs(world: Processes, number: int) -> None:
    body = textwrap.indent(BLOCKS[number], "    ")
    program = f"import asyncio\n\nasync def main() -> None:\n{body}\n\nasyncio.run(main())\n"
    done = world.run([sys.executable, "-c", program])

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(SAID[number]), done.stdout


def test_the_service_takes_orders_and_decides(world: Processes) -> None:
    """What it may approve is booked; anything else ends the task."""
    check_service(world, Path(sys.executable))


def check_service(world: Processes, python: Path) -> None:
    port = free_port()
    words = [str(python), str(ROOT / "examples" / "service.py"), str(port)]
    paths = {} if world.installed else {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env={**world._environment, **paths}, cwd=world.folder) as service:
        try:
            until = time.monotonic() + PATIENCE
            while not answers(port):
                assert time.monotonic() < until and service.poll() is None
                time.sleep(0.1)
            booked = order(port, "book a slot for the team at 16:30")
            refused = order(port, "write 'hello' into note.txt")
        finally:
            service.terminate()

    by = "Aborted by the order service: The order service cannot decide that."
    assert booked["status"] == "completed", booked
    assert (refused["status"], refused["reason"]) == ("failed", by)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def order(port: int, text: str) -> dict[str, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}", data=text.encode(), timeout=PATIENCE) as answer:
        found: dict[str, str] = json.loads(answer.read())
        return found
