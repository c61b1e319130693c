"""Reads the arguments of each call of a reply, whichever API or text brought them: all pass `parse_call`."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from pydantic_core import from_json

from activities.providers.messages import ToolCall

MAX_NESTED = 100
"""How deep arguments may be nested. No schema needs so much, and code that recurses can read it."""
TOO_DEEP = f"they are nested deeper than {MAX_NESTED} levels"
MAX_DIGITS = 400
"""A number with more digits is read as a float: it is infinite there."""
MAX_SHOWN = 80
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""Finds lone surrogates, which JSON can carry, but no database can store."""
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{}\[\]]', re.DOTALL)
"""Finds the strings and brackets of a JSON text; a string without an end reaches to the end of the text."""

BEGINS_OBJECT = re.compile(rb"\s*:\s*(?=\{\s*[^}\s])")
"""Matches what is between the name of a field and its value, if that is an object that is not empty."""
COUNT_BY_BOOL = re.compile(rb'(_tokens"\s*:\s*)(?:true|false)')


class RepeatedKey(dict[str, Any]):
    """A JSON object in which `key` stands more than once, so that nobody knows which value the model meant."""

    key = ""


def object_of(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """The object with these keys and values; a RepeatedKey if a key stands more than once."""
    if len(found := dict(pairs)) == len(pairs):
        return found
    repeated = RepeatedKey(found)
    repeated.key = Counter(key for key, _ in pairs).most_common(1)[0][0]
    return repeated


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


DECODER = json.JSONDecoder(object_pairs_hook=object_of, parse_int=_whole_number)
"""Decodes JSON; `flaw_of` finds what no argument may have."""
LENIENT_DECODER = json.JSONDecoder(object_pairs_hook=object_of, parse_int=_whole_number, strict=False)
"""As DECODER, for calls that a model writes as text: it takes line breaks in strings, too."""


def parse_call(id: Any, name: Any, arguments: Any) -> ToolCall:
    """Make a ToolCall from the model's `arguments`, a JSON text or value; if they are invalid, `broken` says why."""
    id, name = (word if isinstance(word, str) else "" for word in (id, name))
    if isinstance(arguments, str):
        try:
            arguments = DECODER.decode(arguments.strip() or "{}")
        except RecursionError:
            return ToolCall(id, name, {}, broken=TOO_DEEP)
        except ValueError as error:
            return ToolCall(id, name, {}, broken=f"they are no JSON ({_why_no_json(arguments, error)[:MAX_SHOWN]})")
    if arguments is None or arguments == "":  # of a call without arguments, from some servers
        arguments = {}
    if flaw := flaw_of(arguments):
        return ToolCall(id, name, {}, broken=flaw)
    if not isinstance(arguments, dict):
        return ToolCall(id, name, {}, broken=f"they are a JSON {type(arguments).__name__}, not an object")
    return ToolCall(id, name, arguments)


def _why_no_json(text: str, error: ValueError) -> str:
    """The message of the parser that says where a text ends too early, else that of `error`."""
    try:
        from_json(text)
    except ValueError as found:
        return str(found)
    return str(error)


def is_object(arguments: Any) -> bool:
    """Whether arguments are complete: a text that is one JSON object, or an object in place of a text."""
    if not isinstance(arguments, str):
        return bool(arguments)
    try:
        return isinstance(DECODER.decode(arguments.strip()), dict)
    except (ValueError, RecursionError):
        return False


def flaw_of(value: Any) -> str:
    """What makes a value unusable in arguments, such as a key that an object has twice; empty if nothing does."""
    if is_too_deep(value):
        return TOO_DEEP
    return next((found for level in _levels(value) for found in map(_own_flaw, level) if found), "")


def is_too_deep(value: Any) -> bool:
    """Whether a value of JSON is nested deeper than MAX_NESTED."""
    return next(islice(_levels(value), MAX_NESTED, None), None) is not None


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield the values of each level of a value of JSON, without recursion."""
    level = [value]
    while level:
        yield level
        level = [inner for outer in level for inner in _inside(outer)]


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else ()


def _own_flaw(value: Any) -> str:
    """The flaw of a value, without those of the values in it."""
    match value:
        case RepeatedKey():
            return f"an object in them has the key {str(value.key)[:MAX_SHOWN]!r} more than once"
        case str():
            found = HALF_CHARACTER.search(value)
            return f"a text in them has half a character ({found[0]!a})" if found else ""
        case dict() if not all(isinstance(key, str) for key in value):
            return "they are no JSON (a key that is no text)"
        case bool() | None | dict() | list():
            return ""
        case int() | float():
            # Also false for NaN.
            is_finite = -sys.float_info.max <= value <= sys.float_info.max
            return "" if is_finite else "they are no JSON (a number that is too large, or none)"
    return f"they are no JSON (a value of the type {type(value).__name__})"


def for_sdk(body: bytes, *fields: bytes) -> bytes:
    """Return a JSON text in which nothing is left that the SDKs would hide: they make values of their types of it.

    An object in one of the `fields`, such as `arguments`, becomes a text: the object as it was written. As a dict it
    would not show a key that stands twice, and the SDKs cannot read one that is nested deeply. A count of tokens that
    is a bool becomes null, since the SDKs make 1 of true.
    """
    body = COUNT_BY_BOOL.sub(rb"\1null", body)
    names = {b'"%b"' % field for field in fields}
    if not re.search(rb"(?:%b)\s*:\s*\{" % b"|".join(names), body):
        return body
    parts, copied, at = list[bytes](), 0, 0
    while token := TOKEN.search(body, at):
        at = token.end()
        value = BEGINS_OBJECT.match(body, at) if token[0] in names else None
        if not value:
            continue
        begin, end = value.end(), _end_of_object(body, value.end())
        if end is None:  # the body is no JSON
            return body
        parts += [body[copied:begin], json.dumps(body[begin:end].decode(errors="replace")).encode()]
        copied = at = end
    return b"".join([*parts, body[copied:]])


def _end_of_object(body: bytes, at: int) -> int | None:
    """The index after the object that begins at `at`; None if its end is missing."""
    depth = 0
    for token in TOKEN.finditer(body, at):
        depth += 1 if token[0] in b"{[" else -1 if token[0] in b"}]" else 0
        if not depth:
            return token.end()
    return None
