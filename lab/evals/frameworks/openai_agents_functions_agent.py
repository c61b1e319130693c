"""An agent of the OpenAI Agents SDK with tools that are functions: its arguments are FILE STORE BOOK KILL."""

import asyncio
import sys
from pathlib import Path

from agents import Agent, Runner, RunState, function_tool, set_default_openai_api
from agents.tool_context import ToolContext

from evals.frameworks.bank import Bank
from replan.effects import Effects, Key

FILE, STORE = Path(sys.argv[1]), sys.argv[2]
bank = Bank(*sys.argv[3:])
effects = Effects(STORE, session="order-17")


@function_tool(needs_approval=True, failure_error_function=None)
@bank.passes
@effects.keyed
async def pay(ctx: ToolContext, who: str, key: Key) -> str:
    """Pay somebody."""
    return bank.pay(who, key)


@function_tool(needs_approval=True, failure_error_function=None)
@bank.passes
@effects.unkeyed(reconcile=bank.find_mail, settle=0.2)
async def mail(ctx: ToolContext, to: str, subject: str) -> str:
    """Mail somebody."""
    return bank.mail(to, subject)


async def main():
    set_default_openai_api("chat_completions")
    agent = Agent("payer", model="some-model", instructions="Pay and mail as asked.", tools=[pay, mail])
    begin = await RunState.from_string(agent, FILE.read_text()) if FILE.exists() else "Pay ann."
    result = await Runner.run(agent, begin)
    while result.interruptions:
        state = result.to_state()
        for call in result.interruptions:
            state.approve(call)
        FILE.with_suffix(".new").write_text(state.to_string())
        FILE.with_suffix(".new").replace(FILE)
        result = await Runner.run(agent, state)
    print(result.final_output)


asyncio.run(main())
