"""What the adapters of both SDKs share: one request per reply, its stream, unique ids, valid names, and checks."""

import asyncio
import importlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx2
import structlog
from pydantic import JsonValue

from activities import tracing
from activities.borders import classify
from activities.borders.model_api import offers_no_calls, server_name
from activities.borders.model_errors import error_in
from activities.providers import spoken, streaming
from activities.providers.arguments import for_sdk
from activities.providers.messages import (
    UNSEEN_OUTPUT,
    AssistantTurn,
    End,
    NoReply,
    Reply,
    Request,
    ToolCall,
    Turn,
    UnreadableReply,
    UnusableResponse,
    Usage,
    UserTurn,
    estimate_input,
    estimate_tokens,
)
from activities.providers.metering import current_reply
from activities.providers.prices import of_model
from activities.providers.property_names import RequestNames
from activities.providers.streaming import IDLE_TIMEOUT, WRONG_SHAPE, ReplyDraft, plain
from activities.providers.strict import SchemaStanding
from workflows.faults.fault import Code
from workflows.limits.spending import MAX_OUTPUT
from workflows.plans import own_activities

log = structlog.get_logger("replan.model")

VALID_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
VALID_OWN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Matches ids that a provider takes back with the `blocks` of its own model; Responses allows 64 characters."""
INVALID_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
MAX_NAME = 64
EVENT_STREAM = "text/event-stream"
USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
"""Finds the usage in a text that may be no JSON."""
OF_REPLY = re.compile(rb'\A\s*\{.*"(?:choices|content|output)"\s*:\s*[\[{"]', re.DOTALL)
"""Matches a body that begins as a reply does, though it may be cut."""
TOO_LARGE = (400, 413, 422)
"""Statuses of servers to requests that are too large together with the reply that they allow."""
MOST_TOKENS = 10**9
"""The most tokens that a server can count for any model: a larger count is a mistake of the server."""


@dataclass(frozen=True)
class AdapterOptions:
    """Settings of models, by the model's name, with or without `@HOST`. All models of a process share one instance."""

    wires: Mapping[str, str] = field(default_factory=dict)
    """Which of OpenAI's APIs is used for a model."""
    efforts: Mapping[str, str] = field(default_factory=dict)
    """How much a model of OpenAI reasons."""
    idle_timeout: float = IDLE_TIMEOUT
    """Seconds without a byte after which a reply counts as stalled."""
    strict: Mapping[str, bool] = field(default_factory=dict)
    """Whether a model gets strict schemas."""
    calls: Mapping[str, str] = field(default_factory=dict)
    """Whether a model makes its calls by the API (`native`) or as text (`text`)."""
    without_calls: set[str] = field(default_factory=set)
    """The names of the models whose server rejected native calls, as long as this process runs."""
    without_responses: set[str] = field(default_factory=set)
    """The names of the models that OpenAI rejected in Responses, as long as this process runs."""
    wanted_fields: dict[str, set[str]] = field(default_factory=dict)
    """By model, the vendor's fields that its server wants in each message or call, as long as this process runs."""
    without_vendor_fields: set[str] = field(default_factory=set)
    """The names of the models whose server rejected its own fields, as long as this process runs."""
    standings: dict[str, dict[str, SchemaStanding]] = field(default_factory=dict)
    """By model, what its provider did with strict schemas, as long as this process runs (see `StrictModel`)."""

    def are_calls_text(self, model: str, chosen: str | None) -> bool:
        """Whether a model writes its calls as text: as the task says (`chosen`), else the settings, else its server."""
        known = "text" if model in self.without_calls else "native"
        return (chosen or of_model(self.calls, model) or known) == "text"

    def learn_no_calls(self, model: str, chosen: str | None, error: Exception) -> bool:
        """If `error` says that a model has no native calls, record that, and return True.

        If the task (`chosen`) or the settings say how the model makes its calls, record nothing, and return False.
        """
        if chosen or of_model(self.calls, model) or not offers_no_calls(error):
            return False
        self.without_calls.add(model)
        log.warning("no_calls", model=model, remedy="set its calls in the settings file to save this request")
        return True


