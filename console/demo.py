"""`make demo`: a server and a worker on a fresh world, one task that meets a changed world, and a look at it."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TASK = "book a slot for the team at 14:00, then search the documents for refund policy and calculate 18% of 2450"
STOP_SECONDS = 20


def main() -> int:
    """Show one task from its words to its result; everything that was started is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="replan-demo-") as state:
        environment = {**os.environ, "TEMPORAL_ADDRESS": f"localhost:{_free_port()}", "REPLAN_STATE": state}
        with _worker(environment, Path(state) / "worker.log") as ready:
            print(ready)
            print(f'$ python starter.py --task "{TASK}"\n', flush=True)
            code = subprocess.run(  # noqa: S603  # our own script
                [sys.executable, str(ROOT / "starter.py"), "--task", TASK], env=environment
            ).returncode
            _wait_for_enter(ready)
    return code


@contextmanager
def _worker(environment: dict[str, str], log: Path) -> Iterator[str]:
    """A worker with a server of its own; yields the line in which it says where everything is."""
    command = [sys.executable, str(ROOT / "worker.py"), "--dev", "--fresh"]
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


def _wait_for_enter(ready: str) -> None:
    """Keep server and worker up while a person looks at the web UI."""
    ui = ready.split("ui ", 1)[-1].split()[0]
    if sys.stdin.isatty() and sys.stdout.isatty():
        try:
            input(f"Web UI {ui} stays up until you press Enter ")
        except (EOFError, KeyboardInterrupt):
            print()
    else:
        print(f"Web UI {ui} is closed again, because this is no terminal")


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


if __name__ == "__main__":
    sys.exit(main())
