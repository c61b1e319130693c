"""Tab completion in a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate import sampled
from tests.processes import ROOT

ASK = """
source console/completion.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_replan_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""What bash does when somebody presses Tab after these words."""


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    bash = shutil.which("bash")
    assert bash is not None
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [bash, "--norc", "-c", ASK, "bash", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


TABS = [
    (("python", "starter.py", "sh"), ["show"]),
    ((sys.executable, str(ROOT / "starter.py"), "sh"), ["show"]),
    (("python3", "starter.py", "list", "--stat"), ["--status"]),
    (("python", "starter.py", "start", "--task", '"a b; $(c)"', "--too"), ["--tool-calls"]),
    (("python", "starter.py", "nothing-begins-so"), []),
    (("python", "other.py", "sh"), []),
    (("python", ""), []),
]


@pytest.mark.parametrize(
    ("words", "offered"),
    sampled({" ".join(tab[0]): tab for tab in TABS}, "python3 starter.py list --stat", "python other.py sh", "python "),
)
def test_tab_offers_commands_and_options(words: tuple[str, ...], offered: list[str]) -> None:
    """For `python starter.py`, wherever the two lie; nothing of ours for another script."""
    assert completed(*words) == offered


def test_tab_offers_every_command() -> None:
    """After the script's name alone."""
    assert {"start", "list", "show", "cancel", "reset", "export"} <= set(completed("python", "starter.py", ""))
