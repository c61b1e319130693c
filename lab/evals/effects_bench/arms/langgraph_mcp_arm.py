"""LangGraph with a checkpointer and the world's MCP server, by langchain-mcp-adapters, as their README has it."""

import asyncio
from datetime import timedelta

import world
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

world.begin()
SERVER = {
    "transport": "streamable_http",
    "url": f"{world.URL}/mcp",
    "session_kwargs": {"read_timeout_seconds": timedelta(seconds=world.SECONDS)},
}


async def main():
    tools = await MultiServerMCPClient({"world": SERVER}).get_tools()
    model = ChatOpenAI(model=world.MODEL, max_retries=2).bind_tools(tools)

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("think", think).add_node("tools", ToolNode(tools))
    graph.add_edge(START, "think").add_conditional_edges("think", tools_condition).add_edge("tools", "think")
    async with AsyncSqliteSaver.from_conn_string(f"{world.FOLDER}/checkpoints.db") as saver:
        agent = graph.compile(saver)
        thread = {"configurable": {"thread_id": "1"}, "recursion_limit": 200}
        is_begun = (await agent.aget_state(thread)).next
        state = await agent.ainvoke(
            None if is_begun else {"messages": [("user", world.TEXT)]}, thread, durability="sync"
        )
    print(state["messages"][-1].content)


asyncio.run(main())
