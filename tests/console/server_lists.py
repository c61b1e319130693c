"""What a server takes a moment for: its lists, and another namespace."""

import asyncio
import secrets

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from runtime.client import NoServer, NotConnected, connect


async def listed(client: Client, query: str, count: int = 1) -> None:
    """Wait until the server lists so many runs; its lists are about a second behind."""
    async with asyncio.timeout(60):
        while (await client.count_workflows(query)).count < count:
            await asyncio.sleep(0.05)


async def other_namespace(client: Client) -> Client:
    """A client of a new namespace, without search attributes, as on a server where nobody may add them."""
    name = f"other-{secrets.token_hex(6)}"
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=Duration(seconds=86400))
    await client.workflow_service.register_namespace(request)
    async with asyncio.timeout(60):
        while True:
            try:
                other = await connect(address=client.service_client.config.target_host, namespace=name, plain=True)
                await other.count_workflows("")
                return other
            except (RPCError, NotConnected, NoServer):  # the server's parts hear of it one after the other
                await asyncio.sleep(0.2)
