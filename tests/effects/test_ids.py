"""The ids that frameworks give to a call, read from the context that they pass."""

from types import SimpleNamespace
from typing import Any

import pytest

from activities.effects.arguments import Arguments, Bound
from activities.effects.identity import checked
from activities.effects.recognition import CallStanding, Earlier, Identity, Relation, recognise


def call(id: str) -> Any:
    """What pydantic-ai has of a call."""
    return SimpleNamespace(part_kind="tool-call", tool_call_id=id)


def result(id: str) -> Any:
    """What pydantic-ai has of its result."""
    return SimpleNamespace(part_kind="tool-return", tool_call_id=id)


def parts(*these: Any) -> Any:
    """A message of pydantic-ai."""
    return SimpleNamespace(parts=[*these])


def message(type: str, **more: Any) -> Any:
    """A message of LangGraph."""
    return SimpleNamespace(type=type, **more)


def asking(id: str) -> Any:
    """A message of LangGraph in which the model calls."""
    return message("ai", tool_calls=[{"id": id, "name": "pay"}])


PYDANTIC_AI = SimpleNamespace(
    tool_call_id="call_0",
    run_id="run-1",
    conversation_id="talk-1",
    messages=[parts(), parts(call("call_0"), call("call_1")), parts(result("call_0")), parts(call("call_0"))],
)
LANGGRAPH = {"configurable": {"thread_id": "order-17", "checkpoint_ns": "tools:2bd6"}}
STATE = {
    "messages": [
        message("human"),
        asking("call_0"),
        message("tool", tool_call_id="call_0", status="success"),
        asking("call_0"),
        message("tool", tool_call_id="call_0", status="error"),
        asking("call_0"),
    ]
}
NOTES = {"call_1": SimpleNamespace(completed=True), "call_2": SimpleNamespace(completed=False)}
INPUT = [{"role": "user"}, {"type": "function_call", "call_id": "call_0"}]
OUTPUT = {"type": "function_call_output", "call_id": "call_0"}
OPENAI = SimpleNamespace(tool_call_id="call_2", _tool_invocations=NOTES, turn_input=[*INPUT, OUTPUT])


@pytest.mark.parametrize(
    ("contexts", "ids", "answered"),
    [
        pytest.param([PYDANTIC_AI], ("talk-1", "4/call_0"), {"2/call_0"}, id="pydantic-ai"),
        pytest.param(
            [SimpleNamespace(tool_call_id="call_0", config=LANGGRAPH, state=STATE)],
            ("order-17", "6/call_0"),
            {"2/call_0"},
            id="ToolRuntime of LangGraph",
        ),
        pytest.param(
            [SimpleNamespace(tool_call_id="call_0", config=LANGGRAPH, state={})],
            ("order-17", "tools:2bd6/call_0"),
            set(),
            id="a state without messages",
        ),
        pytest.param(
            [LANGGRAPH, SimpleNamespace(tool_call_id="call_0"), STATE],
            ("order-17", "6/call_0"),
            {"2/call_0"},
            id="InjectedToolCallId, RunnableConfig and InjectedState",
        ),
        pytest.param([OPENAI], (None, "call_2"), {"call_0", "call_1"}, id="OpenAI Agents"),
        pytest.param([SimpleNamespace(tool_call_id="call_0")], (None, "call_0"), set(), id="an id alone"),
        pytest.param([SimpleNamespace(run_id="run-1"), None, "text"], (None, None), set(), id="no call"),
    ],
)
def test_a_call_is_named_by_its_turn_and_its_id(
    contexts: list[Any], ids: tuple[str | None, str | None], answered: set[str]
) -> None:
    """Servers of models repeat `call_0` in each turn; the run is what the framework keeps when it resumes."""
    bound = Bound({}, {}, contexts)

    assert bound.ids == ids
    assert {*bound.answered} == answered


@pytest.mark.parametrize("standing", [CallStanding.LAST, CallStanding.PASSED])
@pytest.mark.parametrize(
    ("run", "answered", "verdict"),
    [("talk-1", {"2/call_0"}, Relation.OTHER), ("talk-1", set(), None), ("talk-2", {"2/call_0"}, None)],
)
def test_an_equal_call_of_a_model_that_has_the_answer_is_another_call(
    standing: CallStanding, run: str, answered: set[str], verdict: Relation | None
) -> None:
    """Although the process that got the answer was killed; without the answer on record it may be the same call."""
    earlier = Earlier("pay-1", Identity("d", run="talk-1", call="2/call_0"), standing)
    again = Identity("d", run=run, call="4/call_0", answered=answered)
    unless = Relation.JOINED if standing is CallStanding.LAST else Relation.DOUBTFUL

    assert recognise(again, [earlier]).verdict is (verdict or unless)


@pytest.mark.parametrize("standing", [CallStanding.RUNNING, CallStanding.STOPPED, CallStanding.UNREAD])
def test_what_was_not_handed_out_is_no_answer(standing: CallStanding) -> None:
    """A framework also records that it gave up on a call."""
    earlier = Earlier("pay-1", Identity("d", run="talk-1", call="2/call_0"), standing)
    again = Identity("d", run="talk-1", call="4/call_0", answered={"2/call_0"})

    assert recognise(again, [earlier]).verdict is Relation.JOINED


class Shop:
    """A class with methods as tools."""

    @property
    def messages(self) -> list[str]:
        """What a tool of a method never asks for."""
        raise AssertionError

    state = tool_call_id = messages

    def pay(self, who: str, client: Any) -> str:
        """Pay somebody."""
        return who


def test_nothing_is_asked_of_objects_that_are_no_contexts() -> None:
    """Neither of the object whose method is called, nor of an argument that is ignored."""
    shop = Shop()
    bound = Arguments(Shop.pay, ignore=["client"]).bind((shop, "ann", shop), {})

    assert bound.ids == (None, None) and not bound.answered


@pytest.mark.parametrize("id", ["x" * 3000, "a\x00b", "\ud800"])
def test_an_id_that_no_store_can_keep_is_kept_as_its_hash(id: str) -> None:
    """Ids come from the servers of models."""
    _, name = Bound({}, {}, [SimpleNamespace(tool_call_id=id)]).ids
    _, other = Bound({}, {}, [SimpleNamespace(tool_call_id=f"{id}b")]).ids

    assert name is not None and checked("call", name) == name
    assert name != other
