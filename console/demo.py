"""`make demo`: run a server, a worker with fresh data, and one task that is re-planned after a rejected call."""

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

from extras import plugins

ROOT = Path(__file__).resolve().parent.parent
SEARCH = "search the documents for refund policy and " if "documents" in plugins() else ""
TASK = f"book a slot for the team at 14:00, then {SEARCH}calculate 18% of 2450"
"""In fresh data, 14:00 is taken: the first plan's call is rejected, and a new plan is made."""
STOP_SECONDS = 20


@dataclass(frozen=True)
class Playground:
    """A running server and worker."""

    ready: str
    """The line that the worker prints when it is ready for tasks; it names the web UI."""
    environment: Mapping[str, str]
    """The environment variables with which `starter.py` finds the server."""

    @property
    def ui(self) -> str:
        """The URL of the web UI."""
        return self.ready.split("ui ", 1)[-1].split()[0]


@contextmanager
def open_playground(*options: str) -> Iterator[Playground]:
    """Run a worker with these options, and its server, until the block ends. Raises SystemExit if it does not start."""
    with tempfile.TemporaryDirectory(prefix="replan-demo-") as state:
        environment = {**os.environ, "TEMPORAL_ADDRESS": f"localhost:{_free_port()}", "REPLAN_STATE": state}
        environment["CARDS"] = f"{state}/cards.txt"  # of examples/cards.py
        with running_worker(environment, "--fresh", *options) as ready:
            yield Playground(ready, environment)


def starter(*args: str) -> list[str]:
    """The command that runs `starter.py` with these arguments, for `subprocess`."""
    return [sys.executable, str(ROOT / "starter.py"), *args]


@contextmanager
def running_worker(environment: Mapping[str, str], *options: str) -> Iterator[str]:
    """Run a worker until the block ends, and yield the line that it prints when it is ready."""
    command = [sys.executable, str(ROOT / "worker.py"), "--dev", "--planner", "offline", *options]
    log = Path(environment["REPLAN_STATE"]) / "worker.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(  # noqa: S603  # our own script
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8"
        )
    assert process.stdout is not None  # noqa: S101  # for the type checker: stdout=PIPE
    try:
        ready = next((line.strip() for line in process.stdout if line.startswith("ready")), None)
        if ready is None:
            raise SystemExit(f"The worker did not start:\n{log.read_text(encoding='utf-8', errors='replace')}")
        yield ready
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _free_port() -> int:
    """A free port for the server; the port 1000 above it, for the web UI, is free as well."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])  # the port that the system chose
        try:
            with socket.create_server(("127.0.0.1", port + 1000)):
                return port
        except (OSError, OverflowError):
            continue


def main() -> int:
    with open_playground() as playground:
        print(playground.ready)
        print(f'$ python starter.py --task "{TASK}"\n', flush=True)
        code = subprocess.run(starter("--task", TASK), env=playground.environment).returncode  # noqa: S603  # our own script
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            print(f"Web UI {playground.ui} is closed again, because this is not a terminal")
            return code
        where = f"TEMPORAL_ADDRESS={playground.environment['TEMPORAL_ADDRESS']} {sys.executable} {ROOT / 'starter.py'}"
        print(f"The server of this demo is for it alone. In a second terminal: {where} explain")
        try:
            input(f"Web UI {playground.ui} stays up until you press Enter ")
        except (EOFError, KeyboardInterrupt):
            print()
    return code


if __name__ == "__main__":
    sys.exit(main())
