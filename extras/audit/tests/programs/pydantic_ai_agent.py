"""An agent of pydantic-ai whose model requests and tools are activities."""

import asyncio
import os
import sys
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import httpx2
    from ending import to_the_end
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.temporal import AgentPlugin, PydanticAIPlugin, TemporalDurability
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

ADDRESS, SHOP, ID = sys.argv[1:4]
POLICY = {
    "start_to_close_timeout": timedelta(seconds=4),
    "retry_policy": RetryPolicy(maximum_attempts=4, initial_interval=timedelta(milliseconds=50)),
}
api = AsyncOpenAI(base_url=f"{SHOP}/v1", api_key="none", max_retries=0)
agent = Agent(
    OpenAIChatModel("some-model", provider=OpenAIProvider(openai_client=api)),
    name="clerk",
    capabilities=[TemporalDurability(activity_config=POLICY)],
)


@agent.tool_plain
async def get_price(sku: str) -> str:
    """Look up a price."""
    async with httpx2.AsyncClient() as http:
        return (await http.get(f"{SHOP}/price")).raise_for_status().text


@agent.tool_plain
async def charge(account: str, amount: int) -> str:
    """Charge an account."""
    async with httpx2.AsyncClient(timeout=60) as http:
        return (await http.post(f"{SHOP}/charge", json={"account": account, "amount": amount})).raise_for_status().text


@workflow.defn
class Clerk:
    @workflow.run
    async def run(self, prompt: str) -> str:
        return (await agent.run(prompt)).output


async def main():
    client = await Client.connect(ADDRESS, plugins=[PydanticAIPlugin()])
    async with Worker(client, task_queue=ID, workflows=[Clerk], plugins=[AgentPlugin(agent)]):
        await to_the_end(client, Clerk.run, ID)


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)
