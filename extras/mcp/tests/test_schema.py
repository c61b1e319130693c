"""The schemas of a server's tools: what a server takes can be sent, and no schema holds a worker up."""

import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types
from pydantic import JsonValue, TypeAdapter, ValidationError

from activities.toolbox.declare.fields import Fields
from activities.toolbox.expressions.evaluation import Type
from activities.toolbox.json_schema import JsonSchema
from activities.toolbox.schemas.drafts import BadSchema
from extras.mcp.schema import ANSWERS, ForeignArgs, arguments_of, result_of

Schema = dict[str, Any]

INTEGER: Schema = {"type": "integer"}
TREE: Schema = {"type": "object", "properties": {"value": INTEGER, "next": {"$ref": "#/$defs/tree"}}}


def form(*required: str, **properties: Any) -> Schema:
    """The schema of arguments."""
    return {"type": "object", "properties": properties, "required": list(required)}


def arguments(schema: Schema) -> type[ForeignArgs]:
    return arguments_of("shop.do", schema)


BRANCHING = form(**{name: {"$ref": "#/$defs/n"} for name in "abcdefgh"})
TEXT: Schema = {"type": "string"}
DRAFT_04 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_07 = {"$schema": "http://json-schema.org/draft-07/schema#"}
PAIR: Schema = {"type": "array", "items": [INTEGER, {"$ref": "#/properties/a/items/0"}]}
EITHER: Schema = {
    "type": "object",
    "oneOf": [form("a", a=INTEGER), {"$ref": "#/$defs/b"}],
    "$defs": {"b": form("b", b=TEXT)},
}
BIG: Schema = {
    **form(a={"$ref": "#/$defs/d0"}),
    "$defs": {f"d{n}": form(n=TEXT, d={"$ref": f"#/$defs/d{n}"}) for n in range(900)},
}
ITEM: Schema = {"$id": "item.json", **form("x", x={"$ref": "#/$defs/n"}), "$defs": {"n": INTEGER}}
SCOPED: Schema = {"$id": "https://example.com/root.json", **form(a={"$ref": "item.json"}), "$defs": {"item": ITEM}}
TAKEN: dict[str, tuple[Schema, dict[str, JsonValue]]] = {
    "no arguments": ({"type": "object"}, {}),
    "no schema": ({}, {}),
    "types": (
        form(a=INTEGER, b={"type": "number"}, c={"type": "boolean"}, d={"type": "array", "items": {"type": "string"}}),
        {"a": 10**30, "b": 0.1, "c": False, "d": ["x"]},
    ),
    "required alone": (form("a", a=INTEGER, b=INTEGER), {"a": 1}),
    "null where it may be": (form(a={"type": ["integer", "null"]}, b=INTEGER), {"a": None}),
    "a default is the server's": (form(a={"type": "integer", "default": 4}), {}),
    "nested": (form(a=form("b", b=form(c=INTEGER))), {"a": {"b": {"c": 1}, "more": 2}}),
    "enum": (form(a={"enum": ["x", 1, None]}), {"a": 1}),
    "any value": (form(a=True, b={}), {"a": [{}], "b": "x"}),
    "reference": ({**form(a={"$ref": "#/$defs/n"}), "$defs": {"n": INTEGER}}, {"a": 1}),
    "definitions": ({**form(a={"$ref": "#/definitions/n"}), "definitions": {"n": INTEGER}}, {"a": 1}),
    "reference to an argument": (form(a=INTEGER, b={"$ref": "#/properties/a"}), {"a": 1, "b": 2}),
    "reference to the whole": (form(a={"$ref": "#"}, b=INTEGER), {"a": {"a": {"b": 1}}}),
    "reference as the whole": ({"$ref": "#/$defs/f", "$defs": {"f": form("a", a=INTEGER)}}, {"a": 1}),
    "recursive": ({**form(a={"$ref": "#/$defs/tree"}), "$defs": {"tree": TREE}}, {"a": {"next": {"value": 1}}}),
    "an anchor is left aside": ({**form(a={"$ref": "#n"}), "$defs": {"n": {"$anchor": "n", **INTEGER}}}, {"a": 1}),
    "a reference in a value": (
        form(a={"default": {"$ref": "#/no"}, "enum": [{"$ref": "#/no"}]}),
        {"a": {"$ref": "#/no"}},
    ),
    "a reference by an encoded pointer": (
        {
            **form(a={"$ref": "#/definitions/Record%3Cstring%2Cnumber%3E"}),
            "definitions": {"Record<string,number>": INTEGER},
        },
        {"a": 1},
    ),
    "a reference through odd names": (form(**{"f[x]": INTEGER, "b/c": {"$ref": "#/properties/f%5Bx%5D"}}), {"b/c": 1}),
    "a reference by an id": (SCOPED, {"a": {"x": 1}}),
    "one of two branches": (EITHER, {"a": 1}),
    "the other branch": (EITHER, {"b": "x"}),
    "a branch without a type": ({"anyOf": [form(a=INTEGER), form(b=TEXT)]}, {"b": "x"}),
    "all branches": (
        {"type": "object", "allOf": [form("a", a=INTEGER), {"allOf": [form(b=TEXT)]}]},
        {"a": 1, "b": "x"},
    ),
    "on a condition": ({**form(a=INTEGER), "if": form("a", a={"const": 1}), "then": form(b=TEXT)}, {"a": 1, "b": "x"}),
    "otherwise": ({**form(a=INTEGER), "if": {"required": ["a"]}, "then": True, "else": form(b=TEXT)}, {"b": "x"}),
    "with another one": ({**form(a=INTEGER), "dependentSchemas": {"a": form(b=TEXT)}}, {"a": 1, "b": "x"}),
    "with another one before 2019": (
        {**DRAFT_07, **form(a=TEXT), "dependencies": {"a": form(b=TEXT)}},
        {"a": "x", "b": "y"},
    ),
    "a name by a pattern": ({"patternProperties": {"^x-": TEXT}, "additionalProperties": False}, {"x-a": "1"}),
    "a name by a pattern that is not checked": (
        {"patternProperties": {"(?=x)": TEXT}, "additionalProperties": False},
        {"xa": 1},
    ),
    "a name that is only required": ({"type": "object", "required": ["a"]}, {"a": 1}),
    "undeclared ones that no branch evaluates": ({**form(a=INTEGER), "unevaluatedProperties": TEXT}, {"b": "x"}),
    "undeclared ones of any type": ({**form(a=INTEGER), "additionalProperties": {}}, {"b": 1}),
    "a tuple of draft-07": ({**DRAFT_07, **form(a={**PAIR, "additionalItems": TEXT})}, {"a": [1, 2, "x"]}),
    "a tuple without a draft": (form(a=PAIR), {"a": [1, 2]}),
    "a tuple in a newer draft": (
        {"$schema": "https://json-schema.org/draft/2020-12/schema", **form(a=PAIR)},
        {"a": [1]},
    ),
    "beside a reference of draft-07": (
        {**DRAFT_07, **form(a={"$ref": "#/definitions/t", "minLength": 9}), "definitions": {"t": TEXT}},
        {"a": "x"},
    ),
    "an id of draft-04": ({**DRAFT_04, "id": "urn:x", **form(a={"id": "#a", **INTEGER}, b={"$ref": "#a"})}, {"b": 1}),
    "both kinds of dependencies": (
        {**DRAFT_07, **form(a=TEXT, b=TEXT), "dependencies": {"a": form(c=TEXT), "b": ["a"]}},
        {"a": "x", "b": "y", "c": "z"},
    ),
    "null for a keyword": ({**form(a={**TEXT, "enum": None, "title": None}), "required": None}, {"a": "x"}),
    "true for a list": (form(a={**TEXT, "required": True}), {"a": "x"}),
    "a list for an object": ({"type": "object", "properties": []}, {}),
    "a type that is none": (form(a={"type": "any"}, b=INTEGER), {"a": [1], "b": 1}),
    "null in OpenAPI": (form(a={**TEXT, "nullable": True}), {"a": None}),
    "a large one": (form(**{f"a{n}": {**TEXT, "description": "d" * 200} for n in range(300)}), {"a7": "x"}),
    "many parts": (BIG, {"a": {"d": {"n": "x"}}}),
    "a long enum": (form(a={"enum": list(range(4_000))}), {"a": 3_999}),
    "another address is left aside": (form(a={"$ref": "https://example.com/schema.json"}), {"a": 1}),
    "a pattern that looks around": (form(a={"type": "string", "pattern": "(?=a)(a+)+$"}), {"a": "b"}),
    "one that grows": ({**form(a={"$ref": "#/$defs/n"}), "$defs": {"n": BRANCHING}}, {"a": {"b": {"c": {}}}}),
    "undeclared ones": ({**form(a=INTEGER), "additionalProperties": True}, {"a": 1, "b": "x", "self": 2}),
    "undeclared ones of a type": ({"type": "object", "additionalProperties": INTEGER}, {"b": 1}),
    "an argument called definitions": (form("definitions", definitions=INTEGER), {"definitions": 1}),
    "names like ours": (form("_x", _x=INTEGER, field_0=INTEGER, replan_field_0=INTEGER), {"_x": 1, "field_0": 2}),
}


