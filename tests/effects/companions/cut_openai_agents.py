"""A tool of OpenAI Agents that its timeout cuts off, and that the model calls again."""

import asyncio

import mail_service
from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from replan.effects import Effects

effects = Effects("sqlite:///agent.db", session="order-17")
set_tracing_disabled(True)


@function_tool(timeout=0.2)
@effects.unkeyed
async def send(ctx: ToolContext, to: str) -> str:
    """Mail somebody."""
    await asyncio.sleep(0.5)
    return mail_service.send(to, "receipt")


class Asking(Model):
    """Ask again until there is a result."""

    turns = 0

    async def get_response(self, system_instructions, input, *arguments, **more):
        self.turns += 1
        last = input[-1] if isinstance(input, list) else {}
        output = str(last.get("output", ""))
        if output.startswith("mail"):
            text = ResponseOutputText(text=output, type="output_text", annotations=[])
            item = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        else:
            item = ResponseFunctionToolCall(
                call_id=f"call_{self.turns}", name="send", arguments='{"to": "ann"}', type="function_call"
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *arguments, **more):
        raise NotImplementedError


agent = Agent("mailer", model=Asking(), tools=[send])
print(asyncio.run(Runner.run(agent, "Mail.", max_turns=30)).final_output)
