"""The options of both entry scripts: `-h` and `--version`."""

import subprocess
import sys

import pytest

from tests.installation import VERSION
from tests.processes import ROOT

SCRIPTS = pytest.mark.parametrize("script", [pytest.param("worker.py", marks=pytest.mark.full), "starter.py"])


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, script, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@SCRIPTS
@pytest.mark.parametrize("flag", ["-h", pytest.param("--help", marks=pytest.mark.full)])
def test_help_is_short_and_long(script: str, flag: str) -> None:
    done = run(script, flag)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout and "--version" in done.stdout


@SCRIPTS
def test_the_version_is_one_line(script: str) -> None:
    done = run(script, "--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"Replan {VERSION}\n", "")