@pytest.mark.parametrize(("schema", "args"), TAKEN.values(), ids=TAKEN)
def test_what_a_server_takes_is_sent_as_it_was_given(schema: Schema, args: dict[str, JsonValue]) -> None:
    """Nothing is added, converted or left out: a server may tell null from nothing."""
    assert arguments(schema).model_validate(args).as_sent() == args


REFUSED: dict[str, tuple[Schema, dict[str, JsonValue], str]] = {
    "type": (form(a=INTEGER), {"a": "hidden"}, "must be of type integer"),
    "null": (form(a=INTEGER), {"a": None}, "must be of type integer"),
    "required": (form("a", a=INTEGER), {}, "Field required"),
    "undeclared": (form(a=INTEGER), {"b": 1}, "Extra inputs are not permitted"),
    "nested": (form(a=form("b", b=INTEGER)), {"a": {}}, "lacks b"),
    "enum": (form(a={"enum": ["x"]}), {"a": "hidden"}, 'must fit enum ["x"]'),
    "recursive": (
        {**form(a={"$ref": "#/$defs/tree"}), "$defs": {"tree": TREE}},
        {"a": {"next": {"next": {"value": "hidden"}}}},
        "next.next.value must be of type integer",
    ),
    "whole": (form(a={"$ref": "#"}, b=INTEGER), {"a": {"b": "hidden"}}, "b must be of type integer"),
    "no branch": (EITHER, {"a": "hidden"}, "does not fit oneOf of its schema (a must be of type integer)"),
    "two branches": (EITHER, {"a": 1, "b": "hidden"}, "does not fit oneOf of its schema"),
    "a part of a branch": ({"allOf": [form("a", a=INTEGER), form("b", b=TEXT)]}, {"b": "hidden"}, "Field required"),
    "a condition": (
        {**form(a=TEXT), "if": {"required": ["a"]}, "then": form("b", b=TEXT)},
        {"a": "hidden"},
        "lacks b",
    ),
    "a branch of a closed whole": (
        {**form(a=TEXT), "additionalProperties": False, "anyOf": [form(b=TEXT)]},
        {"b": "hidden"},
        "Extra",
    ),
    "no name of the pattern": ({"patternProperties": {"^x-": TEXT}}, {"y": "hidden"}, "has no argument 'y'"),
    "the pattern's type": ({"patternProperties": {"^x-": INTEGER}}, {"x-a": "hidden"}, "x-a"),
    "the type of undeclared ones": (
        {**form(a=TEXT), "additionalProperties": INTEGER},
        {"b": "hidden"},
        "must be of type integer",
    ),
    "not evaluated": (
        {"allOf": [form(a=TEXT)], "patternProperties": {"^x-": TEXT}, "unevaluatedProperties": False},
        {"y": "hidden"},
        "'y'",
    ),
    "an exclusive minimum of draft-04": (
        form(a={"type": "number", "minimum": 0, "exclusiveMinimum": True}),
        {"a": 0},
        "must fit minimum",
    ),
    "a tuple": (form(a=PAIR), {"a": [1, "hidden"]}, "must be of type integer"),
    "after a tuple": (
        {**DRAFT_07, **form(a={"items": [TEXT], "additionalItems": False})},
        {"a": ["x", "hidden"]},
        "additionalItems",
    ),
    "by an encoded pointer": (
        form(**{"f[x]": INTEGER, "b": {"$ref": "#/properties/f%5Bx%5D"}}),
        {"b": "hidden"},
        "type integer",
    ),
    "by an id": (SCOPED, {"a": {"x": "hidden"}}, "x must be of type integer"),
    "by an anchor": (
        {**form(a={"$ref": "#n"}), "$defs": {"n": {"$anchor": "n", **INTEGER}}},
        {"a": "hidden"},
        "type integer",
    ),
    "a nested draft": (
        form(a={**DRAFT_07, "type": "string", "pattern": "(a+)+$"}),
        {"a": "a" * 50 + "!"},
        "must fit pattern",
    ),
    "no value": (form(a=False), {"a": "hidden"}, "is not allowed"),
    "a name of ours": (form(_x=INTEGER), {"replan_field_0": 1}, "Extra inputs are not permitted"),
    "endless": (form(a={"$ref": "#/properties/a"}), {"a": 1}, "refers to itself without end"),
    "catastrophic": (form(a={"type": "string", "pattern": "(a+)+$"}), {"a": "a" * 50 + "!"}, "must fit pattern"),
    "twice": (form(a={"uniqueItems": True}), {"a": [{"x": [1]}, {"x": [1.0]}]}, "must fit uniqueItems"),
}


