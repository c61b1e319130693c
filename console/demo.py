"""`make demo`: a server and a worker on a fresh world, one task that meets a changed world, and a look at it."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TASK = "book a slot for the team at 14:00, then search the documents for refund policy and calculate 18% of 2450"
"""One that meets a changed world: in a fresh one 14:00 is taken."""
STOP_SECONDS = 20


@dataclass(frozen=True)
class Playground:
    """What runs, for as long as `opened` is open."""

    ready: str
    """The line in which the worker says where everything is."""
    environment: Mapping[str, str]
    """What our commands need to find it."""

    @property
    def ui(self) -> str:
        """Where its web UI is."""
        return self.ready.split("ui ", 1)[-1].split()[0]


@contextmanager
def opened(*options: str) -> Iterator[Playground]:
    """A worker with these options and a server of its own; everything that was started is stopped at the end.

    Raises:
        SystemExit: the worker did not start, with what it said.
    """
    with tempfile.TemporaryDirectory(prefix="replan-demo-") as state:
        environment = {**os.environ, "TEMPORAL_ADDRESS": f"localhost:{_free_port()}", "REPLAN_STATE": state}
        with _worker(environment, Path(state) / "worker.log", options) as ready:
            yield Playground(ready, environment)


def starter(*words: str) -> list[str]:
    """The command line of our console."""
    return [sys.executable, str(ROOT / "starter.py"), *words]


@contextmanager
def _worker(environment: Mapping[str, str], log: Path, options: tuple[str, ...]) -> Iterator[str]:
    command = [sys.executable, str(ROOT / "worker.py"), "--dev", "--fresh", "--planner", "offline", *options]
    with log.open("w") as errors:
        process = subprocess.Popen(  # noqa: S603  # our own script
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None  # noqa: S101  # for the type checker: stdout=PIPE
    try:
        ready = next((line.strip() for line in process.stdout if line.startswith("ready")), None)
        if ready is None:
            raise SystemExit(f"The worker did not start:\n{log.read_text()}")
        yield ready
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _free_port() -> int:
    """A port for the server whose neighbour 1000 above, the web UI's, is free as well."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
        try:
            with socket.create_server(("127.0.0.1", port + 1000)):
                return port
        except (OSError, OverflowError):
            continue


def main() -> int:
    """Show one task from its words to its result; everything that was started is stopped at the end."""
    with opened() as playground:
        print(playground.ready)
        print(f'$ python starter.py --task "{TASK}"\n', flush=True)
        code = subprocess.run(starter("--task", TASK), env=playground.environment).returncode  # noqa: S603  # our own script
        _wait_for_enter(playground.ui)
    return code


def _wait_for_enter(ui: str) -> None:
    """Keep server and worker up while a person looks at the web UI."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        try:
            input(f"Web UI {ui} stays up until you press Enter ")
        except (EOFError, KeyboardInterrupt):
            print()
    else:
        print(f"Web UI {ui} is closed again, because this is no terminal")


if __name__ == "__main__":
    sys.exit(main())
