"""A tool of pydantic-ai that its timeout cuts off, and that the model calls again."""

import asyncio

import mail_service
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from replan.effects import Effects

effects = Effects("sqlite:///agent.db", session="order-17")


def model(messages, info):
    """Ask again until there is a result."""
    for part in messages[-1].parts:
        if part.part_kind == "tool-return" and part.content.startswith("mail"):
            return ModelResponse(parts=[TextPart(part.content)])
    return ModelResponse(parts=[ToolCallPart("send", {"to": "ann"})])


agent = Agent(FunctionModel(model), retries=20)


@agent.tool(timeout=0.2)
@effects.unkeyed
async def send(ctx: RunContext, to: str) -> str:
    await asyncio.sleep(0.5)
    return mail_service.send(to, "receipt")


print(agent.run_sync("Mail.").output)
