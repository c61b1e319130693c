"""As langgraph_mcp_arm.py, with interceptors for keys and retries, as the pages about them have it."""

import asyncio
from datetime import timedelta

import world
from langchain_core.messages import ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

CHANGING = {one["name"] for one in world.begin() if one["changes"]}
SERVER = {
    "transport": "streamable_http",
    "url": f"{world.URL}/mcp/keyed",
    "session_kwargs": {"read_timeout_seconds": timedelta(seconds=world.SECONDS)},
}


async def with_key(request, handler):
    """The id of the call is in the checkpoint, so it is the same when the call is made again."""
    if request.name in CHANGING:
        request = request.override(args={**request.args, "request_id": request.runtime.tool_call_id})
    return await handler(request)


def is_transient(error):
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_transient, error.exceptions))
    status = getattr(getattr(error, "response", None), "status_code", 503)
    return status == 429 or status >= 500


async def again(request, handler):
    """Three attempts with a growing wait; an error that stays is for the model."""
    waits = iter((0.5, 1.0))
    while True:
        try:
            return await handler(request)
        except Exception as error:
            if not is_transient(error):
                return ToolMessage(f"Error: {root(error)}", tool_call_id=request.runtime.tool_call_id, status="error")
            if (wait := next(waits, None)) is None:
                raise
            await asyncio.sleep(wait)


def root(error):
    return root(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def main():
    client = MultiServerMCPClient({"world": SERVER}, tool_interceptors=[with_key, again])
    tools = await client.get_tools()
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
