"""What a server answers: the result of a tool as plain data of bounded size, and the meaning of its errors."""

import tomllib
from collections.abc import Mapping
from functools import cache
from operator import not_
from pathlib import Path
from typing import Any

from mcp_types import AudioContent, CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from activities.errors import ToolError, unproven
from activities.toolbox.mcp.tools_file import ErrorRow
from workflows.faults.fault import QUADRANT, Code

MAX_READ_TEXT, MAX_EFFECT_TEXT = 700_000, 24_000
"""Characters of the text of a result: of a read, and of a tool with an effect, whose result stays in history."""
MAX_DATA = 256 * 1024
"""Characters of an image or a sound, which is base64; a larger one is left out, and its size is said."""
MAX_TOLD = 2_000
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


class ToolAnswer(BaseModel):
    """The result of a foreign tool that declares no form of its results."""

    model_config = ConfigDict(extra="ignore")

    text: str = ""
    parts: list[Part] = Field(default_factory=list, exclude_if=not_)
    left_out: int = Field(default=0, exclude_if=not_)
    """The characters of text that are left out at the end, since they are too many."""


def answer_of(result: CallToolResult, *, is_read: bool) -> ToolAnswer:
    """A result as text and parts, cut to what a result may have."""
    text, most = text_of(result), MAX_READ_TEXT if is_read else MAX_EFFECT_TEXT
    parts, room = list[Part](), most - min(len(text), most)
    for content in result.content:
        if (part := _part(content)) is None:
            continue
        data, room_here = part.data or "", min(MAX_DATA, room)
        if len(data) > room_here:
            part = part.model_copy(update={"data": None, "left_out": len(data)})
        room -= len(part.data or "") + 200
        if room < 0:
            break
        parts.append(part)
    return ToolAnswer(text=text[:most], parts=parts, left_out=max(0, len(text) - most))


def text_of(result: CallToolResult) -> str:
    """All texts of a result, also those of the text resources in it."""
    found = list[str]()
    for content in result.content:
        if isinstance(content, TextContent):
            found.append(content.text)
        elif isinstance(content, EmbeddedResource) and (text := getattr(content.resource, "text", None)) is not None:
            found.append(str(text))
    return "\n".join(found).encode(errors="replace").decode()


def _part(content: Any) -> Part | None:
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
    """What the texts of one server's answers mean: the rows of the tools file, then those that Replan knows."""

    def __init__(self, own: Mapping[str, ErrorRow], server_name: str) -> None:
        """`server_name` is what the server calls itself."""
        known = _known().get(server_name, {})
        self._rows = list({**dict(own), **{text: row for text, row in known.items() if text not in own}}.items())

    def fault(self, tool: str, result: CallToolResult) -> ToolError | None:
        """The error that an answer is; None if it is a success."""
        text = text_of(result)
        row = self._row(text, is_error=bool(result.is_error))
        if row is not None:
            reason = f"{tool} answered with an error that the tools file knows."
            return tool_error(Code(row.code), reason, text, proves_none=row.applied == "none")
        if not result.is_error:
            return None
        return tool_error(Code.REFUSED, f"{tool} answered with an error.", text, proves_none=False)

    def _row(self, text: str, *, is_error: bool) -> ErrorRow | None:
        lowered = text.casefold().lstrip()
        for wanted, row in self._rows:
            begins = row.in_success and lowered.startswith(wanted.casefold())
            if begins or (is_error and wanted.casefold() in lowered):
                return row
        return None


def tool_error(
    code: Code, reason: str, text: str = "", *, proves_none: bool, retry_after: float | None = None
) -> ToolError:
    """The exception for an answer. What a server wrote is untrusted: it is shown as observed, and is no reason."""
    observed: JsonValue = {"text": text[:MAX_TOLD]} if text else None
    made = _CLASSES[QUADRANT[code]](reason, code=code.value, observed=observed, retry_after=retry_after)
    return made if proves_none else unproven(made)


_CLASSES: Mapping[Any, type[ToolError]] = {chosen.quadrant: chosen for chosen in ToolError.__subclasses__()}


@cache
def _known() -> Mapping[str, Mapping[str, ErrorRow]]:
    """By the name that a server gives to itself, the rows of `texts.toml`."""
    file = tomllib.loads(TEXTS.read_text(encoding="utf-8"))
    found = dict[str, dict[str, ErrorRow]]()
    for server in file.values():
        rows = {text: ErrorRow.model_validate(row) for text, row in server["errors"].items()}
        found |= dict.fromkeys(server["names"], rows)
    return found
