"""A node of LangGraph that its retry policy repeats, after one tool has mailed and another one has failed."""

import asyncio

import mail_service
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.types import RetryPolicy

from replan.effects import Effects

effects = Effects("sqlite:///agent.db", session="order-17")
failures = [TimeoutError()]


@tool
@effects.unkeyed
async def send(to: str, runtime: ToolRuntime) -> str:
    """Mail somebody."""
    return mail_service.send(to, "receipt")


@tool
async def price() -> str:
    """Fail once."""
    await asyncio.sleep(0.2)
    if failures:
        raise failures.pop()
    return "7"


calls = [{"name": "send", "args": {"to": "ann"}, "id": "call_0"}, {"name": "price", "args": {}, "id": "call_1"}]
policy = RetryPolicy(retry_on=TimeoutError, initial_interval=0.1)
graph = StateGraph(MessagesState)
graph.add_node("tools", ToolNode([send, price], handle_tool_errors=False), retry_policy=policy)
graph.add_edge(START, "tools")
state = asyncio.run(graph.compile().ainvoke({"messages": [AIMessage("", tool_calls=calls)]}))
print(state["messages"][-2].content)
