"""Worker processes as a user starts them, for tests that run the whole."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass
class Processes:
    """Commands of the checkout, all with one server address and one state folder."""

    address: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def _environment(self) -> dict[str, str]:
        state = str(self.folder / "state")
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "OPENAI_"))}
        return {**ours, "TEMPORAL_ADDRESS": self.address, "REPLAN_STATE": state, **self.environment}

    @contextmanager
    def worker(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """A worker that said `ready`; none is left behind."""
        command = [sys.executable, str(ROOT / "worker.py"), *options]
        log = self.folder / "worker.log"
        with log.open("a") as errors:
            process = subprocess.Popen(
                command, env=self._environment, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
            )
        with process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("ready"), log.read_text()
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait(30)

    def starter(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the console to its end."""
        return self.run([sys.executable, str(ROOT / "starter.py"), *words])

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run any command from the checkout."""
        return subprocess.run(
            command, env=self._environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
        )
