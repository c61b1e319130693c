"""What a gateway offers to agents: the tools of a worker, under names that models may use."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from workflows.json_values import digest
from workflows.plans.catalogue import Effect

MAX_NAME = 64
"""Characters of a tool's name: the model APIs take no more, and no other characters than those of `_UNUSABLE`."""
_UNUSABLE = re.compile("[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class Offer:
    """A tool as an agent sees it."""

    name: str
    """What the agent calls it."""
    kind: str
    effect: Effect
    tool: Mapping[str, Any]
    """The Tool object of MCP, with this name."""
    server: str | None = None
    """The MCP server that has the tool; None for a tool in Python."""
    name_there: str = ""
    """The server's own name of the tool."""
    authority: Sequence[str] = ()
    """The names of the arguments that say whom, where, which and how much."""

    asks: bool = False
    """Whether a person may have to approve a call, so that it cannot pass without a task."""

    def authority_digest(self, args: Mapping[str, JsonValue]) -> str:
        """The digest of those arguments that are authority; empty if the call has none."""
        chosen = {name: value for name, value in args.items() if name in self.authority}
        return digest(chosen) if chosen else ""


@dataclass(frozen=True)
class Origin:
    """A tool before it has a name for agents."""

    kind: str
    effect: Effect
    tool: Mapping[str, Any]
    server: str | None
    name: str
    authority: Sequence[str]
    asks: bool


def from_side_door(found: Iterable[Mapping[str, Any]]) -> list[Offer]:
    """The tools that a worker's side door lists."""
    return _named(
        Origin(
            one["kind"],
            _effect(one["effect"]),
            one["tool"],
            one["server"],
            one["name"],
            one["authority"],
            one["approve"] != "never",
        )
        for one in found
    )


def _effect(name: str) -> Effect:
    return Effect.READ if name == "pure" else Effect(name)


def _named(origins: Iterable[Origin]) -> list[Offer]:
    """A tool keeps its own name unless two have it; then all of these have the kind's name."""
    tools = list(origins)
    counts = Counter(_usable(one.name) for one in tools)
    offers, taken = list[Offer](), set[str]()
    for one in tools:
        name = _usable(one.name) if counts[_usable(one.name)] == 1 else _usable(one.kind)
        number = 2
        while name in taken:
            name, number = f"{name[: MAX_NAME - 4]}_{number}", number + 1
        taken.add(name)
        tool = {**one.tool, "name": name}
        offers.append(Offer(name, one.kind, one.effect, tool, one.server, one.name, tuple(one.authority), one.asks))
    return offers


def _usable(name: str) -> str:
    return _UNUSABLE.sub("_", name)[:MAX_NAME]
