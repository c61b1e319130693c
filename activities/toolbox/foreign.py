"""What a worker has of other programs' tools: nothing, unless an extra can read the tools files that name them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from activities.toolbox.declare.tool import Tool
from activities.toolbox.http.network import Reach, Web
from activities.toolbox.registry import ToolMistakes
from activities.toolbox.servers import Servers
from extras import NotHere, part

SUFFIX = ".toml"
"""How the name of a tools file ends that is no Python."""
_NOTHING: Mapping[Any, str] = {}


class ForeignTools:
    """The tools of other programs, and how to reach these programs."""

    tools: Mapping[Tool[..., Any], str] = _NOTHING
    left_out: Mapping[str, str] = _NOTHING
    """The kinds that cannot be offered, each with the reason."""

    def servers(self, engine: AsyncEngine, web: Web) -> Servers:
        """The programs, which are reached by `web`, and note in the database of `engine` what a call needs later."""
        return Servers()

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield what `--check` says of a kind, too, with the kind."""
        yield from ()

    def unread_lines(self, tools: Sequence[str]) -> Iterator[str]:
        """Yield a line for each tools file with tools of which no person has read what a model is told of them.

        `tools` are all tools files and modules of the worker, for the command.
        """
        yield from ()

    def write(self, path: Path) -> str:
        """Write a tools file with a table for each tool, and return what a person must know of it.

        Raises:
            ToolMistakes: there is nothing to write, or the file cannot be written.
        """
        raise ToolMistakes(["--write-tools has nothing to write: name a tools file with MCP servers by --tools."])


def load_foreign(
    files: Sequence[str], environment: Mapping[str, str], others: Iterable[Tool[..., Any]], reach: Reach
) -> ForeignTools:
    """Load the tools files `files`, which end in SUFFIX, and make a tool of each tool of their programs.

    The files may name the variables of `environment` and the Python tools `others`. The programs are started for a
    moment; `reach` has the other addresses that may be reached.

    Raises:
        ToolMistakes: a file or a program cannot be used, or the extra that reads them is not here.
    """
    if not files:
        return ForeignTools()
    try:
        loader = part("tools_files")
    except NotHere as why:
        raise ToolMistakes([f"{files[0]} needs {why}."]) from why
    found: ForeignTools = loader.load_servers(files, environment, others, reach)
    return found
