"""Google's ADK: `McpToolset`, with the time-outs of its connection."""

import asyncio
from unittest.mock import MagicMock

from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from mcp import StdioServerParameters

from payments import ARGS, COMMAND, IS_HTTP, SECONDS, pay_all


async def main():
    if IS_HTTP:
        way = StreamableHTTPConnectionParams(url=COMMAND, timeout=60, sse_read_timeout=SECONDS)
    else:
        way = StdioConnectionParams(server_params=StdioServerParameters(command=COMMAND, args=ARGS), timeout=60)
    tools = McpToolset(connection_params=way)
    (pay,) = [tool for tool in await tools.get_tools() if tool.name == "pay"]

    async def paid(who):
        async with asyncio.timeout(SECONDS):
            return await pay.run_async(args={"who": who}, tool_context=MagicMock())

    await pay_all(paid)
    await tools.close()


asyncio.run(main())
