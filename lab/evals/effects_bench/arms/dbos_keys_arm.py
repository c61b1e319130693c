"""DBOS alone, with keys of the workflow and the step, and errors that are not retried, as its tutorial has them."""

import asyncio
import json

import httpx2
import world
from dbos import DBOS, SetWorkflowID
from openai import AsyncOpenAI

DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{world.FOLDER}/dbos.db", "log_level": "ERROR"})
TOOLS = world.begin()
FUNCTIONS = [
    {"type": "function", "function": {k: one[k] for k in ("name", "description", "parameters")}} for one in TOOLS
]


@DBOS.step(retries_allowed=True, max_attempts=3)
async def think(messages: list) -> dict:
    reply = await AsyncOpenAI().chat.completions.create(model=world.MODEL, messages=messages, tools=FUNCTIONS)
    return reply.choices[0].message.model_dump(exclude_none=True)


class Refused(Exception):
    """A status that the same call would get again."""


@DBOS.step(retries_allowed=True, max_attempts=3, should_retry=lambda error: not isinstance(error, Refused))
async def call(tool: str, args: dict) -> str:
    try:
        return await world.acall(tool, args, f"{DBOS.workflow_id}-{DBOS.step_id}")
    except httpx2.HTTPStatusError as error:
        if error.response.status_code in (408, 429) or error.response.status_code >= 500:
            raise
        raise Refused(error.response.text) from None


@DBOS.workflow()
async def agent(text: str) -> str:
    messages = [{"role": "user", "content": text}]
    while True:
        said = await think(messages)
        messages.append(said)
        if not said.get("tool_calls"):
            return said["content"]
        for one in said["tool_calls"]:
            try:
                result = await call(one["function"]["name"], json.loads(one["function"]["arguments"]))
            except Refused as error:
                result = str(error)
            messages.append({"role": "tool", "tool_call_id": one["id"], "content": result})


async def main() -> None:
    DBOS.launch()
    with SetWorkflowID(world.MODEL):
        handle = await DBOS.start_workflow_async(agent, world.TEXT)
    print(await handle.get_result())


asyncio.run(main())
