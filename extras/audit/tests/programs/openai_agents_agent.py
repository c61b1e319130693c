"""An agent of the OpenAI Agents SDK in Temporal's integration: the model and the tools are activities."""

import asyncio
import os
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import httpx2
    from agents import Agent, OpenAIProvider, Runner
    from ending import to_the_end
    from openai import AsyncOpenAI
    from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
    from temporalio.openai_agents.workflow import activity_as_tool

ADDRESS, SHOP, ID = sys.argv[1:4]
POLICY = {
    "start_to_close_timeout": timedelta(seconds=4),
    "retry_policy": RetryPolicy(maximum_attempts=4, initial_interval=timedelta(milliseconds=50)),
}


@activity.defn
async def get_price(sku: str) -> str:
    """Look up a price."""
    async with httpx2.AsyncClient() as http:
        return (await http.get(f"{SHOP}/price")).raise_for_status().text


@activity.defn
async def charge(account: str, amount: int) -> str:
    """Charge an account."""
    async with httpx2.AsyncClient(timeout=60) as http:
        return (await http.post(f"{SHOP}/charge", json={"account": account, "amount": amount})).raise_for_status().text


@workflow.defn
class Clerk:
    @workflow.run
    async def run(self, prompt: str) -> str:
        tools = [activity_as_tool(tool, **POLICY) for tool in (get_price, charge)]
        agent = Agent(name="clerk", instructions="Charge as asked.", tools=tools, model="some-model")
        return (await Runner.run(agent, prompt)).final_output


async def main():
    api = AsyncOpenAI(base_url=f"{SHOP}/v1", api_key="none", max_retries=0)
    plugin = OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(**POLICY),
        model_provider=OpenAIProvider(openai_client=api, use_responses=False),
    )
    client = await Client.connect(ADDRESS, plugins=[plugin])
    async with Worker(client, task_queue=ID, workflows=[Clerk], activities=[get_price, charge]):
        await to_the_end(client, Clerk.run, ID)


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)
