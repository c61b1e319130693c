"""`make test-stack` and `make test-containers` without the programs that they need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

COMMANDS = {
    "containers": ("-m", "tests.containers.images"),
    "stack": ("-m", "tests.stack.programs"),
    "tests of containers": ("-m", "pytest", "-q", "tests/containers"),
    "tests of the stack": ("-m", "pytest", "-q", "tests/stack"),
}
"""What the targets run."""


def ended(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python on a machine without any program, as root or not."""
    others = {name: value for name, value in os.environ.items() if name not in ("CONTAINERS", "TESTS_OPTIONAL")}
    nothing = {"PATH": str(folder), "XDG_CACHE_HOME": str(folder), "CONTAINERS": "docker"}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=ROOT, env={**others, **nothing, **environment}, capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("name", [*list(COMMANDS)[:3], pytest.param(list(COMMANDS)[3], marks=pytest.mark.full)])
def test_a_target_that_runs_nothing_fails_and_says_what_to_install(tmp_path: Path, name: str) -> None:
    """Else who asked for these tests would take the exit code 0 for their success."""
    done = ended(tmp_path, *COMMANDS[name])

    assert done.returncode == 2
    assert "No test was run. " in done.stdout + done.stderr
    assert "`apt-get install " in done.stdout + done.stderr


def test_with_all_tests_containers_are_skipped_where_they_cannot_be_had(tmp_path: Path) -> None:
    """`make test-all` runs what can run here, and says what did not."""
    made = ended(tmp_path, *COMMANDS["containers"], TESTS_OPTIONAL="1")

    assert (made.returncode, "skipped. " in made.stdout) == (0, True)
    assert "TESTS_OPTIONAL=1 $(MAKE) --no-print-directory test-containers" in (ROOT / "Makefile").read_text()
