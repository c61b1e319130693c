"""LangGraph with a checkpointer and its defaults: a run that failed is started again on its thread."""

import asyncio

import world
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


def tool_of(one):
    async def run(**args):
        return await world.acall(one["name"], args)

    schema = {"title": one["name"], **one["parameters"], "description": one["description"]}
    return StructuredTool.from_function(
        coroutine=run, name=one["name"], description=one["description"], args_schema=schema
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
