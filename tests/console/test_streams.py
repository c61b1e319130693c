"""Where output goes nowhere, and Ctrl-C before there is any: no traceback, and the exit code is a promise."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.dev_server import DevServer
from tests.gate import sampled
from tests.processes import ROOT, Processes

LOOKS = {
    " ".join(words): [words]
    for words in (
        ("list",),
        ("list", "--json"),
        ("show", "no-such-task"),
        ("show", "no-such-task", "-f", "--jsonl"),
        ("--help",),
        ("start", "--task", "x", "--detach", "--id", "unheard", "--queue", "nobody-there"),
    )
}
MODULES = ["runtime", "typer", "console.app", "temporalio.service", "temporalio.client"]
FULL = "The output cannot be written (No space left on device): make room, or send it elsewhere.\n"
ENCRYPTED = "note: the tasks named (encrypted) can be read with `--keys` or `--codec`, as the workers have them\n"
"""What `list` adds if another test has left an encrypted task on the shared server."""


@pytest.fixture
def commands(server: DevServer, tmp_path: Path) -> Processes:
    """Commands for the shared server, which has no worker."""
    return Processes(server.address, tmp_path)


def redirected(commands: Processes, where: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose streams a shell has redirected."""
    return commands.run(["sh", "-c", f'exec "$@" {where}', "sh", sys.executable, str(ROOT / "starter.py"), *words])


@pytest.mark.parametrize("words", sampled(LOOKS, "show no-such-task"))
def test_a_closed_stdout_changes_no_exit_code(commands: Processes, words: tuple[str, ...]) -> None:
    """`>&-`: nothing is printed, all else is as ever."""
    done, usual = redirected(commands, ">&-", *words), commands.starter(*words)

    assert (done.returncode, done.stdout, done.stderr) == (usual.returncode, "", usual.stderr)


@pytest.mark.parametrize("words", sampled({name: LOOKS[name] for name in ("list", "list --json", "--help")}, "list"))
def test_a_full_disk_is_a_sentence_and_1(commands: Processes, words: tuple[str, ...]) -> None:
    """What was asked is not where it should be."""
    done = redirected(commands, ">/dev/full", *words)

    assert (done.returncode, done.stderr.removeprefix(ENCRYPTED)) == (1, FULL)


def test_a_mistake_that_cannot_be_said_keeps_its_exit_code(commands: Processes) -> None:
    """`2>/dev/full`: 2 for an unknown id, as ever."""
    done = redirected(commands, "2>/dev/full", "show", "no-such-task")

    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("module", sampled({module: [module] for module in MODULES}, "temporalio.client"))
def test_ctrl_c_while_it_is_loaded_is_quiet(commands: Processes, module: str) -> None:
    """Right after this module was imported: exit code 130, no traceback and no warning."""
    command = [sys.executable, "-X", "importtime", str(ROOT / "starter.py"), "list", "--address", commands.address]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rpartition("|")[2].strip() == module:
                process.send_signal(signal.SIGINT)
                break
        rest = [line for line in process.stderr if not line.startswith("import time:")]
        code = process.wait(60)

    assert (code, rest) == (130, [])
