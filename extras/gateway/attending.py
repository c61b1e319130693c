"""Asks the person at a client that was declared attended, through the client: elicitation, or `input_required`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog
from pydantic import TypeAdapter, ValidationError

from workflows.json_values import canonical
from workflows.text import legible

MAX_NAME, MAX_WORDS = 200, 4_000
"""The most characters of a person's name and of their words, as a task takes them."""
INPUT = "person"
"""The name of the input request in an `input_required` result."""
ANSWER, WORDS = "answer", "words"

log = structlog.get_logger("replan.gateway")
_State = TypeAdapter(tuple[str, str, str, str])


@dataclass(frozen=True)
class Elicitation:
    """A question that a client shows to its person."""

    about: str
    """The id of the task, or the key of the call, to which the answer belongs."""
    request: str
    """The id of the request of the task; empty for a call without a task."""
    code: str
    """The code of the call that is shown, which an approval of a task must repeat; empty if no call is shown."""
    message: str
    choices: Sequence[str]
    options: Sequence[str] = ()
    """Texts that may be written beside a choice, as examples."""

    @property
    def schema(self) -> dict[str, Any]:
        """The form of the answer, as JSON schema."""
        words: dict[str, Any] = {"type": "string", "title": "Reason, or reply", "maxLength": MAX_WORDS}
        if self.options:
            words["description"] = f"For example: {', '.join(self.options)}"
        answers = {"type": "string", "title": "Answer", "enum": [*self.choices]}
        return {"type": "object", "properties": {ANSWER: answers, WORDS: words}, "required": [ANSWER]}

    def as_result(self, request: str) -> dict[str, Any]:
        """The question as an `input_required` result of the protocol of 2026-07-28; `request` is that of the call."""
        params = {"mode": "form", "message": self.message, "requestedSchema": self.schema}
        asked = {"method": "elicitation/create", "params": params}
        state = canonical([self.about, self.request, self.code, request])
        return {"resultType": "input_required", "inputRequests": {INPUT: asked}, "requestState": state}


class ElicitationReply(NamedTuple):
    """What a person has chosen, and the words beside it."""

    choice: str
    words: str


def reply_of(result: Mapping[str, Any], choices: Sequence[str]) -> ElicitationReply | None:
    """The reply in a client's answer; None if the person gave none that can be used."""
    content = result.get("content") or {}
    chosen = content.get(ANSWER)
    if result.get("action") != "accept" or chosen not in choices:
        return None
    return ElicitationReply(str(chosen), str(content.get(WORDS) or "")[:MAX_WORDS].strip())


@dataclass(frozen=True)
class Person:
    """A person at a client, who may be asked."""

    context: Any
    """The SDK's context of the request that waits for the person."""
    client: str
    """What the client calls itself."""

    @classmethod
    def at(cls, context: Any) -> "Person | None":
        """The person whom the client of a request can ask; None if the client cannot ask anybody."""
        able = context.session.client_capabilities
        if able is None or able.elicitation is None:
            return None
        params = context.session.client_params
        return cls(context, params.client_info.name if params else "an MCP client")

    @property
    def name(self) -> str:
        """Who answers, as it is recorded."""
        return f"the user of {legible(self.client, MAX_NAME)}"[:MAX_NAME]

    @property
    def is_inline(self) -> bool:
        """Whether the client can answer while the call is under way; else the question becomes the call's result."""
        return bool(self.context.session.can_send_request)

    async def ask(self, asked: Elicitation) -> Mapping[str, Any]:
        """Show a question to the person, and return the client's answer; an empty one if the client cannot show it."""
        session, number = self.context.session, self.context.request_id
        try:
            said = await session.elicit_form(asked.message, asked.schema, related_request_id=number)
        except Exception as error:  # of whatever the client has sent: other people can still answer
            log.warning("gateway_answer_refused", task=asked.about, reason=f"{type(error).__name__}: {error}")
            return {}
        return said.model_dump()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class RequestState:
    """What a client sends back with an answer: the question to which it belongs."""

    about: str
    request: str
    code: str
    call: str
    """The id of the request whose call was asked about."""

    @classmethod
    def read(cls, text: str) -> "RequestState | None":
        """The state in a text of a client; None if it is invalid."""
        try:
            return cls(*_State.validate_json(text))
        except ValidationError:
            return None
