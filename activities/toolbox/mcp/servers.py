"""The MCP servers that the tools files of a worker name, and what each offers."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, JsonValue
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.errors import NeedsPerson
from activities.toolbox.http.network import Web
from activities.toolbox.mcp import ahead, tools_file
from workflows.json_values import digest

if TYPE_CHECKING:  # at run time only where a server is named: it imports the SDK
    from activities.toolbox.mcp.connections import Kept


@dataclass(frozen=True)
class Listed:
    """A tool as a server lists it."""

    name: str
    schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    title: str = ""
    description: str = ""
    read_only: bool = False
    """What the server says about itself (`readOnlyHint`)."""

    @property
    def digest(self) -> str:
        """Changes with what a call may send and get."""
        return digest([self.name, dict(self.schema), dict(self.output_schema) if self.output_schema else None])


@dataclass(frozen=True)
class Listing:
    """What a server offers."""

    tools: Sequence[Listed]
    server_name: str
    """What the server calls itself."""
    protocol: str


class CannotOpen(Exception):
    """A server cannot be started, reached or asked for its tools; the message says why, without its name."""


@dataclass(frozen=True)
class Config:
    """How to connect to one server, with the values of its secrets."""

    name: str
    command: Sequence[str] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str | None = None
    cwd: str | None = None
    roots: Sequence[str] = ()
    errors: Mapping[str, tools_file.ErrorRow] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, server: tools_file.Server, environment: Mapping[str, str], folder: Path) -> "Config":
        """Look up the values that a tools file names; relative paths are below the file's `folder`.

        Raises:
            CannotOpen: a variable or a file is missing.
        """

        def value(source: str) -> str:
            if source.startswith("file:"):
                path = folder / source.removeprefix("file:")
                try:
                    return path.read_text().strip()
                except (OSError, ValueError):
                    raise CannotOpen(f"the file {path} cannot be read") from None
            if source not in environment:
                raise CannotOpen(f"the variable {source} is not set")
            return environment[source]

        headers = {header: value(source) for header, source in server.headers.items()}
        for header in [found for found in headers if found.lower() == "authorization"]:
            headers[header] = headers[header] if " " in headers[header] else f"Bearer {headers[header]}"
        return cls(
            name,
            server.command or (),
            server.url or "",
            {variable: value(source) for variable, source in server.env.items()},
            headers,
            value(server.oauth.client_id) if server.oauth else "",
            value(server.oauth.client_secret) if server.oauth else "",
            server.oauth.scope if server.oauth else None,
            str(folder / server.cwd) if server.cwd else None,
            [str((folder / root).resolve()) for root in server.roots],
            server.errors,
        )


class Servers:
    """The MCP servers of a worker's tools files. A Python tool can take it, too, and call a server's tools with it."""

    def __init__(self, configs: Mapping[str, Config], engine: AsyncEngine | None, web: Web) -> None:
        self._kept: dict[str, Kept] = {}
        self._engine = engine
        if configs:
            from activities.toolbox.mcp import connections

            self._kept = {name: connections.Kept(config, web) for name, config in configs.items()}

    def expect(self, listings: Mapping[str, Listing]) -> None:
        """Refuse calls of tools that are not as in `listings`, since the worker's kinds are made of these."""
        for name, listing in listings.items():
            self._kept[name].expected = {listed.name: listed for listed in listing.tools}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Servers"]:
        """The connections end when the block ends."""
        try:
            yield self
        finally:
            await asyncio.gather(*(kept.close() for kept in self._kept.values()))

    async def listing(self, server: str) -> Listing:
        """What a server lists now. Raises CannotOpen."""
        return (await self._kept[server].connection()).listing

    async def call(
        self,
        server: str,
        tool: str,
        args: Mapping[str, JsonValue],
        *,
        result: type[BaseModel] | None = None,
        is_read: bool = False,
    ) -> JsonValue:
        """Call a tool once, and return its result as JSON: of the form `result`, else as an `Answer` with text.

        Raises:
            ToolError: the call failed; what that proves about its effect is noted in the error.
        """
        if server not in self._kept:
            known = ", ".join(self._kept) or "no server"
            raise NeedsPerson(f"No tools file of this worker names the server {server}: there is {known}.")
        return await self._kept[server].call(tool, dict(args), result, is_read=is_read)

    async def note_ahead(self, key: str, noted: ahead.Ahead) -> None:
        """Note what was before a call, in place of what was before an earlier attempt."""
        await ahead.note(self._store, key, noted)

    async def ahead(self, key: str) -> ahead.Ahead | None:
        """What was noted ahead of a call; None if no attempt came so far."""
        return await ahead.find(self._store, key)

    @property
    def _store(self) -> AsyncEngine:
        if self._engine is None:
            raise NeedsPerson("There is no store here: call the tool on a worker.")
        return self._engine
