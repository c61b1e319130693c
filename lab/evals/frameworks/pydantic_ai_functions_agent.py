"""An agent of pydantic-ai whose tools are functions: `pydantic_ai_functions_agent.py FILE STORE BOOK KILL`."""

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent, ModelMessagesTypeAdapter, RunContext

from evals.frameworks.bank import Bank
from replan.effects import Effects, Key

FILE, STORE = Path(sys.argv[1]), sys.argv[2]
bank = Bank(*sys.argv[3:])
agent = Agent("openai-chat:some-model", instructions="Pay and mail as asked.")
effects = Effects(STORE, session="order-17")


@agent.tool
@bank.passes
@effects.keyed
async def pay(ctx: RunContext, who: str, key: Key) -> str:
    """Pay somebody."""
    return bank.pay(who, key)


@agent.tool
@bank.passes
@effects.unkeyed(reconcile=bank.find_mail, settle=0.2)
async def mail(ctx: RunContext, to: str, subject: str) -> str:
    """Mail somebody."""
    return bank.mail(to, subject)


async def main():
    history = ModelMessagesTypeAdapter.validate_json(FILE.read_bytes()) if FILE.exists() else None
    async with agent.iter(None if history else "Pay ann.", message_history=history) as run:
        async for _ in run:
            FILE.with_suffix(".new").write_bytes(run.all_messages_json())
            FILE.with_suffix(".new").replace(FILE)
    print(run.result.output)


asyncio.run(main())
