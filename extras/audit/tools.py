"""Classifies activities by their names and arguments: whether they write, and whether they call a model."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue

from activities import sends

# The first of these words in a name decides. A name without one of them says nothing.
_READS = (
    "get list read search fetch find query describe show lookup look check count load view retrieve download health"
    " ping status is has validate verify parse calculate compute summarise summarize embed classify extract inspect"
    " observe watch poll wait sleep compare convert translate rank score select scan browse ask explain test preview"
    " quote estimate resolve render format detect predict forecast recall think reason plan replan now today"
)
_WRITES = (
    "create add insert pay send put delete remove update set write save transfer refund cancel submit publish upload"
    " buy purchase reserve issue deploy move merge push commit approve reject register reset notify invite assign close"
    " start stop grant revoke enqueue withdraw deposit ship subscribe unsubscribe append patch drop rename archive"
    " apply upsert store persist sync provision terminate kill enable disable capture debit credit hire fire sign"
    " increment decrement make"
)
_MAYBE_WRITES = "order book post charge email mail message ticket comment log schedule release record"
_NOUNS = "status list history info details count total number id summary price date items lines log state"
_GENERIC = "call tool tools mcp execute exec run invoke dynamic activity step action handle perform do"
READS, WRITES = frozenset(_READS.split()), frozenset(_WRITES.split())
MAYBE_WRITES = frozenset(_MAYBE_WRITES.split())
"""Words that can be the verb of a change, as in `charge_card`, or a noun, as in `charge_history`."""
NOUNS = frozenset(_NOUNS.split())
"""Words that show that a word of MAYBE_WRITES in the same name is a noun."""
GENERIC = frozenset(_GENERIC.split())
"""Words in the name of an activity that runs any tool; the name of the tool is in the arguments."""
TOOL_FIELDS = ("tool_name", "toolName", "name", "tool", "function", "kind", "operation", "action")
ARGS_FIELDS = ("tool_args", "arguments", "args", "input", "params", "parameters", "kwargs")
KEY_FIELDS = re.compile(r"(?i)idempot|dedup|(client|request)_?(request_?)?(id|token)$|request_?id$")
"""Arguments by which a service can recognise a repeated call."""
MODEL = re.compile(
    r"\b(model request|model request stream|invoke model|call model|model call|model activity|llm|completions?|generate"
    r"|chat|openai|anthropic|claude|gemini|replan|planner|ask model|prompt)\b|^plan$|^compact$"
)
"""Words in the name of an activity that calls a model."""
_NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SQL = re.compile(r"^\s*([A-Za-z]+)\s")
_METHOD = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "UPSERT"})
MAX_NODES = 3000
"""The most values of an argument or a result that are looked at."""


class Confidence(StrEnum):
    """How sure a finding is."""

    CERTAIN = "certain"
    """The history says it."""
    LIKELY = "likely"
    """The history says it, if names mean what they say."""
    GUESSED = "guessed"
    """The finding rests on the text of a message, or on what is common."""


def weaker(*confidences: Confidence) -> Confidence:
    """The lowest of these confidences."""
    return max(confidences, key=tuple(Confidence).index)


class CalledTool(NamedTuple):
    """What an activity calls."""

    name: str
    """The tool that the arguments name, for an activity that runs any tool; else the type of the activity."""
    writes: Confidence | None
    """How sure it is that the tool changes something; None if nothing indicates it."""
    is_keyed: bool
    """Whether the service can recognise a repeated call by one of the arguments."""
    args: JsonValue = None
    """The arguments of the tool; None if they cannot be read, or if no argument of the activity holds them alone."""


def parts_of(name: str) -> list[str]:
    """The words of a name in snake case, camel case, or with dots and dashes, in lower case."""
    return [word.lower() for word in _NAME_PARTS.findall(name)]


def is_model(activity: str) -> bool:
    """Whether the name of an activity indicates that it calls a model."""
    return MODEL.search(" ".join(parts_of(activity))) is not None


def tool_of(activity: str, args: list[JsonValue]) -> CalledTool:
    """The tool that an activity calls, by its type and its arguments; an argument that cannot be decoded is None."""
    name, own = _named_tool(activity, args)
    fields = list(_fields(args if own is None else own))
    is_keyed = any(KEY_FIELDS.search(field) and isinstance(value, str) and value for field, value in fields)
    return CalledTool(name, _writes_by_arguments(fields) or _writes_by_name(name), is_keyed, own)


def _named_tool(activity: str, args: list[JsonValue]) -> tuple[str, JsonValue]:
    """The name and arguments of the tool that a generic activity runs; for another activity, its own name and None."""
    if GENERIC & set(parts_of(activity)):
        # In an argument that is an object, not deeper: there `name` is anybody's.
        for value in args:
            fields = value if isinstance(value, dict) else {}
            for field in TOOL_FIELDS:
                found = fields.get(field)
                if isinstance(found, str) and re.fullmatch(r"[\w.:/-]{1,128}", found):
                    return found, next((fields[name] for name in ARGS_FIELDS if name in fields), None)
    return activity, None


def _writes_by_name(name: str) -> Confidence | None:
    parts = parts_of(name)
    for word in parts:
        if word in READS:
            return None
        if word in WRITES:
            return Confidence.LIKELY
        if word in MAYBE_WRITES:
            return None if NOUNS & set(parts) else Confidence.LIKELY
    return None


def _writes_by_arguments(fields: list[tuple[str, JsonValue]]) -> Confidence | None:
    """LIKELY if the arguments are an HTTP request or an SQL statement that changes something; else None."""
    for field, value in fields:
        if not isinstance(value, str):
            continue
        if field.lower() in ("method", "http_method", "verb") and value.upper() in _METHOD:
            return Confidence.LIKELY if sends.may_change(value.upper()) else None
        statement = _SQL.match(value) if field.lower() in ("sql", "query", "statement") else None
        if statement and statement[1].upper() in _CHANGES:
            return Confidence.LIKELY
    return None


def _fields(value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """The names and values of all objects in a value, the outer ones first, at most MAX_NODES."""
    left: list[JsonValue] = [value]
    for _ in range(MAX_NODES):
        if not left:
            return
        match left.pop(0):
            case dict() as found:
                yield from found.items()
                left += list(found.values())[:MAX_NODES]
            case list() as found:
                left += found[:MAX_NODES]


_USED = (("total_tokens",), ("totalTokens",), ("input_tokens", "output_tokens"), ("prompt_tokens", "completion_tokens"))
"""The fields with the tokens of a call in the results of APIs and libraries; the first row that is present counts."""


def tokens_of(result: JsonValue) -> int | None:
    """The used tokens that the result of a model's activity reports; None if it reports none."""
    for field, value in _fields(result):
        usage = value if field == "usage" and isinstance(value, dict) else {}
        for names in _USED:
            numbers = [number for name in names if isinstance(number := usage.get(name), int)]
            if numbers:
                return sum(numbers)
    return None
