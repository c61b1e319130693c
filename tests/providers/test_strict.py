"""Strict schemas: which schema has a strict form, what a request may have of them, and what follows a rejection."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types
from pydantic import BaseModel, Field, JsonValue
from temporalio.client import Client

from activities.planning.strategies import PlanStrategy, ReactStrategy
from activities.providers import anthropic
from activities.providers.adapter import AdapterOptions
from activities.providers.messages import AssistantTurn, Request, ToolCall, ToolDefinition, ToolResult, UserTurn
from activities.providers.metering import MeteredModel, start_meter, total
from activities.providers.property_names import USUAL, PropertyNames, RequestNames
from activities.providers.registry import model_named
from activities.providers.strict import (
    ANTHROPIC,
    MAX_REJECTED,
    OPENAI,
    Rules,
    SchemaStanding,
    StrictModel,
    with_strict_schemas,
)
from evals.fakes import strict_schemas
from evals.fakes.model_api import KEY, MODEL, Json, running
from evals.fakes.script import ModelCall, ModelError, ModelReply, Response, calls
from replan import tool
from tests.activities.situations import KINDS, asked
from tests.providers.acting import acting
from tests.providers.asking import ASKED, WEATHER, request
from tests.providers.planning import adapter_of, api_of, model_of
from workflows.account.task import TaskStatus

MAKERS = ["anthropic", "openai"]
TEXT, NUMBER, NOTHING = {"type": "string"}, {"type": "number"}, {"type": "null"}


def closed(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an object; without `required` names, all properties are required."""
    return {"type": "object", "properties": properties, "required": [*(required or properties)]}