@pytest.mark.parametrize(("schema", "args", "words"), REFUSED.values(), ids=REFUSED)
def test_what_a_server_does_not_take_is_said_by_its_rule(
    schema: Schema, args: dict[str, JsonValue], words: str
) -> None:
    """So that nothing is sent in vain; and no text has the value."""
    with pytest.raises(ValidationError) as refused:
        arguments(schema).model_validate(args)
    [error] = refused.value.errors(include_input=False)

    assert words in error["msg"] and "hidden" not in error["msg"]


ODD_NAMES = (
    *("filter[x]", "$top", "@odata.type", "First Name", "Start<", "straße", "a/b", "a~1b", "100%", "$ref", ""),
    "a" * 90,
)
NAMES = (
    *ODD_NAMES,
    *("model_config", "model_fields", "schema", "form", "self", "answers", "as_sent", "copy", "json", "class", "_x"),
    *("__class__", "None", "a-b", "a.b", "call_key", "args", "key", "definitions", "properties", "validate"),
    *("names", "unchecked", "together", "of_checked"),  # what the model of arguments itself has
)


@pytest.mark.parametrize("name", NAMES)
def test_an_argument_may_have_any_name(name: str) -> None:
    """Whatever pydantic or Replan use that name for; a model writes another one if its provider takes only some."""
    made = arguments(form(name, **{name: INTEGER}))
    given = made.model_validate({name: 1})

    assert given.as_sent() == {name: 1} and made.model_json_schema()["properties"] == {name: INTEGER}
    assert given.model_dump(by_alias=False)[name] == 1, "conditions read arguments so"
    with pytest.raises(ValidationError):
        made.model_validate({})


