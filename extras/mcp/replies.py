"""Reads a server's lists and results part by part, so that one strange part costs itself and nothing beside it.

The SDK checks each answer as a whole: one odd field of one tool would cost all tools of the server. So the SDK gets
what it can read of these answers, and the whole answer passes its check under the name `RAW`, for the functions here.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import structlog
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, ListToolsResult
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError
from pydantic_core import to_json

from extras.mcp.config import ServerTool
from extras.mcp.transports import Streams
from workflows.text import legible

RAW = "io.replan/raw"
"""The name in `_meta` of a result as the server sent it."""
MAX_TOOLS = 1_000
"""The most tools of a server, and the most pages of its list."""
MAX_SHOWN = 60
"""The most characters of a server's value in a reason."""

_CALL, _TOOLS = "tools/call", "tools/list"
_LISTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    _TOOLS: ("tools", ("name", "inputSchema")),
    "resources/list": ("resources", ("name", "uri")),
    "resources/templates/list": ("resourceTemplates", ("name", "uriTemplate")),
    "prompts/list": ("prompts", ("name",)),
}
"""By method, the name of its list, and the fields without which an entry of the list says nothing."""
_BLOCKS: Mapping[str, tuple[str, ...]] = {
    "text": ("type", "text"),
    "image": ("type", "data", "mimeType"),
    "audio": ("type", "data", "mimeType"),
    "resource_link": ("type", "uri", "name"),
    "resource": ("type", "resource"),
}
"""By type of a block of content, the fields without which the block says nothing."""
_ENVELOPE: Mapping[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What a result of the newer protocol always has; the SDK leaves it out of results of the older one."""
_OF_TOOL = ("title", "description", "icons", "annotations", "execution", "outputSchema", "_meta")
"""The fields of a tool without which it can be called all the same."""

log = structlog.get_logger("replan.mcp")


class UnreadableEntry(Exception):
    """A part of an answer cannot be read; the message says why."""


# Around the SDK


@asynccontextmanager
async def by_part(server: str, streams: AbstractAsyncContextManager[Streams]) -> AsyncIterator[Any]:
    """Yield the streams of a transport, with lists and results that the SDK takes although a part of them is odd."""
    async with streams as (incoming, outgoing):
        methods = dict[str, str]()
        yield _Incoming(incoming, methods, server), _Outgoing(outgoing, methods, server)


class _TidyStream:
    def __init__(self, inner: Any, methods: dict[str, str], server: str) -> None:
        """`methods` has the methods of the requests under way that are read by part, by the ids of the requests."""
        self._inner = inner
        self._methods = methods
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)


class _Outgoing(_TidyStream):
    async def send(self, item: Any) -> None:
        match item.message:
            case JSONRPCRequest(method=method, id=number) if method in (_CALL, *_LISTS):
                self._methods[str(number)] = method
            case JSONRPCNotification(method="notifications/cancelled", params=dict(params)):
                self._methods.pop(str(params.get("requestId")), None)
        await self._inner.send(item)


class _Incoming(_TidyStream):
    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._read(await self._inner.__anext__())

    async def receive(self) -> Any:
        return self._read(await self._inner.receive())

    def _read(self, item: Any) -> Any:
        message = getattr(item, "message", None)
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return item
        method = self._methods.pop(str(message.id), None)
        if method is None or isinstance(message, JSONRPCError):
            return item
        result = _for_sdk(method, message.result, self._server)
        return replace(item, message=message.model_copy(update={"result": result}))


def _for_sdk(method: str, result: dict[str, Any], server: str) -> dict[str, Any]:
    """What the SDK gets of a result."""
    if method == _CALL:
        is_other = result.get("resultType", "complete") != "complete"  # e.g. it asks for something
        if is_other or not {"content", "structuredContent", "isError"} & result.keys():
            return result
        return {"content": [], "resultType": "complete", "_meta": {RAW: result}}
    if method == _TOOLS:
        # The SDK wants names and arguments, for the headers that a server may ask for.
        read = [tool for tool in _tools(result) if isinstance(tool, ServerTool)]
        tools = [{"name": tool.name, "inputSchema": dict(tool.schema)} for tool in read]
        return {**_ENVELOPE, "tools": tools, "_meta": {RAW: result}}
    name, core = _LISTS[method]
    sent, kept, odd = result.get(name), list[Any](), list[str]()
    for entry in sent if isinstance(sent, list) else []:
        try:
            kept.append(_repaired(entry, core, lambda part: _is_valid(method, {**_ENVELOPE, name: [part]}))[0])
        except UnreadableEntry:
            odd.append(_what(entry.get("name")) if isinstance(entry, dict) else _what(entry))
    if odd or not isinstance(sent, list):
        reason = f"{name}: {', '.join(odd[:20]) or _what(sent)}"
        log.warning("mcp_entries_left_out", server=server, reason=reason)
    outside = {field: value for field, value in result.items() if field != name}
    fitting, _ = _repaired(outside, (), lambda part: _is_valid(method, {**_ENVELOPE, **part, name: []}))
    return {**_ENVELOPE, **fitting, name: kept}


def _is_valid(method: str, result: Mapping[str, Any]) -> bool:
    """Whether a result is one of both protocols, since a gateway passes it on to agents that may speak either."""
    try:
        for version in (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION):
            parse_server_result(method, version, result)
    except ValidationError:
        return False
    return True


def _repaired(
    part: Any, core: Collection[str], fits: Callable[[dict[str, Any]], bool]
) -> tuple[dict[str, Any], list[str]]:
    """The part without those fields that do not fit, and their names. Raises UnreadableEntry if `core` is odd."""
    if not isinstance(part, dict):
        raise UnreadableEntry(f"it is {_what(part)}, and no object")
    if (core or part) and fits(part):
        return part, []
    kept, odd = {name: part[name] for name in core if name in part}, list[str]()
    if not fits(kept):
        raise UnreadableEntry("the protocol has no such part")
    for name, value in part.items():
        if name in core:
            continue
        if fits({**kept, name: value}):
            kept[name] = value
        else:
            odd.append(name)
    return kept, odd


def _what(value: Any) -> str:
    """What a value of a server is, for a reason."""
    match value:
        case None:
            return "missing or null"
        case "":
            return "an empty text"
        case str():
            return f"the text {legible(value, MAX_SHOWN)!r}"
        case bool() | int() | float():
            return legible(to_json(value, inf_nan_mode="null").decode(), MAX_SHOWN)
        case list():
            return "a list"
    return "an object"


# Results of calls


def tidy_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a call with content that the protocol has: an odd block becomes a text, so that nothing is lost.

    The structured content stays as it is, whatever its type.
    """
    sent = result.get("content")
    blocks = sent if isinstance(sent, list) else [] if sent is None else [sent]
    odd = [block for block in blocks if not _is_plain(block)]  # there may be many thousands
    is_valid = _is_valid(_CALL, {"resultType": "complete", "content": odd})
    tidy = {
        **result,
        "content": blocks if is_valid else [block if _is_plain(block) else _tidy_block(block) for block in blocks],
    }
    if not isinstance(tidy.get("isError", False), bool):
        tidy["isError"] = tidy["isError"] not in (None, 0, "", "false", "False")
    if not isinstance(tidy.get("_meta", {}), dict):
        del tidy["_meta"]
    return tidy


def _is_plain(block: Any) -> bool:
    """Whether a block is a text, an image or a sound with nothing else."""
    if not isinstance(block, dict) or block.get("type") not in ("text", "image", "audio"):
        return False
    return block.keys() == {*_BLOCKS[block["type"]]} and all(isinstance(value, str) for value in block.values())


def _tidy_block(block: Any) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, dict) else None
    core = _BLOCKS.get(kind, ()) if isinstance(kind, str) else ()
    if core:
        unnamed = {} if "mimeType" not in core else {"mimeType": "application/octet-stream"}
        resource = block.get("resource")
        candidates = [block, {**unnamed, **block}]
        if isinstance(resource, dict):  # it has odd fields of its own, perhaps
            plain = {name: value for name, value in resource.items() if name in ("uri", "text", "blob", "mimeType")}
            candidates.append({**block, "resource": plain})
        for candidate in candidates:
            try:
                return _repaired(candidate, core, _is_block)[0]
            except UnreadableEntry:
                continue
    whole = block if isinstance(block, str) else to_json(block, inf_nan_mode="null").decode()
    return {"type": "text", "text": whole}


