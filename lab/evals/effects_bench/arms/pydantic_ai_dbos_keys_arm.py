"""pydantic-ai on DBOS, with keys, and `ToolFailed` for what the same call would get again."""

import asyncio

import httpx2
import world
from dbos import DBOS, SetWorkflowID
from openai import AsyncOpenAI
from pydantic_ai import Agent, Tool, ToolFailed, UsageLimits
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{world.FOLDER}/dbos.db", "log_level": "ERROR"})


def tool_of(one):
    @DBOS.step(
        name=one["name"],
        retries_allowed=True,
        max_attempts=3,
        should_retry=lambda error: not isinstance(error, ToolFailed),
    )
    async def run(**args):
        try:
            return await world.acall(one["name"], args, f"{DBOS.workflow_id}-{DBOS.step_id}")
        except httpx2.HTTPStatusError as error:
            if error.response.status_code in (408, 429) or error.response.status_code >= 500:
                raise
            raise ToolFailed(error.response.text) from None

    return Tool.from_schema(run, one["name"], one["description"], one["parameters"])


agent = Agent(
    OpenAIChatModel(world.MODEL, provider=OpenAIProvider(openai_client=AsyncOpenAI(max_retries=0))),
    name="agent",
    tools=[tool_of(one) for one in world.begin()],
    capabilities=[DBOSDurability(model_step_config={"retries_allowed": True, "max_attempts": 3})],
)


@DBOS.workflow()
async def run(text: str) -> str:
    return (await agent.run(text, usage_limits=UsageLimits(request_limit=None))).output


async def main() -> None:
    DBOS.launch()
    with SetWorkflowID(world.MODEL):
        handle = await DBOS.start_workflow_async(run, world.TEXT)
    print(await handle.get_result())


asyncio.run(main())
