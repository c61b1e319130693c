"""A model API on loopback: it follows a script, and answers 400 if a request breaks the provider's rules."""

import asyncio
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types

from evals.fakes.http_server import reply
from evals.fakes.script import (
    Delayed,
    ModelError,
    ModelReply,
    RawBytes,
    ReceivedRequest,
    Response,
    ScriptedResponse,
    Streamed,
)

NAME = re.compile("[A-Za-z0-9_.-]{1,64}")
"""The names of properties that every provider accepts."""
KEY = "sk-planted-0123456789abcdef"
MODEL = "some-model"
Json = dict[str, Any]
CHARACTERS_PER_TOKEN = 4
KEEP_ALIVE = 0.2
"""Seconds between two comments that keep a connection alive."""


@dataclass
class ModelApi(ABC):
    """Answers the n-th request with the n-th response of the script, and further requests with its final response."""

    script: list[ScriptedResponse]
    key: str = KEY
    model: str = MODEL
    url: str = ""
    window: int | None = None
    """The model's context window in tokens; a longer request fails. With None, no request is too long, and the reported
    usage is always the same."""
    repeats_ids: bool = False
    """Whether each reply uses the same call ids again, as some compatible servers do."""
    is_lax: bool = False
    """Whether the scripted model may call tools even if the request forbids it, as some compatible servers do."""
    hides_usage: bool = False
    """Whether replies come without `usage`, as from some compatible servers."""
    billed: int = 0
    """The tokens of all requests with a reply, as the server counts them."""
    bodies: list[Json] = field(default_factory=list)
    """The JSON of every request, valid or not."""
    times: list[float] = field(default_factory=list)
    """When each request arrived, in seconds of the monotonic clock."""
    violations: list[str] = field(default_factory=list)
    """Every rule that a request broke, and every mistake of the script."""
    aborted: int = 0
    """How many clients closed the connection before they got their answer."""
    too_long: int = 0
    """How many requests were larger than the window."""
    offered: set[str] = field(default_factory=set)
    """The names of all tools that the requests so far have offered."""
    fields: set[str] = field(default_factory=set)
    """The top-level fields that a request may have."""

    path: ClassVar[str]

    @abstractmethod
    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """Whether the request carries the API key."""

    @abstractmethod
    def broken_rules(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        """Yield the provider's own rules that a request breaks, a sentence each; `answer` checks the common rules."""

    @abstractmethod
    def schemas(self, body: Json) -> Mapping[str, Json]:
        """The JSON schema of each offered tool, by its name."""

    @abstractmethod
    def reply_body(self, reply: ModelReply) -> Json:
        """The JSON of a reply, as the provider's API would send it."""

    @abstractmethod
    def events(self, body: Json) -> Iterator[Json]:
        """The events of a stream, for a reply with this JSON."""

    @abstractmethod
    def error_body(self, error: ModelError) -> Json:
        """The JSON of an error, as the provider's API would send it."""

    @abstractmethod
    def wrong_key(self) -> ModelError:
        """The answer to a request with a wrong key."""

    @abstractmethod
    def unknown_model(self, model: str) -> ModelError:
        """The answer to a request for a model that does not exist."""

    @abstractmethod
    def window_exceeded(self, tokens: int, window: int) -> ModelError:
        """The answer to a request that is larger than the window."""

    @abstractmethod
    def read(self, body: Json) -> ReceivedRequest:
        """Read a valid request into the form that is the same for every provider."""

    @property
    def requests(self) -> list[ReceivedRequest]:
        """All requests so far, in the same form for every provider. Raises an exception if one breaks the rules."""
        return [self.read(body) for body in self.bodies]

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        """The script's next response, or the provider's error if the request breaks the provider's rules."""
        if not self.is_authorized(headers):
            return self.wrong_key()
        found = [f"POST {path}"] if path != self.path else []
        found += unknown_fields("body", body, self.fields)
        found += [f"model: {body.get('model')}"] if body.get("model") != self.model else []
        found += [*self.broken_rules(body, headers), *self.schema_mistakes(body)]
        found += [] if found else self._unknown_calls(self.read(body))
        self.violations += found
        if body.get("model") != self.model:
            return self.unknown_model(str(body.get("model")))
        if found:
            return ModelError(400, "invalid_request_error", "; ".join(found), headers={"x-should-retry": "false"})
        if self.window is not None and self.tokens(body) > self.window:
            self.too_long += 1
            return self.window_exceeded(self.tokens(body), self.window)
        return self._next(self.read(body))

    def tokens(self, body: Json) -> int:
        """An estimate of the tokens of a request."""
        counted = {name: body[name] for name in ("system", "messages", "tools") if name in body}
        return len(json.dumps(counted, ensure_ascii=False)) // CHARACTERS_PER_TOKEN

    def usage(self, reply: ModelReply) -> tuple[int, int]:
        """How many tokens the newest request and its reply have; always (123, 7) without a `window`."""
        if self.window is None:
            return 123, 7
        written = "".join([reply.text, reply.thinking, *(str(call.args) for call in reply.calls)])
        return self.tokens(self.bodies[-1]), max(1, len(written) // CHARACTERS_PER_TOKEN)

    def call_id(self, prefix: str, index: int) -> str:
        """The id of the call at `index` in the reply to the newest request."""
        return f"{prefix}_{index}" if self.repeats_ids else f"{prefix}_{len(self.bodies)}_{index}"

    def _next(self, request: ReceivedRequest) -> Response:
        scripted = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        try:
            response = scripted(request) if callable(scripted) else scripted
        except Exception as error:  # a failed assertion of a scripted model must not look like a broken connection
            self.violations.append(f"the scripted model: {error!r}")
            return ModelError(400, "invalid_request_error", "the script failed")
        if _has_calls(response) and not (request.may_call or self.is_lax):
            self.violations.append("the scripted model calls although it may not")
        return response

    def _unknown_calls(self, request: ReceivedRequest) -> Iterator[str]:
        """Mistakes: calls in the conversation whose tools an earlier request offered, but not this request.

        A call with a name that the model made up is no mistake, because no request offered this tool.
        """
        if request.calls and not request.tools:
            yield "tools: Requests which include `tool_use` or `tool_result` blocks must define tools"
        self.offered |= {*request.tools}
        # Replan's own rule: a model that sees a call which it cannot make any more tends to make it again.
        for name in sorted(({call.name for call in request.calls} & self.offered) - {*request.tools}):
            yield f"tools: {name} was called before and is not offered any more"

    def schema_mistakes(self, body: Json) -> Iterator[str]:
        """The mistakes in the JSON schemas of the offered tools, a sentence each."""
        for name, schema in self.schemas(body).items():
            if schema.get("type") != "object" or {"anyOf", "oneOf", "allOf", "enum", "not"} & schema.keys():
                yield f"tool {name}: its schema is no plain object"
            mistakes = Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema)
            yield from (f"tool {name}: {wrong.message}" for wrong in mistakes)
            yield from (f"tool {name}: property {key!r}" for key in _properties(schema) if not NAME.fullmatch(key))


def _has_calls(response: Response) -> bool:
    while isinstance(response, Delayed):
        response = response.then
    reply = response.reply if isinstance(response, Streamed) else response
    return isinstance(reply, ModelReply) and bool(reply.calls)


def _properties(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _properties(item)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for item in schema.values():
            yield from _properties(item)


def unknown_fields(what: str, body: Mapping[str, Any], known: Iterable[str]) -> Iterator[str]:
    """Mistakes: fields of `body` that are not among the `known` fields; `what` names the object in each sentence."""
    for name in sorted(body.keys() - set(known)):
        yield f"{what}.{name}: Extra inputs are not permitted"


@asynccontextmanager
async def running(api: ModelApi) -> AsyncIterator[ModelApi]:
    """Serve `api` on loopback, at `api.url`."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await _answer_request(api, reader, writer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**22)
    async with server:
        api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield api


async def _answer_request(api: ModelApi, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
    api.bodies.append(body)
    api.times.append(time.monotonic())
    response = api.answer(first.split()[1], headers, body)
    while isinstance(response, Delayed):
        with suppress(TimeoutError):
            async with asyncio.timeout(response.seconds):
                await reader.read()  # returns only when the client closes the connection
                api.aborted += 1
                return
        response = response.then
    if isinstance(response, ModelReply) and body.get("stream"):
        response = Streamed(response)
    if isinstance(response, Streamed):
        await _stream(api, response, reader, writer)
    else:
        writer.write(_bytes(api, response))
        await writer.drain()


def _bytes(api: ModelApi, response: ModelReply | ModelError | RawBytes) -> bytes:
    if isinstance(response, RawBytes):
        return response.sent
    if isinstance(response, ModelReply):
        status, body = 200, _billed_body(api, response)
    else:
        status, body = response.status, api.error_body(response)
    return json_answer(status, json.dumps(body).encode(), **response.headers)


def _billed_body(api: ModelApi, reply: ModelReply) -> Json:
    """Add the tokens of a reply to `api.billed`, and return the JSON of the reply."""
    body = api.reply_body(reply)
    api.billed += sum(api.usage(reply))
    if api.hides_usage:
        del body["usage"]
    return body


async def _stream(
    api: ModelApi, response: Streamed, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    events = [event_bytes(event) for event in api.events(_billed_body(api, response.reply))][: response.events]
    head = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked", "connection": "close"}
    lines = [f"{name}: {value}" for name, value in {**head, **response.reply.headers}.items()]
    writer.write("\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode())
    leaving = asyncio.create_task(reader.read())  # returns only when the client closes the connection

    async def rest(seconds: float | None) -> bool:
        """Wait so many seconds, or with None for ever; return whether the client is still connected."""
        ends = None if seconds is None else time.monotonic() + seconds
        while not leaving.done() and (ends is None or time.monotonic() < ends):
            left = KEEP_ALIVE if ends is None else max(0.0, ends - time.monotonic())
            await asyncio.wait([leaving], timeout=min(KEEP_ALIVE, left))
            if response.keeps_alive:
                writer.write(_chunk(b": keep-alive\n\n"))
        return not leaving.done()

    try:
        for index, event in enumerate(events):
            pause = response.pause + (response.pause_before_words if index == 1 else 0)
            if pause and not await rest(pause):
                break
            writer.write(_chunk(event))
            await writer.drain()
        if response.then == "stall":
            await rest(None)
        elif isinstance(response.then, bytes):
            writer.write(_chunk(response.then))
        if response.then not in ("drop", "stall") and not leaving.done():
            writer.write(b"0\r\n\r\n")
        await writer.drain()
    finally:
        api.aborted += 1 if leaving.done() else 0
        leaving.cancel()


def _chunk(part: bytes) -> bytes:
    return f"{len(part):x}\r\n".encode() + part + b"\r\n" if part else b""


def event_bytes(event: Json) -> bytes:
    """An event of a stream as its bytes; an event without fields stands for `[DONE]`."""
    named = f"event: {event['type']}\n" if "type" in event else ""
    return f"{named}data: {json.dumps(event) if event else '[DONE]'}\n\n".encode()


def parts(text: str, size: int = 8) -> list[str]:
    """Split a text into the parts of `size` characters in which a stream sends it."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def json_answer(status: int, body: bytes, **headers: str) -> bytes:
    """A complete HTTP answer with the content type of JSON, even if `body` is something else."""
    return reply(status, body, **{"content-type": "application/json", **headers})
