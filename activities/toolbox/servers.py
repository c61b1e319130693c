"""The MCP servers that a worker's tools can call: none, unless the extra that knows the protocol gives them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Self

from pydantic import BaseModel, JsonValue

from activities.errors import NeedsPerson


class Servers:
    """The MCP servers of a worker's tools files.

    A Python tool can have a parameter of this type, too, to call the tools of a server.
    """

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """Yield the servers; their connections are closed when the block ends."""
        yield self

    def has_ended(self, server: str) -> bool:
        """Whether the process of a server is certainly gone, so that no call of it goes on."""
        return False

    def restarts(self, server: str) -> int:
        """How many times the process of a server was started again, without what it had kept in memory."""
        return 0

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
        """Call a tool once, and return its result as JSON: of the form `result`, else as a `ToolAnswer` with text.

        `answers` are a person's answers to the server's questions, by the names of the questions. `is_read` is true if
        the call changes nothing.

        Raises:
            ToolError: the call failed; the error records what the failure proves about the effect.
        """
        raise NeedsPerson(f"No tools file of this worker names the server {server}: there is no server.")
