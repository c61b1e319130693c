"""Writes a tools file in which a person classifies the tools of MCP servers once: for `--check --write-tools`."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from activities.toolbox.mcp import tools_file
from activities.toolbox.registry import ToolMistakes
from workflows.plans.catalogue import Effect
from workflows.text import legible

if TYPE_CHECKING:  # at run time only where a server is named: it imports the SDK
    from activities.toolbox.mcp.kinds import ForeignTool

HEAD = (
    "# Say of each tool what a call changes (docs/mcp.md#effects). What is written here is what holds without a word:\n"
    '# a call of an "unkeyed" tool is never repeated while nobody knows whether it was applied.\n'
)
MAX_WORDS = 100
"""The most characters of a server's description of a tool that the file quotes."""


def write(path: Path, texts: Mapping[str, str], classified: Sequence["ForeignTool"]) -> str:
    """Write a new tools file at `path`, and return a sentence that tells a person what to do with it.

    It has the `texts` of the worker's tools files, by name, and a table for each tool of `classified` that has none.
    Raises ToolMistakes if there is nothing to write, `path` is not beside the tools files, or it cannot be written.
    """
    if not texts:
        raise ToolMistakes(["--write-tools has nothing to write: name a tools file with MCP servers by --tools."])
    if elsewhere := [file for file in texts if Path(file).resolve().parent != path.resolve().parent]:
        raise ToolMistakes(
            [f"{path} is not beside {elsewhere[0]}, whose paths are relative to its folder: write it there."]
        )
    missing = [found for found in classified if not found.is_in_file]
    text = "\n".join([HEAD, *(f"{text.strip()}\n" for text in texts.values()), *_tables(missing)])
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ToolMistakes([f"{path} exists already: name another file."]) from None
    except OSError as error:
        raise ToolMistakes([f"{path} cannot be written ({error.strerror}): name another file."]) from None
    try:
        tools_file.read(path)
    except tools_file.BadToolsFile as bad:
        path.unlink()
        remedy = "Write the tools of each server in tables of their own, [servers.NAME.tools.NAME]."
        raise ToolMistakes([f"{mistake} {remedy}" for mistake in bad.mistakes]) from None
    return (
        f"{path} has a table for each of {len(classified)} tools, {len(missing)} of them new: correct their effects,"
        f" and start the worker with --tools {path}."
    )


def _tables(missing: Iterable["ForeignTool"]) -> Iterator[str]:
    """Yield a table for each tool of `missing`, with the server's description and the effect."""
    for found in missing:
        said = found.listed.description or found.listed.title
        words = [f"# {legible(said, MAX_WORDS)}\n"] if said else []
        place = ".".join(["servers", found.source.name, "tools", _key(found.listed.name)])
        yield "".join([*words, f'[{place}]\neffect = "{found.effect.value}"  # {_reason(found)}\n'])


def _reason(found: "ForeignTool") -> str:
    """Why a tool has its effect, as a comment in the file."""
    if found.effect is Effect.UNKEYED and found.listed.idempotent:
        return f'{found.reason}; the server says that a repeat changes nothing more: if that is true, "idempotent"'
    return found.reason


def _key(name: str) -> str:
    """A tool's name as a key of TOML, in quotes if it needs them."""
    is_bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return name if is_bare else json.dumps(name, ensure_ascii=False).replace("\x7f", r"\u007f")
