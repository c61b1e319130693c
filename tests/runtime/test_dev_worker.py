"""`worker.py --dev`: each state folder has a server of its own, which commands find, and which a worker keeps alive."""

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from client.client import Client
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.processes import Processes, Running
from workflows.account.task import Task

PATIENCE = 30.0


def checkout(folder: Path, address: str = "", **environment: str) -> Processes:
    folder.mkdir(exist_ok=True)
    return Processes(address, folder, {"XDG_CONFIG_HOME": str(folder), **environment})


def server_of(commands: Processes) -> int:
    listing = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
    database = str(commands.folder / "state" / "temporal.db")
    return next(int(line.split()[0]) for line in listing.stdout.splitlines() if database in line)


@pytest.mark.full
def test_two_checkouts_have_a_server_each(tmp_path: Path) -> None:
    one, other = checkout(tmp_path / "one"), checkout(tmp_path / "other")
    with one.worker("--dev"), other.worker("--dev"):
        ended = one.starter("--task", "calculate 1+1", "--id", "mine")
        shown = one.starter("show", "mine")
        elsewhere = other.starter("show", "mine")

    assert (ended.returncode, shown.returncode, elsewhere.returncode) == (0, 0, 2), elsewhere.stdout


def test_the_port_of_the_server_is_chosen_on_the_command_line(tmp_path: Path) -> None:
    """The server listens there, its web UI 1000 above; a second worker of the folder joins it, that of another is told.

    Two servers of one folder would write over each other.
    """
    port = str(free_port())
    here, other = checkout(tmp_path / "here"), checkout(tmp_path / "other")
    with here.worker("--dev", "--port", port):
        refused = other.asked("--dev", "--port", port)
        with here.worker("--dev", "--port", port, "--queue", "second"):
            found = json.loads((here.folder / "state" / "server.json").read_text())
            ended = here.starter("--task", "calculate 1+1", "--queue", "second")

    assert (found["address"], found["ui_url"]) == (f"localhost:{port}", f"http://localhost:{int(port) + 1000}")
    assert ended.returncode == 0
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (6, "", 1)
    assert refused.stderr.startswith(f"The Temporal server at localhost:{port} is not that of the state folder ")
    assert f"set TEMPORAL_ADDRESS=localhost:{port} to use it." in refused.stderr


def test_a_used_port_of_the_server_is_one_sentence(tmp_path: Path) -> None:
    """No other port is taken in its place: that would not be what was asked for."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = checkout(tmp_path).asked("--dev", "--port", port)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (6, "", 1)
    assert f"Port {port} on 127.0.0.1 cannot be used" in done.stderr and "choose another, for example" in done.stderr


def test_a_server_that_is_killed_is_started_again(tmp_path: Path) -> None:
    here = checkout(tmp_path, f"localhost:{free_port()}")
    with here.worker("--dev", "--log", "json") as worker:
        os.kill(server_of(here), signal.SIGKILL)
        said = heard(worker, 2)
        ended = here.starter("--task", "calculate 1+1")
        worker.terminate()
        rest, _ = worker.communicate(timeout=30)

    assert ended.returncode == 0
    assert "ended (SIGKILL)" in said[0] and "runs again" in said[1]
    assert (worker.returncode, rest) == (0, "stopped; no task unfinished\n")
    assert all(json.loads(line) for line in (tmp_path / "worker.log").read_text().splitlines())


@pytest.mark.full
async def test_a_server_that_does_not_start_again_ends_the_worker(tmp_path: Path) -> None:
    """One line says why, and the process ends, so that a supervisor can start both."""
    once, program = tmp_path / "once", tmp_path / "temporal"
    binary = await find_cli(lambda _: None)
    program.write_text(f'#!/bin/sh\n[ -e {once} ] && echo no memory left && exit 1\ntouch {once}\nexec {binary} "$@"\n')
    program.chmod(0o755)
    here = checkout(tmp_path, f"localhost:{free_port()}", TEMPORAL_CLI=str(program))
    with here.worker("--dev", "--log", "json") as worker:
        os.kill(server_of(here), signal.SIGKILL)
        worker.communicate(timeout=30)
    lines = (tmp_path / "worker.log").read_text().splitlines()

    assert worker.returncode == 1
    assert lines[-1].startswith("The Temporal server ended while it started (no memory left)")


@pytest.mark.full
async def test_a_worker_whose_server_is_gone_says_so_once(tmp_path: Path) -> None:
    """It keeps asking, as the server of somebody else may come back; the log has one line of it, in its usual form."""
    spec = ServerSpec(tmp_path, port=free_port(), ui_port=free_port())
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        here = checkout(tmp_path, server.address)
        with here.worker("--log", "json") as worker:
            await server.stop()
            log = tmp_path / "worker.log"
            while "does not answer" not in log.read_text():  # pytest-timeout ends it
                await asyncio.sleep(0.1)
            worker.terminate()
            said, _ = worker.communicate(timeout=30)
    outages = [line for line in map(json.loads, log.read_text().splitlines()) if "answer" in line["event"]]

    assert said == "stopped; the server does not answer any more\n"
    assert [line["event"] for line in outages] == [
        "The Temporal server does not answer (Unavailable); the worker keeps asking."
    ]


def heard(worker: Running, lines: int) -> Sequence[str]:
    assert worker.stdout is not None
    return [worker.stdout.readline() for _ in range(lines)]


@pytest.mark.full
async def test_the_web_ui_links_to_the_page(tmp_path: Path) -> None:
    here = checkout(tmp_path, REPLAN_PAGE="http://127.0.0.1:8300/")
    plan = [{"id": "slot", "kind": "book_slot", "args": {"day": "2026-12-01", "at": "10:00", "name": "ann"}}]
    task = Task.model_validate({"text": "book", "plan": plan, "approve": "effects", "on_escalation": "wait"})
    with here.worker("--dev"):
        address = json.loads((here.folder / "state" / "server.json").read_text())["address"]
        client = await Client.connect(address)
        started = await client.start(task, id="slot")
        async with asyncio.timeout(PATIENCE):
            while not await started.requests():
                await asyncio.sleep(0.1)
        handle = client.temporal.get_workflow_handle("slot")
        known = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)

    assert "[Answer on the page](http://127.0.0.1:8300/ui/tasks/slot#r1)" in known.current_details
