"""Secrets in files, as containers have them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from activities.notification import SIGNING_KEY
from activities.providers.registry import PROVIDERS
from runtime.process import SECRETS
from tests.processes import ROOT

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
