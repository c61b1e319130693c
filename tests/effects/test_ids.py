"""The ids that frameworks give to a call, read from the context that they pass."""

from types import SimpleNamespace
from typing import Any

import pytest

from activities.effects.arguments import Bound

PYDANTIC_AI = SimpleNamespace(tool_call_id="call_0", run_id="run-1", conversation_id="talk-1", messages=[1, 2])
LANGGRAPH = {"configurable": {"thread_id": "order-17", "checkpoint_ns": "tools:2bd6"}}


@pytest.mark.parametrize(
    ("contexts", "ids"),
    [
        pytest.param([PYDANTIC_AI], ("talk-1", "2/call_0"), id="pydantic-ai"),
        pytest.param(
            [SimpleNamespace(tool_call_id="call_0", config=LANGGRAPH)],
            ("order-17", "tools:2bd6/call_0"),
            id="ToolRuntime of LangGraph",
        ),
        pytest.param(
            [LANGGRAPH, SimpleNamespace(tool_call_id="call_0")],
            ("order-17", "tools:2bd6/call_0"),
            id="InjectedToolCallId and RunnableConfig",
        ),
        pytest.param([SimpleNamespace(tool_call_id="call_0")], (None, "call_0"), id="OpenAI Agents"),
        pytest.param([SimpleNamespace(run_id="run-1"), None, "text"], (None, None), id="no call"),
    ],
)
def test_a_call_is_named_by_its_turn_and_its_id(contexts: list[Any], ids: tuple[str | None, str | None]) -> None:
    """Servers of models repeat `call_0` in each turn; the run is what the framework keeps when it resumes."""
    assert Bound({}, {}, contexts).ids == ids
