"""What others may read of a worker, and what others may make it say: its files, and its log on a terminal."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from runtime.dev_server import DevServer, free_port
from tests import malformed
from tests.malformed import as_json
from tests.processes import Processes

ID = "x\x1b[2J\x1b]0;owned\x07\nforged line\r\u202e"
"""An id that clears a terminal, names its window, and begins a line of its own."""


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Most users' umask, with which everybody may read a new file."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def others(folder: Path) -> list[str]:
    """The files and folders below a folder that other users may read, write or enter."""
    return [str(path) for path in [folder, *folder.rglob("*")] if stat.S_IMODE(path.stat().st_mode) & stat.S_IRWXO]


def test_other_users_cannot_read_what_a_worker_writes(tmp_path: Path) -> None:
    processes = Processes("", tmp_path, {"TEMPORAL_ADDRESS": f"localhost:{free_port()}"})
    with processes.worker("--dev", "--workspace", str(tmp_path / "files")):
        written = processes.starter("call", "write_file", '{"name": "a.txt", "content": "secret"}')
    state = tmp_path / "state"

    assert (written.returncode, len(list((tmp_path / "files").rglob("a.txt")))) == (0, 1)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {"store.db", "temporal.db"} <= {path.name for path in state.iterdir()}
    assert [*others(state), *others(tmp_path / "files")] == []


@pytest.mark.full
def test_the_databases_of_an_earlier_version_are_closed(server: DevServer, tmp_path: Path) -> None:
    """A folder that was there stays as it is, since it may hold other things; the databases in it do not."""
    state = tmp_path / "state"
    state.mkdir(0o755)
    (state / "store.db").touch(0o644)
    with Processes(server.address, tmp_path).worker():
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (state, state / "store.db")]

    assert modes == [0o755, 0o600]


async def test_a_foreign_id_says_nothing_of_its_own_in_the_log(
    server: DevServer, client: Client, tmp_path: Path
) -> None:
    processes = Processes(server.address, tmp_path)
    queue = f"queue-{tmp_path.name}"
    with processes.worker("--log", "text", "--queue", queue):
        for id, task in ((ID, {"text": "calculate 1+1"}), (ID.replace("\nforged line\r", ""), {"text": ""})):
            await malformed.start(client, "AgentWorkflow", [as_json(task)], queue, id=id)
        until = time.monotonic() + 40
        while (log := (tmp_path / "worker.log").read_text()).count("status=") < 2:
            assert time.monotonic() < until, log

    assert "forged line" in log
    assert [char for char in log if not char.isprintable() and char != "\n"] == []
    assert not [line for line in log.splitlines() if line.startswith("forged")]
