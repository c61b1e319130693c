"""Converts what a server answers: the result of a tool to plain data of bounded size, and errors to exceptions."""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from operator import not_
from pathlib import Path
from typing import Any, Literal

from mcp_types import AudioContent, CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import from_json, to_json

from activities.errors import ToolError, unproven
from activities.extent import MAX_BYTES
from extras.mcp.tools_file import ErrorRow
from workflows.faults.fault import QUADRANT, Code
from workflows.json_values import canonical

MAX_READ, MAX_EFFECT = 700_000, 40_000
"""Bytes of a result as JSON: of a read, and of a tool with an effect, whose result stays in history."""
MAX_TYPED_EFFECT, SLACK = 48 * 1024, 500
"""Bytes that the boundary takes of an effect's result, and bytes that `REST` needs even if it can hold nothing."""
MAX_DATA = 256 * 1024
"""Characters of an image or a sound in base64; of a larger one, only the size is returned."""
MAX_QUOTED = 2_000
"""Characters of an error's text that the planner sees."""
TEXTS = Path(__file__).with_name("texts.toml")


class Part(BaseModel):
    """A part of a result that is no text: an image, a sound, a resource or a link to one."""

    type: str
    mime_type: str | None = Field(default=None, exclude_if=lambda value: value is None)
    uri: str | None = Field(default=None, exclude_if=lambda value: value is None)
    name: str | None = Field(default=None, exclude_if=lambda value: value is None)
    data: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """Base64."""
    left_out: int = Field(default=0, exclude_if=not_)
    """The characters of data that are left out, since they are too many."""


class Block(BaseModel):
    """Where a block of a result's content is in a ToolAnswer."""

    text: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """How many characters of the answer's `text` this block has; those of the next block begin after a line break."""
    part: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """The position of this block in the answer's `parts`, from 0."""
    more: dict[str, JsonValue] = Field(default_factory=dict, exclude_if=not_)
    """Fields of the protocol that a part or a text here does not have, such as annotations."""


class ToolAnswer(BaseModel):
    """The result of a foreign tool that declares no form of its results."""

    model_config = ConfigDict(extra="ignore")

    text: str = ""
    """All texts. If the server sent no content, the structured content as JSON."""
    structured: JsonValue = Field(default=None, exclude_if=lambda value: value is None)
    """The structured content, if the server sent it beside what it had declared."""
    parts: list[Part] = Field(default_factory=list, exclude_if=not_)
    left_out: int = Field(default=0, exclude_if=not_)
    """The characters of text that are left out at the end, since they are too many."""
    parts_left_out: int = Field(default=0, exclude_if=not_)
    """The number of parts that are left out at the end, since they are too many."""
    structured_left_out: int = Field(default=0, exclude_if=not_)
    """The bytes of structured content that is left out, since it is too large and `text` does not have it."""
    layout: SkipJsonSchema[list[Block] | None] = Field(default=None, exclude_if=lambda value: value is None)
    """The blocks in the order in which the server sent them. None if they are one text, then the parts; if something is
    left out; or if the worker has no gateway, which alone passes the content on as it was. Not in the JSON schema."""
    meta: SkipJsonSchema[dict[str, JsonValue] | None] = Field(default=None, exclude_if=lambda value: value is None)
    """What the server sent of an effect as `_meta`, for a gateway, as the layout is."""


def answer_of(result: CallToolResult, *, is_read: bool, has_layout: bool = False, used: int = 0) -> ToolAnswer:
    """Convert a result to text, structured content and parts, cut to `MAX_READ` or, of an effect, `MAX_EFFECT` bytes.

    With `has_layout`, the answer's fields `layout` and `meta` are filled in. `used` are bytes that are used already.
    """
    structured = from_json(json_of(result.structured_content))
    whole, is_repeated = text_of(result), _is_repeated(result, structured)
    if structured is not None and not result.content:
        whole, is_repeated = canonical(structured), True
    room = max(0, (MAX_READ if is_read else MAX_EFFECT) - used)
    size = 0 if structured is None else len(to_json(structured))
    # A small one first: it may have the id of an effect, under a long text.
    is_kept = size <= room // 2 or size + len(to_json(whole)) <= room
    room -= size if is_kept else 0
    text = _beginning(whole, room)
    room -= len(to_json(text))
    parts, found = list[Part](), [part for content in result.content if (part := _part(content))]
    for part in found:
        data = part.data or ""
        if len(data) > min(MAX_DATA, room):
            part = part.model_copy(update={"data": None, "left_out": len(data)})
        room -= len(part.model_dump_json()) + 1
        if room < 0:
            break
        parts.append(part)
    left_out = {
        "left_out": len(whole) - len(text),
        "parts_left_out": len(found) - len(parts),
        "structured_left_out": 0 if is_kept or is_repeated else size,
    }
    is_whole = has_layout and not any(left_out.values()) and (result.content or structured is None)
    layout, meta = _layout(result) if is_whole else None, None if is_read or not has_layout else _meta(result)
    if layout is not None and (room := room - len(to_json(layout))) < 0:
        layout = None
    if meta is not None and len(to_json(meta)) > room:
        meta = None
    return ToolAnswer(
        text=text, structured=structured if is_kept else None, parts=parts, layout=layout, meta=meta, **left_out
    )


