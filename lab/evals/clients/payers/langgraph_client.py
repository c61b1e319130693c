"""LangGraph with langchain-mcp-adapters: a session of MCP for each call."""

import asyncio
from datetime import timedelta

from langchain_mcp_adapters.client import MultiServerMCPClient

from payments import ARGS, COMMAND, IS_HTTP, SECONDS, pay_all

LIMIT = {"session_kwargs": {"read_timeout_seconds": timedelta(seconds=SECONDS)}}
STDIO = {"transport": "stdio", "command": COMMAND, "args": ARGS, **LIMIT}
HTTP = {"transport": "http", "url": COMMAND, **LIMIT}


async def main():
    (pay,) = [
        tool
        for tool in await MultiServerMCPClient({"shop": HTTP if IS_HTTP else STDIO}).get_tools()
        if tool.name == "pay"
    ]
    await pay_all(lambda who: pay.ainvoke({"who": who}))


asyncio.run(main())