def _is_block(block: dict[str, Any]) -> bool:
    return _is_valid(_CALL, {"resultType": "complete", "content": [block]})


# Lists of tools


@dataclass
class ToolList:
    """The tools that a server lists, page by page."""

    tools: list[ServerTool] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """The tools that cannot be read, each with the reason; all tools without a name under the empty name."""
    unread: str = ""
    """Why the list, or its rest, was not read; empty if all of it was."""
    cursor: str | None = None
    """What the next page is asked for with."""
    _cursors: set[str] = field(default_factory=set)
    _count: int = 0

    def add(self, page: ListToolsResult) -> bool:
        """Read a page, as it came through `by_part`; return whether there is another page."""
        result: Mapping[str, Any] = (page.meta or {})[RAW]
        usable = {tool.name for tool in page.tools}
        for found in _tools(result):
            self._count += 1
            if isinstance(found, ServerTool) and found.name in usable:
                self._add(found)
            elif isinstance(found, ServerTool):
                self.left_out[found.name] = "its x-mcp-header is not valid, and the protocol forbids such a tool"
            else:
                name, reason = found
                others = [self.left_out[""]] if not name and "" in self.left_out else []
                self.left_out[name] = reason if name else "; ".join([*others, f"number {self._count}: {reason}"])[:500]
        return self._advance(result)

    def _add(self, tool: ServerTool) -> None:
        # The server decides which of two tools of one name it calls.
        if any(other.name == tool.name and not other.read_only for other in self.tools):
            tool = replace(tool, read_only=False)
        elif not tool.read_only:
            same = [replace(other, read_only=False) if other.name == tool.name else other for other in self.tools]
            self.tools = same
        self.tools.append(tool)

    def _advance(self, result: Mapping[str, Any]) -> bool:
        """Set the cursor, and return whether there is another page to read."""
        sent, cursor = result.get("tools"), result.get("nextCursor")
        if not isinstance(sent, list):
            self.unread = f"its list of tools is {_what(sent)}"
        elif len(self.tools) > MAX_TOOLS or (cursor and max(len(self.tools), len(self._cursors)) >= MAX_TOOLS):
            self.unread = f"its list has more than {MAX_TOOLS} tools or pages"
            del self.tools[MAX_TOOLS:]
        elif cursor is not None and not isinstance(cursor, str):
            self.unread = f"its list goes on with a nextCursor that is {_what(cursor)}, and no text"
        elif cursor in self._cursors:
            self.unread = f"its list has no end: nextCursor is {_what(cursor)} again and again"
        elif cursor:
            self._cursors.add(cursor)
            self.cursor = cursor
            return True
        return False


