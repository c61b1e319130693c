"""agno: `MCPTools`."""

import asyncio

from agno.tools.mcp import MCPTools
from mcp import StdioServerParameters

from payments import ARGS, COMMAND, IS_HTTP, SECONDS, pay_all


async def main():
    if IS_HTTP:
        way = {"transport": "streamable-http", "url": COMMAND}
    else:
        way = {"server_params": StdioServerParameters(command=COMMAND, args=ARGS)}
    async with MCPTools(timeout_seconds=SECONDS, **way) as tools:
        pay = tools.functions["pay"].entrypoint
        await pay_all(lambda who: pay(who=who))


asyncio.run(main())