def chain(levels: int) -> Schema:
    deep: Schema = {}
    for _ in range(levels):
        deep = form(a=deep)
    return deep


OF_ARGUMENTS = ("ours", "a list", "a text")
UNUSABLE: dict[str, tuple[Schema, str]] = {
    "ours": (form(**{ANSWERS: {}}), "replan_answers, which Replan uses itself"),
    "no schema": ({"type": "objekt"}, "'objekt' is not valid"),
    "a list": ({"type": "array"}, "its arguments are no object"),
    "a text": ({"type": "string"}, "its arguments are no object"),
    "leads nowhere": (form(a={"$ref": "#/$defs/missing"}), "leads nowhere"),
    "only itself": ({"$ref": "#"}, "refers to itself without end"),
    "too many parts": (form(a={"enum": list(range(20_100))}), "more than 20000 parts"),
    "too large": (form(a={"description": "d" * 1_100_000}), "more than 1048576 bytes"),
    "too deep": (chain(1_000), "nested too deeply"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_schema_that_cannot_be_used_is_refused_soon(name: str) -> None:
    """Only its tool is left out."""
    (schema, words), began = UNUSABLE[name], time.process_time()
    for make in (arguments_of,) if name in OF_ARGUMENTS else (arguments_of, result_of):
        with pytest.raises(BadSchema) as bad:
            make("shop.do", schema)

        assert words in str(bad.value) and time.process_time() - began < 4


def unevaluated(levels: int) -> Schema:
    deep: Schema = {}
    for _ in range(levels):
        deep = {"allOf": [deep], "unevaluatedProperties": False}
    return deep


ALTERNATIVES = {"anyOf": [{"const": number} for number in range(100)]}
DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
SLOW: dict[str, tuple[Schema, JsonValue]] = {
    "uniqueItems": (form(a={"uniqueItems": True}), [{"x": number} for number in range(10_000)]),
    "uniqueItems of lists": (form(a={"uniqueItems": True}), [[number, "x"] for number in range(10_000)]),
    "anyOf": (form(a={"items": ALTERNATIVES}), [99] * 200),
    "pattern": (form(a={"items": {"type": "string", "pattern": "^(a|aa)+$"}}), ["a" * 500] * 500),
    "references": ({**form(a={"$ref": "#/$defs/d0"}), "$defs": {**DOUBLING, "d40": {}}}, 1),
    "many": (form(a={"items": INTEGER}), list(range(20_000))),
    "allOf": (form(a={"items": {"allOf": [INTEGER] * 1_000}}), list(range(20_000))),
    "enum": (form(a={"items": {"enum": [{"x": number} for number in range(4_000)]}}), [{"x": 3_999}] * 20_000),
    "unevaluated": (form(a=unevaluated(40)), {"x": 1}),
    "unevaluatedItems": (form(a={"contains": INTEGER, "unevaluatedItems": False}), list(range(20_000))),
    "patterns of names": (
        form(a={"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False}),
        {"a" * 50 + "!": 1},
    ),
    "references of draft-07": ({**DRAFT_07, **form(a={"$ref": "#/$defs/d0"}), "$defs": {**DOUBLING, "d40": {}}}, 1),
    "a nested draft": (form(a={**DRAFT_07, "type": "string", "pattern": "(a+)+$"}), "a" * 50 + "!"),
}


@pytest.mark.parametrize(("schema", "value"), SLOW.values(), ids=SLOW)
def test_no_check_holds_a_worker_up(schema: Schema, value: JsonValue) -> None:
    """It runs where heartbeats and all other calls of the worker run."""
    made, began = arguments(schema), time.process_time()
    with suppress(ValidationError):
        made.model_validate({"a": value})

    assert time.process_time() - began < 10  # 5 on a busy machine


def test_planners_see_the_schema_of_the_server() -> None:
    """Without references, closed as ours are, and without what is for people or for Replan."""
    schema = {
        **form("a", "key", a={"$ref": "#/$defs/n"}, b={"type": "string", "title": "B", "format": "date"}, key={}),
        "$defs": {"n": {**INTEGER, "description": "A number."}},
        "$schema": "http://json-schema.org/draft-07/schema#",
    }
    shown = arguments_of("shop.do-it", schema, left_out=["key"]).model_json_schema()

    assert shown == {
        "title": "ShopDoIt",
        "type": "object",
        "properties": {
            "a": {**INTEGER, "description": "A number."},
            "b": {"type": "string", "title": "B", "format": "date"},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


SHOWN: dict[str, tuple[Schema, Schema]] = {
    "all branches": (EITHER, {"a": INTEGER, "b": TEXT}),
    "one argument in two branches": (
        {"oneOf": [form(a={"const": 1}), form(a={"const": 2})]},
        {"a": {"anyOf": [{"const": 1}, {"const": 2}]}},
    ),
    "a branch that refines": ({**form(a=TEXT), "anyOf": [form(a={"const": "x"})]}, {"a": TEXT}),
    "a tuple": (
        form(a={"type": "array", "items": [TEXT, INTEGER], "additionalItems": False}),
        {"a": {"type": "array", "prefixItems": [TEXT, INTEGER], "items": {}, "maxItems": 2}},
    ),
    "an exclusive minimum": (form(a={"minimum": 0, "exclusiveMinimum": True}), {"a": {"exclusiveMinimum": 0}}),
    "a value with a reference": (form(a={**TEXT, "default": {"$ref": "#/x"}}), {"a": TEXT}),
    "any value": (form(a=True), {"a": {}}),
}


@pytest.mark.parametrize(("schema", "properties"), SHOWN.values(), ids=SHOWN)
def test_planners_see_one_list_of_arguments_in_the_newest_draft(schema: Schema, properties: Schema) -> None:
    """Providers take nothing else; what all arguments must fit together is told in words."""
    shown = arguments(schema).model_json_schema()

    Draft202012Validator.check_schema(shown)
    assert shown["properties"] == properties and not shown.keys() & {"oneOf", "anyOf", "allOf", "$ref", "$defs"}
    assert ("oneOf" in shown.get("description", "")) is ("oneOf" in schema)


def test_what_is_not_checked_is_named() -> None:
    """A field of a schema that is odd costs itself."""
    schema = form(a={"type": "any"}, b={**TEXT, "pattern": "(?=a)"}, c={"$ref": "https://example.com"})

    assert {*arguments(schema).unchecked} == {"properties.a.type", "properties.b.pattern", "properties.c.$ref"}


def test_the_answers_of_a_person_are_no_argument() -> None:
    """They are taken, and never sent or shown."""
    made = arguments(form(a=INTEGER))
    given = made.model_validate({"a": 1, ANSWERS: {"form": {"colour": "red"}}})

    assert given.answers == {"form": {"colour": "red"}} and given.as_sent() == {"a": 1}
    assert ANSWERS not in str(made.model_json_schema())


def test_paths_lead_into_what_a_server_declares() -> None:
    """Also below a reference, and of a schema without end only so far."""
    tree = {**form(a={"$ref": "#/$defs/tree"}), "$defs": {"tree": TREE}}
    for made in (arguments(tree), result_of("shop.do", tree)):
        fields = Fields.of(made)

        assert fields.type("x.a.next.value") is Type.NUMBER
        assert fields.type("x.a" + ".next" * 20) is None


def test_a_result_is_what_the_server_returned() -> None:
    """Undeclared fields are kept, and none is added: `exclude_unset` or not."""
    made = result_of("shop.do", form("_x", _x=INTEGER, schema={}, optional=INTEGER))
    value = {"_x": 1, "schema": {"a": [None]}, "more": [1.5]}
    adapter = TypeAdapter[Any](made)

    assert adapter.dump_python(adapter.validate_python(value), mode="json") == value


PARTS = st.recursive(
    st.sampled_from([{}, INTEGER, {"type": "string", "minLength": 2}, {"type": "null"}, {"enum": ["x", 1, None]}])
    | st.just({"$ref": "#/$defs/n"})
    | st.just({"$ref": "#/properties/a"}),
    lambda inner: (
        st.builds(lambda item: {"type": "array", "items": item, "uniqueItems": True}, inner)
        | st.builds(lambda part: {"type": "object", "properties": {"a": part}, "required": ["a"]}, inner)
        | st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner)
    ),
    max_leaves=5,
)
SCHEMAS = st.builds(
    lambda properties, required, closed: {
        "type": "object",
        "properties": properties,
        "required": sorted(required & properties.keys()),
        "additionalProperties": not closed,
        "$defs": {"n": {"type": ["integer", "null"]}},
    },
    st.dictionaries(st.sampled_from(["a", "_b", "schema", "c.d"]), PARTS, max_size=4).map(
        lambda found: {"a": INTEGER, **found} if "#/properties/a" in str(found) else found
    ),
    st.sets(st.sampled_from(["a", "_b", "schema"])),
    st.booleans(),
)
VALUES = st.recursive(
    st.none() | st.integers(-2, 2) | st.sampled_from(["", "x", "xyz"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["a", "_b", "schema", "c.d", "e"]), VALUES, max_size=4)


@given(SCHEMAS, ARGUMENTS)
def test_the_model_takes_what_the_schema_takes(schema: Schema, args: dict[str, JsonValue]) -> None:
    """No more and no less, and sends it as it was given."""
    made = arguments(schema)
    try:
        is_fitting = JsonSchema(schema).misfits(args) == []
    except BadSchema:
        is_fitting = False
    try:
        sent = made.model_validate(args).as_sent()
    except ValidationError:
        assert not is_fitting
        return

    assert is_fitting and sent == args


KEYWORDS = (
    *("type", "items", "$ref", "$defs", "$id", "id", "enum", "not", "pattern", "dependencies", "required", "anyOf"),
)
ODD_VALUES = st.recursive(
    st.sampled_from([None, True, 1, 10**400, "", "any", "#", "#a", "#/$defs/a", "http://[x", "(?=a)"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "$ref", "properties"]), inner, max_size=2)
        | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from([*KEYWORDS, "components", "if", "patternProperties"]), ODD_VALUES, max_size=3),
    ODD_VALUES,
)
def test_no_schema_ends_a_worker(more: Schema, part: JsonValue) -> None:
    """It is read as far as it can be, or left out with a reason."""
    for make in (arguments_of, result_of):
        with suppress(BadSchema):
            made = make("shop.do", {"type": "object", "properties": {"a": part}, **more})
            assert made.model_json_schema()["type"] == "object"
            with suppress(ValidationError):
                made.model_validate({"a": [1, {"a": 10**400}]})
