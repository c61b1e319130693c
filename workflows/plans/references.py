"""References from the arguments of a step to the results of other steps.

Used when a proposal is checked, and when a step starts, whose arguments then get results in place of references.

A reference `{"$from": "<step>", "path": "a.0.b"}` stands for the result of another step, or for a part of that result.
"""

from collections.abc import Iterator, Mapping
from typing import TypeGuard

from pydantic import JsonValue

from workflows.json_values import items, text_of

MAX_SHOWN = 300
"""If a reference has no target, the error message lists the keys of the result, cut to this many characters."""
PRUNED = "$pruned"
"""If `prune` deleted a result, an object with only this key replaces it; the value is a sentence for a person."""
ENCRYPTED_ENCODING = b"binary/replan-encrypted"
"""The encoding of a payload that a keyring of Replan's has encrypted."""
SEALED = "replan-key:"
"""The beginning of a text in the store that a keyring has encrypted; the id of the key and a colon follow."""
PRUNED_ENCODING = b"replan/pruned"
"""The encoding of the payload that replaces a deleted payload; its data is a sentence for a person."""


class Unresolved(ValueError):
    """A reference has no target; the message says where, and what is there instead."""


def references(value: JsonValue) -> Iterator[str]:
    """The ids of the steps that the references in `value` name; an id comes as often as it is named."""
    if is_reference(value):
        yield str(value["$from"])
    else:
        for item in items(value):
            yield from references(item)


def resolve(value: JsonValue, results: Mapping[str, JsonValue]) -> JsonValue:
    """Return `value` with results, or parts of them, in place of references; raise Unresolved if one has no target."""
    if is_reference(value):
        step = str(value["$from"])
        if step not in results:
            raise Unresolved(f"step {step!r} has no result")
        return pick(results[step], str(value.get("path", "")), f"the result of {step!r}")
    if isinstance(value, dict):
        return {key: resolve(item, results) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, results) for item in value]
    return value


def pick(value: JsonValue, path: str, of: str) -> JsonValue:
    """Return the value at a dotted path (`free.0.at`) into `value`, which error messages call `of`.

    If `prune` deleted the value that the path leads into, the object that stands in its place is returned.

    Raises:
        Unresolved: there is nothing at the path.
    """
    where = "it"
    for part in filter(None, path.split(".")):
        if _is_pruned(value):
            return value  # no error: a replay must go the same way as with the result
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            content = f"has {sorted(value)}" if isinstance(value, dict) else f"is a {type(value).__name__}"
            content = content if len(content) <= MAX_SHOWN else content[:MAX_SHOWN] + "…"
            raise Unresolved(f"{of} has nothing at {path!r}: {where} {content}")
        where = repr(part)
    return value


def pruned(value: JsonValue) -> str | None:
    """If `value` or a part of it was deleted by `prune`, the sentence that stands in its place; else None."""
    if _is_pruned(value):
        return str(value[PRUNED])
    return next((found for item in items(value) if (found := pruned(item))), None)


def is_reference(value: JsonValue) -> TypeGuard[dict[str, JsonValue]]:
    """Whether a value is a reference: an object with the key `$from` and, at most, the key `path`."""
    return isinstance(value, dict) and "$from" in value and set(value) <= {"$from", "path"}


def label(value: JsonValue) -> str:
    """A value as text for people; for a reference, its step and path: `<invoice.payee>`."""
    if is_reference(value):
        return f"<{'.'.join(filter(None, (str(value['$from']), str(value.get('path', '')))))}>"
    return text_of(value)


def _is_pruned(value: JsonValue) -> TypeGuard[dict[str, JsonValue]]:
    return isinstance(value, dict) and value.keys() == {PRUNED}
