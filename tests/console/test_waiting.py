"""While no worker answers: who follows is told so once, with the queue of the task, and how to come back."""

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from runtime.dev_server import DevServer
from tests import preloaded
from tests.gate import sampled
from tests.processes import PATIENCE, ROOT, Processes

ID = "it's waiting"
WORDS = "no worker answers on queue else where: python worker.py --queue 'else where'  (still waiting)"
SHOWN = """'it'"'"'s waiting'"""


@pytest.fixture(scope="module")
def commands(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Commands for the shared server, with a task on a queue that no worker serves."""
    commands = Processes(server.address, tmp_path_factory.mktemp("waiting"))
    commands.starter("--task", "wait", "--id", ID, "--queue", "else where", "--detach")
    yield commands
    commands.starter("cancel", ID)


def left(commands: Processes, *words: str) -> tuple[str, str, str, int]:
    """What a follower says first, and all that stdout and stderr have after Ctrl-C, with the exit code."""
    out, errors = commands.folder / "out", commands.folder / "errors"
    command = [preloaded.python(), str(preloaded.STARTER), *words, "--address", commands.address]
    with out.open("w") as to, errors.open("w") as and_to:
        process = subprocess.Popen(command, cwd=ROOT, stdout=to, stderr=and_to)
        until = time.monotonic() + PATIENCE
        while "\n" not in out.read_text() + errors.read_text() and process.poll() is None:
            assert time.monotonic() < until, f"{words} said nothing within {PATIENCE} s"
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        code = process.wait(30)
    first = (out.read_text() + errors.read_text()).split("\n", maxsplit=1)[0]
    return first.strip(), out.read_text(), errors.read_text(), code


FOLLOWED = {"show": ("show", ID, "--follow"), "a document": ("show", ID, "--follow", "--json")}
CALLED = {
    "call": ("call", "nap", "--queue", "else where"),
    "its result": ("call", "nap", "--queue", "else where", "--json"),
}
LEFT = {name: (words, f"Follow: python starter.py show {SHOWN} --follow") for name, words in FOLLOWED.items()}
LEFT |= {name: (words, "Follow: python starter.py show call-nap-") for name, words in CALLED.items()}


@pytest.mark.parametrize(("words", "back"), sampled(LEFT, "show"))
def test_who_follows_is_told_once_which_worker_is_missing(
    commands: Processes, words: tuple[str, ...], back: str
) -> None:
    """With the queue of the task, also without `--queue`; after Ctrl-C how to come back, since the task goes on.

    With --json all of the words are on stderr.
    """
    said, out, errors, code = left(commands, *words)

    assert (said, code, "\n" in out) == (WORDS, 130, words == FOLLOWED["show"])
    assert "detached; still running." in errors and back in errors and "Traceback" not in errors
    if words[0] == "call":
        assert commands.starter("cancel", errors.split()[-1]).returncode == 0
    else:
        assert f"Stop: python starter.py cancel {SHOWN}\n" in " ".join(errors.split(" "))


@pytest.mark.parametrize("words", [("show", ID), ("effects", ID)], ids=lambda words: str(words[0]))
def test_a_look_names_the_queue_of_the_task(commands: Processes, words: tuple[str, ...]) -> None:
    """Those that ask a worker once, and end with 6."""
    done = commands.starter(*words)

    assert done.returncode == 6
    assert "start one with `python worker.py --queue 'else where'`." in done.stderr