def _tools(result: Mapping[str, Any]) -> Iterator[ServerTool | tuple[str, str]]:
    """Yield the tools of a page; of one that cannot be read its name (empty if it has none), and the reason."""
    sent = result.get("tools")
    for entry in sent if isinstance(sent, list) else []:
        name = entry.get("name") if isinstance(entry, dict) else None
        try:
            yield tool_of(entry)
        except UnreadableEntry as why:
            yield name if isinstance(name, str) else "", str(why)


def tool_of(entry: Any) -> ServerTool:
    """Read a tool as a server lists it, without the fields that are odd and only describe it.

    Raises UnreadableEntry if it cannot be called: without a name, or without a schema of its arguments.
    """
    if not isinstance(entry, dict):
        raise UnreadableEntry(f"it is {_what(entry)}, and no object")
    name, oddities = entry.get("name"), list[str]()
    if not isinstance(name, str) or not name:
        raise UnreadableEntry(f"its name is {_what(name)}")
    schema = _input_schema(entry.get("inputSchema"), oddities)
    core = {"name": name, "inputSchema": schema}
    described = {field: entry[field] for field in _OF_TOOL if entry.get(field) is not None}
    if isinstance(hints := described.get("annotations"), dict):
        described["annotations"] = _hints(hints, oddities)
    if isinstance(output := described.pop("outputSchema", None), dict):
        if (whole := _object_schema(output)) is None:
            oddities.append(
                f"its outputSchema is no schema of an object, and is not used: its type is {_what(output['type'])}"
            )
        else:
            described["outputSchema"] = whole
    elif output is not None:
        oddities.append(f"its outputSchema is {_what(output)}, and is not used")
    try:
        listed, odd = _repaired({**core, **described}, core, _is_tool)
    except UnreadableEntry:
        raise UnreadableEntry("the properties of its inputSchema are no schemas") from None
    oddities += [f"its {field} is {_what(entry[field])}, and is not used" for field in odd]
    annotations, execution = listed.get("annotations", {}), listed.get("execution", {})
    return ServerTool(
        name,
        schema,
        listed.get("outputSchema"),
        listed.get("title") or annotations.get("title") or "",
        listed.get("description") or "",
        annotations.get("readOnlyHint") is True,
        annotations.get("idempotentHint") is True,
        execution.get("taskSupport") == "required",
        listed,
        tuple(oddities),
    )


def _is_tool(tool: dict[str, Any]) -> bool:
    return _is_valid(_TOOLS, {**_ENVELOPE, "tools": [tool]})


def _input_schema(schema: Any, oddities: list[str]) -> dict[str, Any]:
    """The schema of a tool's arguments, an object; `oddities` gets what is left out of it. Raises UnreadableEntry."""
    if not isinstance(schema, dict):
        raise UnreadableEntry(f"its inputSchema is {_what(schema)}, so that its arguments are not known")
    if (whole := _object_schema(schema)) is None:
        raise UnreadableEntry(f"its inputSchema is no schema of an object: its type is {_what(schema['type'])}")
    for name, kind in (("$schema", str), ("required", list), ("properties", dict)):
        value = whole.get(name)
        is_odd = not isinstance(value, kind) or (kind is list and not all(isinstance(item, str) for item in value))
        if name in whole and is_odd and (value is None or name != "properties"):
            oddities += [] if value is None else [f"{name} of its inputSchema is {_what(value)}, and is not used"]
            whole = {key: part for key, part in whole.items() if key != name}
    return whole


def _object_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema with `type: object`, if it allows objects, or says nothing of a type; else None."""
    type = schema.get("type")
    if type == "object":
        return schema
    return {**schema, "type": "object"} if type is None or (isinstance(type, list) and "object" in type) else None


def _hints(hints: dict[str, Any], oddities: list[str]) -> dict[str, Any]:
    """The hints that are true or false, and the title: a text such as "true" must not make a read of a tool."""
    kept = {name: value for name, value in hints.items() if isinstance(value, str if name == "title" else bool)}
    odd = [name for name in _HINTS if name not in kept and hints.get(name) is not None]
    oddities += [f"its hint {name} is {_what(hints[name])}, and is not used" for name in odd]
    return kept


_HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
