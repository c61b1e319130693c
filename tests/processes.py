"""Worker processes as a user starts them, for tests that run the whole."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import preloaded

ROOT = Path(__file__).parents[1]
READY_SECONDS, END_SECONDS = 60, 30
"""How long a worker may take to say `ready`, and to end."""
PATIENCE = 100.0
"""Seconds that a command may take."""
Running = subprocess.Popen[str] | preloaded.Forked
"""A process that can be signalled, waited for, and read."""


@dataclass
class Processes:
    """Commands of the checkout or of a wheel, all with one server address and one state folder."""

    address: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    installed: Path | None = None
    """The program `replan` of a wheel, which is run in `folder`; None for the scripts of the checkout."""

    @property
    def _cwd(self) -> Path:
        return self.folder if self.installed else ROOT

    @property
    def _environment(self) -> dict[str, str]:
        state = str(self.folder / "state")
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "OPENAI_"))}
        return {
            **ours,
            "TEMPORAL_ADDRESS": self.address,
            "REPLAN_STATE": state,
            "PYTHONFAULTHANDLER": "1",
            **self.environment,
        }

    @contextmanager
    def worker(self, *options: str) -> Iterator[Running]:
        """A worker that said `ready`; none is left behind.

        Raises AssertionError where it ended instead, or said nothing for READY_SECONDS.
        """
        log = self.folder / "worker.log"
        with self._begun(options, log) as process:
            try:
                _wait_until_ready(process, " ".join(options), log)
                yield process
            finally:
                _end(process)

    def _begun(self, options: Sequence[str], log: Path) -> Running:
        with log.open("a") as errors:
            if self.installed is None and preloaded.can_run(self.environment):
                return preloaded.Forked.piped(preloaded.WORKER, options, self._environment, errors.fileno())
            script = [str(self.installed), "worker"] if self.installed else [sys.executable, str(preloaded.WORKER)]
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
            return subprocess.Popen([*script, *options], env=self._environment, cwd=self._cwd, **pipes)

    def starter(self, *words: str) -> subprocess.CompletedProcess[str]:
        if self.installed:
            return self.run([str(self.installed), *words])
        return self._run_script(preloaded.STARTER, *words)

    def asked(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What the checkout's worker answers without serving tasks, as with `--check`."""
        return self._run_script(preloaded.WORKER, *words)

    def _run_script(self, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
        if preloaded.can_run(self.environment):
            return preloaded.run(words, self._environment, PATIENCE, script)
        return self.run([sys.executable, str(script), *words])

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run any command from the checkout, or from the folder of those who installed the wheel."""
        return subprocess.run(
            command, env=self._environment, cwd=self._cwd, capture_output=True, text=True, check=False, timeout=PATIENCE
        )


def _wait_until_ready(process: Running, options: str, log: Path) -> None:
    """Read the line `ready`, the first that a worker says."""
    assert process.stdout is not None
    heard, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
    if not heard:
        process.send_signal(signal.SIGABRT)  # Python then writes into the log where each of its threads is
        process.wait()
    line = process.stdout.readline() if heard else f"nothing for {READY_SECONDS} s"
    assert line.startswith("ready"), f"`worker.py {options}` said {line!r} and not `ready`; its log: {log.read_text()}"


def _end(process: Running) -> None:
    """Stop a process; one that does not stop is killed, and that is a failure."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # or whoever waits for its end would wait for ever
            raise


def written(folder: Path, text: str, name: str = "shop.toml") -> Path:
    """A tools file."""
    file = folder / name
    file.write_text(text)
    return file


def wait_until(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether something holds within a time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
