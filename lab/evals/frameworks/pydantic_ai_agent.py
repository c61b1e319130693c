"""An agent of pydantic-ai that saves its messages: `pydantic_ai_agent.py FILE keys|no-keys COMMAND...`."""

import asyncio
import sys
from pathlib import Path

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, ModelMessagesTypeAdapter
from pydantic_ai.mcp import MCPToolset

FILE, KEYS = Path(sys.argv[1]), sys.argv[2] == "keys"
COMMAND, *ARGS = sys.argv[3:]


async def with_key(ctx, call_tool, name, args):
    return await call_tool(name, args, metadata={"replan/run": ctx.conversation_id, "replan/key": ctx.tool_call_id})


tools = MCPToolset(
    StdioTransport(COMMAND, ARGS),
    init_timeout=60,
    tool_error_behavior="failed",
    process_tool_call=with_key if KEYS else None,
)
agent = Agent("openai-chat:some-model", instructions="Pay as asked.", toolsets=[tools])


async def main():
    history = ModelMessagesTypeAdapter.validate_json(FILE.read_bytes()) if FILE.exists() else None
    async with agent.iter(None if history else "Pay ann.", message_history=history) as run:
        async for _ in run:
            FILE.write_bytes(run.all_messages_json())
    print(run.result.output)


asyncio.run(main())
