"""As temporal_mcp_arm.py; the workflow gives each call a key, as the README recommends."""

import asyncio
import json
import os
from datetime import timedelta

import world
from mcp import Client as McpClient
from openai import AsyncOpenAI
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, WorkflowAlreadyStartedError
from temporalio.mcp import MCPPlugin, TemporalMCPClient
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.workflow import ActivityConfig

CHANGING = {one["name"] for one in world.begin() if one["changes"]}
TIMEOUT = timedelta(seconds=10)


@activity.defn
async def think(messages: list, tools: list) -> dict:
    client = AsyncOpenAI(max_retries=0)
    reply = await client.chat.completions.create(model=world.MODEL, messages=messages, tools=tools)
    return reply.choices[0].message.model_dump(exclude_none=True)


@workflow.defn
class AgentLoop:
    @workflow.run
    async def run(self, text: str) -> str:
        config = ActivityConfig(
            start_to_close_timeout=TIMEOUT,
            schedule_to_close_timeout=timedelta(minutes=1),
            retry_policy=RetryPolicy(maximum_attempts=3),
        )
        mcp = TemporalMCPClient("world", activity_config=config)
        tools = [
            {
                "type": "function",
                "function": {"name": one.name, "description": one.description, "parameters": one.input_schema},
            }
            for one in (await mcp.list_tools()).tools
        ]
        messages = [{"role": "user", "content": text}]
        while True:
            said = await workflow.execute_activity(think, args=[messages, tools], start_to_close_timeout=TIMEOUT)
            messages.append(said)
            if not said.get("tool_calls"):
                return said["content"]
            for one in said["tool_calls"]:
                result = await self.called(mcp, one["function"]["name"], json.loads(one["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": one["id"], "content": result})

    async def called(self, mcp: TemporalMCPClient, tool: str, args: dict) -> str:
        if tool in CHANGING:
            args = {**args, "request_id": str(workflow.uuid4())}
        try:
            result = await mcp.call_tool(tool, args)
        except ActivityError as error:
            return json.dumps({"error": str(error.cause or error)})
        return "\n".join(part.text for part in result.content if part.type == "text")


async def main() -> None:
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    name, keep, once = world.MODEL, WorkflowIDConflictPolicy.USE_EXISTING, WorkflowIDReusePolicy.REJECT_DUPLICATE
    plugin = MCPPlugin({"world": lambda: McpClient(f"{world.URL}/mcp/keyed", read_timeout_seconds=world.SECONDS)})
    async with Worker(
        client,
        task_queue=name,
        workflows=[AgentLoop],
        activities=[think],
        plugins=[plugin],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        try:
            handle = await client.start_workflow(
                AgentLoop.run, world.TEXT, id=name, task_queue=name, id_conflict_policy=keep, id_reuse_policy=once
            )
        except WorkflowAlreadyStartedError:
            handle = client.get_workflow_handle_for(AgentLoop.run, name)
        print(await handle.result())


asyncio.run(main())
