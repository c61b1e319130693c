"""Google's ADK: `McpToolset`, with the time-outs of its connection."""

import asyncio

from google.adk.agents import Agent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.session import Session
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from google.adk.tools.tool_context import ToolContext
from mcp import StdioServerParameters

from payments import ARGS, COMMAND, IS_HTTP, SECONDS, pay_all


async def main():
    if IS_HTTP:
        way = StreamableHTTPConnectionParams(url=COMMAND, timeout=60, sse_read_timeout=SECONDS)
    else:
        way = StdioConnectionParams(server_params=StdioServerParameters(command=COMMAND, args=ARGS), timeout=60)
    tools = McpToolset(connection_params=way)
    (pay,) = [tool for tool in await tools.get_tools() if tool.name == "pay"]

    run = InvocationContext(
        session_service=InMemorySessionService(),
        invocation_id="payments",
        agent=Agent(name="payer", model="some-model"),
        session=Session(id="payments", app_name="payments", user_id="payer"),
    )

    async def paid(who):
        async with asyncio.timeout(SECONDS):
            return await pay.run_async(args={"who": who}, tool_context=ToolContext(run))

    await pay_all(paid)
    await tools.close()


asyncio.run(main())
