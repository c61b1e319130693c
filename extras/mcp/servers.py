"""The MCP servers that the tools files of a worker name, and what each offers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, JsonValue
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.errors import NeedsPerson
from activities.toolbox.http.network import Web
from activities.toolbox.servers import Servers
from extras.mcp import ahead
from extras.mcp.config import Config, Listing

if TYPE_CHECKING:  # at run time only where a server is named: it imports the SDK
    from mcp.shared.dispatcher import ProgressFnT

    from extras.mcp.connections import Kept


class McpServers(Servers):
    """The MCP servers of some tools files, with a connection to each that is in use."""

    def __init__(
        self,
        configs: Mapping[str, Config],
        engine: "AsyncEngine | None",
        web: Web,
        *,
        has_layout: bool = False,
        **options: Any,
    ) -> None:
        """With `has_layout`, `ToolAnswer.layout` (the order of the content's blocks) is filled in, for a gateway.

        `options` are those of `Kept`, for all servers.
        """
        self._kept: dict[str, Kept] = {}
        self._engine = engine
        if configs:
            from extras.mcp import connections

            self._kept = {
                name: connections.Kept(config, web, has_layout=has_layout, **options)
                for name, config in configs.items()
            }

    def record_in(self, engine: "AsyncEngine") -> None:
        """Use this store for the records ahead of calls; without one, such calls are refused."""
        self._engine = engine

    def expect(self, listings: Mapping[str, Listing]) -> None:
        """Reject calls of tools that differ from the tools in `listings`, of which the worker's kinds were made."""
        for name, listing in listings.items():
            self._kept[name].expected = {listed.name: listed for listed in reversed(listing.tools)}  # the first counts

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        try:
            yield self
        finally:
            await asyncio.gather(*(kept.close() for kept in self._kept.values()))

    async def listing(self, server: str) -> Listing:
        """What a server lists, on a connection that is opened if there is none. Raises CannotOpen if that fails."""
        return (await self._kept[server].connection()).listing

    def has_ended(self, server: str) -> bool:
        return self._kept[server].has_ended

    def restarts(self, server: str) -> int:
        return max(0, self._kept[server].starts - 1)

    async def call(
        self,
        server: str,
        tool: str,
        args: Mapping[str, JsonValue],
        answers: Mapping[str, JsonValue] = MappingProxyType({}),
        *,
        result: type[BaseModel] | None = None,
        is_read: bool = False,
    ) -> JsonValue:
        if server not in self._kept:
            known = ", ".join(self._kept) or "no server"
            raise NeedsPerson(f"No tools file of this worker names the server {server}: there is {known}.")
        return await self._kept[server].call(tool, dict(args), answers, result, is_read=is_read)

    async def request(
        self, server: str, method: str, params: Mapping[str, Any], seconds: float, report: "ProgressFnT | None" = None
    ) -> dict[str, Any]:
        """Send a request that changes nothing, and return the server's result as it is; see `Kept.request`."""
        return await self._kept[server].request(method, params, seconds, report)

    def on_notification(self, heard: Callable[[str, str, Mapping[str, Any] | None], None]) -> None:
        """Register `heard` for the notifications of all servers; it is called on the event loop of the connections.

        Its arguments are the name of the server, and the method and params of the notification.
        """
        for name, kept in self._kept.items():
            kept.heard = partial(heard, name)

    async def note_ahead(self, key: str, noted: ahead.Ahead) -> None:
        """Store the record ahead of the call with this key, in place of an earlier record."""
        await ahead.note(self._store, key, noted)

    async def ahead(self, key: str) -> ahead.Ahead | None:
        """The record that was stored ahead of the call with this key; None if there is none."""
        return await ahead.find(self._store, key)

    @property
    def _store(self) -> AsyncEngine:
        """The store. Raises NeedsPerson if there is none."""
        if self._engine is None:
            raise NeedsPerson("There is no store here: call the tool on a worker.")
        return self._engine
