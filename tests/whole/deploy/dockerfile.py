"""The Dockerfile as data: its stages and their instructions."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.processes import ROOT


@dataclass(frozen=True)
class Instruction:
    """One instruction: its word, and what it says."""

    word: str
    rest: str


@dataclass
class Stage:
    """What one FROM begins."""

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def of(self, word: str) -> list[str]:
        """What its instructions of one word say, in their order."""
        return [one.rest for one in self.instructions if one.word == word]

    @property
    def copies(self) -> Iterator[tuple[list[str], str]]:
        """What it copies from the checkout, and where to."""
        for rest in self.of("COPY"):
            *sources, target = shlex.split(rest)
            if not sources[0].startswith("--from="):
                yield sources, target

    @property
    def environment(self) -> dict[str, str]:
        """What it sets for the processes of the image."""
        return dict(word.split("=", 1) for rest in self.of("ENV") for word in shlex.split(rest))


def stages() -> list[Stage]:
    """The stages in their order; the last one is the image."""
    found: list[Stage] = []
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    for word, rest in re.findall(r"^([A-Z]+) +(.+)$", text, flags=re.MULTILINE):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(base, name))
        else:
            found[-1].instructions.append(Instruction(word, rest))
    return found


def entrypoint() -> list[str]:
    """What the image runs, before the words of a command."""
    [said] = stages()[-1].of("ENTRYPOINT")
    words: list[str] = json.loads(said)
    return words


def sent() -> list[str]:
    """What .dockerignore lets through to the builder."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("!") for line in lines if line.startswith("!")]