REST = "replan_content"
"""The field of a structured result with what the server sent beside it, as a ToolAnswer."""


def with_rest(
    result: CallToolResult, value: JsonValue, size: int, *, is_read: bool, has_layout: bool = False
) -> JsonValue:
    """The structured result `value` of `size` bytes, with the content that does not just repeat it, in `REST`."""
    texts = _texts_of(value)
    rest = [block for block in result.content if not _repeats(block, texts)]
    said = result.model_copy(update={"content": rest, "structured_content": None})
    answer = answer_of(said, is_read=is_read, has_layout=has_layout, used=size)
    most = MAX_BYTES if is_read else MAX_TYPED_EFFECT
    if not (rest or answer.meta) or not isinstance(value, dict) or REST in value or most - SLACK < size:
        return value
    return {**value, REST: answer.model_dump(mode="json")}


def json_of(value: Any) -> bytes:
    """A value of a server as JSON, which has no NaN and no infinity; Python's parsers take them all the same."""
    return to_json(value, inf_nan_mode="null")


def _texts_of(structured: JsonValue) -> set[str]:
    """The texts that only repeat structured content: of it whole, of a field, of an item that an SDK put into `result`.

    A field that is true is also said by its name, such as "done".
    """
    values = [structured]
    if isinstance(structured, dict):
        values += [*structured.values(), *(name for name, value in structured.items() if value is True)]
        if [*structured] == ["result"] and isinstance(items := structured["result"], list):
            values += items
    return {*map(canonical, values), *(value for value in values if isinstance(value, str))}


def _repeats(block: Any, texts: Collection[str]) -> bool:
    """Whether a block is only one of these texts, or the same JSON."""
    if not texts or not isinstance(block, TextContent):
        return False
    if block.text in texts:
        return True
    try:
        return canonical(from_json(block.text)) in texts
    except ValueError:
        return False


def _is_repeated(result: CallToolResult, structured: JsonValue) -> bool:
    texts = [] if structured is None else [canonical(structured)]
    return any(_repeats(block, texts) for block in result.content)


def _meta(result: CallToolResult) -> dict[str, JsonValue] | None:
    """What a server sent as `_meta`, without what the protocol itself has there."""
    sent = {
        name: value for name, value in (result.meta or {}).items() if not name.startswith("io.modelcontextprotocol/")
    }
    found: dict[str, JsonValue] | None = from_json(json_of(sent)) if sent else None
    return found


def _layout(result: CallToolResult) -> list[Block] | None:
    """The blocks of a result in the server's order; None if this order is one text, then all parts."""
    blocks, parts = list[Block](), 0
    for content in result.content:
        part = parts if _part(content) else None
        parts += 0 if part is None else 1
        text = _text_of_block(content)
        blocks.append(Block(text=None if text is None else len(text), part=part, more=_more(content)))
    whole = len(text_of(result))
    plain = [Block(text=whole)] if whole or not parts else []
    return None if blocks == [*plain, *(Block(part=index) for index in range(parts))] else blocks


def _more(content: BaseModel) -> dict[str, JsonValue]:
    """The fields of a block that `text` and `parts` do not have."""
    sent = content.model_dump(mode="json", by_alias=True, exclude_none=True)
    more = {name: value for name, value in sent.items() if name not in _KNOWN and name != "resource"}
    resource = {name: value for name, value in (sent.get("resource") or {}).items() if name not in _KNOWN}
    return {**more, **({"resource": resource} if resource else {})}


_KNOWN = frozenset({"type", "text", "data", "blob", "mimeType", "uri", "name"})
"""The fields of a block that `text` and `parts` have."""


def _text_of_block(content: Any) -> str | None:
    if isinstance(content, TextContent):
        return content.text
    text = getattr(content.resource, "text", None) if isinstance(content, EmbeddedResource) else None
    return None if text is None else str(text)


def _beginning(text: str, most: int) -> str:
    """The longest beginning of a text that has at most `most` bytes as JSON."""
    text = text[:most]
    if len(to_json(text)) <= most:
        return text
    return text[: bisect_right(range(len(text)), most, key=lambda length: len(to_json(text[:length]))) - 1]


def text_of(result: CallToolResult) -> str:
    """All texts of a result, also those of the text resources in it."""
    found = [text for content in result.content if (text := _text_of_block(content)) is not None]
    return "\n".join(found).encode(errors="replace").decode()


def words_of(result: CallToolResult) -> str:
    """What a result says in words: its texts, and its structured content unless a text repeats it."""
    text, structured = text_of(result), from_json(json_of(result.structured_content))
    if structured is None or _is_repeated(result, structured):
        return text
    return "\n".join(filter(None, [text, canonical(structured)]))


