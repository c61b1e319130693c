"""Arguments whose names no provider takes: a model sees and writes other names, and nobody else does."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, Field, JsonValue
from temporalio.client import Client

from activities.providers.messages import AssistantTurn, Request, ToolCall, ToolDefinition, ToolResult, UserTurn
from activities.providers.property_names import USUAL, PropertyNames, RequestNames
from evals.fakes.model_api import running
from evals.fakes.script import ModelCall, ModelReply, calls
from replan import tool
from tests.providers.acting import acting
from tests.providers.planning import adapter_of, api_of
from workflows.account.task import TaskStatus

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}


def form(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties}


RENAMED: dict[str, tuple[Schema, dict[str, JsonValue], dict[str, JsonValue]]] = {
    "brackets": (form(**{"filter[x]": TEXT}), {"filter[x]": "a"}, {"filter_x_": "a"}),
    "signs": (
        form(**{"$top": TEXT, "@odata.type": TEXT}),
        {"$top": 1, "@odata.type": 2},
        {"_top": 1, "_odata.type": 2},
    ),
    "letters": (form(straße=TEXT, 名前=TEXT), {"straße": 1, "名前": 2}, {"stra_e": 1, "__": 2}),
    "equal ones": (form(**{"Start<": TEXT, "Start>": TEXT}), {"Start<": 1, "Start>": 2}, {"Start_": 1, "Start__2": 2}),
    "a usual one is like it": (form(**{"a b": TEXT, "a_b": TEXT}), {"a b": 1, "a_b": 2}, {"a_b_2": 1, "a_b": 2}),
    "long ones": (
        form(**{f"{'a' * 70}{n}": TEXT for n in (1, 2)}),
        {"a" * 70 + "1": 1, "a" * 70 + "2": 2},
        {"a" * 64: 1, "a" * 59 + "_2": 2},
    ),
    "no name": (form(**{"": TEXT}), {"": 1}, {"_": 1}),
    "nested": (form(row=form(**{"First Name": TEXT})), {"row": {"First Name": 1}}, {"row": {"First_Name": 1}}),
    "in lists": (form(rows={"items": form(**{"a/b": TEXT})}), {"rows": [{"a/b": 1}]}, {"rows": [{"a_b": 1}]}),
    "in a branch": (form(x={"anyOf": [TEXT, form(**{"a b": TEXT})]}), {"x": {"a b": 1}}, {"x": {"a_b": 1}}),
    "by reference": (
        {**form(x={"$ref": "#/$defs/a%20b"}), "$defs": {"a b": form(**{"a b": TEXT})}},
        {"x": {"a b": 1}},
        {"x": {"a_b": 1}},
    ),
    "values of any name": (
        form(**{"a b": TEXT, "data": {"type": "object"}}),
        {"a b": 1, "data": {"a_b": 1, "a b": 2}},
        {"a_b": 1, "data": {"a_b": 1, "a b": 2}},
    ),
    "a reference to a step": (form(**{"$from": TEXT}), {"$from": "s1"}, {"_from": "s1"}),
}


@pytest.mark.parametrize(("schema", "own", "written"), RENAMED.values(), ids=RENAMED)
def test_a_model_writes_other_names(schema: Schema, own: dict[str, JsonValue], written: dict[str, JsonValue]) -> None:
    """Each is one that every provider takes, and stands for one of the tool's."""
    names = PropertyNames(schema)

    assert names.written(own) == written and names.own(written) == own
    assert names.own(own) == own, "the tool's own names are understood, too"


def test_the_schema_for_a_model_says_the_own_names() -> None:
    """For a model that was told of `filter[x]` elsewhere; what is required, is so under the other name."""
    schema = {**form(**{"filter[x]": {**TEXT, "description": "Which."}, "b": TEXT}), "required": ["b", "filter[x]"]}

    assert PropertyNames(schema).schema == {
        **form(filter_x_={**TEXT, "description": "The tool calls it 'filter[x]'. Which."}, b=TEXT),
        "required": ["b", "filter_x_"],
    }


def test_an_argument_under_both_names_is_no_argument() -> None:
    """Else the one that a policy read might not be the one that is sent."""
    names = RequestNames([ToolDefinition("pay", "", form(**{"amount (EUR)": TEXT}))])
    turn = names.own(AssistantTurn(calls=(ToolCall("1", "pay", {"amount (EUR)": 1, "amount__EUR_": 1_000}),)))

    assert turn.calls[0].args == {} and "'amount (EUR)' under two names" in turn.calls[0].broken


ODD = ToolDefinition("find", "Finds.", form(**{"filter[x]": TEXT, "row": form(**{"First Name": TEXT})}))
ARGS: dict[str, JsonValue] = {"filter[x]": "a", "row": {"First Name": "Ann"}}


async def test_a_provider_sees_no_other_name(provider: str) -> None:
    """Neither in schemas nor in the calls of earlier turns; the reply has the tool's own names."""
    asked = UserTurn("Find it.")
    before = AssistantTurn(calls=(ToolCall("call_1", "find", ARGS),))
    request = Request("You find things.", [ODD], [asked, before, UserTurn("Again.", (ToolResult("call_1", "none"),))])
    written: dict[str, JsonValue] = {"filter_x_": "a", "row": {"First_Name": "Ann"}}
    async with running(api_of(provider, calls(ModelCall("find", written)))) as api:
        reply = await adapter_of(provider, api).reply(request)

    assert api.violations == [] and "First Name" not in str([call.args for call in api.requests[0].calls])
    assert [call.args for call in reply.turn.calls] == [ARGS]


class Query(BaseModel):
    """What to find."""

    status: str = Field(alias="filter[status]")
    top: int = Field(default=1, alias="$top")


@tool.read
async def search(args: Query) -> str:
    """Search."""
    return f"{args.top} {args.status}"


async def test_a_task_calls_a_tool_with_such_arguments(client: Client, tmp_path: Path, provider: str) -> None:
    """The step has the names of the tool, as in a plan that a person writes."""
    script = (calls(ModelCall("search", {"filter_status_": "open", "_top": 3})), ModelReply(text="done"))
    async with acting(client, tmp_path, provider, *script, tools=(search,)) as one:
        ended = await one.run("search")

    assert (ended.status, one.api.violations) == (TaskStatus.COMPLETED, [])
    assert [(step.args, step.result) for step in ended.steps] == [({"filter[status]": "open", "$top": 3}, "3 open")]


NAMES = st.sampled_from(["a b", "a_b", "a-b", "a$b", "ß", "", "x", "a_b_2"])
SCHEMAS = st.recursive(
    st.just(TEXT),
    lambda inner: st.dictionaries(NAMES, inner, max_size=5).map(lambda named: form(**named)),
    max_leaves=8,
)


def filled(schema: Schema) -> JsonValue:
    """Arguments with all properties."""
    return {name: filled(part) for name, part in schema["properties"].items()} if "properties" in schema else "x"


@given(st.dictionaries(NAMES, SCHEMAS, max_size=6).map(lambda named: form(**named)))
def test_names_come_back_as_they_went(schema: Schema) -> None:
    """Whatever names are like each other."""
    args: Any = filled(schema)
    names = PropertyNames(schema)
    written = names.written(args)

    assert names.own(written) == args and all(USUAL.fullmatch(name) for name in keys(written))


def keys(value: JsonValue) -> list[str]:
    return [key for name, item in value.items() for key in [name, *keys(item)]] if isinstance(value, dict) else []
