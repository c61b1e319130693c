"""What a gateway offers to agents: the tools of a worker, under names that models may use."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from workflows.json_values import digest
from workflows.plans.catalogue import Effect

MAX_NAME = 64
"""The most characters of a tool's name in model APIs."""


@dataclass(frozen=True)
class Offer:
    """A tool as an agent sees it."""

    name: str
    """The name of the tool for the agent."""
    kind: str
    effect: Effect
    tool: Mapping[str, Any]
    """The Tool object of MCP, with this name."""
    server: str | None = None
    """The MCP server that has the tool; None for a tool in Python."""
    name_there: str = ""
    """The name of the tool on that server."""
    authority: Sequence[str] = ()
    """The names of the arguments that say whom, where, which and how much."""
    asks: bool = False
    """Whether a person may have to approve a call, so that it cannot pass without a task."""

    def authority_digest(self, args: Mapping[str, JsonValue]) -> str:
        """The digest of the arguments that `authority` names; empty if the call has none of these."""
        chosen = {name: value for name, value in args.items() if name in self.authority}
        return digest(chosen) if chosen else ""


def offers_of(listed: Sequence[Mapping[str, Any]]) -> list[Offer]:
    """The offers for the tools that a worker's side door lists.

    A tool keeps its own name unless several tools have it; then each of these is named after its kind.
    """
    counts = Counter(_usable_name(found["name"]) for found in listed)
    offers, taken = list[Offer](), set[str]()
    for found in listed:
        name = _usable_name(found["name"])
        if counts[name] > 1:
            name = _usable_name(found["kind"])
        number = 2
        while name in taken:
            name, number = f"{name[: MAX_NAME - 4]}_{number}", number + 1
        taken.add(name)
        offers.append(
            Offer(
                name,
                found["kind"],
                Effect.READ if found["effect"] == "pure" else Effect(found["effect"]),
                {**found["tool"], "name": name},
                found["server"],
                found["name"],
                tuple(found["authority"]),
                found["approve"] != "never",
            )
        )
    return offers


def _usable_name(name: str) -> str:
    return re.sub("[^A-Za-z0-9_-]", "_", name)[:MAX_NAME]
