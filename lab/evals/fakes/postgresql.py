"""A PostgreSQL cluster on loopback, in a temporary folder: it can be stopped, killed and restarted.

Needs the extra `postgresql`, and the programs of PostgreSQL.
"""

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
"""The user and password of PostgreSQL in tests; the password must never appear in an output or a log."""
FAST = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "autovacuum=off")
"""Options for speed: data survives the death of a process, but may be lost if the machine crashes."""


class PostgresFailed(RuntimeError):
    """PostgreSQL could not be set up or started; the message says why."""


def find_postgresql() -> Path | None:
    """The folder with `initdb` and `postgres` of the newest installed version; None without PostgreSQL."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    versions = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    return versions[-1].parent if versions else None


class Cluster:
    """One PostgreSQL server with its files and databases."""

    def __init__(
        self, binaries: Path, home: Path, port: int, *, user: str, password: str, options: Sequence[str], log: Path
    ) -> None:
        """`home` is an existing folder for the cluster; `make` creates its files, and `start` starts the server."""
        self.port = port
        self._binaries, self._home, self._log, self._options = binaries, home, log, options
        self._user, self._password = user, password
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: psycopg.Connection[Any] | None = None

    @property
    def pid(self) -> int:
        """The id of the server's main process. Raises PostgresFailed before `start`."""
        if self._process is None:
            raise PostgresFailed("PostgreSQL was not started.")
        return self._process.pid

    def make(self) -> None:
        """Create the cluster's files, with a user who logs in with the password. Raises PostgresFailed on failure."""
        (self._home / "password").write_text(self._password, encoding="utf-8")
        for path in (self._home, *self._home.iterdir()) if os.getuid() == 0 else ():
            shutil.chown(path, "nobody")
        options = ["-D", f"{self._home}/data", "-U", self._user, "-A", "scram-sha-256"]
        options += ["--pwfile", f"{self._home}/password", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync"]
        command = [*_unprivileged(), str(self._binaries / "initdb"), *options]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, cwd=self._home)  # noqa: S603
        if done.returncode != 0:
            raise PostgresFailed(f"initdb failed: {done.stderr}")

    async def start(self) -> None:
        """Start the server, and wait at most START_SECONDS for its answer.

        Raises PostgresFailed if the server ends, or does not answer in time.
        """
        listen = ["-h", "127.0.0.1", "-p", str(self.port), "-k", "", "-D", f"{self._home}/data"]
        self._process = spawn([*_unprivileged(), str(self._binaries / "postgres"), *listen, *self._options], self._log)
        for _ in range(START_SECONDS * 20):
            if self._answers():
                return
            if await exited(self._process, 0.05):
                break
        how = f"did not answer within {START_SECONDS} s" if self._process.poll() is None else "ended while it started"
        raise PostgresFailed(f"PostgreSQL {how} ({last_line(self._log)}): look into {self._log}.")

    async def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT shuts it down without waiting for clients, SIGQUIT and SIGKILL crash it."""
        if self._admin:
            self._admin.close()
        if self._process and self._process.poll() is None:
            self._process.send_signal(how)
            await exited(self._process, START_SECONDS)
            await end(self._process)

    def url(self, database: str) -> str:
        """The URL of a database for SQLAlchemy, with the password."""
        return self._uri(database, "postgresql+psycopg")

    def create(self, template: str = "template1") -> str:
        """Create a database, and return its name."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop(self, name: str) -> None:
        """Drop a database, even one with open connections."""
        self.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def writes(self) -> Any:
        """A number that grows with each transaction that writes; if the number is the same, nothing was written."""
        return self.run("SELECT pg_snapshot_xmax(pg_current_snapshot())")

    def run(self, statement: str) -> Any:
        """Run an SQL statement outside of a transaction; returns the first value of the first row; None without one."""
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
        return subprocess.run(command, check=False).returncode == 0  # noqa: S603


@asynccontextmanager
async def running(
    binaries: Path, port: int, *, user: str, password: str, options: Sequence[str], log: Path
) -> AsyncIterator[Cluster]:
    """Run a new cluster, and remove it afterwards. Raises PostgresFailed if it cannot be created or started."""
    with tempfile.TemporaryDirectory(prefix="replan-postgresql-") as folder:
        cluster = Cluster(binaries, Path(folder), port, user=user, password=password, options=options, log=log)
        cluster.make()
        try:
            await cluster.start()
            yield cluster
        finally:
            await cluster.stop()


def _unprivileged() -> list[str]:
    """The words before a command that make it run as `nobody` if we are root: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise PostgresFailed("PostgreSQL does not run as root, and there is no setpriv: run this as another user.")
    # Changing the user clears the parent-death signal, so it is set again.
    return [setpriv, "--reuid=nobody", "--clear-groups", "--pdeathsig=KILL", "--"]
