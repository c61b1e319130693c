"""Whether the owner of a call lives: by a lock that the kernel frees, of a file that nobody can exchange."""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from activities.effects.owner import Evidence, Life, Owner, evidence

HOLDER = """
import os, subprocess, sys, time
from pathlib import Path
from activities.effects.owner import Owner
owner = Owner(Path(sys.argv[1]), is_watched=True)
if "fork" in sys.argv and os.fork() == 0:
    os.write(1, f"child {os.getpid()}\\n".encode())  # at once, or the lines of both mix
    time.sleep(60)
if "spawn" in sys.argv:
    subprocess.Popen(["sleep", "60"], close_fds=False)
os.write(1, f"{owner.row}\\n".encode())
time.sleep(60)
"""


class Holder:
    """A process that is an owner."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder), *words],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(2 if "fork" in words else 1)]
        self.row: dict[str, Any] = ast.literal_eval(next(line for line in lines if not line.startswith("child")))

    def evidence(self, **changes: Any) -> Evidence:
        """What this process knows of it."""
        row = {"lease": None, "ended_at": None, "died_at": None, **self.row, **changes}
        return evidence(SimpleNamespace(**row), 0.0, is_local=True)

    def end(self) -> None:
        """Kill it, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def holder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Holder]:
    """An owner in a process of its own."""
    made = Holder(tmp_path, *getattr(request, "param", ()))
    yield made
    made.end()


def test_a_stopped_process_lives_and_a_killed_one_is_dead(holder: Holder) -> None:
    """SIGSTOP frees nothing; SIGKILL frees the lock at once."""
    os.kill(holder.process.pid, signal.SIGSTOP)
    stopped = holder.evidence()
    holder.end()

    assert stopped == Evidence(Life.LIVES)
    assert holder.evidence() == Evidence(Life.DEAD)


@pytest.mark.parametrize("holder", [("fork",), ("spawn",)], indirect=True)
def test_what_it_has_started_does_not_make_it_live(holder: Holder) -> None:
    """A forked child gives the lock back, and a started program never has it."""
    holder.process.kill()
    holder.process.wait()

    assert holder.evidence().life is Life.DEAD


def test_another_file_with_the_name_of_the_lock_proves_nothing(holder: Holder) -> None:
    """A file that was deleted and made anew is locked by nobody: the process decides, as far as it can be seen."""
    lock = Path(holder.row["lock_file"])
    lock.unlink()
    lock.write_bytes(b"-")

    seen, unseen = holder.evidence(), holder.evidence(pid_namespace=1)

    assert seen.life is Life.LIVES
    assert unseen.life is Life.UNKNOWN


def test_a_process_with_the_same_id_is_another_one(holder: Holder) -> None:
    """The id of a process is used again; its start is not."""
    Path(holder.row["lock_file"]).unlink()

    assert holder.evidence(started=1).life is Life.DEAD


def test_another_boot_ends_all_owners_of_a_file_and_no_owner_of_a_server(holder: Holder) -> None:
    """A file is used by the kernel of its machine; a database server by many machines."""
    row = SimpleNamespace(**{**holder.row, "boot": "another", "lease": 5.0, "ended_at": None, "died_at": None})

    assert evidence(row, 0.0, is_local=True) == Evidence(Life.DEAD)
    assert evidence(row, 4.0, is_local=False) == Evidence(Life.SEEN)
    assert evidence(row, 6.0, is_local=False) == Evidence(Life.UNKNOWN)


def test_a_dead_owner_that_started_a_process_says_so(tmp_path: Path) -> None:
    """What a call has started may still send something."""
    owner = Owner(tmp_path, is_watched=True)
    row = SimpleNamespace(**owner.row, lease=None, ended_at=None, died_at=None)
    owner.note_started_process()
    owner.close(is_in_order=False)

    assert evidence(row, 0.0, is_local=True) == Evidence(Life.DEAD, has_started_processes=True)


def test_without_hooks_nobody_knows_what_was_started(tmp_path: Path) -> None:
    """Then a dead owner may always have started something."""
    owner = Owner(tmp_path, is_watched=False)
    row = SimpleNamespace(**owner.row, lease=None, ended_at=None, died_at=None)
    owner.close(is_in_order=False)

    assert evidence(row, 0.0, is_local=True).has_started_processes
