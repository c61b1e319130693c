"""pydantic-ai on Temporal, with keys, and `ToolFailed` for what the same call would get again."""

import asyncio
import os
from datetime import timedelta

import httpx2
import world
from openai import AsyncOpenAI
from pydantic_ai import Agent, Tool, ToolFailed, UsageLimits
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.workflow import ActivityConfig


def tool_of(one):
    async def run(**args):
        info = activity.info()
        try:
            return await world.acall(one["name"], args, f"{info.workflow_run_id}-{info.activity_id}")
        except httpx2.HTTPStatusError as error:
            if error.response.status_code in (408, 429) or error.response.status_code >= 500:
                raise
            raise ToolFailed(error.response.text) from error

    return Tool.from_schema(run, one["name"], one["description"], one["parameters"])


agent = Agent(
    OpenAIChatModel(world.MODEL, provider=OpenAIProvider(openai_client=AsyncOpenAI(max_retries=0))),
    name="agent",
    tools=[tool_of(one) for one in world.begin()],
    capabilities=[TemporalDurability(activity_config=ActivityConfig(start_to_close_timeout=timedelta(seconds=10)))],
)


@workflow.defn
class AgentLoop(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [agent]

    @workflow.run
    async def run(self, text: str) -> str:
        return (await agent.run(text, usage_limits=UsageLimits(request_limit=None))).output


async def main() -> None:
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"], plugins=[PydanticAIPlugin()])
    name, keep, once = world.MODEL, WorkflowIDConflictPolicy.USE_EXISTING, WorkflowIDReusePolicy.REJECT_DUPLICATE
    async with Worker(client, task_queue=name, workflows=[AgentLoop], workflow_runner=UnsandboxedWorkflowRunner()):
        try:
            handle = await client.start_workflow(
                AgentLoop.run, world.TEXT, id=name, task_queue=name, id_conflict_policy=keep, id_reuse_policy=once
            )
        except WorkflowAlreadyStartedError:
            handle = client.get_workflow_handle_for(AgentLoop.run, name)
        print(await handle.result())


asyncio.run(main())
