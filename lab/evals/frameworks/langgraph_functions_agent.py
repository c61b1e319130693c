"""An agent of LangGraph whose tools are functions: `langgraph_functions_agent.py FILE STORE BOOK KILL`."""

import asyncio
import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime, tools_condition

from evals.frameworks.bank import Bank
from replan.effects import Effects, Key

FILE, STORE = sys.argv[1:3]
bank = Bank(*sys.argv[3:])
effects = Effects(STORE, session="order-17")


@tool
@bank.passes
@effects.keyed
async def pay(who: str, runtime: ToolRuntime, key: Key) -> str:
    """Pay somebody."""
    return bank.pay(who, key)


@tool
@bank.passes
@effects.unkeyed(reconcile=bank.find_mail, settle=0.2)
async def mail(to: str, subject: str, runtime: ToolRuntime) -> str:
    """Mail somebody."""
    return bank.mail(to, subject)


async def main():
    model = ChatOpenAI(model="some-model").bind_tools([pay, mail])

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("think", think).add_node("tools", ToolNode([pay, mail]))
    graph.add_edge(START, "think").add_conditional_edges("think", tools_condition).add_edge("tools", "think")
    async with AsyncSqliteSaver.from_conn_string(FILE) as saver:
        agent, thread = graph.compile(saver), {"configurable": {"thread_id": "order-17"}}
        is_begun = (await agent.aget_state(thread)).next
        begin = None if is_begun else {"messages": [("user", "Pay ann.")]}
        state = await agent.ainvoke(begin, thread, durability="sync")
    print(state["messages"][-1].content)


asyncio.run(main())
