"""The rules of Anthropic's Messages API that a request alone can break: choice of tools, turns, pairs, marks."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.providers.api import Json, unknown

CHOICES: tuple[Json, ...] = ({"type": "auto"}, {"type": "none"})
"""A call cannot be forced: the newest models refuse that."""
BLOCKS = {
    "thinking": {"type", "thinking", "signature"},
    "text": {"type", "text", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "caller", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
}
ID = r"[a-zA-Z0-9_-]+"
NAME = r"[a-zA-Z0-9_-]{1,128}"
COMMON = r"[a-zA-Z0-9_-]{1,64}"
"""Names that every provider takes."""
MAX_MARKS = 4


def choosing(body: Json) -> Iterator[str]:
    """What is wrong with what the model may call."""
    choice = body.get("tool_choice")
    if choice is not None and not body.get("tools"):
        yield "tool_choice: may only be specified while providing tools"
    if choice is not None and choice not in CHOICES:
        yield f"tool_choice: {choice} is not supported by this model"
    if body.get("tools") == []:
        yield "tools: an empty list"


def signature(thought: str) -> str:
    """The provider's own, by which it knows its model's thoughts again."""
    return hashlib.sha256(thought.encode()).hexdigest()


def conversing(messages: list[Json]) -> Iterator[str]:
    """What is wrong with the turns, each with the one before it."""
    if not messages or messages[0].get("role") != "user" or messages[-1].get("role") != "user":
        yield "messages: the first and the last must use the user role"
    open_calls: list[str] = []
    seen = set[str]()
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        yield from unknown(where, message, {"role", "content"})
        if index and message.get("role") == messages[index - 1].get("role"):
            yield f"{where}: two turns of one role"  # the API merges them; nobody should rely on it
        blocks = blocks_of(message)
        if not blocks:
            yield f"{where}: no content"
            continue
        for block in blocks:
            yield from _block(where, block)
        yield from _pairing(where, message["role"], blocks, open_calls)
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len({*open_calls}) < len(open_calls) or seen & {*open_calls}:
            yield f"{where}: `tool_use` ids must be unique"
        seen |= {*open_calls}


def blocks_of(message: Json) -> list[Json]:
    """The blocks of a turn; a string is one block of text."""
    content = message.get("content")
    plain: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
    return plain


def _pairing(where: str, role: str, blocks: list[Json], open_calls: list[str]) -> Iterator[str]:
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    missing = [id for id in open_calls if id not in results]
    if missing:
        yield f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}"
    if [id for id in results if id not in open_calls]:
        yield f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {results}"
    if not missing and results != open_calls:
        yield f"{where}: `tool_result` blocks {results} are not in the order of {open_calls}"  # a rule of ours
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        yield f"{where}: `tool_result` blocks must come first"
    allowed = {"thinking", "text", "tool_use"} if role == "assistant" else {"text", "tool_result"}
    if any(block["type"] not in allowed for block in blocks):
        yield f"{where}: {role} may not send such a block"


def _block(where: str, block: Json) -> Iterator[str]:
    kind = block.get("type", "")
    if kind not in BLOCKS:
        yield f"{where}: Input tag {kind!r}"
        return
    yield from unknown(where, block, BLOCKS[kind])
    if kind == "text" and not block.get("text", "").strip():
        yield f"{where}: text content blocks must be non-empty"
    if kind == "tool_use" and not (re.fullmatch(ID, block.get("id", "")) and isinstance(block.get("input"), dict)):
        yield f"{where}: tool_use.id should match {ID!r}, and its input be an object"
    if kind == "tool_use" and not re.fullmatch(NAME, block.get("name", "")):
        yield f"{where}: tool_use.name should match {NAME!r}"
    if kind == "thinking" and block.get("signature") != signature(block.get("thinking", "")):
        yield f"{where}: Invalid `signature` in `thinking` block"
    if kind == "tool_result" and not isinstance(block.get("content"), str):
        yield f"{where}: tool_result.content"


def caching(body: Json) -> Iterator[str]:
    """A rule of ours: what begins the next request, too, is marked: tools, system, and the last block of all turns."""
    blocks = [block for message in body.get("messages", ()) for block in blocks_of(message)]
    system = body.get("system")
    system = system if isinstance(system, list) else []
    parts: Mapping[str, list[Any]] = {"tools": body.get("tools", []), "system": system, "messages": blocks}
    marked = [(name, one) for name, items in parts.items() for one in items if "cache_control" in one]
    if len(marked) > MAX_MARKS:
        yield f"A maximum of {MAX_MARKS} blocks with cache_control may be provided"
    if any(one["cache_control"] != {"type": "ephemeral"} for _, one in marked):
        yield "cache_control: unknown type"
    if not body.get("tools") or (not marked and len(body.get("messages", ())) == 1):
        return  # whoever asks once has no prefix that comes again
    for name, items in parts.items():
        if not (items and "cache_control" in items[-1]):
            yield f"{name}: the end is not marked for the cache"
