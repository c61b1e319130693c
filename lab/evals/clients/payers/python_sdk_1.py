"""The Python SDK 1.x: `ClientSession`."""

import asyncio
from datetime import timedelta

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamablehttp_client

from payments import ARGS, COMMAND, IS_HTTP, SECONDS, pay_all


async def main():
    way = streamablehttp_client(COMMAND) if IS_HTTP else stdio_client(StdioServerParameters(command=COMMAND, args=ARGS))
    async with way as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        await pay_all(
            lambda who: session.call_tool("pay", {"who": who}, read_timeout_seconds=timedelta(seconds=SECONDS))
        )


asyncio.run(main())
