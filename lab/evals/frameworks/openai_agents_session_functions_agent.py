"""As openai_agents_functions_agent.py, but with a session, which saves a turn when it is over."""

import asyncio
import sys

from agents import Agent, Runner, SQLiteSession, function_tool, set_default_openai_api
from agents.tool_context import ToolContext

from evals.frameworks.bank import Bank
from replan.effects import Effects, Key

FILE, STORE = sys.argv[1:3]
bank = Bank(*sys.argv[3:])
effects = Effects(STORE, session="order-17", restarts=True)


@function_tool(failure_error_function=None)
@bank.passes
@effects.keyed
async def pay(ctx: ToolContext, who: str, key: Key) -> str:
    """Pay somebody."""
    return bank.pay(who, key)


@function_tool(failure_error_function=None)
@bank.passes
@effects.unkeyed(reconcile=bank.find_mail, settle=0.2)
async def mail(ctx: ToolContext, to: str, subject: str) -> str:
    """Mail somebody."""
    return bank.mail(to, subject)


async def main():
    set_default_openai_api("chat_completions")
    agent = Agent("payer", model="some-model", instructions="Pay and mail as asked.", tools=[pay, mail])
    session = SQLiteSession("order-17", FILE)
    begin = "Go on." if await session.get_items() else "Pay ann."
    result = await Runner.run(agent, begin, session=session)
    print(result.final_output)


asyncio.run(main())
