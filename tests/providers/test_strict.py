"""Strict schemas: which schema has a strict form, what a request may have of them, and what follows a rejection."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types

from activities.planning.strategies import PlanStrategy, ReactStrategy
from activities.providers import anthropic
from activities.providers.adapter import AdapterOptions
from activities.providers.messages import Request, ToolDefinition
from activities.providers.metering import MeteredModel, start_meter, total
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
from evals.fakes.script import ModelError, ModelReply
from tests.activities.situations import KINDS, asked
from tests.providers.asking import ASKED, WEATHER, request
from tests.providers.planning import adapter_of, api_of, model_of

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


@pytest.mark.parametrize("rules", [ANTHROPIC, OPENAI], ids=MAKERS)
@pytest.mark.parametrize(("schema", "why"), BOTH.values(), ids=BOTH)
def test_a_schema_beyond_the_subset_has_no_strict_form(schema: dict[str, Any], why: str, rules: Rules) -> None:
    """The reason names the property, in the words of `--check`."""
    assert strict_form(schema, rules) == (None, why)


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


@pytest.mark.parametrize(("schema", "why"), OF_OPENAI.values(), ids=OF_OPENAI)
def test_openai_requires_every_property_and_has_limits_of_size(schema: dict[str, Any], why: str) -> None:
    """An optional property is no required one with null: the tool could take the null for a value of its own."""
    found, reason = strict_form(schema, OPENAI)

    assert (found, reason[: len(why)]) == (None, why)


def test_an_optional_property_that_defaults_to_null_is_required() -> None:
    """Null says the same as leaving it out."""
    schema = closed("a", a=TEXT, b={"anyOf": [NUMBER, NOTHING], "default": None})
    found, _ = strict_form(schema, OPENAI)

    assert found == {
        **closed("a", "b", a=TEXT, b={"anyOf": [NUMBER, NOTHING]}),
        "additionalProperties": False,
    }


def test_what_is_not_enforced_is_told_in_the_description() -> None:
    """Validation still holds to it."""
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
    """With the field of each API; the others are sent as they are, without it."""
    any_value = definition(closed(a={}), "any_value")
    async with running(api_of(provider, ModelReply(text="Rome."))) as api:
        await model_of(provider, api).reply(replace(request(ASKED), tools=[WEATHER, any_value]))
    tools = [tool.get("function", tool) for tool in api.bodies[0]["tools"]]
    schemas = [tool.get("parameters") or tool["input_schema"] for tool in tools]

    assert api.violations == []
    assert [tool.get("strict", False) for tool in tools] == [True, False]
    assert schemas == [{**WEATHER.schema, "additionalProperties": False}, any_value.schema]


async def test_the_adapter_alone_sends_nothing_strict(provider: str) -> None:
    """Compatible servers reject fields that they do not know; Responses takes true where `strict` is missing."""
    async with running(api_of(provider, ModelReply(text="Rome."))) as api:
        await adapter_of(provider, api).reply(replace(request(ASKED), may_call=False, answer=WEATHER))
    (tool,) = api.bodies[0]["tools"]

    assert tool.get("strict") is (False if provider == "responses" else None) and "strict" not in tool.get(
        "function", {}
    )
    assert api.bodies[0].keys() & {"output_config", "text", "response_format"} == set()


def _is_strict(body: Json) -> bool:
    return any({**tool, **tool.get("function", {})}.get("strict") for tool in body["tools"])


COMPLEX = ModelError(400, "invalid_request_error", "Schema is too complex for compilation.")
UNKNOWN_FIELD = ModelError(400, "invalid_request_error", "tools.0.custom.strict: Extra inputs are not permitted")


@pytest.mark.parametrize("error", [COMPLEX, UNKNOWN_FIELD], ids=["too complex", "unknown"])
async def test_rejected_schemas_are_left_out_at_once_and_from_then_on(provider: str, error: ModelError) -> None:
    """The request is repeated once without them; both are counted, and the next request has none."""
    async with running(api_of(provider, error, ModelReply(text="Rome."))) as api:
        model = model_of(provider, api)
        meter = start_meter()
        replies = [await MeteredModel(model, None).reply(request(ASKED)) for _ in range(2)]

    assert ([reply.turn.text for reply in replies], total(meter.use).calls) == (["Rome.", "Rome."], 3)
    assert [_is_strict(body) for body in api.bodies] == [True, False, False]


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


SLOW = ModelError(504, "timeout_error")


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "accepted"])
async def test_new_schemas_without_a_reply_in_time_are_left_out_the_next_time(provider: str, is_known: bool) -> None:
    """Anthropic compiles them for up to 180 s; each attempt is one request. Known ones are not the reason."""
    reply = ModelReply(text="Rome.")
    async with running(api_of(provider, *[reply] * is_known, SLOW, reply)) as api:
        model = model_of(provider, api)
        for _ in range(is_known):
            await model.reply(request(ASKED))
        with pytest.raises(Exception, match="504"):
            await model.reply(request(ASKED))
        for _ in range(2):
            await model.reply(request(ASKED))

    assert [_is_strict(body) for body in api.bodies] == ([True] * 4 if is_known else [True, False, False])


async def test_schemas_are_sent_again_if_the_provider_is_slow_without_them(provider: str) -> None:
    """Then they were not the reason."""
    async with running(api_of(provider, SLOW, SLOW, ModelReply(text="Rome."))) as api:
        model = model_of(provider, api)
        for _ in range(2):
            with pytest.raises(Exception, match="504"):
                await model.reply(request(ASKED))
        await model.reply(request(ASKED))

    assert [_is_strict(body) for body in api.bodies] == [True, False, True]


KEYS = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
CHOICES: dict[str, tuple[str, Mapping[str, str], Mapping[str, bool], bool]] = {
    "anthropic": ("anthropic", {}, {}, True),
    "openai": ("openai", {}, {}, True),
    "a region of openai": ("openai", {"OPENAI_BASE_URL": "https://eu.api.openai.com/v1"}, {}, True),
    "too old": ("anthropic:claude-opus-4-1-20250805", {}, {}, False),
    "unknown": ("anthropic:claude-next", {}, {}, True),
    "a gateway": ("anthropic", {"ANTHROPIC_BASE_URL": "https://gateway.example"}, {}, False),
    "compatible": ("openai:qwen3", {"OPENAI_BASE_URL": "http://localhost:11434/v1"}, {}, False),
    "switched off": ("anthropic:claude-next", {}, {"anthropic:claude-next": False}, False),
    "switched on": (
        "openai:qwen3",
        {"OPENAI_BASE_URL": "http://localhost:11434/v1"},
        {"openai:qwen3@localhost:11434": True},
        True,
    ),
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
    assert [anthropic.takes_strict(name) for name in ("claude-sonnet-4-20250514", "claude-3-7-sonnet", MODEL)] == [
        False,
        False,
        True,
    ]
    assert all(map(anthropic.takes_strict, ("claude-sonnet-4-5-20250929", "claude-opus-5-5", "claude-haiku-4-5")))
