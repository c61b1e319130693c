"""Tab completion in a real bash."""

import asyncio
import os
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from runtime.dev_server import DevServer
from tests import preloaded
from tests.gate import sampled
from tests.processes import ROOT, Processes

ASK = """
source console/completion.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_replan_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""What bash does when somebody presses Tab after these words."""


class Tab:
    """Presses Tab in a shell whose PATH has the command `replan`."""

    def __init__(self, folder: Path, python: str) -> None:
        """With a script in this folder, as the one that an installation makes, and what it runs."""
        self.folder = folder
        (folder / "replan").write_text(f'#!/bin/sh\nexec {python} -m replan "$@"\n')
        (folder / "replan").chmod(0o755)

    def __call__(self, *words: str, address: str = "localhost:1") -> list[str]:
        """What bash offers for the last word."""
        path = f"{self.folder}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "TEMPORAL_ADDRESS": address}
        command = ["bash", "--norc", "-c", ASK, "bash", *words]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stderr == ""
        return done.stdout.split()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Tab:
    return Tab(tmp_path_factory.mktemp("bin"), preloaded.python())


TABS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "a command": (("replan", "sh"), ["show"]),
    "an option": (("replan", "list", "--stat"), ["--status"]),
    "a state": (("replan", "list", "--status", "wa"), ["waiting"]),
    "an answer": (("replan", "answer", "t", "re"), ["reject", "retry", "replan", "reply"]),
    "after quotes": (("replan", "start", "--task", '"a b; $(c)"', "--too"), ["--tool-calls"]),
    "nothing": (("replan", "nothing-begins-so"), []),
}


@pytest.mark.parametrize(("words", "offered"), sampled(TABS, "a command", "a state", "an answer"))
def test_tab_offers_what_may_stand_there(tab: Tab, words: tuple[str, ...], offered: list[str]) -> None:
    """Commands, options, states and answers, without a server."""
    assert tab(*words) == offered


def test_tab_offers_every_command(tmp_path: Path) -> None:
    """After the program's name alone; here of a fresh interpreter, as a user's. `python` may have a completion already,
    and runs everything else, too: it is left alone."""
    offered = Tab(tmp_path, sys.executable)("replan", "")
    command = ["bash", "--norc", "-c", "source console/completion.bash; complete -p"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert {"start", "list", "show", "cancel", "reset", "export"} <= {*offered}
    assert {line.split()[-1] for line in shown.stdout.splitlines()} == {"replan", "starter.py"}


async def test_tab_offers_ids_and_kinds_of_a_server(tab: Tab, server: DevServer, tmp_path: Path) -> None:
    """Of tasks that begin so, and of the tools of a worker."""
    processes = Processes(server.address, tmp_path)
    queue = f"tab-{uuid.uuid4().hex[:8]}"
    with processes.worker("--queue", queue, "--planner", "offline"):
        for number in (1, 2):
            processes.starter("--task", "calculate 1 + 1", "--id", f"{queue}-{number}", "--queue", queue)
        offered = await asyncio.to_thread(tab, "replan", "show", f"{queue}-", address=server.address)
        calls = ("replan", "call", "--queue", queue, "calc")
        kinds = await asyncio.to_thread(tab, *calls, address=server.address)

    assert sorted(offered) == [f"{queue}-1", f"{queue}-2"]
    assert kinds == ["calculate"]


@pytest.mark.parametrize("words", [("replan", "show", ""), ("replan", "tools", "")], ids=" ".join)
def test_without_a_server_tab_offers_nothing_and_is_silent(tab: Tab, words: tuple[str, ...]) -> None:
    """Also a server that takes the connection and says nothing holds nobody up."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        offered = tab(*words, address=f"127.0.0.1:{silent.getsockname()[1]}")

    assert offered == [] and time.monotonic() - began < 10
