"""PostgreSQL on loopback, with the settings of docker-compose.yml, in a folder that is gone afterwards."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from runtime.child import end, exited, last_line, spawn

START_SECONDS = 60


class PostgresFailed(RuntimeError):
    """It did not start; the message is what it said last."""


@asynccontextmanager
async def running(
    binaries: Path, port: int, *, user: str, password: str, options: Sequence[str], log: Path
) -> AsyncIterator[None]:
    """A new cluster that takes this user and password over TCP. Raises PostgresFailed."""
    with tempfile.TemporaryDirectory(prefix="replan-postgresql-") as folder:
        home = Path(folder)
        (home / "password").write_text(password)
        _give_away(home)
        _make(binaries, home, user)
        listen = ["-h", "127.0.0.1", "-p", str(port), "-k", "", "-D", str(home / "data")]
        process = spawn([*_as_somebody(), str(binaries / "postgres"), *listen, *options], log)
        try:
            for _ in range(START_SECONDS * 4):
                if _answers(binaries, port) or await exited(process, 0.25):
                    break
            if process.poll() is not None:
                raise PostgresFailed(f"PostgreSQL ended while it started ({last_line(log)}): look into {log}.")
            yield
        finally:
            await end(process)


def _make(binaries: Path, home: Path, user: str) -> None:
    asked = ["-D", str(home / "data"), "-U", user, "-A", "scram-sha-256", "--pwfile", str(home / "password")]
    command = [*_as_somebody(), str(binaries / "initdb"), *asked, "-E", "UTF8", "--locale", "C.UTF-8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=home)
    if done.returncode != 0:
        raise PostgresFailed(f"initdb failed: {done.stderr}")


def _answers(binaries: Path, port: int) -> bool:
    command = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(command, check=False).returncode == 0


def _as_somebody() -> list[str]:
    """What makes us another user, since PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise PostgresFailed("PostgreSQL does not run as root, and there is no setpriv: run this as somebody else.")
    # The kernel forgets whose death should end a process when that changes its user, so it is said again.
    return [setpriv, "--reuid=nobody", "--clear-groups", "--pdeathsig=KILL", "--"]


def _give_away(home: Path) -> None:
    if os.getuid() == 0:
        for path in (home, *home.iterdir()):
            shutil.chown(path, "nobody")
