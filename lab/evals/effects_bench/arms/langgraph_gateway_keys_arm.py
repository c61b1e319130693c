"""As langgraph_gateway_arm.py; the tools file says which argument takes a key, and that errors come before."""

import asyncio
import os
from pathlib import Path

import world
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

TOOLS = world.begin()
KEYED = "".join(
    f'[servers.world.tools.{one["name"]}]\neffect = "keyed"\nkey = "request_id"\nerrors = "before"\n'
    for one in TOOLS
    if one["changes"]
)
FILE = Path(world.FOLDER, "world.toml")
FILE.write_text(f'[servers.world]\nurl = "{world.URL}/mcp/keyed"\ntimeout = {world.SECONDS}\n{KEYED}')
SERVER = {
    "transport": "stdio",
    "command": os.environ["REPLAN"],
    "args": ["-m", "replan", "mcp", "--session", world.MODEL, "--tools", str(FILE)],
    "env": {**os.environ},
    "cwd": world.FOLDER,
}


async def main():
    async with MultiServerMCPClient({"world": SERVER}).session("world") as session:
        tools = await load_mcp_tools(session)
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
