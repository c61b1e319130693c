"""The file of `--result-schema`: a JSON schema that the final answer is to keep."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from console.cells import cut, one_line
from console.problem import Problem

MAX_SCHEMA = 32 * 1024
"""Bytes of a schema file: the model is shown it in every request."""
MAX_WORDS = 200
"""Cells of what is wrong with a schema."""
AN_EXAMPLE = """write a JSON schema, e.g. {"type": "object", "properties": {"total": {"type": "number"}}}"""


def read_schema(path: Path) -> dict[str, JsonValue]:
    """Read the JSON schema of an answer, of an object or of anything else.

    Raises:
        Problem: the file cannot be read, is too large, or holds no schema that an answer can be held against.
    """
    schema = _parsed(path, _bytes_of(path))
    if not isinstance(schema, dict):
        raise _unusable(path, "it is no JSON object", AN_EXAMPLE)
    try:
        _check(path, schema)
    except RecursionError as error:
        raise _unusable(path, "it refers to itself without end, or is nested too deeply", "make it flatter") from error
    return schema


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            read = file.read(MAX_SCHEMA + 1)
    except OSError as error:
        reason = f"The schema {str(path)!r} cannot be read ({error.strerror})"
        raise Problem("no_schema", reason, "check --result-schema") from error
    if len(read) > MAX_SCHEMA:
        raise _unusable(path, f"it has more than {MAX_SCHEMA} bytes", "make it smaller: the model reads it each time")
    return read


def _parsed(path: Path, read: bytes) -> Any:
    try:
        parsed = json.loads(read, parse_constant=_no_constant)
        json.dumps(parsed, ensure_ascii=False, allow_nan=False).encode()  # half a letter, or 1e999, cannot be sent
    except RecursionError as error:
        raise _unusable(path, "it is nested too deeply", "make it flatter") from error
    except ValueError as error:
        raise _unusable(path, f"it is no JSON ({error})", AN_EXAMPLE) from error
    return parsed


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _check(path: Path, schema: dict[str, Any]) -> None:
    """Hold it against the schema of schemas, follow its references, and hold one value against it."""
    from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]  # ships no types
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        Draft202012Validator.check_schema(schema)  # the dialect by which the worker checks the answer
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path)) or "the whole"
        raise _unusable(path, f"{where}: {error.message}", "mend it; --result-schema takes a JSON schema") from error
    root = DRAFT202012.create_resource(schema)
    resolver = Registry().with_resource("", root).crawl().resolver()
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable as error:
            remedy = "refer only to what is in the file, as in #/$defs/NAME"
            raise _unusable(path, f"$ref {reference!r} leads nowhere", remedy) from error
    Draft202012Validator(schema).is_valid(None)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _unusable(path: Path, wrong: str, remedy: str) -> Problem:
    return Problem("bad_schema", f"The schema {str(path)!r} is not usable: {cut(one_line(wrong), MAX_WORDS)}", remedy)
