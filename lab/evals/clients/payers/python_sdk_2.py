"""The Python SDK 2.x: `Client`."""

import asyncio

from mcp import Client, StdioServerParameters

from payments import ARGS, COMMAND, IS_HTTP, SECONDS, pay_all


async def main():
    async with Client(COMMAND if IS_HTTP else StdioServerParameters(command=COMMAND, args=ARGS)) as client:
        await pay_all(lambda who: client.call_tool("pay", {"who": who}, read_timeout_seconds=SECONDS))


asyncio.run(main())
