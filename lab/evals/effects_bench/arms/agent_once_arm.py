"""agent-once in LangGraph, as its README begins: `once_tool` under the tool, and the key goes to the service."""

import asyncio

import world
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from once import Once
from once.integrations.langchain import once_tool

once = Once(f"{world.FOLDER}/once.db")


def tool_of(one):
    async def run(config: RunnableConfig, idempotency_key: str | None = None, **args):
        return await world.acall(one["name"], args, idempotency_key)

    run.__name__ = one["name"]
    schema = {"title": one["name"], **one["parameters"], "description": one["description"]}
    return StructuredTool.from_function(
        coroutine=once_tool(once, name=one["name"])(run) if one["changes"] else run,
        name=one["name"],
        description=one["description"],
        args_schema=schema,
    )


async def main():
    tools = [tool_of(one) for one in world.begin()]
    model = ChatOpenAI(model=world.MODEL, max_retries=2).bind_tools(tools)

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("think", think).add_node("tools", ToolNode(tools))
    graph.add_edge(START, "think").add_conditional_edges("think", tools_condition).add_edge("tools", "think")
    async with AsyncSqliteSaver.from_conn_string(f"{world.FOLDER}/checkpoints.db") as saver:
        agent = graph.compile(saver)
        thread = {"configurable": {"thread_id": "1"}, "recursion_limit": 200}
        is_begun = (await agent.aget_state(thread)).next
        state = await agent.ainvoke(None if is_begun else {"messages": [("user", world.TEXT)]}, thread)
    print(state["messages"][-1].content)


asyncio.run(main())
