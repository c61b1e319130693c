"""OpenAI's models: which API a model takes, Responses or Chat Completions, and the fallback from one to the other."""

from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

import structlog

from activities.providers.adapter import AdapterOptions, Endpoint
from activities.providers.chat_completions import ChatCompletions
from activities.providers.messages import Reply, Request
from activities.providers.metering import current_reply
from activities.providers.prices import of_model
from activities.providers.responses import Responses

log = structlog.get_logger("replan.model")

DEFAULT_MODEL = "gpt-5.4-mini"
HOST = "api.openai.com"
"""Only here models get strict schemas: compatible servers ignore `strict`, or reject it as an extra field, such as vLLM
(https://github.com/run-llama/llama_index/issues/19121) or RouteLLM (https://github.com/earendil-works/pi/issues/1172)."""


class Wire(StrEnum):
    """An API of OpenAI's."""

    RESPONSES = "responses"
    CHAT_COMPLETIONS = "chat_completions"


class WireRow(NamedTuple):
    """The API that is used for some models at OpenAI's own address."""

    models: tuple[str, ...]
    """Patterns of their names, as of files: `*` is any text, `[4-9]` is one of these digits."""
    wire: Wire
    is_reasoning: bool
    """Whether these models reason, so that Responses can send their reasoning."""
    sources: tuple[str, ...]


DOCS = "https://developers.openai.com/api/docs"
# Responses is recommended for all models, and keeps the reasoning of those that reason.
MIGRATE = f"{DOCS}/guides/migrate-to-responses"
WIRES: Sequence[WireRow] = (
    # "v1/responses: not supported", and "is not supported with the Responses API".
    WireRow(
        ("gpt-audio*", "gpt-4o-*audio*", "gpt-4o-*search*"),
        Wire.CHAT_COMPLETIONS,
        False,
        (f"{DOCS}/models/gpt-audio-mini", "https://github.com/Laisky/one-api/issues/88"),
    ),
    # They reject a request for encrypted reasoning.
    WireRow(
        ("gpt-4o*", "gpt-4.1*"), Wire.RESPONSES, False, (MIGRATE, "https://github.com/pydantic/pydantic-ai/pull/2867")
    ),
    WireRow(
        ("gpt-5", "gpt-5-20*", "gpt-5-mini*", "gpt-5-nano*", "gpt-5-pro*", "gpt-5-codex*", "gpt-5.[1-3]*"),
        Wire.RESPONSES,
        True,
        (MIGRATE,),
    ),
    WireRow(("o[134]", "o[134]-*"), Wire.RESPONSES, True, (MIGRATE,)),
    # Chat Completions takes no tools from them unless the reasoning effort is `none`.
    WireRow(("gpt-5.[4-9]*",), Wire.RESPONSES, True, ("https://github.com/openai/openai-openapi/issues/541",)),
    # "Use the Responses API for reasoning with tools."
    WireRow(("gpt-6*",), Wire.RESPONSES, True, (f"{DOCS}/guides/deployment-checklist",)),
)
"""The first row that matches a model's name decides. A model without a row takes Responses first, and Chat Completions
if OpenAI's answer is one of NO_RESPONSES."""
NO_RESPONSES = ("is not supported with the responses api", "encrypted content is not supported with this model")
"""Parts of the message of a 400 or 404 to a model that takes no Responses, or that does not reason. The sources:
https://github.com/Laisky/one-api/issues/88 and https://github.com/pydantic/pydantic-ai/pull/2867."""


class OpenAIModel:
    """A model of OpenAI, or of another server with OpenAI's API."""

    def __init__(self, model: str, endpoint: Endpoint, options: AdapterOptions | None = None) -> None:
        self._options = options or AdapterOptions()
        self.name = name = endpoint.model_name("openai", model)
        row = row_of(model)
        chosen = of_model(self._options.wires, name)
        usual = (row.wire if row else Wire.RESPONSES) if endpoint.is_at(HOST) else Wire.CHAT_COMPLETIONS
        self._wire = Wire(chosen) if chosen else usual
        self._may_fall_back = not chosen and row is None
        effort = of_model(self._options.efforts, name)
        is_reasoning = row.is_reasoning if row else None
        self._chat = ChatCompletions(model, endpoint, effort, is_reasoning=is_reasoning, options=self._options)
        self._responses = Responses(model, endpoint, effort, is_reasoning=row.is_reasoning if row else True)

    @property
    def apis(self) -> str:
        """The name of the API that is used for the model; two names if a rejection leads to the second API."""
        if self._takes_chat:
            return "Chat Completions"
        return "Responses or Chat Completions" if self._may_fall_back else "Responses"

    @property
    def _takes_chat(self) -> bool:
        return self._wire is Wire.CHAT_COMPLETIONS or self.name in self._options.without_responses

    async def reply(self, request: Request) -> Reply:
        """Send one request to the model and return its reply, as `ModelAdapter.reply` does.

        If OpenAI rejects the model in Responses, the request is sent again to Chat Completions, and so are all later
        requests of this model.
        """
        if self._takes_chat:
            return await self._chat.reply(request)
        try:
            return await self._responses.reply(request)
        except Exception as error:
            if not (self._may_fall_back and _takes_no_responses(error)):
                raise
        self._options.without_responses.add(self.name)
        log.warning("no_responses", model=self.name, remedy="set its wire in the settings file to save this request")
        current_reply().rejected += 1
        return await self._chat.reply(request)


def row_of(model: str) -> WireRow | None:
    """The first row of WIRES that matches the name of a model; None if no row matches."""
    return next((row for row in WIRES if any(fnmatchcase(model, pattern) for pattern in row.models)), None)


def takes_effort(model: str) -> bool:
    """Whether a model has reasoning efforts at OpenAI's own address; True for an unknown model, which may reason."""
    row = row_of(model)
    return row is None or row.is_reasoning


def _takes_no_responses(error: Exception) -> bool:
    message = str(getattr(error, "message", "")).lower()
    return getattr(error, "status_code", 0) in (400, 404) and any(phrase in message for phrase in NO_RESPONSES)
