"""The four pages where one starts: each of their programs does what the page says, in the order of the page."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.dev_server import DevServer
from tests import documentation
from tests.processes import ROOT

SHUTDOWN = (-signal.SIGABRT, -signal.SIGSEGV)
"""How a process that has used Temporal's SDK may end after all of its work: threads of its core still call Python."""


def played(page: str, folder: Path, **environment: str) -> list[tuple[str, int, str]]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    programs = documentation.files(text)
    for name, content in programs.items():
        (folder / name).write_text(content)
    (folder / "starter.py").symlink_to(ROOT / "starter.py")
    found = []
    for line in documentation.read(page, text):
        program, *words = line.command.split()
        if program == "cat":
            found.append((line.command, 0, (folder / words[0]).read_text()))
        elif words[0] in programs:
            ours = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
            command = [sys.executable, *words]
            done = subprocess.run(command, cwd=folder, env=ours, capture_output=True, text=True, timeout=60)
            found.append((line.command, done.returncode, done.stdout + done.stderr))
    return found


@pytest.mark.parametrize("page", ["start-functions.md", "start-mcp.md"])
def test_what_was_paid_before_a_kill_is_found_and_not_paid_again(page: str, tmp_path: Path) -> None:
    (_, killed, _), (_, again, said), (_, _, paid) = played(page, tmp_path)

    assert (killed, again) == (-signal.SIGKILL, 0), said
    assert "charged 12.00" in said and ("found" in said or "Not done again" in said)
    assert paid == "17 12.00\n"


def test_the_line_ends_retries_that_cannot_help(tmp_path: Path, server: DevServer) -> None:
    without, with_it = played("start-worker.md", tmp_path, TEMPORAL_ADDRESS=server.address)

    assert {without[1], with_it[1]} <= {0, *SHUTDOWN}
    assert [said.count("attempt ") for _, _, said in (without, with_it)] == [4, 1]
    assert all("failed: [WorkflowFailureError" in said for _, _, said in (without, with_it))
