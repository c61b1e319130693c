"""pydantic-ai: `MCPToolset`."""

import asyncio

from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset

from payments import ARGS, COMMAND, IS_HTTP, SECONDS, pay_all


async def main():
    way = COMMAND if IS_HTTP else StdioTransport(COMMAND, ARGS)
    async with MCPToolset(way, init_timeout=60, read_timeout=SECONDS) as tools:
        await pay_all(lambda who: tools.direct_call_tool("pay", {"who": who}))


asyncio.run(main())
