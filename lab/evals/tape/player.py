"""Starts a process that plays a tape, and ends it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

import httpx2
from pydantic import BaseModel

from evals.tape.desk import DeskPlot, State
from evals.tape.tape import Tape
from evals.tape.world import Plot, S, World
from runtime.child import end, last_line, spawn
from runtime.dev_server import free_port

ROOT = Path(__file__).parents[3]
START_SECONDS = 60.0
POLL_SECONDS = 0.05


class TapeNotPlayed(RuntimeError):
    """The process did not start; the message has the last line of its log."""


@dataclass(frozen=True)
class Played(Generic[S]):
    """A world that is being played."""

    url: str
    world: World[S]
    """For reading the journal and the state."""

    async def begin(self) -> None:
        """Start the world's clock."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            (await http.post(f"{self.url}/begin")).raise_for_status()


@asynccontextmanager
async def playing(folder: Path, tape: Tape) -> AsyncIterator[Played[State]]:
    """Play a tape in a process of its own, with its files in `folder`.

    Raises:
        TapeNotPlayed: it did not start.
    """
    async with played_by("evals.tape", folder, tape, DeskPlot(tape)) as played:
        yield played


@asynccontextmanager
async def played_by(module: str, folder: Path, words: BaseModel, plot: Plot[S]) -> AsyncIterator[Played[S]]:
    """Let a module play a plot in a process of its own: `python -m MODULE PORT FILE WORDS`, `words` being a JSON file.

    Raises:
        TapeNotPlayed: it did not start.
    """
    port, file, told, log = free_port(), folder / "world.db", folder / "tape.json", folder / "tape.log"
    told.write_text(words.model_dump_json())
    command = [sys.executable, "-m", module, str(port), str(file), str(told)]
    world = World(file, plot)
    process = spawn(command, log, environment={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        await _listening(process, port, log)
        yield Played(f"http://127.0.0.1:{port}", world)
    finally:
        await end(process)
        world.close()


async def _listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the process listens. Raises TapeNotPlayed."""
    for _ in range(int(START_SECONDS / POLL_SECONDS)):
        if process.poll() is not None:
            break
        if await _is_listening(port):
            return
        await asyncio.sleep(POLL_SECONDS)
    raise TapeNotPlayed(f"The world did not start: {last_line(log)}")


async def _is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
