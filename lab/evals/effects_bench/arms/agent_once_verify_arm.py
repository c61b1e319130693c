"""agent-once in LangGraph, with what its README says of unclear calls: `verify`, `unknown_on`, `stale_after`."""

import asyncio

import httpx2
import world
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import RetryPolicy
from once import NOT_HAPPENED, Once
from once.exceptions import EffectError
from once.integrations.langchain import once_tool


class Unsettled(Exception):
    """An answer after which nobody knows: `verify` settles it."""


once = Once(
    f"{world.FOLDER}/once.db", stale_after=5, wait=6, unknown_on=(TimeoutError, httpx2.TransportError, Unsettled)
)


def by_key(key, args):
    """The service makes a key once, so another attempt is safe."""
    return NOT_HAPPENED


def tool_of(one):
    async def run(config: RunnableConfig, idempotency_key: str | None = None, **args):
        try:
            return await world.acall(one["name"], args, idempotency_key)
        except httpx2.HTTPStatusError as error:
            if is_transient(error):
                raise Unsettled(str(error)) from error
            raise

    run.__name__ = one["name"]
    schema = {"title": one["name"], **one["parameters"], "description": one["description"]}
    return StructuredTool.from_function(
        coroutine=once_tool(once, name=one["name"], verify=by_key)(run) if one["changes"] else run,
        name=one["name"],
        description=one["description"],
        args_schema=schema,
    )


def is_transient(error):
    """What LangGraph's page on fault tolerance retries; its default knows the errors of another HTTP library."""
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code == 429 or error.response.status_code >= 500
    return isinstance(error, httpx2.TransportError)


def to_model(error: httpx2.HTTPStatusError | EffectError) -> str:
    """The model is told what it may do something about."""
    if isinstance(error, EffectError):
        return str(error)
    if not isinstance(error, httpx2.HTTPStatusError) or is_transient(error):
        raise error
    return f"{error.response.status_code}: {error.response.text}"


async def main():
    tools = [tool_of(one) for one in world.begin()]
    model = ChatOpenAI(model=world.MODEL, max_retries=2).bind_tools(tools)

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    retry = RetryPolicy(max_attempts=3, retry_on=lambda error: isinstance(error, Unsettled) or is_transient(error))
    node = ToolNode(tools, handle_tool_errors=to_model)
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
