"""pydantic-ai on DBOS, as its page on durable execution has it: the run in a workflow, each tool a step."""

import asyncio

import world
from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent, Tool, UsageLimits
from pydantic_ai.durable_exec.dbos import DBOSDurability

DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{world.FOLDER}/dbos.db", "log_level": "ERROR"})


def tool_of(one):
    @DBOS.step(name=one["name"], retries_allowed=True, max_attempts=3)
    async def run(**args):
        return await world.acall(one["name"], args)

    return Tool.from_schema(run, one["name"], one["description"], one["parameters"])


agent = Agent(
    f"openai-chat:{world.MODEL}",
    name="agent",
    tools=[tool_of(one) for one in world.begin()],
    capabilities=[DBOSDurability()],
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
