"""MCP servers as others wrote them, at fixed versions, installed once into the user's cache with pip and npm."""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path

MISSING = "The servers cannot be installed: they need the registries of pip and npm, and Node."
INSTALL_SECONDS = 600.0

NEW = ("mcp==2.3.0", "mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19", "mcp-server-fetch==2026.10.24")
OLD = ("mcp==1.30.0", "mcp-server-sqlite==2025.4.25")
"""An older SDK, since the server does not start with the newer one. It knows the older handshake alone."""
NODE = tuple(f"@modelcontextprotocol/server-{name}@2026.8.31" for name in ("everything", "filesystem", "memory"))


class MissingServers(Exception):
    """The servers cannot be installed here; the message says why."""


def new_programs() -> Path:
    """The folder with the programs of the servers git, time and fetch. Raises MissingServers."""
    return _with_pip("mcp-servers-new", NEW)


def old_programs() -> Path:
    """The folder with that of the server sqlite. Raises MissingServers."""
    return _with_pip("mcp-servers-old", OLD)


def node_programs() -> Path:
    """The folder with those of the servers everything, filesystem and memory. Raises MissingServers."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise MissingServers(f"{MISSING} There is no {'node' if npm else 'npm'}.")
    with _installing("mcp-servers-node", NODE) as folder:
        if folder is not None:
            options = ["--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
            _run([npm, "install", *options, *NODE])
    return user_cache_path("replan") / "mcp-servers-node" / "node_modules" / ".bin"


def _with_pip(name: str, packages: Sequence[str]) -> Path:
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    with _installing(f"{name}-{python}", packages) as folder:
        if folder is not None:
            venv.create(folder, symlinks=True)
            _run([sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", *packages])
    return user_cache_path("replan") / f"{name}-{python}" / "bin"


@contextmanager
def _installing(name: str, packages: Sequence[str]) -> Iterator[Path | None]:
    """The folder into which to install, empty; None if the packages are there already."""
    cache = user_cache_path("replan", ensure_exists=True)
    folder, wanted = cache / name, "\n".join(packages)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes install the same
        done = folder / "installed"
        if done.exists() and done.read_text() == wanted:
            yield None
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        done.write_text(wanted)


def _run(command: Sequence[str]) -> None:
    # The tests give each program a folder with no certificates (tests/gate.py): a registry is reached with them.
    environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_DIR"}
    try:
        done = subprocess.run(  # noqa: S603  # pip or npm, with fixed versions
            command, env=environment, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise MissingServers(f"{MISSING} There was no answer within {INSTALL_SECONDS:g} s.") from None
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise MissingServers(f"{MISSING} {Path(command[0]).name}: {said[-1] if said else done.returncode}")
