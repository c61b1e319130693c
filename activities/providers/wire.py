"""What both providers' replies have in common: arguments that may be no JSON, and bodies that are no reply."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from pydantic import JsonValue
from pydantic_core import from_json

from activities.errors import Unreachable
from activities.providers.messages import AssistantTurn, ToolCall, Turn, UserTurn


class Endpoint:
    """A server that speaks a provider's protocol."""

    __slots__ = ("_key", "url")

    def __init__(self, key: str, url: str | None = None) -> None:
        """Use the key at `url`, or at the provider's own address."""
        self._key = key
        self.url = url

    def __repr__(self) -> str:
        """The host alone."""
        return f"Endpoint({self.host!r})"

    @property
    def host(self) -> str:
        """The host of an address of its own, with its port and without credentials."""
        return urlsplit(self.url or "").netloc.rpartition("@")[2]

    def name(self, provider: str, model: str) -> str:
        """How people call a model here; the host stands in it where it is not the provider's own."""
        return f"{provider}:{model}@{self.host}" if self.url else f"{provider}:{model}"

    def client(self, patience: float) -> dict[str, Any]:
        """What the client of either SDK takes: `patience` in seconds, and no retries of its own."""
        return {"api_key": self._key, "base_url": self.url, "timeout": patience, "max_retries": 0}


ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
STRANGE = re.compile(r"[^a-zA-Z0-9_-]")
MAX_NAME = 64


def paired(turns: Iterable[Turn], model: str) -> Iterator[Turn]:
    """The turns with ids that are unique in all of them; those of `model` itself stay wherever they can."""
    seen, renamed = set[str](), list[str]()
    for place, turn in enumerate(turns):
        if isinstance(turn, UserTurn):
            results = zip(turn.results, renamed, strict=False)
            yield replace(turn, results=tuple(replace(result, call_id=id) for result, id in results))
            continue
        renamed = list[str]()
        for index, call in enumerate(turn.calls):
            renamed.append(_id(call, seen, f"t{place}_{index}", is_own=turn.by == model))
            seen.add(renamed[-1])  # a server may give all calls of a turn one id, such as the tool's name
        yield _named(turn, renamed)


def _named(turn: AssistantTurn, ids: list[str]) -> AssistantTurn:
    """The turn with these ids; as the provider wrote it only where it calls everything by the same names."""
    called = zip(turn.calls, ids, strict=True)
    calls = tuple(replace(call, id=id, name=_name(call.name)) for call, id in called)
    return replace(turn, calls=calls, blocks=turn.blocks if calls == turn.calls else ())


def _id(call: ToolCall, seen: set[str], other: str, *, is_own: bool) -> str:
    return call.id if is_own and ID.fullmatch(call.id) and call.id not in seen else other


def _name(name: str) -> str:
    return STRANGE.sub("_", name)[:MAX_NAME] or "unnamed"


def call(id: str, name: str, arguments: str | dict[str, JsonValue]) -> ToolCall:
    """A call whose arguments the model wrote as text, which is not always JSON; some servers send an object."""
    if isinstance(arguments, dict):
        return ToolCall(id, name, arguments)
    try:
        args: JsonValue = from_json(arguments or "{}", allow_inf_nan=False)
    except ValueError as error:
        return ToolCall(id, name, {}, broken=f"they are no JSON ({str(error)[:80]})")
    if not isinstance(args, dict):
        return ToolCall(id, name, {}, broken=f"they are a JSON {type(args).__name__}, not an object")
    return ToolCall(id, name, args)


def writable(turn: AssistantTurn) -> AssistantTurn:
    """The turn with a sign in the place of half characters, which JSON can carry and no store can keep."""
    calls = tuple(
        replace(one, id=_writable(one.id), name=_writable(one.name), args=_writable(one.args)) for one in turn.calls
    )
    blocks = turn.blocks if _writable([*turn.blocks]) == [*turn.blocks] else ()
    return replace(turn, text=_writable(turn.text), calls=calls, blocks=blocks)


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_writable(name): _writable(item) for name, item in value.items()}
    return [_writable(item) for item in value] if isinstance(value, list) else value


NOT_JSON = (json.JSONDecodeError,)
"""What an SDK raises of a body that cannot be read."""
NO_REPLY = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What reading a reply raises where it has another shape than the SDK's types promise."""


@contextmanager
def reading(provider: str, wrong: tuple[type[Exception], ...]) -> Iterator[None]:
    """Read an answer that the provider's server called a success.

    Raises:
        Unreachable: it has not the shape of a reply, as when a proxy answered in the provider's place.
    """
    try:
        yield
    except wrong as error:
        raise Unreachable(
            f"What {provider} answered has not the shape of a reply; a proxy may have answered in its place.",
            code="server_error",
        ) from error
