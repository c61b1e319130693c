"""Schemas out of a plan: what cannot be used is said before a model is asked, and no schema holds the worker up."""

import time
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types
from pydantic import JsonValue

from activities.toolbox.json_schema import MAX_NAMED, JsonSchema
from activities.toolbox.schemas.drafts import BadSchema

Schema = dict[str, Any]

OBJECT: Schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
LIST: Schema = {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}
TREE: Schema = {"type": "array", "items": {"$ref": "#"}}
EITHER: Schema = {"anyOf": [OBJECT, {"type": "null"}]}

FITTING: list[tuple[Schema, JsonValue]] = [
    (OBJECT, {"a": 1, "b": 2}),
    (LIST, [1, 2]),
    (TREE, [[], [[]]]),
    (EITHER, None),
    ({}, "anything"),
    ({"type": "string", "pattern": "^[A-Z]-[0-9]+$"}, "A-17"),
    ({"type": "string", "format": "date"}, "2025-11-21"),
    ({"type": "object", "properties": {"pattern": {"type": "string"}}}, {"pattern": "("}),
    ({"$schema": "http://json-schema.org/draft-07/schema#", **OBJECT}, {"a": 1}),
]


MISFITS: list[tuple[Schema, JsonValue, str]] = [
    (OBJECT, {}, "the whole: 'a' is a required property"),
    (OBJECT, {"a": "x"}, "a: 'x' is not of type 'integer'"),
    (LIST, [1, "x"], "[1]: 'x' is not of type 'integer'"),
    (TREE, [[1]], "[0][0]: 1 is not of type 'array'"),
    ({"pattern": "^[A-Z]-[0-9]+$"}, "17", "the whole: '17' does not match '^[A-Z]-[0-9]+$'"),
    ({"type": "string", "format": "date"}, "2025-13-01", "the whole: '2025-13-01' is not a 'date'"),
]


UNUSABLE: list[tuple[Schema, str]] = [
    ({"type": "objekt"}, "type: 'objekt' is not valid"),
    ({"properties": {"a": {"type": 3}}}, "properties.a.type: 3 is not valid"),
    ({"items": [{}]}, "items: "),
    ({"$ref": "http://127.0.0.1:9/schema"}, "leads nowhere in it"),
    ({"$ref": "file:///etc/passwd"}, "leads nowhere in it"),
    ({"$ref": "#/$defs/missing"}, "leads nowhere in it"),
    ({"$dynamicRef": "#x"}, "$dynamicRef is not taken"),
    ({"patternProperties": {"(a+)+$": {}}}, "patternProperties is not taken"),
    ({"pattern": "(?=a)b"}, "cannot be checked"),
    ({"properties": {"Sum (EUR)": {}}}, "'Sum (EUR)' is no name"),
    ({"properties": {"a" * 65: {}}}, "is no name"),
    ({"description": "x" * 40_000}, "more than 32768 bytes"),
]


def test_a_schema_that_cannot_be_used_is_named() -> None:
    """Before anything is asked, and without looking at anything outside; a trillion checks would never be over."""
    for schema, wrong in UNUSABLE:
        with pytest.raises(BadSchema) as bad:
            JsonSchema(schema)
        assert wrong in str(bad.value)

    for schema in ENDLESS:
        with pytest.raises(BadSchema, match="without end"):
            JsonSchema(schema).misfits(1)

    began = time.process_time()
    misfits = JsonSchema({"pattern": "(a+)+$"}).misfits("a" * 50 + "!")

    assert len(misfits) == 1 and time.process_time() - began < 5


LOOK_AHEAD: Schema = {"pattern": "(?=a)b"}
FOREIGN: dict[str, tuple[Schema, JsonValue]] = {
    "a pattern": (LOOK_AHEAD, "b"),
    "not a pattern": ({"not": LOOK_AHEAD}, "b"),
    "not none of them": ({"not": {"not": LOOK_AHEAD}}, "b"),
    "one of two": ({"oneOf": [LOOK_AHEAD, {"type": "string"}]}, "b"),
    "on a condition": ({"if": LOOK_AHEAD, "then": {"maxLength": 0}}, "b"),
    "at most one": ({"contains": LOOK_AHEAD, "minContains": 0, "maxContains": 1}, ["b", "b"]),
    "at most one by reference": (
        {"contains": {"$ref": "#/$defs/x"}, "maxContains": 1, "$defs": {"x": LOOK_AHEAD}},
        ["b", "b"],
    ),
    "not a reference": ({"not": {"$ref": "#/$defs/x"}, "$defs": {"x": LOOK_AHEAD}}, "b"),
    "a definition that is named as a keyword": ({"$ref": "#/$defs/not", "$defs": {"not": LOOK_AHEAD}}, "b"),
    "a property that is named as a keyword": (
        {"properties": {"contains": LOOK_AHEAD, "if": {}}, "required": ["if"], "additionalProperties": False},
        {"contains": "b", "if": 1},
    ),
    "a value that looks like a schema": ({"const": {"pattern": "(?=a)b"}}, {"pattern": "(?=a)b"}),
    "nothing else": ({"oneOf": [{"properties": {"a": LOOK_AHEAD}}], "unevaluatedProperties": False}, {"a": "b"}),
    "names": ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"ab": 1}),
}


def test_a_foreign_schema_without_what_cannot_be_checked_takes_all_that_it_took() -> None:
    """Also where a part that takes more makes the whole take less; what can be checked stays."""
    schema = {"not": {"type": "null"}, "oneOf": [{"type": "string"}, {"type": "integer"}]}

    assert {name: JsonSchema.foreign(one).misfits(value) for name, (one, value) in FOREIGN.items()} == {
        name: [] for name in FOREIGN
    }
    assert JsonSchema.foreign(schema).schema == schema


DOUBLED: Schema = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
ENDLESS: list[Schema] = [
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"$ref": "#/$defs/d0", "$defs": {**DOUBLED, "d40": {"type": "integer"}}},
]


def test_a_value_that_keeps_the_schema_has_no_misfits() -> None:
    """That of the call which carries the value is of an object, as providers demand; a misfit says what to change."""
    for schema, value in FITTING:
        read = JsonSchema(schema)
        args: Any = value if read.is_object else {"value": value}

        assert read.misfits(value) == []
        assert read.arguments["type"] == "object" and not read.arguments.keys() & {"anyOf", "$ref", "$schema"}
        assert Draft202012Validator(read.arguments).is_valid(args) and read.value(args) == value

    assert [(schema, value, *JsonSchema(schema).misfits(value)) for schema, value, _ in MISFITS] == MISFITS
    assert len(JsonSchema(LIST).misfits(["x"] * 1_000)) == MAX_NAMED


PLAIN = st.recursive(
    st.sampled_from([{"type": "integer"}, {"type": "string"}, {"type": "null"}]),
    lambda inner: (
        st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(lambda part: {"type": "object", "properties": {"a": part}, "required": ["a"]}, inner)
        | st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner)
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@given(PLAIN, VALUES)
def test_a_misfit_is_one_to_everybody(schema: Schema, value: JsonValue) -> None:
    """The bounds change nothing of what a schema means."""
    assert (JsonSchema(schema).misfits(value) == []) is Draft202012Validator(schema).is_valid(value)
