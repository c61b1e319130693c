"""An agent whose tools are those of an MCP server, in `temporalio-mcp`."""

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import mcp
    from ending import to_the_end
    from mcp import StdioServerParameters, stdio_client
    from openai import AsyncOpenAI
    from temporalio.mcp import MCPPlugin, TemporalMCPClient

ADDRESS, SHOP, ID = sys.argv[1:4]
SERVER = str(Path(__file__).with_name("mcp_shop.py"))
POLICY = {
    "start_to_close_timeout": timedelta(seconds=15),
    "retry_policy": RetryPolicy(maximum_attempts=4, initial_interval=timedelta(milliseconds=50)),
}


def shop():
    return mcp.Client(stdio_client(StdioServerParameters(command=sys.executable, args=[SERVER, SHOP])))


@activity.defn
async def ask_model(messages: list[dict]) -> dict:
    async with AsyncOpenAI(base_url=f"{SHOP}/v1", api_key="none", max_retries=0) as api:
        reply = await api.chat.completions.create(model="some-model", messages=messages)
        return reply.model_dump(mode="json", exclude_none=True)


@workflow.defn
class Loop:
    @workflow.run
    async def run(self, prompt: str) -> str:
        tools = TemporalMCPClient("shop", activity_config=POLICY)
        await tools.list_tools()
        messages = [{"role": "user", "content": prompt}]
        for _ in range(10):
            reply = await workflow.execute_activity(ask_model, messages, **POLICY)
            message = reply["choices"][0]["message"]
            messages.append(message)
            for call in message.get("tool_calls") or ():
                function = call["function"]
                result = await tools.call_tool(function["name"], json.loads(function["arguments"]))
                content = " ".join(part.text for part in result.content)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            if not message.get("tool_calls"):
                return message["content"]
        return "no answer"


async def main():
    client = await Client.connect(ADDRESS)
    plugins = [MCPPlugin({"shop": shop})]
    async with Worker(client, task_queue=ID, workflows=[Loop], activities=[ask_model], plugins=plugins):
        await to_the_end(client, Loop.run, ID)


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)
