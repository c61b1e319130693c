"""A model API on loopback that plays a script and holds every request to its provider's rules."""

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types

from tests.providers.heard import Heard
from tests.providers.script import Fails, Move, Raw, Says, Scripted, Slow

KEY = "sk-planted-0123456789abcdef"
MODEL = "some-model"
Json = dict[str, Any]
CHARACTERS = 4
"""Of the request's JSON, for one token."""


@dataclass
class ModelApi(ABC):
    """A server that answers the n-th move to the n-th request, and the last one again and again."""

    script: list[Scripted]
    key: str = KEY
    model: str = MODEL
    url: str = ""
    window: int | None = None
    """Tokens that the model can be told at once; what a request has is then what the usage says."""
    repeats_ids: bool = False
    """Whether each reply numbers its calls anew, as some compatible servers do."""
    is_lax: bool = False
    """Whether the model may call although the request says that it may not, as with some compatible servers."""
    bodies: list[Json] = field(default_factory=list)
    """What was asked, well-formed or not."""
    times: list[float] = field(default_factory=list)
    """When, by a clock that only goes forward."""
    violations: list[str] = field(default_factory=list)
    """Every rule that a request broke, and what a script did that no model does."""
    aborted: int = 0
    """Requests whose client went away before the answer."""
    too_long: int = 0
    """Requests that the window does not hold."""
    once: set[str] = field(default_factory=set)
    """Names of all tools that were ever offered."""

    fields: set[str] = field(default_factory=set)
    """What a request may have."""

    path: ClassVar[str]

    @abstractmethod
    def authorized(self, headers: Mapping[str, str]) -> bool:
        """Whether the key is right."""

    @abstractmethod
    def wrong(self, body: Json, headers: Mapping[str, str]) -> Iterator[str]:
        """The rules that a request breaks."""

    @abstractmethod
    def schemas(self, body: Json) -> Mapping[str, Json]:
        """The schema of each tool that is offered."""

    @abstractmethod
    def reply(self, said: Says) -> Json:
        """A reply in the provider's shape."""

    @abstractmethod
    def error(self, failed: Fails) -> Json:
        """An error in the provider's shape."""

    @abstractmethod
    def refused(self) -> Fails:
        """What a wrong key gets."""

    @abstractmethod
    def no_model(self, model: str) -> Fails:
        """What a model gets that is not there."""

    @abstractmethod
    def overlong(self, tokens: int, window: int) -> Fails:
        """What a request gets that the window does not hold."""

    @abstractmethod
    def heard(self, body: Json) -> Heard:
        """What a request by the rules tells the model."""

    @property
    def requests(self) -> list[Heard]:
        """What the model was told so far; of requests by the rules."""
        return [self.heard(body) for body in self.bodies]

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Move:
        """The move for a request, or what the provider says of a request that breaks its rules."""
        if not self.authorized(headers):
            return self.refused()
        found = [f"POST {path}"] if path != self.path else []
        found += self.wrong(body, headers)
        found += [] if found else self._unknown_calls(self.heard(body))
        self.violations += found
        if body.get("model") != self.model:
            return self.no_model(str(body.get("model")))
        if found:
            return Fails(400, "invalid_request_error", "; ".join(found), headers={"x-should-retry": "false"})
        if self.window is not None and self.tokens(body) > self.window:
            self.too_long += 1
            return self.overlong(self.tokens(body), self.window)
        return self._next(self.heard(body))

    def tokens(self, body: Json) -> int:
        """How many the request has, more or less."""
        told = {name: body[name] for name in ("system", "messages", "tools") if name in body}
        return len(json.dumps(told, ensure_ascii=False)) // CHARACTERS

    def used(self, said: Says) -> tuple[int, int]:
        """Tokens of the newest request and of its reply: by their length where there is a window, else always alike."""
        if self.window is None:
            return 123, 7
        written = "".join([said.text, said.thinking, *(str(call.args) for call in said.calls)])
        return self.tokens(self.bodies[-1]), max(1, len(written) // CHARACTERS)

    def id(self, prefix: str, index: int) -> str:
        """The id of a call of the reply that is made now."""
        return f"{prefix}_{index}" if self.repeats_ids else f"{prefix}_{len(self.bodies)}_{index}"

    def _next(self, heard: Heard) -> Move:
        """The move of the script; a model that cannot go on, or breaks a rule itself, is a mistake of the test."""
        scripted = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        try:
            move = scripted(heard) if callable(scripted) else scripted
        except Exception as error:  # a failed assertion of a scripted model must not look like a broken connection
            self.violations.append(f"the scripted model: {error!r}")
            return Fails(400, "invalid_request_error", "the script failed")
        said = _said(move)
        if said.calls and not (heard.may_call or self.is_lax):
            self.violations.append("the scripted model calls although it may not")
        return move

    def _unknown_calls(self, heard: Heard) -> Iterator[str]:
        """Calls of tools that are not offered any more; a rule of ours, so that no model sees calls it cannot make.

        A name that it made up was never offered.
        """
        if heard.calls and not heard.tools:
            yield "tools: Requests which include `tool_use` or `tool_result` blocks must define tools"
        self.once |= {*heard.tools}
        for name in sorted(({call.name for call in heard.calls} & self.once) - {*heard.tools}):
            yield f"tools: {name} was called before and is not offered any more"

    def offered(self, body: Json) -> Iterator[str]:
        """What is wrong with the schemas of the offered tools."""
        for name, schema in self.schemas(body).items():
            if schema.get("type") != "object" or {"anyOf", "oneOf", "allOf", "enum", "not"} & schema.keys():
                yield f"tool {name}: its schema is no plain object"
            yield from (f"tool {name}: {wrong.message}" for wrong in Draft202012Validator(META).iter_errors(schema))
            yield from (f"tool {name}: property {key!r}" for key in _properties(schema) if not _is_name(key))


META = Draft202012Validator.META_SCHEMA


def _said(move: Move) -> Says:
    while isinstance(move, Slow):
        move = move.then
    return move if isinstance(move, Says) else Says()


def _properties(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _properties(item)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for item in schema.values():
            yield from _properties(item)


def _is_name(key: str) -> bool:
    return 0 < len(key) <= 64 and all(one.isascii() and (one.isalnum() or one in "_.-") for one in key)


def unknown(what: str, given: Mapping[str, Any], known: Iterable[str]) -> Iterator[str]:
    """Fields that the provider would not take."""
    for name in sorted(given.keys() - set(known)):
        yield f"{what}.{name}: Extra inputs are not permitted"


@asynccontextmanager
async def running(api: ModelApi) -> AsyncIterator[ModelApi]:
    """Serve `api` on a port of its own; `api.url` is where."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await _exchange(api, reader, writer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**22)
    async with server:
        api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield api


async def _exchange(api: ModelApi, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
    api.bodies.append(body)
    api.times.append(time.monotonic())
    move = api.answer(first.split()[1], headers, body)
    while isinstance(move, Slow):
        with suppress(TimeoutError):
            async with asyncio.timeout(move.seconds):
                await reader.read()
                api.aborted += 1
                return
        move = move.then
    writer.write(_bytes(api, move))
    await writer.drain()


def _bytes(api: ModelApi, move: Says | Fails | Raw) -> bytes:
    if isinstance(move, Raw):
        return move.sent
    status, shown = (200, api.reply(move)) if isinstance(move, Says) else (move.status, api.error(move))
    return whole(status, json.dumps(shown).encode(), move.headers)


def whole(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """An HTTP answer."""
    given = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    lines = [
        f"HTTP/1.1 {status} Whatever",
        *(f"{name}: {value}" for name, value in {**given, **(headers or {})}.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
