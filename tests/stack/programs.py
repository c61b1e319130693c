"""The programs of the stack outside containers: Temporal's server and schema tool, built with Go once, and PostgreSQL.

`python -m tests.stack.programs [PREFIX]` only makes sure that all are there, each line of its output after PREFIX.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from evals.fakes.postgresql import MISSING, find_postgresql
from runtime.child import end, exited, last_line, spawn
from runtime.temporal_cli import BUILD_SECONDS, SAY_EVERY_SECONDS, Say, find_cli, spoken
from tests.whole.deploy.composition import services

NEWER = "v1.32.0"
"""A server that can pause whole workflows, which the one of the Temporal CLI cannot."""


class ProgramMissing(RuntimeError):
    """A program is not here and cannot be made; the message says how to get it."""


@dataclass(frozen=True)
class Source:
    name: str
    """Of its folder in the cache, and in what is said of it."""
    module: str
    packages: Sequence[str]
    """The programs, by their folders in the module."""


SERVER = Source("temporal-server", "go.temporal.io/server", ["./cmd/server", "./cmd/tools/sql"])


@dataclass(frozen=True)
class Programs:
    temporal_server: Path
    temporal_sql_tool: Path
    newer_server: Path
    """Temporal's server of the version NEWER."""
    temporal: Path
    """The CLI."""
    postgresql: Path
    """The folder with `initdb` and `postgres`."""


async def find_programs(say: Say) -> Programs:
    """Everything that the stack needs; `say` hears of what takes minutes. Raises ProgramMissing, ServerUnavailable."""
    postgresql = _postgresql()  # before the build: it would be minutes until the message otherwise
    folder = await server(say)
    newer = await built(SERVER, NEWER, say) / "server"
    return Programs(folder / "server", folder / "sql", newer, await find_cli(say), postgresql)


async def server(say: Say) -> Path:
    """The folder with the server and the schema tool of the version in docker-compose.yml. Raises ProgramMissing."""
    return await built(SERVER, f"v{services()['temporal'].image[1]}", say)


def _postgresql() -> Path:
    found = find_postgresql()
    if found is None:
        raise ProgramMissing(MISSING)
    return found


async def built(source: Source, version: str, say: Say) -> Path:
    """The folder with the programs of a source at this version, in the user's cache. Raises ProgramMissing."""
    target = user_cache_path("replan") / f"{source.name}-{version}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as folder:
            await _build(Path(folder), source, version, say)
            Path(folder, "bin").rename(target)  # whole or not at all
    return target


async def _build(folder: Path, source: Source, version: str, say: Say) -> None:
    go = shutil.which("go")
    if go is None:
        raise ProgramMissing(
            f"Go is not installed, which builds {source.name}: `apt-get install golang`, or"
            " https://go.dev/dl, then again."
        )
    settings = {**os.environ, "GOTMPDIR": str(folder), "CGO_ENABLED": "0"}
    began = time.monotonic()

    async def run(log: Path, *words: str) -> None:
        what = f"building {source.name} {version} from source with Go, 2 to 5 min, once"
        process = spawn([go, *words], log, environment=settings)
        say(what)
        try:
            while not await exited(process, SAY_EVERY_SECONDS) and time.monotonic() - began < BUILD_SECONDS:
                say(f"{what} ... {spoken(time.monotonic() - began)}")
        finally:
            await end(process)
        if process.returncode != 0:
            raise ProgramMissing(f"{source.name} cannot be built ({_why(log)}): see that Go works.")

    await run(folder / "module", "mod", "download", "-json", f"{source.module}@{version}")
    # In the module's own folder: `go install` refuses a module that replaces or excludes others.
    module = json.loads((folder / "module").read_text())["Dir"]
    await run(
        folder / "log", "build", "-C", module, "-ldflags", "-s -w", "-o", f"{folder / 'bin'}{os.sep}", *source.packages
    )


def _why(log: Path) -> str:
    try:
        return " ".join(str(json.loads(log.read_text())["Error"]).split())  # of `go mod download -json`
    except (ValueError, KeyError):
        return last_line(log)


def main(words: Sequence[str]) -> int:
    def say(line: str) -> None:
        sys.stdout.write(" ".join([*words, line]) + "\n")
        sys.stdout.flush()

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    try:
        programs = asyncio.run(find_programs(say))
    except RuntimeError as problem:
        sys.stderr.write(f"No test was run. {problem}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    say(f"programs are in {programs.temporal_server.parent} and {programs.postgresql}, after {_since(began)}")
    return 0


def _since(began: float) -> str:
    return spoken(time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