@dataclass(frozen=True, repr=False)
class Endpoint:
    """The address and the key of a server that speaks a provider's protocol."""

    key: str
    url: str | None = None
    """None for the provider's own address."""
    idle_timeout: float = IDLE_TIMEOUT
    """Seconds without a byte after which a reply counts as stalled."""
    program: str = ""
    """The names of the server's models begin with it; if it is empty, with the provider's name."""
    usual_url: str = ""
    """The address at which the names of the models do not contain the host."""

    def __repr__(self) -> str:  # never the key, nor credentials in the address
        return f"Endpoint({self.host!r})"

    @property
    def host(self) -> str:
        """The host and port of `url`, without credentials; empty for the provider's own address."""
        return urlsplit(self.url or "").netloc.rpartition("@")[2]

    def is_at(self, own_host: str) -> bool:
        """Whether the server is the provider's own: at `own_host`, or at a host below it."""
        host = urlsplit(self.url).hostname or "" if self.url else own_host
        return host == own_host or host.endswith(f".{own_host}")

    def model_name(self, provider: str, model: str) -> str:
        """A model's full name: `provider:MODEL`, followed by `@HOST` if this server is not the provider's own."""
        name = f"{self.program or provider}:{model}"
        return f"{name}@{self.host}" if self.url and self.url != self.usual_url else name

    def client_options(self, timeout: float) -> dict[str, Any]:
        """The arguments for the client of either SDK; `timeout` is in seconds."""
        # Temporal retries, so the SDK does not. The lines of a stream are read before the client could unpack them.
        headers = {"accept-encoding": "identity"}
        return {
            "api_key": self.key,
            "base_url": self.url,
            "timeout": timeout,
            "max_retries": 0,
            "default_headers": headers,
        }


