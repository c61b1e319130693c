"""Deliberate mistakes: each message says what happened, the likely cause, and what to do; mistakes.toml has them."""

import asyncio
import json
import os
import shlex
import socket
import tomllib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from replan.effects import Effects, OutcomeUnknown
from runtime.dev_server import DevServer, free_port
from tests.processes import Processes

LONG = "x" * 201
"""An id that is too long."""


@dataclass(frozen=True)
class Mistake:
    """A table of mistakes.toml, whose head says what the fields mean."""

    name: str
    line: str
    what: str
    why: str
    do: str
    exit: int = 2
    missing: bool = False
    """Whether nothing that was typed is in `what`: something is missing, or is in a file or in the environment."""
    needs: Literal["", "server"] = ""
    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


MISTAKES = [
    Mistake(**table)
    for table in tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))["mistake"]
]


def of(needs: str) -> pytest.MarkDecorator:
    """Runs a test once for each mistake that needs this."""
    return pytest.mark.parametrize(
        "mistake", [pytest.param(one, id=one.name) for one in MISTAKES if one.needs == needs]
    )


@dataclass
class Place:
    """Where mistakes are made: the commands, and what their lines name."""

    processes: Processes
    folder: Path
    store: Path
    taken: int

    def filled(self, text: str) -> str:
        """A text of mistakes.toml with the names of this place."""
        names = {"folder": self.folder, "store": self.store, "taken": self.taken, "address": self.processes.address}
        for name, value in {**names, "long": LONG}.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def make(self, mistake: Mistake, *more: str) -> tuple[int, str]:
        """Type the line of the mistake, and return the exit code and all that is printed."""
        for name, text in mistake.files.items():
            (self.folder / name).write_text(text.lstrip("\n"))
        own = {name: self.filled(value) for name, value in mistake.environment.items()}
        commands = Processes(self.processes.address, self.processes.folder, {**self.processes.environment, **own})
        _, script, *words = shlex.split(self.filled(mistake.line))
        run = commands.starter if script == "starter.py" else commands.asked
        done = run(*words, *more)
        return done.returncode, f"{done.stdout}{done.stderr}"


def lacking(mistake: Mistake, said: str, place: Place) -> list[str]:
    """The parts that a message lacks: each of the three has words of its own."""
    parts = {"what": mistake.what, "why": mistake.why, "do": mistake.do}
    lacks = list[str]()
    for name, part in parts.items():
        before, found, after = said.partition(place.filled(part))
        lacks += [] if part and found else [f"{name}: {part}"]
        said = f"{before}\0{after}"  # no word counts twice
    return lacks


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """A port at which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of `replan.effects` with two calls, of which one has an unknown outcome."""
    file = tmp_path_factory.mktemp("store") / "agent.db"
    with Effects(str(file), session="s") as effects, effects.scope(key="1"):
        effects.unkeyed(name="greet")(os.path.basename)("hello")
        with pytest.raises(OutcomeUnknown):
            effects.unkeyed(name="mail")(json.loads)("hello")
    return file


@pytest.fixture
def nobody(tmp_path: Path, store: Path, taken: int) -> Place:
    """Commands for a server that is not there, with no settings of the person who runs the tests."""
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    return Place(Processes(f"localhost:{free_port()}", tmp_path, home), tmp_path, store, taken)


QUEUE = "mistakes"
SUM = '{"steps": [{"id": "sum", "kind": "calculate", "args": {"expression": "1 + 1"}}]}'
ASKS = ("--task", "book a slot for the team at 14:00", "--replans", "0", "--on-escalation", "wait")


@pytest.fixture(scope="module")
async def world(server: DevServer, tmp_path_factory: pytest.TempPathFactory, store: Path) -> AsyncIterator[Place]:
    """A server and a worker of the demo desk, with a task that has ended, one that waits, and one not answered."""
    folder = tmp_path_factory.mktemp("world")
    processes = Processes(server.address, folder, {"REPLAN_QUEUE": QUEUE})
    (folder / "sum.json").write_text(SUM)
    with processes.worker("--desk", "--documents", str(folder), "--planner", "offline"):
        expired = ("--id", "expired", *ASKS, "--answer-within", "0.1")
        await asyncio.to_thread(processes.starter, *expired)
        for words in (
            ("--id", "waits", *ASKS, "--detach"),
            ("--id", "closed-one", "--plan", str(folder / "sum.json")),
            ("show", "expired", "--follow"),
        ):
            await asyncio.to_thread(processes.starter, *words)
        # The web UI answers at once that it is no Temporal server; a port that is silent is waited for.
        yield Place(processes, folder, store, int(server.ui_url.rpartition(":")[2]))


def test_what_happened_names_what_was_typed() -> None:
    """An option, a value, a file: a word of the line, unless something is missing in it. There are at least forty
    mistakes, each with a name of its own."""
    typed = {one.name: shlex.split(one.line.replace("=", " ").replace("@", " "))[2:] for one in MISTAKES}
    silent = [one.name for one in MISTAKES if not (one.missing or any(word in one.what for word in typed[one.name]))]

    assert (silent, len(typed)) == ([], len(MISTAKES)) and len(typed) >= 40


@of("")
def test_a_mistake_is_explained(nobody: Place, mistake: Mistake) -> None:
    """In sentences without a traceback, and with the exit code of the mistake."""
    code, said = nobody.make(mistake)

    assert (code, lacking(mistake, said, nobody)) == (mistake.exit, []), said
    assert said.endswith(".\n") or said.endswith("?\n")


@of("server")
def test_a_mistake_is_explained_with_a_server(world: Place, mistake: Mistake) -> None:
    """Also where only the server or a worker knows of the mistake."""
    code, said = world.make(mistake)

    assert (code, lacking(mistake, said, world)) == (mistake.exit, []), said
    assert "Traceback" not in said
