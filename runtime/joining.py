"""The server that a worker joins: one on this machine with `--dev`, else the one that is configured."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from temporalio.client import Client

from runtime.client import connect, namespace_id, register_search_attributes
from runtime.dev_server import LocalServer, dev_server
from runtime.settings import Settings
from runtime.temporal_cli import Say


@dataclass(frozen=True)
class Joined:
    """A server that answers."""

    client: Client
    local: LocalServer | None
    """The server of `--dev`."""
    searchable: bool
    """Whether the namespace has our search attributes."""
    namespace: str
    """The id of the namespace, which no other one has, on no server."""


@asynccontextmanager
async def joined(settings: Settings, attributes: Mapping[str, str], say: Say) -> AsyncIterator[Joined]:
    """Join the server, starting it first if it is to be ours; what we started ends with the block.

    Raises ServerUnavailable, NotConnected.
    """
    async with AsyncExitStack() as opened:
        server = dev_server(settings.state, say=say, attributes=attributes) if settings.dev else None
        local = await opened.enter_async_context(server) if server else None
        client = await connect(address=local.address if local else None, plain=local is not None)
        searchable = await register_search_attributes(client, attributes)
        yield Joined(client, local, searchable, await namespace_id(client))
