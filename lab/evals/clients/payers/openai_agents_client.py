"""The OpenAI Agents SDK: `MCPServerStdio`, `MCPServerStreamableHttp`."""

import asyncio

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

from payments import ARGS, COMMAND, IS_HTTP, SECONDS, pay_all


async def main():
    params = {"url": COMMAND} if IS_HTTP else {"command": COMMAND, "args": ARGS}
    kind = MCPServerStreamableHttp if IS_HTTP else MCPServerStdio
    async with kind(params, client_session_timeout_seconds=SECONDS) as server:
        await server.list_tools()
        await pay_all(lambda who: server.call_tool("pay", {"who": who}))


asyncio.run(main())
