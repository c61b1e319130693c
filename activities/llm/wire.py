"""What both providers' replies have in common: arguments that may be no JSON, and bodies that are no reply."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json

from activities.llm.turns import AssistantTurn, ToolCall
from activities.toolbox.errors import Unreachable


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
