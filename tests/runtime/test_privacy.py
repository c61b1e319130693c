"""What others may read of a worker, what they may make it say, and secrets in files, as containers have them."""

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.notification import SIGNING_KEY
from activities.providers.registry import PROVIDERS
from runtime.dev_server import DevServer, free_port
from runtime.process import SECRETS
from tests import malformed
from tests.malformed import as_json
from tests.processes import ROOT, Processes

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


PROGRAM = "import os; from runtime import process; process.read_secrets(); print(os.environ['REPLAN_STORE'])"


def read(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_a_secret_is_read_from_a_file_if_one_is_named(tmp_path: Path) -> None:
    """Without the end of the line, which editors add."""
    (tmp_path / "store").write_text("postgresql://user:secret@host/replan\n")

    assert read(REPLAN_STORE_FILE=str(tmp_path / "store")).stdout == "postgresql://user:secret@host/replan\n"
    assert read(REPLAN_STORE="sqlite:///x", REPLAN_STORE_FILE="").stdout == "sqlite:///x\n"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"REPLAN_STORE_FILE": "/not/here"}, "REPLAN_STORE_FILE names '/not/here', which cannot be read ("),
        ({"REPLAN_STORE_FILE": "x", "REPLAN_STORE": "y"}, "REPLAN_STORE and REPLAN_STORE_FILE are both set: unset one"),
    ],
)
def test_what_cannot_be_read_ends_the_process(environment: dict[str, str], words: str) -> None:
    done = read(**environment)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(words)


def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    """The sentence says as whom the process runs, and who must read it."""
    (file := tmp_path / "key").write_text("a key")
    file.chmod(0o000)
    if os.access(file, os.R_OK):
        pytest.skip("root reads every file: tests/containers has a user")
    done = read(REPLAN_STORE_FILE=str(file))

    assert done.returncode == 2
    assert f"which user {os.getuid()} may not read" in done.stderr


def test_a_service_stays_where_a_restart_cannot_help() -> None:
    environment = {**os.environ, "REPLAN_STAY": "1"}
    command = [sys.executable, "-m", "replan", "worker", "--no-such-option"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = [process.stderr.readline()]
        while said[-1] and "REPLAN_STAY" not in said[-1]:
            said.append(process.stderr.readline())
        stays = process.poll() is None
        process.terminate()
    ended = subprocess.run(
        [*command[:3], "no-such-command"], cwd=ROOT, env=environment, capture_output=True, check=False
    )

    assert stays
    assert "--no-such-option" in "".join(said)
    assert ended.returncode == 2


def test_every_secret_of_replan_can_be_in_a_file() -> None:
    assert {*(one.key for one in PROVIDERS.values()), SIGNING_KEY, "TEMPORAL_API_KEY", "REPLAN_STORE"} <= {*SECRETS}
    assert all(f"`{name}`" in (ROOT / "docs" / "operations.md").read_text() for name in SECRETS)