def lists(levels: int) -> dict[str, Any]:
    """The schema of lists in lists."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def definition(schema: Mapping[str, Any], name: str = "some") -> ToolDefinition:
    """A tool with these arguments."""
    return ToolDefinition(name, "Does something.", schema)


def strict_form(schema: Mapping[str, Any], rules: Rules) -> tuple[dict[str, Any] | None, str]:
    """The strict form of a schema, or why it has none."""
    strict, reasons = with_strict_schemas(Request("", [definition(schema)], ()), rules)
    return (None, reasons["some"]) if reasons else (dict(strict.tools[0].schema), "")


CHAIN = {"$ref": "#/$defs/Chain"}
BOTH: dict[str, tuple[dict[str, Any], str]] = {
    "any value": (closed(a={}), "'a' takes any value"),
    "true": (closed(a=True), "'a' takes any value"),
    "any names": (closed(a={"type": "object"}), "'a' takes properties of any name"),
    "a dictionary": (closed(a={"type": "object", "additionalProperties": TEXT}), "'a' takes properties of any name"),
    "open": ({**closed(a=TEXT), "additionalProperties": True}, "it takes properties of any name"),
    "any items": (closed(a={"type": "array"}), "each of 'a' takes any value"),
    "a tuple": (closed(a={"type": "array", "prefixItems": [TEXT]}), "'a' uses prefixItems"),
    "patterns of names": (closed(a={"type": "object", "patternProperties": {"x": TEXT}}), "'a' uses patternProperties"),
    "all of": (closed(a={"type": "object", "allOf": [closed(b=TEXT)]}), "'a' uses allOf"),
    "itself": ({**closed(a=CHAIN), "$defs": {"Chain": closed(next=CHAIN)}}, "'next' may contain itself"),
    "nowhere": (closed(a=CHAIN), "'a' refers to #/$defs/Chain, which it does not have"),
    "values of objects": (closed(a={"enum": [{}, []]}), "'a' lists values that are objects or lists"),
    "unknown name": (closed("a", "b", a=TEXT), "it requires 'b', which it does not describe"),
    "no values": (closed(a={"enum": []}), "'a' takes any value"),
    "without end": (closed(a=lists(2_000)), "it is nested too deeply"),
    "joined": (closed(a={"type": "string", "anyOf": [TEXT, NUMBER]}), "'a' joins anyOf with other keywords"),
}


def nested(levels: int) -> dict[str, Any]:
    """Objects in objects."""
    return closed(a=nested(levels - 1)) if levels > 1 else closed(a=TEXT)


OF_OPENAI: dict[str, tuple[dict[str, Any], str]] = {
    "optional": (closed("a", a=TEXT, b=TEXT), "'b' may be left out"),
    "a default": (closed("a", a=TEXT, b={"anyOf": [NUMBER, NOTHING], "default": 3}), "'b' may be left out"),
    "too deep": (nested(11), "it has objects more than 10 levels deep"),
    "too many values": (closed(a={"enum": [str(one) for one in range(1_001)]}), "it has more than 1000 values in"),
    "long values": (closed(a={"enum": [f"{one:060}" for one in range(251)]}), "'a' lists more than 15000 characters"),
    "too large": ({**closed(), "properties": {f"p{one}": TEXT for one in range(2_000)}}, "it has more than 2000 parts"),
}


@pytest.mark.parametrize("name", [*BOTH, *OF_OPENAI])
def test_a_schema_beyond_the_subset_has_no_strict_form(name: str) -> None:
    """The reason names the property, in the words of `--check`. OpenAI requires every property, and limits the size.

    An optional property is no required one with null: the tool could take the null for a value of its own.
    """
    schema, why = {**BOTH, **OF_OPENAI}[name]
    for rules in (ANTHROPIC, OPENAI) if name in BOTH else (OPENAI,):
        found, reason = strict_form(schema, rules)

        assert (found, reason[: len(why)]) == (None, why)


def test_an_optional_property_that_defaults_to_null_is_required() -> None:
    """Null says the same as leaving it out."""
    schema = closed("a", a=TEXT, b={"anyOf": [NUMBER, NOTHING], "default": None})
    found, _ = strict_form(schema, OPENAI)

    assert found == {**closed("a", "b", a=TEXT, b={"anyOf": [NUMBER, NOTHING]}), "additionalProperties": False}


def test_what_is_not_enforced_is_told_in_the_description() -> None:
    text = {"type": "string", "description": "A name", "maxLength": 9, "pattern": "^(?!x)", "format": "time"}
    number = {"type": "integer", "minimum": 1}
    schema = closed(a=text, b=number, c={"type": "array", "items": NUMBER, "minItems": 2})
    here, there = strict_form(schema, ANTHROPIC)[0], strict_form(schema, OPENAI)[0]
    assert here and there
    said = 'A name (maxLength: 9, pattern: "^(?!x)", format: "time")'

    assert here["properties"]["a"] == there["properties"]["a"] == {"type": "string", "description": said}
    assert (here["properties"]["b"], there["properties"]["b"]) == (
        {"type": "integer", "description": "(minimum: 1)"},
        number,
    )
    assert (here["properties"]["c"]["description"], there["properties"]["c"]["minItems"]) == ("(minItems: 2)", 2)


def test_definitions_take_the_place_of_their_references() -> None:
    """With the description of the place; OpenAI allows none beside `$ref`."""
    schema = {**closed(a={"$ref": "#/$defs/Line", "description": "One"}), "$defs": {"Line": closed(b=TEXT)}}
    line = {**closed(b=TEXT), "additionalProperties": False}

    assert strict_form(schema, OPENAI)[0] == {
        **closed(a={**line, "description": "One"}),
        "additionalProperties": False,
    }


ALLOWED: list[tuple[dict[str, Any], Any]] = [
    (closed(a={"oneOf": [closed(k={"const": 1}, b=TEXT), closed(k={"const": 2})]}), {"a": {"k": 2}}),
    (closed(a={"type": ["string", "null"]}), {"a": None}),
    (closed(a={"enum": ["x", 1, None]}), {"a": 1}),
    (closed(a={"type": "array", "items": {"type": "array", "items": closed(b=NUMBER)}}), {"a": [[{"b": 1}]]}),
    ({"type": "object", "properties": {}}, {}),
    (nested(10), {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": "x"}}}}}}}}}}),
]


@pytest.mark.parametrize(("schema", "value"), ALLOWED)
def test_a_strict_form_allows_what_the_schema_allows(schema: dict[str, Any], value: Any) -> None:
    """At both providers, whose servers accept it."""
    for rules in (ANTHROPIC, OPENAI):
        found, why = strict_form(schema, rules)
        assert found and not why
        assert Draft202012Validator(found).is_valid(value) and Draft202012Validator(schema).is_valid(value)
        mistakes = (
            strict_schemas.openai_mistakes(found) if rules is OPENAI else strict_schemas.anthropic_mistakes([found], [])
        )
        assert [*mistakes] == []


def test_anthropics_limits_hold_for_the_whole_request() -> None:
    """The answer comes first, then the tools that need the least; the reason of the others is the limit."""
    wide = definition({"type": "object", "properties": {f"p{one}": TEXT for one in range(20)}}, "wide")
    unions = [definition(closed(a={"anyOf": [TEXT, NUMBER]}), f"union{one}") for one in range(18)]
    simple = [definition(closed(a=TEXT), f"simple{one}") for one in range(8)]
    optional = definition({"type": "object", "properties": {f"a{one}": TEXT for one in range(6)}}, "answer")
    many = {"type": "object", "properties": {f"p{one}": TEXT for one in range(25)}}
    strict, reasons = with_strict_schemas(Request("", [wide, *unions, *simple], (), answer=optional), ANTHROPIC)
    names = [tool.name for tool in strict.tools if tool.strict]

    assert (len(names), strict.answer and strict.answer.strict) == (20, True)
    assert names == [*(f"union{one}" for one in range(12)), *(f"simple{one}" for one in range(8))]
    assert reasons["wide"] == "a request may have 20 strict tools"
    assert with_strict_schemas(Request("", [wide], (), answer=optional), ANTHROPIC)[1] == {
        "wide": "all tools of a request may have 24 optional properties"
    }
    assert (
        with_strict_schemas(Request("", [optional], (), answer=replace(wide, schema=many)), ANTHROPIC)[0].answer is None
    )
    assert with_strict_schemas(Request("", unions, ()), ANTHROPIC)[1] == dict.fromkeys(
        ("union16", "union17"), "all tools of a request may have 16 properties with several types"
    )


@pytest.mark.parametrize("rules", [ANTHROPIC, OPENAI], ids=MAKERS)
def test_the_kinds_of_the_demo_are_accepted(rules: Rules) -> None:
    """In both strategies; the schema of a whole plan is none, since any argument may be a reference."""
    for strategy in (PlanStrategy(), ReactStrategy()):
        strict, reasons = with_strict_schemas(Request("", strategy.tools(asked("do it"), KINDS), ()), rules)
        schemas = [dict(tool.schema) for tool in strict.tools if tool.strict]
        found = [*strict_schemas.anthropic_mistakes(schemas, [])] if rules is ANTHROPIC else []
        found += [one for schema in schemas if rules is OPENAI for one in strict_schemas.openai_mistakes(schema)]
        assert (found, {"ask", "give_up"} & reasons.keys()) == ([], set())
        assert len(schemas) > len(strict.tools) / 2 and ("propose_plan" in reasons or "book_slot" not in reasons)


async def test_a_tool_is_sent_in_its_strict_form(provider: str) -> None:
    """With the field of each API; the others are sent as they are, without it.

    The adapter alone sends nothing strict: compatible servers reject fields that they do not know. Responses takes true
    where `strict` is missing.
    """
    any_value = definition(closed(a={}), "any_value")
    async with running(api_of(provider, ModelReply(text="Rome."))) as api:
        await model_of(provider, api).reply(replace(request(ASKED), tools=[WEATHER, any_value]))
        await adapter_of(provider, api).reply(replace(request(ASKED), may_call=False, answer=WEATHER))
    tools = [tool.get("function", tool) for tool in api.bodies[0]["tools"]]
    schemas = [tool.get("parameters") or tool["input_schema"] for tool in tools]

    assert api.violations == []
    assert [tool.get("strict", False) for tool in tools] == [True, False]
    assert schemas == [{**WEATHER.schema, "additionalProperties": False}, any_value.schema]
    (plain,) = (tool.get("function", tool) for tool in api.bodies[1]["tools"])
    assert plain.get("strict") is (False if provider == "responses" else None)
    assert api.bodies[1].keys() & {"output_config", "text", "response_format"} == set()


def _is_strict(body: Json) -> bool:
    return any({**tool, **tool.get("function", {})}.get("strict") for tool in body["tools"])


COMPLEX = ModelError(400, "invalid_request_error", "Schema is too complex for compilation.")
UNKNOWN_FIELD = ModelError(400, "invalid_request_error", "tools.0.custom.strict: Extra inputs are not permitted")


async def test_other_schemas_are_tried_a_few_times(provider: str) -> None:
    """A model that takes none costs a few requests, and then none more."""
    others = [definition(closed(a=TEXT, **{f"b{one}": TEXT}), "weather") for one in range(MAX_REJECTED + 2)]
    script = [part for _ in range(MAX_REJECTED) for part in (COMPLEX, ModelReply(text="Rome."))]
    async with running(api_of(provider, *script, ModelReply(text="Rome."))) as api:
        model = model_of(provider, api)
        for tool in others:
            await model.reply(replace(request(ASKED), tools=[tool]))

    assert [_is_strict(body) for body in api.bodies] == [True, False] * MAX_REJECTED + [False, False]


NOT_THE_SCHEMAS = {
    "a wrong key": (ModelError(401, "authentication_error", code="invalid_api_key"), 1),
    "too many": (ModelError(429, "rate_limit_error"), 1),
    "another mistake": (COMPLEX, 2),
}


@pytest.mark.parametrize(("error", "requests"), NOT_THE_SCHEMAS.values(), ids=NOT_THE_SCHEMAS)
async def test_another_error_does_not_count_against_the_schemas(
    provider: str, error: ModelError, requests: int
) -> None:
    """Also a 400 that stays without them."""
    standings = dict[str, SchemaStanding]()
    async with running(api_of(provider, error)) as api:
        with pytest.raises(Exception):  # noqa: B017 - which class is the SDK's business
            await StrictModel(adapter_of(provider, api), OPENAI, standings).reply(request(ASKED))

    assert (len(api.bodies), standings) == (requests, {})


SLOW, REPLY = ModelError(504, "timeout_error"), ModelReply(text="Rome.")
SENT: dict[str, tuple[list[Response], list[bool]]] = {
    "too complex: once more without them": ([COMPLEX, REPLY], [True, False, False]),
    "unknown: once more without them": ([UNKNOWN_FIELD, REPLY], [True, False, False]),
    "new ones, without a reply in time": ([SLOW, REPLY], [True, False]),
    "accepted ones, without a reply in time": ([REPLY, SLOW, REPLY], [True, True, True]),
    "slow without them, too": ([SLOW, SLOW, REPLY], [True, False, True]),
}


@pytest.mark.parametrize(("script", "strict"), SENT.values(), ids=SENT)
async def test_schemas_that_a_provider_rejects_or_is_slow_with_are_left_out(
    provider: str, script: list[Response], strict: list[bool]
) -> None:
    """At once and from then on; Anthropic compiles new ones for up to 180 s, so each attempt is one request.

    They are sent again if they were not the reason. Each request is counted.
    """
    async with running(api_of(provider, *script)) as api:
        model, meter = MeteredModel(model_of(provider, api), None), start_meter()
        for answer in script:
            with pytest.raises(Exception, match="504") if answer is SLOW else nullcontext():
                await model.reply(request(ASKED))

    assert [_is_strict(body) for body in api.bodies] == strict
    assert total(meter.use).calls == 3 or SLOW in script


KEYS = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
OWN = {"OPENAI_BASE_URL": "http://localhost:11434/v1"}
CHOICES: dict[str, tuple[str, Mapping[str, str], Mapping[str, bool], bool]] = {
    "anthropic": ("anthropic", {}, {}, True),
    "openai": ("openai", {}, {}, True),
    "a region of openai": ("openai", {"OPENAI_BASE_URL": "https://eu.api.openai.com/v1"}, {}, True),
    "too old": ("anthropic:claude-opus-4-1-20250805", {}, {}, False),
    "unknown": ("anthropic:claude-next", {}, {}, True),
    "a gateway": ("anthropic", {"ANTHROPIC_BASE_URL": "https://gateway.example"}, {}, False),
    "compatible": ("openai:qwen3", OWN, {}, False),
    "switched off": ("anthropic:claude-next", {}, {"anthropic:claude-next": False}, False),
    "switched on": ("openai:qwen3", OWN, {"openai:qwen3@localhost:11434": True}, True),
}


@pytest.mark.parametrize(("name", "urls", "strict", "is_strict"), CHOICES.values(), ids=CHOICES)
def test_strict_schemas_are_for_the_providers_own_models(
    name: str, urls: Mapping[str, str], strict: Mapping[str, bool], is_strict: bool
) -> None:
    """A setting rules for any address."""
    model = model_named(name, {**KEYS, **urls}, AdapterOptions(strict=strict))

    assert isinstance(model, StrictModel) is is_strict


def test_each_row_of_anthropics_models_has_a_source() -> None:
    """And each pattern matches a name that no row before it matches."""
    rows = anthropic.STRICT

    assert all(source.startswith("https://") for row in rows for source in row.sources)
    assert not any(map(anthropic.takes_strict, ("claude-sonnet-4-20250514", "claude-3-7-sonnet")))
    assert all(
        map(anthropic.takes_strict, ("claude-sonnet-4-5-20250929", "claude-opus-5-5", "claude-haiku-4-5", MODEL))
    )


# Arguments whose names no provider takes: a model sees and writes other names, and nobody else does


Schema = dict[str, Any]


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
    args: Any = filled(schema)
    names = PropertyNames(schema)
    written = names.written(args)

    assert names.own(written) == args and all(USUAL.fullmatch(name) for name in keys(written))


def keys(value: JsonValue) -> list[str]:
    return [key for name, item in value.items() for key in [name, *keys(item)]] if isinstance(value, dict) else []
