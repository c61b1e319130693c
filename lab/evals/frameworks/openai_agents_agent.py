"""An agent of the OpenAI Agents SDK that saves its state: `openai_agents_agent.py FILE keys|no-keys COMMAND...`."""

import asyncio
import sys
from pathlib import Path

from agents import Agent, Runner, RunState, set_default_openai_api
from agents.mcp import MCPServerStdio

FILE, KEYS = Path(sys.argv[1]), sys.argv[2] == "keys"
COMMAND, *ARGS = sys.argv[3:]


def key(call):
    return {"replan/run": "order-17", "replan/key": call.run_context.tool_call_id}


tools = MCPServerStdio(
    {"command": COMMAND, "args": ARGS},
    client_session_timeout_seconds=300,
    require_approval="always",
    tool_meta_resolver=key if KEYS else None,
)


async def main():
    set_default_openai_api("chat_completions")
    async with tools:
        agent = Agent("payer", model="some-model", instructions="Pay as asked.", mcp_servers=[tools])
        begin = await RunState.from_string(agent, FILE.read_text()) if FILE.exists() else "Pay ann."
        result = await Runner.run(agent, begin)
        while result.interruptions:
            state = result.to_state()
            for call in result.interruptions:
                state.approve(call)
            FILE.write_text(state.to_string())
            result = await Runner.run(agent, state)
    print(result.final_output)


asyncio.run(main())
