"""What a gateway offers to agents: tools under names that models may use, and tools of its own."""

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workflows.limits.budget import MAX_TASK_TEXT
from workflows.plans.catalogue import Effect
from workflows.text import legible

MAX_NAME = 64
"""The most characters of a tool's name in model APIs."""
MAX_LEFT, MAX_WORDS = 10, 200
"""The most tools that cannot be offered and are named, and the most characters of a name and of a reason."""


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
    asks: bool = False
    """Whether a person may have to approve a call, so that it cannot pass without a task."""


def offers_of(listed: Sequence[Mapping[str, Any]]) -> list[Offer]:
    """The offers for tools, as `tools_result` lists them.

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
                found["approve"] != "never",
            )
        )
    return offers


def _usable_name(name: str) -> str:
    return re.sub("[^A-Za-z0-9_-]", "_", name)[:MAX_NAME]


class OwnArgs(BaseModel):
    """The arguments of a tool of the gateway itself."""

    model_config = ConfigDict(extra="forbid")


class OfCall(OwnArgs):
    id: str = Field(description="The id that the call's answer named.", max_length=200)


class OfSession(OwnArgs):
    pass


class Undone(OwnArgs):
    id: str | None = Field(default=None, description="Only this call; without it, all calls of the session.")


class TaskArgs(OwnArgs):
    task: str = Field(description="What is to be done, in plain words.", min_length=1, max_length=MAX_TASK_TEXT)


class ReplyArgs(OwnArgs):
    id: str = Field(description="The id of the task that asks.", max_length=200)
    text: str = Field(description="The answer to its question.", min_length=1, max_length=4000)


@dataclass(frozen=True)
class OwnTool:
    """A tool of the gateway itself as it is listed; what answers its calls is imported later."""

    args: type[OwnArgs]
    about: str
    is_read: bool = True


OF_STORE: Mapping[str, OwnTool] = {
    "replan_outcome": OwnTool(OfCall, "The result of an earlier call whose answer was lost."),
    "replan_effects": OwnTool(OfSession, "What the calls of this session changed."),
    "replan_undo": OwnTool(Undone, "Undo what calls of this session changed, where it can be undone.", False),
    "replan_explain": OwnTool(OfCall, "Why a call was made, or not made again."),
}
"""The tools of a gateway without tasks, by name."""
OF_TASKS: Mapping[str, OwnTool] = {
    "replan_outcome": OwnTool(OfCall, "The result of an earlier call that waits for a person, or was lost."),
    "replan_effects": OwnTool(OfSession, "What the calls of this session changed."),
    "replan_undo": OwnTool(Undone, "Undo what calls of this session changed, where it can be undone.", False),
    "replan_explain": OwnTool(OfCall, "Why a call or a task did what it did."),
    "replan_start_task": OwnTool(TaskArgs, "Let Replan plan and do a task of several steps.", False),
    "replan_task_status": OwnTool(OfCall, "How a task stands, and what it asks."),
    "replan_answer": OwnTool(ReplyArgs, "Answer a question of a task that this session started.", False),
}
"""The tools of a gateway with tasks, by name."""


def listed(own_tools: Mapping[str, OwnTool], taken: Collection[str], *, note: str = "") -> list[dict[str, Any]]:
    """The gateway's own tools as MCP lists them, except tools whose names are `taken`.

    The description of the first one ends with `note`, for the agent.
    """
    tools: list[dict[str, Any]] = [
        {
            "name": name,
            "description": tool.about,
            "inputSchema": tool.args.model_json_schema(),
            "annotations": {"readOnlyHint": tool.is_read},
        }
        for name, tool in own_tools.items()
        if name not in taken
    ]
    if note and tools:
        tools[0]["description"] += f" {note}"
    return tools


def not_offered(left_out: Mapping[str, str]) -> str:
    """A note about the tools of the servers that cannot be offered, and why: so an agent can tell its user."""
    if not left_out:
        return ""
    names = [f"{legible(name, MAX_WORDS)} ({legible(why, MAX_WORDS)})" for name, why in [*left_out.items()][:MAX_LEFT]]
    more = [f"{len(left_out) - MAX_LEFT} more"] if len(left_out) > MAX_LEFT else []
    return f"Tools that cannot be offered here: {'; '.join([*names, *more])}."


def server_name(command: Sequence[str]) -> str:
    """A short name for the server that a command starts; the kinds of the server's tools begin with it."""
    args = [word for word in command if not word.startswith("-")]
    named = [word for word in args[1:] if re.search("mcp|server", word, re.IGNORECASE)]
    word = (named or args[1:2] or args[:1] or ["server"])[0]
    base = re.split("[@=<>~]", os.path.basename(word.rstrip("/")).lower())[0]  # noqa: PTH119  # also of packages
    base = re.sub(r"\.(py|js|mjs|cjs|ts|exe)$", "", base)
    short = re.sub("[^a-z0-9_]+", "-", re.sub("mcp|server", "", base)).strip("-_")
    return short[:30] if re.fullmatch("[a-z][a-z0-9_-]*", short) else "server"
