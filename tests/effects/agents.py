"""Agents of small tests: scripts that call the functions of tests/effects/world.py, each in a process of its own.

A script is a few lines that use what `script.py` offers: `tell(pay, "a", "x")` calls a function and prints what came of
it, `befalls(...)` says what befalls the calls that follow, and `die()` kills the process.
"""

import contextlib
import os
import signal
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests import preloaded
from tests.effects.world import World

PRELUDE = "from tests.effects.script import *\n"


class Run(NamedTuple):
    """A script of a story, and what it prints: None where nobody looks, and an error without its key."""

    source: str
    lines: Sequence[str] | None = None
    options: Mapping[str, object] = {}
    """Those of `Effects`."""


Story = tuple[Sequence[Run], Sequence[str] | int]
"""Scripts that run one after the other, and what the world has then: the effects, or how many."""
DIES_BEFORE, DIES_AFTER = 'befalls(dies="before")\n', 'befalls(dies="after")\n'
REFUSED, LOST = 'befalls(error="refused")\n', 'befalls(error="lost answer")\n'
PAID, MAILED = 'tell(pay, "a", "x")\n', 'tell(mail, "a", "x")\n'
DIES = "die()\n"


class Agents:
    """A store, a world, and the processes of agents."""

    def __init__(self, folder: Path, url: str = "") -> None:
        """`url` is that of the store; usually it is a file in `folder`."""
        self.folder, self.url = folder, url or f"sqlite:///{folder}/store.db"
        self.world = World(folder).make()

    def run(self, source: str, **options: object) -> list[str]:
        """Run a script to its end, however it ends; returns what it printed, and `killed` if it was.

        `options` are those of `Effects`.
        """
        with self.started(source, **options) as agent:
            return agent.lines()

    @contextlib.contextmanager
    def started(self, source: str, **options: object) -> Iterator["Agent"]:
        """A script that runs until the end of the block, at the most."""
        agent = Agent(self, source, {"session": "s", **options})
        try:
            yield agent
        finally:
            agent.process.kill()
            agent.process.wait()

    def play(self, story: Story) -> None:
        """Run a story, and look at what is printed and at the world; KEY0 is the key of its first error, and so on."""
        runs, happened = story
        known = list[str]()
        for number, run in enumerate(runs):
            source = run.source
            for place, key in enumerate(known):
                source = source.replace(f"KEY{place}", key)
            lines = self.run(source, **run.options)
            known += keys(lines)
            shown = [" ".join(line.split()[:2]) if line.startswith("raised") else line for line in lines]
            assert run.lines is None or shown == [*run.lines], (number, lines)
        found = len(self.world.effects()) if isinstance(happened, int) else self.happened()
        assert found == (happened if isinstance(happened, int) else [*happened])

    def happened(self) -> list[str]:
        """The effects that the world has, as `function(to, body)`."""
        return [
            f"{function}({effect.arguments['to']}, {effect.arguments['body']})"
            for function, effect in self.world.effects()
        ]


class Agent:
    """A script that runs."""

    def __init__(self, agents: Agents, source: str, options: Mapping[str, object]) -> None:
        """Start it."""
        file = Path(tempfile.mkdtemp(dir=agents.folder)) / "agent.py"
        file.write_text(PRELUDE + f"begin({str(agents.folder)!r}, {agents.url!r}, {dict(options)!r})\n")
        with file.open("a") as out:
            out.write(textwrap.dedent(source) + "\nend()\nraise SystemExit(0)\n")
        self.output, errors = file.with_suffix(".out"), file.with_suffix(".err")
        with self.output.open("w") as written, errors.open("w") as complaints:
            streams = [written.fileno(), complaints.fileno()]
            self.process = preloaded.Forked(file, [], os.environ, streams)
        self.errors = errors

    def lines(self, seconds: float = 100) -> list[str]:
        """What it printed, after its end."""
        code = self.process.wait(seconds)
        printed = self.output.read_text().splitlines()
        assert code in (0, -signal.SIGKILL), (code, printed, self.errors.read_text())
        return [*printed, "killed"] if code else printed

    def wait_for(self, line: str, seconds: float = 60) -> None:
        """Wait until it has printed a line; raises AssertionError if it does not."""
        until = time.monotonic() + seconds
        while line not in self.output.read_text().splitlines():
            assert time.monotonic() < until and self.process.poll() is None, self.errors.read_text()
            time.sleep(0.005)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)


def keys(lines: list[str]) -> list[str]:
    """The keys of the errors among the lines."""
    return [line.split()[2] for line in lines if line.startswith("raised") and len(line.split()) > 2]
