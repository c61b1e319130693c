"""Loads the tools files of a worker: reads them, asks their servers what they offer, and makes a tool of each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.toolbox.declare.tool import Tool
from activities.toolbox.foreign import ForeignTools
from activities.toolbox.http.network import Reach, Web
from activities.toolbox.registry import ToolMistakes
from extras.mcp import tools_file, writing
from extras.mcp.config import CannotOpen, Config, Listing
from extras.mcp.servers import McpServers
from workflows.plans.catalogue import UNREAD
from workflows.text import decode_text

if TYPE_CHECKING:  # at run time only where a server is named: it imports the SDK
    from extras.mcp.kinds import FilePlace, ForeignTool

MISSING = (
    "A tools file with MCP servers needs the package mcp: install the extra, `pip install 'replan[mcp]'`, or in a"
    " checkout `pip install -e '.[mcp]'`."
)

log = structlog.get_logger("replan.mcp")


@dataclass(frozen=True)
class McpTools(ForeignTools):
    """The tools of MCP servers, and how to reach the servers."""

    tools: Mapping[Tool[..., Any], str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The kinds that cannot be offered, each with the reason."""
    configs: Mapping[str, Config] = field(default_factory=dict)
    listings: Mapping[str, Listing] = field(default_factory=dict)
    classified: Sequence["ForeignTool"] = ()
    """The tools with the reasons of their effects."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The text of each tools file, by its name."""

    def servers(self, engine: AsyncEngine, web: Web) -> McpServers:
        servers = McpServers(self.configs, engine, web)
        servers.expect(self.listings)
        return servers

    def notes(self) -> Iterator[tuple[str, str]]:
        for found in self.classified:
            lines = [*([UNREAD[found.unread]] if found.unread else []), *found.listed.oddities, *found.notes]
            yield from ((found.kind, line) for line in lines)

    def unread_lines(self, tools: Sequence[str]) -> Iterator[str]:
        return writing.unread_lines(self.classified, tools)

    def write(self, path: Path) -> str:
        return writing.write(path, self.files, self.classified)


@dataclass(frozen=True)
class ServerTables:
    """The servers of tools files, or of a command, before they were asked for their tools."""

    tables: Mapping[str, tools_file.ServerTable]
    configs: Mapping[str, Config]
    places: Mapping[str, "FilePlace"]
    files: Mapping[str, str] = field(default_factory=dict)

    def tools(
        self,
        found: Mapping[str, Listing | str],
        others: Iterable[Tool[..., Any]],
        *,
        takes_unread: bool = False,
    ) -> McpTools:
        """Make a tool of each tool in `found`: by server, what it lists, or why it cannot be asked.

        Raises ToolMistakes for an unusable server or table.
        """
        from extras.mcp import kinds

        listings = {name: listing for name, listing in found.items() if isinstance(listing, Listing)}
        mistakes = [
            f"{self.places[name].line()}: the server {name} cannot be asked for its tools: {why}."
            for name, why in found.items()
            if not isinstance(why, Listing)
        ]
        if mistakes:
            raise ToolMistakes(mistakes)
        sources = [kinds.McpServer(name, self.tables[name], listings[name], self.places[name]) for name in self.tables]
        made = kinds.tools_of(sources, {tool.__name__: tool for tool in others}, takes_unread=takes_unread)
        if made.mistakes:
            raise ToolMistakes(made.mistakes)
        for kind, reason in made.left_out.items():
            log.warning("mcp_tool_left_out", kind=kind, reason=reason)
        files = dict(self.files)
        return McpTools(dict.fromkeys(made.tools, ""), made.left_out, self.configs, listings, made.classified, files)


def server_of_command(
    name: str, command: Sequence[str], cwd: str, environment: Mapping[str, str], timeout: float
) -> ServerTables:
    """The server that a command starts, with all these variables; its calls may take `timeout` seconds."""
    from extras.mcp.kinds import FilePlace

    table = tools_file.ServerTable(command=tuple(command), cwd=cwd, timeout=timeout)
    config = Config(name, table.command or (), env=environment, cwd=cwd)
    return ServerTables({name: table}, {name: config}, {name: FilePlace(" ".join(command), "", name)})


def read_servers(names: Iterable[str], environment: Mapping[str, str]) -> ServerTables:
    """Read the tools files `names`, which end in `.toml`, and may name the variables of `environment`.

    Raises ToolMistakes for an unusable file.
    """
    try:
        from extras.mcp import kinds
    except ModuleNotFoundError as error:
        raise ToolMistakes([MISSING]) from error
    mistakes = list[str]()
    places, files = dict[str, kinds.FilePlace](), dict[str, str]()
    tables, configs = dict[str, tools_file.ServerTable](), dict[str, Config]()
    for path in map(Path, names):
        try:
            read = tools_file.read(path)
        except tools_file.BadToolsFile as bad:
            mistakes += bad.mistakes
            continue
        files[str(path)] = decode_text(path.read_bytes())
        for name, server in read.servers.items():
            place = kinds.FilePlace(str(path), files[str(path)], name)
            if name in tables:
                mistakes.append(f"{place.line()}: the server {name} is in {places[name].line()}, too: rename one.")
                continue
            tables[name], places[name] = server, place
            try:
                configs[name] = Config.of(name, server, environment, path.parent)
            except CannotOpen as why:
                mistakes.append(f"{place.line()}: {name}: {why}: set it, or correct the file.")
    if mistakes:
        raise ToolMistakes(mistakes)
    return ServerTables(tables, configs, places, files)


def load_servers(
    names: Iterable[str],
    environment: Mapping[str, str],
    others: Iterable[Tool[..., Any]],
    reach: Reach | None = None,
    *,
    takes_unread: bool = False,
) -> McpTools:
    """Load the tools files `names`, which end in `.toml`, and make a tool of each tool of their servers.

    The files may name the variables of `environment` and the Python tools `others`. The servers are started for a
    moment; `reach` has the other addresses that may be reached, and `takes_unread` is as for `tools_of`.

    Raises ToolMistakes for an unusable file or server.
    """
    files = list(names)
    if not files:
        return McpTools()
    read = read_servers(files, environment)
    from extras.mcp import connections

    return read.tools(connections.listings(read.configs, reach or Reach()), others, takes_unread=takes_unread)
