"""The fields of a reply that its API does not describe: some vendors want theirs back with the next request.

DeepSeek and Moonshot want `reasoning_content`, Gemini `extra_content`, OpenRouter `reasoning_details`, Mistral its list
in `content`; others will add more. So each field is kept that is not known to be for the client alone.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from activities.providers.arguments import is_too_deep

PIECES = re.compile(r"content|text|thinking|thought|reasoning|summary")
"""Finds the names of fields whose texts come in pieces. Other texts come whole, such as a type or a format."""
WHOLE = re.compile(r"signature|encrypted|id$|type$|format$|status$|model$")
"""Finds the names of fields whose texts come whole, whatever else is in the name."""
OPAQUE = "data"
"""The field with the whole of what a vendor encrypted: two such items are two."""


def vendor_fields(message: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The fields of `message` that are not `known`, without nulls and what is nested too deeply to be stored."""
    return {
        name: value
        for name, value in message.items()
        if name not in known and value is not None and not is_too_deep(value)
    }


def joined(before: Mapping[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that came so far, with those of the next piece of a stream."""
    return {**before, **{name: _joined(name, before.get(name), value) for name, value in piece.items()}}


def joined_items(before: Sequence[Any], piece: Sequence[Any]) -> list[Any]:
    """The items of a list that came so far, with those of its next piece: parts of an item, or further items."""
    found = [*before]
    for item in piece:
        index = _index_of(item, found)
        if index is None:
            found.append(item)
        else:
            found[index] = joined(found[index], item)
    return found


def _joined(name: str, before: Any, piece: Any) -> Any:
    if before is None or piece is None:
        return before if piece is None else piece
    if isinstance(before, str) and isinstance(piece, str):
        return before + piece if PIECES.search(name) and not WHOLE.search(name) else piece or before
    if isinstance(before, dict) and isinstance(piece, dict):
        return joined(before, piece)
    return joined_items(before, piece) if isinstance(before, list) and isinstance(piece, list) else piece


def _index_of(item: Any, items: Sequence[Any]) -> int | None:
    """The index of the item of which `item` is a further part; None if it is a new one."""
    indices = [index for index, other in enumerate(items) if _is_part(item, other)]
    # An item without an index can only be a part of the last one.
    return next((index for index in reversed(indices) if "index" in item or index == len(items) - 1), None)


def _is_part(item: Any, of: Any) -> bool:
    if not (isinstance(item, dict) and isinstance(of, dict)) or (OPAQUE in item and OPAQUE in of):
        return False
    is_same = all(item.get(name) == of.get(name) for name in ("index", "type"))
    return is_same and (not item.get("id") or not of.get("id") or item["id"] == of["id"])
