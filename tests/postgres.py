"""PostgreSQL on loopback, in a folder that is gone afterwards: a cluster that can be stopped, killed and restarted."""

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import URL

from runtime.child import end, exited, last_line, spawn

DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian keeps PostgreSQL, a folder for each major version; its programs are not on PATH."""
MISSING = "PostgreSQL is not installed: `apt-get install postgresql`, or put its `initdb` on PATH, then again."
START_SECONDS = 60
USER, PASSWORD = "replan", "sk-secret"
"""For whoever has no others; the password must never be seen anywhere."""
HASTY = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "autovacuum=off")
"""For what need not outlive the machine: it is as safe from the death of processes as ever."""


class PostgresFailed(RuntimeError):
    """It did not start; the message is what it said last."""


def find_postgresql() -> Path | None:
    """The folder with `initdb` and `postgres`, of the newest version that is installed."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    versions = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    return versions[-1].parent if versions else None


class Cluster:
    """One PostgreSQL server with its databases."""

    def __init__(
        self, binaries: Path, home: Path, port: int, *, user: str, password: str, options: Sequence[str], log: Path
    ) -> None:
        """Be the one in `home`, a folder that exists; nothing is made or started yet."""
        self.port = port
        self._options = options
        self._binaries = binaries
        self._home = home
        self._user = user
        self._password = password
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: psycopg.Connection[Any] | None = None

    @property
    def pid(self) -> int:
        """The process whose end is the server's."""
        assert self._process is not None
        return self._process.pid

    def make(self) -> None:
        """Make its files, with a user who comes in over TCP with the password. Raises PostgresFailed."""
        (self._home / "password").write_text(self._password)
        _give_away(self._home)
        asked = ["-D", f"{self._home}/data", "-U", self._user, "-A", "scram-sha-256"]
        asked += ["--pwfile", f"{self._home}/password", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync"]
        command = [*_as_somebody(), str(self._binaries / "initdb"), *asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._home)
        if done.returncode != 0:
            raise PostgresFailed(f"initdb failed: {done.stderr}")

    async def start(self) -> None:
        """Start it, and return when it answers. Raises PostgresFailed."""
        listen = ["-h", "127.0.0.1", "-p", str(self.port), "-k", "", "-D", f"{self._home}/data"]
        self._process = spawn([*_as_somebody(), str(self._binaries / "postgres"), *listen, *self._options], self._log)
        for _ in range(START_SECONDS * 20):
            if self._answers() or await exited(self._process, 0.05):
                break
        if self._process.poll() is not None:
            raise PostgresFailed(f"PostgreSQL ended while it started ({last_line(self._log)}): look into {self._log}.")

    async def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: in order without waiting for its clients, or with SIGQUIT or SIGKILL as a crash does."""
        if self._admin:
            self._admin.close()
        if self._process and self._process.poll() is None:
            self._process.send_signal(how)
            await exited(self._process, START_SECONDS)
            await end(self._process)

    def url(self, database: str) -> str:
        """Where a database is, with the password, for SQLAlchemy."""
        return self._uri(database, "postgresql+psycopg")

    def create(self, template: str = "template1") -> str:
        """A new database: its name."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop(self, name: str) -> None:
        """Let a database be gone, whoever is connected to it."""
        self.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def writes(self) -> Any:
        """A number that grows with every transaction that writes anything, and with no other."""
        return self.run("SELECT pg_snapshot_xmax(pg_current_snapshot())")

    def run(self, statement: str) -> Any:
        """Run one statement outside of a transaction: the first value that it finds."""
        if self._admin is None or self._admin.closed:
            self._admin = psycopg.connect(self._uri("postgres", "postgresql"), autocommit=True)
        found = self._admin.execute(statement.encode())
        row = found.fetchone() if found.description else None
        return row and row[0]

    def _uri(self, database: str, scheme: str) -> str:
        url = URL.create(scheme, self._user, self._password, "127.0.0.1", self.port, database)
        return url.render_as_string(hide_password=False)

    def _answers(self) -> bool:
        command = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0


@asynccontextmanager
async def running(
    binaries: Path, port: int, *, user: str, password: str, options: Sequence[str], log: Path
) -> AsyncIterator[Cluster]:
    """A new cluster that takes this user and password over TCP. Raises PostgresFailed."""
    with tempfile.TemporaryDirectory(prefix="replan-postgresql-") as folder:
        cluster = Cluster(binaries, Path(folder), port, user=user, password=password, options=options, log=log)
        cluster.make()
        try:
            await cluster.start()
            yield cluster
        finally:
            await cluster.stop()


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
