"""`--result-schema`: a file that holds a schema, or one sentence that says why not."""

import json
from pathlib import Path
from typing import Any

import pytest

from client.problem import Problem
from console.commands.start import MAX_SCHEMA, read_schema
from console.exits import OF_PROBLEM

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
TOTAL = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


@pytest.mark.parametrize(
    "schema",
    [
        TOTAL,
        {"type": "string", "maxLength": 5},
        {"$defs": {"a": {"type": "integer"}}, "items": {"$ref": "#/$defs/a"}},
        {"$schema": DRAFT_7, "definitions": {"a": {}}, "items": {"$ref": "#/definitions/a"}},
        {"properties": {"$ref": {"type": "string"}}},
        {},
    ],
    ids=["object", "text", "reference", "draft 7", "a field named $ref", "anything"],
)
def test_a_schema_is_read_as_it_is(tmp_path: Path, schema: dict[str, Any]) -> None:
    """Of an object or of anything else."""
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))

    assert read_schema(file) == schema


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is not JSON (Expecting value"),
        (b"\xff", "it is not JSON ('utf-8' codec"),
        (b'{"minimum": NaN}', "it is not JSON (NaN is not a number in JSON)"),
        (b'{"minimum": 1e999}', "it is not JSON (Out of range"),
        (b'{"const": "\\ud800"}', "it is not JSON ('utf-8' codec"),
        (b"[]", "it is not a JSON object: write a JSON schema"),
        (b"true", "it is not a JSON object: write a JSON schema"),
        (b'{"type": "objekt"}', "type: 'objekt' is not valid"),
        (b'{"properties": {"a": {"minimum": "1"}}}', "properties.a.minimum: '1' is not of type 'number'"),
        (b'{"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}]}', "items: [{}] is not of type"),
        (b'{"pattern": "("}', "pattern: '(' is not a 'regex'"),
        (b'{"$ref": "#/$defs/a"}', "$ref '#/$defs/a' refers to nothing: refer only to what is in the file"),
        (b'{"items": {"$ref": "http://x.example/y"}}', "$ref 'http://x.example/y' refers to nothing"),
        (b'{"$ref": "#"}', "it refers to itself without end"),
        (b'{"not": ' * 900 + b"{}" + b"}" * 900, "nested too deeply: make it flatter"),
        (b"[" * 30_000, "it is nested too deeply: make it flatter"),
        (b'{"title": "\x1b[31m"}', "it is not JSON (Invalid control character"),
        (b'{"type": "\\u001b[31m"}', "type: '"),
        (b" " * MAX_SCHEMA + b"{}", f"it has more than {MAX_SCHEMA} bytes: make it smaller"),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else None,
)
def test_a_schema_that_cannot_be_used_is_a_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    """Which file, where in it, what is wrong, what to do; nothing is sent to a server or fetched from one."""
    file = tmp_path / "schema.json"
    file.write_bytes(content)

    with pytest.raises(Problem) as wrong:
        read_schema(file)
    assert words in str(wrong.value) and str(file) in str(wrong.value) and str(wrong.value).isprintable()
    assert (wrong.value.code, OF_PROBLEM[wrong.value.kind]) == ("bad_schema", 2)


@pytest.mark.parametrize("name", ["nowhere.json", "."])
def test_a_schema_that_is_not_there_is_a_sentence(tmp_path: Path, name: str) -> None:
    """A missing file, a folder."""
    with pytest.raises(Problem, match=r"cannot be read \(.+\): give --result-schema"):
        read_schema(tmp_path / name)
