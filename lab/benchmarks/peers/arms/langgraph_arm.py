"""LangGraph with a checkpointer on SQLite: each step is a node, so that it is recorded before the next one begins."""

import asyncio
import operator
from typing import Annotated, TypedDict

import steps
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy, Send


class State(TypedDict):
    task: str
    number: int
    done: Annotated[list, operator.add]


async def act(state: State) -> dict:
    number = await steps.step(state["task"], state["number"])
    return {"done": [number]} if steps.SHAPE == "fan" else {"done": [number], "number": number + 1}


def first(state: State) -> list | str:
    return [Send("act", {**state, "number": number}) for number in range(steps.SIZE)] if steps.SHAPE == "fan" else "act"


def then(state: State) -> str:
    return END if steps.SHAPE == "fan" or state["number"] >= steps.SIZE else "act"


async def main() -> None:
    graph = StateGraph(State).add_node("act", act, retry_policy=RetryPolicy(retry_on=steps.Unavailable))
    graph.add_conditional_edges(START, first, ["act"]).add_conditional_edges("act", then, ["act", END])
    async with AsyncSqliteSaver.from_conn_string(f"{steps.FOLDER}/checkpoints.db") as saver:
        agent = graph.compile(saver)
        await agent.aget_state({"configurable": {"thread_id": "none"}})  # makes the tables

        async def run(task: str) -> None:
            thread = {"configurable": {"thread_id": task}, "recursion_limit": steps.SIZE + 10}
            is_begun = (await agent.aget_state(thread)).next
            await agent.ainvoke(None if is_begun else {"task": task, "number": 0}, thread, durability="sync")

        await steps.begin()
        await asyncio.gather(*map(run, steps.tasks()))
        await steps.end()


asyncio.run(main())
