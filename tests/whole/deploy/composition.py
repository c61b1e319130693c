"""docker-compose.yml as data: what the tests look at, and what `make test-stack` runs without containers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.processes import ROOT
from tests.whole.deploy.dockerfile import entrypoint

FILE = ROOT / "docker-compose.yml"
INTERPOLATED = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")


@dataclass(frozen=True)
class Mount:
    """A folder or volume of the host inside a container."""

    source: str
    target: str
    mode: str = "rw"

    @property
    def is_volume(self) -> bool:
        """Whether its source is a named volume; else it is a path."""
        return not self.source.startswith((".", "/"))


@dataclass(frozen=True)
class Service:
    """One service as the file describes it, anchors and merges resolved."""

    name: str
    said: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """What its processes find, with the defaults of `${NAME:-default}`, where nobody has set anything."""
        given = self.said.get("environment", {}).items()
        return {name: interpolated(str(value)) for name, value in given if value is not None}

    @property
    def passed_on(self) -> set[str]:
        """The names that it has from the environment of whoever starts it, or from `.env`."""
        return {name for name, value in self.said.get("environment", {}).items() if value is None}

    @property
    def image(self) -> tuple[str, str]:
        """The image's name and its tag."""
        name, _, tag = str(self.said["image"]).partition(":")
        return name, tag

    @property
    def mounts(self) -> list[Mount]:
        """What is mounted where."""
        return [Mount(*text.split(":")) for text in self.said.get("volumes", [])]

    @property
    def runs(self) -> list[str]:
        """Its command line: the entry point, that of our image unless the file gives another, and the command."""
        given = {"entrypoint": entrypoint()} if "build" in self.said else {}
        return [str(word) for key in ("entrypoint", "command") for word in {**given, **self.said}.get(key, [])]

    @property
    def ends(self) -> bool:
        """Whether it does one thing and is done."""
        return str(self.said["restart"]) == "on-failure"


def services() -> dict[str, Service]:
    """Every service by its name."""
    return {name: Service(name, said) for name, said in document()["services"].items()}


def document() -> dict[str, Any]:
    """The whole file."""
    read: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return read


def interpolated(text: str) -> str:
    """`${NAME:-default}` as its default."""
    return INTERPOLATED.sub(lambda found: found["default"] or "", text)


def on_host(path: str, service: Service) -> Path | None:
    """The file of the checkout that a path inside a container names, None for one that no mount brings there."""
    for mount in service.mounts:
        if not mount.is_volume and Path(path).is_relative_to(mount.target):
            return ROOT / mount.source / Path(path).relative_to(mount.target)
    return None
