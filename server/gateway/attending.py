"""Asks the person at a client that was declared attended, through the client: elicitation, or `input_required`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import JsonValue, TypeAdapter, ValidationError
from temporalio.service import RPCError

from client.client import TaskHandle
from client.problem import Problem
from client.text import one_line, printable
from workflows.json_values import canonical
from workflows.people.card import Fact, value_words
from workflows.people.requests import CHOICES, MAX_NAME, MAX_WORDS, Choice, HumanRequest
from workflows.text import shorten

INPUT = "person"
"""The name of the input request in an `input_required` result."""
MAX_SHOWN = 4_000
"""The most characters of one fact in a question."""
ANSWER, WORDS = "answer", "words"
_State = TypeAdapter(tuple[str, str, str])

log = structlog.get_logger("replan.gateway")


@dataclass(frozen=True)
class Question:
    """A question that a client shows to its person, with the request of a task to which the answer belongs."""

    task_id: str
    request: str
    """The id of the request of the task."""
    call: str
    """The code of the call that is shown, which an approval must repeat; empty if no call is shown."""
    message: str
    schema: dict[str, Any]

    @property
    def state(self) -> str:
        """The text that the client sends back with the answer, for `read_state`."""
        return canonical([self.task_id, self.request, self.call])

    @property
    def as_result(self) -> dict[str, Any]:
        """The question as an `input_required` result of the protocol of 2026-07-28."""
        params = {"mode": "form", "message": self.message, "requestedSchema": self.schema}
        asked = {"method": "elicitation/create", "params": params}
        return {"resultType": "input_required", "inputRequests": {INPUT: asked}, "requestState": self.state}


def question_of(task_id: str, request: HumanRequest, known: Sequence[Fact], before: str = "") -> Question | None:
    """The question for a request: the text `before`, the facts `known`, the choices; None if no form can answer it."""
    choices = [choice for choice in request.choices if _is_simple(choice)]
    call = request.call
    if not choices or (call is None and any(CHOICES[choice].needs_code for choice in choices)):
        return None
    lines = [*filter(None, [before]), *(_fact_line(fact) for fact in known)]
    lines += [f"{choice.value}: {CHOICES[choice].sentence}" for choice in choices]
    words: dict[str, Any] = {"type": "string", "title": "Reason, or reply", "maxLength": MAX_WORDS}
    if request.options:
        words["description"] = f"For example: {', '.join(request.options)}"
    answers = {"type": "string", "title": "Answer", "enum": [choice.value for choice in choices]}
    properties = {ANSWER: answers, WORDS: words}
    schema = {"type": "object", "properties": properties, "required": [ANSWER]}
    return Question(task_id, request.id, call.code if call else "", "\n".join(map(printable, lines)), schema)


def _fact_line(fact: Fact) -> str:
    origin = f" ({fact.origin_words})" if fact.origin else ""
    return f"{fact.about}: {shorten(value_words(fact.text), MAX_SHOWN)}{origin}"


def _is_simple(choice: Choice) -> bool:
    """Whether an answer with this choice needs at most a text beside the choice."""
    return choice is not Choice.APPROVE_ALL and (choice is Choice.REPLY or not CHOICES[choice].needs_option)


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
        told = context.session.client_params
        return cls(context, told.client_info.name if told else "an MCP client")

    @property
    def is_inline(self) -> bool:
        """Whether the client can answer while the call is under way; else the question becomes the call's result."""
        return bool(self.context.session.can_send_request)

    async def ask(self, handle: TaskHandle, asked: Question) -> None:
        """Show a question to the person, and pass the answer, if there is one, on to the task."""
        session, number = self.context.session, self.context.request_id
        said = await session.elicit_form(asked.message, asked.schema, related_request_id=number)
        await answer(handle, asked.request, asked.call, said.model_dump(), self.client)


async def question(handle: TaskHandle, before: str = "") -> Question | None:
    """The question for a task's first open request, after the text `before`; None if no form can answer it."""
    requests = await handle.requests()
    return question_of(handle.id, requests[0], await handle.facts(requests[0]), before) if requests else None


def read_state(state: str) -> tuple[str, str, str] | None:
    """The task id, request id and call code in the state that a client sent back; None if the state is invalid."""
    try:
        return _State.validate_json(state)
    except ValidationError:
        return None


async def answer(handle: TaskHandle, request: str, call: str, result: Mapping[str, Any], client: str) -> str | None:
    """Pass a person's answer on to a request of a task; `result` is the reply of the client named `client`.

    `call` is the code of the call in the question, empty without a call. Returns why the answer was refused; None if it
    was accepted, or if the person gave no usable answer.
    """
    content = result.get("content") or {}
    chosen = content.get(ANSWER)
    if result.get("action") != "accept" or chosen not in [*filter(_is_simple, Choice)]:
        return None
    choice, values = Choice(chosen), dict[str, JsonValue]()
    if call and CHOICES[choice].needs_code:
        values["call"] = call
    words = str(content.get(WORDS) or "")[:MAX_WORDS].strip()
    field = next((option.name for option in CHOICES[choice].options if option.type == "text"), None)
    if field and words:
        values[field] = words
    by = f"the user of {one_line(client)}"[:MAX_NAME]
    try:
        await handle.answer(choice, request=request, by=by, **values)
    except (Problem, RPCError) as error:  # another person was faster, or the task waits for somebody else
        log.warning("gateway_answer_refused", task=handle.id, reason=str(error))
        return str(error)
    return None