class ModelAdapter(ABC):
    """A model behind its provider's SDK; a subclass translates the request and the response."""

    sdk: ClassVar[str]
    """The SDK's package, which is also the provider's name."""
    client: ClassVar[str]
    """The name of the SDK's class of asynchronous clients."""
    api: ClassVar[str]
    """The name of the provider's API in error messages."""
    needs_limit: ClassVar[bool] = False
    """Whether each request must say how long the reply may be."""

    without_spans: ClassVar[Mapping[str, Any]] = {}
    """The options of the SDK's client that turn its own spans off, since Replan records the call."""
    _hides_reasoning = False
    """Whether the model may use tokens for reasoning that its stream does not show."""

    def __init__(self, model: str, endpoint: Endpoint, effort: str | None = None) -> None:
        """`effort` is the reasoning effort to ask for, None for the model's usual effort."""
        self.name = endpoint.model_name(self.sdk, model)
        self._model = model
        self._endpoint = endpoint
        self._effort = effort

    async def reply(self, request: Request) -> Reply:
        """Send one request to the model and return its reply; tokens that the server did not count are estimated.

        Raises:
            NoReply: the reply stalled, or ended in the middle.
            UnusableResponse: the response reports a transient error, with the tokens that it counts.
            UnreadableReply: the response cannot be read as a reply; a proxy may have sent it.
            Exception: any exception of the SDK; the tables of `activities.borders` translate it to a Fault.
        """
        names = RequestNames(request.tools)
        reply = await self._reply(names.written(request))
        return replace(reply, turn=names.own(reply.turn))

    async def _reply(self, request: Request) -> Reply:
        # In a thread: the first import takes a second.
        sdk = await asyncio.to_thread(importlib.import_module, self.sdk)
        own_spans = {} if tracing.RECORDER.get() is None else self.without_spans
        options = {**self._endpoint.client_options(own_activities.PLAN.timeout), **own_spans}
        async with getattr(sdk, self.client)(**options) as client:
            stream, draft = await self._begun(client, request), self._draft()
            try:
                response = await self._received(stream, draft, request)
            except WRONG_SHAPE as error:
                raise UnreadableReply(self._server_name, self._whole_count(draft, request), _end_of(draft)) from error
        try:
            reply = self._translate(response, self._limit(request))
        except WRONG_SHAPE as error:
            used = self._usage(response) if field_of(response, "usage") else None
            counted = used and _completed(used, request, response)
            raise UnreadableReply(self._server_name, counted, _end_of(draft)) from error
        most = max(self._most_output(request, draft), draft.counted().output)
        return replace(reply, usage=_completed(reply.usage, request, response, most))

    async def _begun(self, client: Any, request: Request) -> Any:
        """Return the SDK's stream of the reply; raise NoReply if the provider's own server is silent for too long."""
        # A server of the user's own may load the model before it answers.
        patience = self._endpoint.idle_timeout if self._is_own else None
        try:
            async with asyncio.timeout(patience) as limit:
                return await self._sent(client, request)
        except TimeoutError:
            if not limit.expired():
                raise
            reason = f"{self._server_name} sent nothing for {patience:g} s."
            raise NoReply(reason, End.NO_ANSWER, code="timeout") from None

    async def _sent(self, client: Any, request: Request) -> Any:
        """Send the request; if its size is rejected where `_limit` may be None, send it again without a limit."""
        limit = self._limit(request)
        try:
            return await self._send(client, request, limit)
        except Exception as error:  # total: `classify` knows every exception
            is_rejected = getattr(error, "status_code", 0) in TOO_LARGE and classify(error).code is Code.TOO_LARGE
            if not (is_rejected and limit and self._endpoint.url and not self.needs_limit):
                raise
        # vLLM rejects a limit that does not fit into its window beside the input, as TGI does, and Groq one that does
        # not fit into what a minute allows. Then every reply is shorter.
        current_reply().rejected += 1
        return await self._send(client, request, None)

    async def _received(self, stream: Any, draft: ReplyDraft, request: Request) -> Any:
        """Read the whole stream, or the JSON in its place; raise NoReply if it stalls or ends in the middle."""
        arriving = current_reply()
        arriving.words = lambda: spoken.words(draft, request)

        def tell() -> None:
            arriving.written, arriving.counted, arriving.has_begun = draft.written, draft.counted(), True
            arriving.shows_all = not (self._hides_reasoning or draft.hides_thoughts)
            if draft.failed:
                raise self._error(stream.response, draft.failed)

        # A server of the user's own may load the model, or read a long prompt, after it has answered.
        idle, waits = self._endpoint.idle_timeout, not self._is_own
        try:
            await streaming.read(stream, draft, idle, tell, waits_for_words=waits)
        except httpx2.HTTPError as error:
            if draft.has_begun:
                raise
            reason = f"{self._server_name} could not be reached, or the connection broke."
            raise NoReply(reason, End.BROKEN_OFF) from error
        if draft.response is not None:
            return draft.response
        is_stream = EVENT_STREAM in stream.response.headers.get("content-type", "").lower()
        if draft.has_begun or (is_stream and not draft.sent.strip()):
            raise NoReply(f"{self._server_name} ended its reply in the middle.", End.BROKEN_OFF, code="unreachable")
        # Some servers never stream.
        body = json.loads(for_sdk(draft.sent, *(name.encode() for name in draft.arguments_fields)))
        if failed := error_in(body):
            used = self._usage(body) if isinstance(body, dict) else Usage()
            raise self._failure(self._error(stream.response, failed), used)
        return body

    def _whole_count(self, draft: ReplyDraft, request: Request) -> Usage | None:
        """The tokens of a reply that cannot be read, if the server has counted the whole reply."""
        counted = draft.whole_count()
        if counted is None and (found := _usage_in(draft.sent)):
            counted = self._usage({"usage": {**draft.used, **found}})
        return _completed(counted, request, {}) if counted is not None and counted.output else None

    def _error(self, response: httpx2.Response, body: object) -> Exception:
        """The SDK's exception for an error that a response with status 200 reports."""
        sdk = importlib.import_module(self.sdk)
        error: Exception = sdk.APIStatusError("The response reports an error.", response=response, body=body)
        return error

    def _failure(self, error: Exception, usage: Usage) -> Exception:
        """The exception for a response that reports an error; the tokens that it counts are recorded in the meter."""
        fault = classify(error)
        if usage.tokens:
            current_reply().failure = usage
        # The tokens are paid, and each retry would use as many again.
        return UnusableResponse(fault.reason, usage) if usage.tokens and fault.quadrant.is_transient else error

    @property
    def _server_name(self) -> str:
        return server_name(self.api, urlsplit(self._endpoint.url or "").hostname)

    def _limit(self, request: Request) -> int | None:
        """The most tokens that the reply may have; None (no limit) only if `Endpoint.url` is set, not `needs_limit`."""
        return request.max_output or (None if self._endpoint.url and not self.needs_limit else MAX_OUTPUT)

    def _most_output(self, request: Request, draft: ReplyDraft) -> int:
        """The most output tokens that the provider can bill for an uncounted reply; 0 without a limit or `_is_own`."""
        limit = self._limit(request)
        if not self._is_own or limit is None:
            return 0
        hides = self._hides_reasoning or draft.hides_thoughts
        return limit if hides else min(limit, draft.written + UNSEEN_OUTPUT)  # a token has a byte or more

    @property
    def _is_own(self) -> bool:
        """Whether the provider itself answers, at its own address."""
        return self._server_name == self.api

    @abstractmethod
    async def _send(self, client: Any, request: Request, limit: int | None) -> Any:
        """Send the request in the provider's form, and return the SDK's stream; `limit` is what `_limit` returned."""

    @abstractmethod
    def _draft(self) -> ReplyDraft:
        """An empty draft, for the events of a stream."""

    @abstractmethod
    def _translate(self, response: Mapping[str, Any], limit: int | None) -> Reply:
        """Turn the JSON of a response into a reply; `limit` is what `_limit` returned.

        A field that is not as the API describes it is left out.

        Raises:
            WRONG_SHAPE: the JSON is no reply.
        """

    @abstractmethod
    def _usage(self, response: Mapping[str, Any]) -> Usage:
        """The tokens that the server counted; 0 where its count is missing or is no number."""


