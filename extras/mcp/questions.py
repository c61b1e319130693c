"""The questions that a server asks before or during a call, and the answers of a person."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    Root,
)

from extras.mcp.schema import ANSWERS
from workflows.text import legible

MAX_MESSAGE = 300
"""The most characters of a server's words that a person sees."""
ONLY_ONE = "form"
"""The name for a question that has no name of its own, as in the older protocol."""


@dataclass(frozen=True)
class ServerQuestion:
    """A question of a server that a person must answer before a call goes on."""

    message: str
    """The server's words, which are untrusted."""
    fields: Mapping[str, str]
    """The fields of its form, each with its type."""
    name: str = ONLY_ONE

    def sentence(self, kind: str) -> str:
        """The message for the person who must answer; `kind` is the kind of the call."""
        words = legible(self.message, MAX_MESSAGE)
        form = {field: f"({type})" for field, type in self.fields.items()}
        answer = json.dumps({ANSWERS: {self.name: form}}, ensure_ascii=False)
        return (
            f"{kind} asks something before it goes on. The server's words: {words!r}. Answer it by an edit of the call,"
            f" with the arguments {legible(answer, 2 * MAX_MESSAGE)}, or reject the call."
        )

    def refusal(self, name: str) -> str:
        """The error message for a program that made the request `name` outside a task."""
        words = legible(self.message, MAX_MESSAGE)
        return (
            f"{name} asks something before it goes on, and only a task can ask a person: make the call in a task."
            f" The server's words: {words!r}."
        )


def of(params: ElicitRequestParams, name: str = ONLY_ONE) -> ServerQuestion:
    """Make the ServerQuestion of a server's request; `name` is the name of the question."""
    if not isinstance(params, ElicitRequestFormParams):
        return ServerQuestion(f"{params.message} (at {getattr(params, 'url', 'an address')})", {}, name)
    properties = params.requested_schema.get("properties", {})
    fields = {field: str(part.get("type", "any")) for field, part in properties.items()}
    return ServerQuestion(params.message, fields, name)


def elicited(params: ElicitRequestParams, answers: Mapping[str, Any], name: str = ONLY_ONE) -> ElicitResult | None:
    """The result that answers the question `name` of a server; None if `answers` (of a person) has no answer to it."""
    content = answers.get(name)
    if not isinstance(content, dict):
        return None
    return ElicitResult(action="accept", content=content if isinstance(params, ElicitRequestFormParams) else None)


def answered(
    asked: InputRequiredResult, answers: Mapping[str, Any], roots: Sequence[str]
) -> tuple[dict[str, Any], ServerQuestion | None]:
    """The responses to what a server asks for, by name; or none, and the first question that `answers` lacks."""
    responses = dict[str, Any]()
    for name, request in (asked.input_requests or {}).items():
        match request:
            case ElicitRequest(params=params):
                if (answer := elicited(params, answers, name)) is None:
                    return {}, of(params, name)
                responses[name] = answer
            case ListRootsRequest():
                responses[name] = ListRootsResult(roots=[Root(uri=Path(root).as_uri()) for root in roots])
            case _:
                return {}, ServerQuestion("it wants to ask a model, which Replan refuses", {}, name)
    return responses, None
