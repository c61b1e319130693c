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
    """What a process says of the store that it was given."""
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_a_secret_is_read_from_a_file(tmp_path: Path) -> None:
    """Without the end of the line, which editors add."""
    (tmp_path / "store").write_text("postgresql://user:secret@host/replan\n")

    assert read(REPLAN_STORE_FILE=str(tmp_path / "store")).stdout == "postgresql://user:secret@host/replan\n"


def test_a_variable_without_a_file_stays() -> None:
    """Also with an empty name of a file."""
    assert read(REPLAN_STORE="sqlite:///x", REPLAN_STORE_FILE="").stdout == "sqlite:///x\n"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"REPLAN_STORE_FILE": "/not/here"}, "REPLAN_STORE_FILE names '/not/here', which cannot be read ("),
        ({"REPLAN_STORE_FILE": "x", "REPLAN_STORE": "y"}, "REPLAN_STORE and REPLAN_STORE_FILE are both set: unset one"),
    ],
)
def test_what_cannot_be_read_ends_the_process(environment: dict[str, str], words: str) -> None:
    """With one sentence, and the code for bad usage."""
    done = read(**environment)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(words)


def test_every_secret_of_replan_can_be_in_a_file() -> None:
    """The keys of all providers, the server's, the store's URL and what signs notifications."""
    assert {*(one.key for one in PROVIDERS.values()), SIGNING_KEY, "TEMPORAL_API_KEY", "REPLAN_STORE"} <= {*SECRETS}
    assert all(f"`{name}`" in (ROOT / "docs" / "operations.md").read_text() for name in SECRETS)
