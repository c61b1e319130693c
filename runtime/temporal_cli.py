"""Finds the Temporal CLI, which contains the development server; downloads or builds it once if it is missing."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from platformdirs import user_cache_path

from runtime.child import end, exited, last_line, spawn

VERSION = "1.5.1"
VARIABLE = "TEMPORAL_CLI"
DOWNLOAD_SECONDS = 120.0
BUILD_SECONDS = 1800.0
SAY_EVERY_SECONDS = 10.0

Say = Callable[[str], None]

# The SDK downloads only as a part of starting a server. It does so in a process of its own, because that one can be
# stopped at any moment, together with the server, and keeps the server's banner off the terminal.
_DOWNLOAD = """
import asyncio, sys
from temporalio.testing import WorkflowEnvironment

async def main():
    folder, version = sys.argv[1:]
    server = await WorkflowEnvironment.start_local(download_dest_dir=folder, dev_server_download_version=version)
    await server.shutdown()

asyncio.run(main())
"""


class ServerUnavailable(RuntimeError):
    """No Temporal server can be started here; the message says why and what to do."""


async def find_cli(say: Say) -> Path:
    """The path of the Temporal CLI: from TEMPORAL_CLI, PATH or the cache, else downloaded by the SDK or built with Go.

    `say` is called with lines about each slow step.

    Raises:
        ServerUnavailable: TEMPORAL_CLI names no program, or no CLI is here and none could be fetched.
    """
    return _installed() or await _fetch_into_cache(say)


def _installed() -> Path | None:
    name = os.environ.get(VARIABLE)
    found = shutil.which(name or "temporal")
    if name and found is None:
        raise ServerUnavailable(
            f"{VARIABLE} names {name!r}, where no program is: correct it, or unset it to let Replan find one."
        )
    if found is not None:
        return Path(found).absolute()
    return cached_binary() if os.access(cached_binary(), os.X_OK) else None


def cached_binary() -> Path:
    """Where the downloaded or built binary is kept, in the user's cache folder."""
    return user_cache_path("replan") / f"temporal-{VERSION}"


async def _fetch_into_cache(say: Say) -> Path:
    target = cached_binary()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="getting-") as folder:
            # Two processes may fetch at once: a rename is atomic, and the later one puts an equal file in its place.
            return (await _fetch_into(Path(folder), say)).replace(target)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise ServerUnavailable(
            f"The cache folder {target.parent} cannot be written ({error.strerror}): make it writable, set"
            f" XDG_CACHE_HOME to another, or name a temporal binary in {VARIABLE}."
        ) from error


async def _fetch_into(folder: Path, say: Say) -> Path:
    problems = []
    for get in (_download, _build):
        problem = await get(folder, say)
        if problem is None:
            return next(folder.joinpath("bin").glob("temporal*"))
        problems.append(problem)
    raise ServerUnavailable(
        f"No temporal program is here and none could be fetched ({'; '.join(problems)}): install the temporal CLI or"
        f" Go, name a binary in {VARIABLE}, or set TEMPORAL_ADDRESS to a server that runs."
    )


async def _download(folder: Path, say: Say) -> str | None:
    """Let the SDK download the program into the folder `bin`; return what went wrong, else None."""
    folder.joinpath("bin").mkdir()
    command = [sys.executable, "-c", _DOWNLOAD, str(folder / "bin"), f"v{VERSION}"]
    problem = await _run(command, folder, say, "downloading the Temporal server, once", DOWNLOAD_SECONDS)
    return problem and f"the download failed: {problem}"


async def _build(folder: Path, say: Say) -> str | None:
    """Build the program with Go into the folder `bin`; return what went wrong, else None."""
    go = shutil.which("go")
    if go is None:
        return "Go is not installed to build it"
    source = f"github.com/temporalio/cli/cmd/temporal@v{VERSION}"
    settings = {**os.environ, "GOBIN": str(folder / "bin"), "GOTMPDIR": str(folder), "CGO_ENABLED": "0"}
    what = "building the Temporal server with Go, about 5 min, once (or install the temporal CLI, then again)"
    command = [go, "install", "-ldflags", "-s -w", source]
    problem = await _run(command, folder, say, what, BUILD_SECONDS, settings)
    return problem and f"the build failed: {problem}"


async def _run(
    command: Sequence[str],
    folder: Path,
    say: Say,
    what: str,
    limit: float,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Run a command for at most `limit` seconds, and say how long it takes; return what went wrong, else None."""
    log = folder / "log"
    began = time.monotonic()
    process = spawn(command, log, environment=environment)
    say(what)
    try:
        while not await exited(process, SAY_EVERY_SECONDS):
            elapsed = time.monotonic() - began
            if elapsed > limit:
                return f"not done after {spoken(elapsed)}"
            say(f"{what} ... {spoken(elapsed)}")
    finally:
        await end(process)
    return None if process.returncode == 0 else last_line(log)


def spoken(seconds: float) -> str:
    """A duration for people: `40 s`, `1 min 20 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
