"""An agent of LangGraph with a checkpointer: `langgraph_agent.py FILE keys|no-keys (COMMAND... | URL)`."""

import asyncio
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

FILE, KEYS = sys.argv[1], sys.argv[2] == "keys"
COMMAND, *ARGS = sys.argv[3:]


async def with_key(request, handler):
    return await handler(request.override(headers={"Replan-Key": f"order-17/{request.runtime.tool_call_id}"}))


STDIO = {"transport": "stdio", "command": COMMAND, "args": ARGS}
HTTP = {"transport": "http", "url": COMMAND}
client = MultiServerMCPClient({"shop": STDIO if ARGS else HTTP}, tool_interceptors=[with_key] if KEYS else None)


async def main():
    tools = await client.get_tools()
    model = ChatOpenAI(model="some-model").bind_tools(tools)

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("think", think).add_node("tools", ToolNode(tools))
    graph.add_edge(START, "think").add_conditional_edges("think", tools_condition).add_edge("tools", "think")
    async with AsyncSqliteSaver.from_conn_string(FILE) as saver:
        agent, thread = graph.compile(saver), {"configurable": {"thread_id": "order-17"}}
        is_begun = (await agent.aget_state(thread)).next
        begin = None if is_begun else {"messages": [("user", "Pay ann.")]}
        state = await agent.ainvoke(begin, thread, durability="sync")
    print(state["messages"][-1].content)


asyncio.run(main())