def _part(content: Any) -> Part | None:
    """A block of content as a Part; None if the block is a text."""
    match content:
        case ImageContent() | AudioContent():
            return Part(type=content.type, mime_type=content.mime_type, data=content.data)
        case ResourceLink():
            return Part(type=content.type, mime_type=content.mime_type, uri=str(content.uri), name=content.name)
        case EmbeddedResource():
            resource = content.resource
            return Part(
                type=content.type,
                mime_type=resource.mime_type,
                uri=str(resource.uri),
                data=getattr(resource, "blob", None),
            )
    return None


class AnswerTexts:
    """Classifies the answers of one server by their texts: first by the tools file, then by `texts.toml`."""

    def __init__(
        self, own: Mapping[str, ErrorRow], server_name: str, checks_first: Collection[str] = frozenset()
    ) -> None:
        """`own` has the rows of the tools file, by text; `server_name` is the name that the server gives itself.

        `checks_first` are the tools that report an error only before they change anything.
        """
        self._checks_first = checks_first
        self._own = {text.casefold(): row for text, row in own.items()}
        self._known = [*_known().get(server_name, ()), *_known()["sdk"]]

    def fault(self, kind: str, tool: str, result: CallToolResult, *, is_read: bool = True) -> ToolError | None:
        """The exception for an answer that is a failure; None if the answer is a success.

        What a read returns may say of something else that it failed, so its shape is no failure of the read.
        """
        is_error = bool(result.is_error)
        text = words_of(result) if is_error else text_of(result)
        lowered, start = text.casefold(), text[:MAX_QUOTED]
        for wanted, row in self._own.items():
            begins = row.in_success and lowered.lstrip().startswith(wanted)
            if begins or (is_error and wanted in lowered):
                reason = f"{kind} answered with a text that its tools file has under errors."
                return tool_error(Code(row.code), reason, text, proves_none=row.applied == "none")
        for known in self._known:
            if known.holds(tool, start, is_error=is_error):
                reason = f"{kind} answered that it failed ({known.code})."
                return tool_error(known.code, reason, text, proves_none=known.applied == "none")
        if not is_error:
            if is_read or not _says_that_it_failed(result, text):
                return None
            return tool_error(
                Code.REFUSED, f"{kind} answered that it failed.", text, proves_none=tool in self._checks_first
            )
        is_before = tool in self._checks_first
        return tool_error(Code.REFUSED, f"{kind} answered with an error.", text, proves_none=is_before)


FAILED = {"status": ("error", "failed", "failure"), "success": (False,), "ok": (False,), "isError": (True,)}
"""Fields of a result that say that the call failed, with the values that say so."""
MESSAGES = frozenset({"error", "errors", "message", "detail", "reason"})
"""Fields one of which such a result has, too, to say why."""


def _says_that_it_failed(result: CallToolResult, text: str) -> bool:
    """Whether a result, though it is marked as a success, is an object that says that the call failed, and why."""
    value = result.structured_content
    if value is None and len(result.content) == 1 and text.lstrip().startswith("{"):
        try:
            value = from_json(text)
        except ValueError:
            return False
    if not isinstance(value, dict) or not MESSAGES & value.keys():
        return False
    # By type, too: 0 is no False.
    return any(
        type(value.get(name)) is type(one) and value[name] == one for name, said in FAILED.items() for one in said
    )


class KnownText(BaseModel):
    """A row of `texts.toml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    match: re.Pattern[str]
    code: Code
    applied: Literal["none", "unknown"]
    example: str
    tool: str = ""
    where: Literal["error", "success"] = Field(default="error", alias="in")
    observed: bool = True

    def holds(self, tool: str, text: str, *, is_error: bool) -> bool:
        """Whether the row applies to `text`, the answer of `tool`, which the server marks as an error if `is_error`."""
        is_about = (self.where == "error") is is_error and self.tool in ("", tool)
        return is_about and self.match.search(text) is not None


def tool_error(
    code: Code, reason: str, text: str = "", *, proves_none: bool, retry_after: float | None = None
) -> ToolError:
    """The exception for an answer that is a failure. With `proves_none`, the answer proves that the call had no effect.

    A server's `text` is untrusted, so it becomes `observed` and is not part of the reason. `retry_after` is in seconds.
    """
    observed: JsonValue = {"text": text[:MAX_QUOTED]} if text else None
    made = _CLASSES[QUADRANT[code]](reason, code=code.value, observed=observed, retry_after=retry_after)
    made.words = text[:MAX_QUOTED]
    return made if proves_none else unproven(made)


_CLASSES: Mapping[Any, type[ToolError]] = {chosen.quadrant: chosen for chosen in ToolError.__subclasses__()}


@cache
def _known() -> Mapping[str, Sequence[KnownText]]:
    """The rows of `texts.toml`, by the name that a server gives itself; `sdk` has the rows for all servers."""
    file = tomllib.loads(TEXTS.read_text(encoding="utf-8"))
    of_sdks = [row for rows in file.pop("sdk").values() for row in rows]
    return {name: [KnownText.model_validate(row) for row in rows] for name, rows in {**file, "sdk": of_sdks}.items()}
