"""LangGraph with a checkpointer, whose calls have keys, as its page on durable execution tells people to write."""

import asyncio
from contextvars import ContextVar

import httpx2
import world
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import RetryPolicy

CALL = ContextVar("call")


async def with_key(request, handler):
    """The id of the call is in the checkpoint, so it is the same when the call is made again."""
    CALL.set(request.tool_call["id"])
    return await handler(request)


def tool_of(one):
    async def run(**args):
        return await world.acall(one["name"], args, CALL.get())

    schema = {"title": one["name"], **one["parameters"], "description": one["description"]}
    return StructuredTool.from_function(
        coroutine=run, name=one["name"], description=one["description"], args_schema=schema
    )


def is_transient(error):
    """What LangGraph's page on fault tolerance retries; its default knows the errors of another HTTP library."""
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code == 429 or error.response.status_code >= 500
    return isinstance(error, httpx2.TransportError)


def to_model(error: httpx2.HTTPStatusError) -> str:
    """The model is told what it may do something about."""
    if not isinstance(error, httpx2.HTTPStatusError) or is_transient(error):
        raise error
    return f"{error.response.status_code}: {error.response.text}"


async def main():
    tools = [tool_of(one) for one in world.begin()]
    model = ChatOpenAI(model=world.MODEL, max_retries=2).bind_tools(tools)

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    retry = RetryPolicy(max_attempts=3, retry_on=is_transient)
    node = ToolNode(tools, awrap_tool_call=with_key, handle_tool_errors=to_model)
    graph = StateGraph(MessagesState).add_node("think", think).add_node("tools", node, retry_policy=retry)
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