def count(counts: object, name: str) -> int:
    """The tokens in the field `name` of a server's `counts`; 0 if the field has no number, or more than MOST_TOKENS."""
    number = field_of(counts, name)
    return number if type(number) is int and 0 < number <= MOST_TOKENS else 0  # a bool is an int, too


def field_of(value: object, name: str) -> Any:
    """The field of an object of the SDK, or of the JSON of one that the SDK does not know; None if it has none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def counts(
    used: object,
    input: str,
    output: str,
    *,
    read: int,
    written: int,
    is_cache_apart: bool = False,
    is_documented: bool = True,
) -> Usage:
    """Make a Usage from a server's counts `used`; `input` and `output` are the beginnings of the names of its fields.

    `read` and `written` are the tokens of the cache, which the input does not contain if `is_cache_apart`. Unless it
    `is_documented` that the server counts reasoning as output, and the cache as input, its total tells what it does.
    Of several readings, the one with the largest bill counts (docs/models.md, What servers count).
    """
    prompt, completion = count(used, f"{input}_tokens"), count(used, f"{output}_tokens")
    details = field_of(used, f"{output}_tokens_details")
    thought = (count(details, "reasoning_tokens"), count(details, "thinking_tokens"), count(used, "reasoning_tokens"))
    cached, total, reasoning = read + written, count(used, "total_tokens"), max(thought)
    is_counted = is_documented or total >= prompt + completion > 0
    if is_counted and cached <= prompt and not is_cache_apart:
        prompt -= cached
    beyond_input = max(0, total - prompt - cached)
    whole = completion if is_counted and reasoning <= completion else completion + reasoning
    # If neither the output nor the total is a number, it is estimated.
    billed = max(whole, beyond_input) if completion or beyond_input else 0
    return Usage(prompt, billed, read, written, reasoning, beside=billed - completion if billed else 0)


def stop_word(reason: object) -> str | None:
    """The reason that a server gives for the end of a reply, in small letters; None if it gives none."""
    word = str(reason or "").strip().lower()
    return None if word in ("", "null", "none") else word


def _end_of(draft: ReplyDraft) -> End:
    return End.BROKEN_OFF if draft.has_begun or OF_REPLY.search(draft.sent) else End.NO_REPLY


def _usage_in(sent: bytes) -> Mapping[str, Any]:
    """The last usage in a text that is no JSON, or no reply; empty if there is none."""
    for found in reversed(USAGE.findall(sent)):
        with suppress(*WRONG_SHAPE):
            return plain(json.loads(found))
    return {}


def _estimated_output(response: Mapping[str, Any]) -> int:
    try:
        return estimate_tokens(response)
    except WRONG_SHAPE:  # it is nested too deeply, so nobody can tell
        return MAX_OUTPUT


def _completed(counted: Usage, request: Request, response: Mapping[str, Any], min_output: int = 0) -> Usage:
    """Estimate what the server did not count: an output that it did not count as at least `min_output` tokens."""
    input_tokens, output_tokens = counted.tokens - counted.output, counted.output
    if input_tokens and output_tokens:
        return counted
    return replace(
        counted,
        input=counted.input if input_tokens else estimate_input(request),
        output=output_tokens or max(min_output, counted.reasoning + _estimated_output(response)),
        is_estimated=True,
    )


def with_unique_ids(turns: Iterable[Turn], model: str, *, changes_blocks: bool = False) -> Iterator[Turn]:
    """Yield the turns with call ids that are unique in the conversation; `model`'s own ids stay if valid and unique.

    Where a call changes, its block of Messages changes, too; without `changes_blocks`, the turn's blocks are left out.
    """
    used_ids, new_ids = set[str](), list[str]()
    for number, turn in enumerate(turns):
        if isinstance(turn, UserTurn):
            results = zip(turn.results, new_ids, strict=False)
            yield replace(turn, results=tuple(replace(result, call_id=id) for result, id in results))
            continue
        new_ids = list[str]()
        for index, call in enumerate(turn.calls):
            valid = VALID_OWN_ID if turn.blocks else VALID_ID
            is_usable = turn.by == model and valid.fullmatch(call.id) and call.id not in used_ids
            new_ids.append(call.id if is_usable else f"t{number:05}{index:03}")  # Mistral takes 9 letters or digits
            used_ids.add(new_ids[-1])  # a server may give all calls of a turn one id, such as the tool's name
        changed = _with_ids(turn, new_ids)
        is_same = changed.calls == turn.calls
        yield changed if is_same or changes_blocks else replace(changed, blocks=())


def _with_ids(turn: AssistantTurn, ids: list[str]) -> AssistantTurn:
    """The turn with `ids` and valid names for its calls, also in the blocks of Messages."""
    called = zip(turn.calls, ids, strict=True)
    calls = tuple(
        replace(call, id=id, name=INVALID_IN_NAME.sub("_", call.name)[:MAX_NAME] or "unnamed") for call, id in called
    )
    left = iter(calls)
    return replace(turn, calls=calls, blocks=tuple(_with_id(block, left) for block in turn.blocks))


def _with_id(block: dict[str, JsonValue], calls: Iterator[ToolCall]) -> dict[str, JsonValue]:
    """The block with the id and the name of the next of `calls`, if it is the block of a call."""
    call = next(calls, None) if block.get("type") == "tool_use" else None
    return {**block, "id": call.id, "name": call.name} if call else block


def replace_surrogates(turn: AssistantTurn) -> AssistantTurn:
    """The turn with `?` for each lone surrogate (half a character), which JSON can carry but no database can store."""
    calls = tuple(
        replace(call, id=_replaced(call.id), name=_replaced(call.name), args=_replaced(call.args))
        for call in turn.calls
    )
    blocks = turn.blocks if _replaced([*turn.blocks]) == [*turn.blocks] else ()
    texts = {"text": _replaced(turn.text), "aside": _replaced(turn.aside), "vendor": _replaced(turn.vendor)}
    return replace(turn, calls=calls, blocks=blocks, **texts)


def _replaced(value: Any) -> Any:
    """A value of JSON with `?` for each lone surrogate."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_replaced(name): _replaced(item) for name, item in value.items()}
    return [_replaced(item) for item in value] if isinstance(value, list) else value
