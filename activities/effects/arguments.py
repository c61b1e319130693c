"""The arguments of a call: as JSON, which of them are only words, and what a framework says of the call in them."""

import hashlib
import inspect
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from pydantic import JsonValue, PydanticSchemaGenerationError, TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from activities.effects.key import Key
from workflows.json_values import digest
from workflows.text import nearest

FRAMEWORKS = frozenset(
    {"pydantic_ai", "agents", "langgraph", "langchain", "langchain_core", "google", "agno", "mcp", "fastmcp", "dbos"}
)
"""Packages whose objects are contexts of a call, and no arguments of it."""
PROSE_NAMES = frozenset(
    [
        "body",
        "caption",
        "comment",
        "comments",
        "content",
        "description",
        "detail",
        "details",
        "explanation",
        "instructions",
        "memo",
        "message",
        "note",
        "notes",
        "reason",
        "remark",
        "remarks",
        "subject",
        "summary",
        "text",
        "title",
    ]
)
"""Names of arguments that are only words, unless `authority=` names them."""
MAX_ID = 400
"""The most characters of an id; of a longer one its hash counts."""
PROSE_LENGTH = 4
"""A text of so many words is only words, whatever the name of its argument."""


class Arguments:
    """The parameters of a function, and what becomes of each of them."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        ignore: Collection[str] = (),
        authority: Collection[str] | None = None,
        content: Collection[str] = (),
    ) -> None:
        """Read the signature of `function`.

        Raises TypeError if one of the names is that of no parameter, or if there is a parameter `*args` or `**kwargs`.
        """
        self._name = getattr(function, "__name__", "the function")
        self.signature = inspect.signature(function)
        self._hints = _hints(function)
        parameters = self.signature.parameters
        for option, names in (("ignore", ignore), ("authority", authority or ()), ("content", content)):
            if isinstance(names, str):
                raise TypeError(
                    f"{option}= of {self._name} is a text: give a list of names, as in {option}=[{names!r}]."
                )
            if missing := [name for name in names if name not in parameters]:
                near = nearest(missing[0], list(parameters))
                raise TypeError(f"{option}= of {self._name} names {missing[0]!r}{near}, which is no parameter.")
        self.key = next((name for name in parameters if self._hints.get(name) is Key), None)
        self.transaction = next((name for name in parameters if _is_transaction(self._hints.get(name))), None)
        injected = {self.key, self.transaction}
        skipped = {*ignore, *(name for name in parameters if self._is_context(name)), *injected}
        self.own = tuple(name for name in parameters if name not in skipped)
        """The names of the arguments that identify a call and are recorded."""
        self._authority, self._content = authority, frozenset(content)
        self._adapters = {name: _adapter(self._hints.get(name, Any)) for name in self.own}
        self.returns = self._hints.get("return", Any)
        """The declared type of the result."""
        self.public = self.signature.replace(
            parameters=[
                one.replace(annotation=self._hints.get(one.name, one.annotation))
                for one in parameters.values()
                if one.name not in injected
            ],
            return_annotation=self._hints.get("return", self.signature.return_annotation),
        )
        """The signature for callers, without what is injected, and with types in place of their names as text, which a
        framework would look for in the module of the wrapper."""

    @property
    def annotations(self) -> dict[str, Any]:
        """The types of the parameters for callers, and of the result, by name."""
        public = {name: one.annotation for name, one in self.public.parameters.items()}
        public["return"] = self.public.return_annotation
        return {name: hint for name, hint in public.items() if hint is not inspect.Parameter.empty}

    def bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> "Bound":
        """The arguments of a call; raises TypeError as the function itself would."""
        bound = self.public.bind(*args, **named)
        bound.apply_defaults()
        values = {name: value for name, value in bound.arguments.items() if name in self.own}
        contexts = [value for name, value in bound.arguments.items() if self._has_context(name, value)]
        return Bound(dict(bound.arguments), self._encode(values), [*contexts, *self._call_ids(bound.arguments)])

    def call(self, function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
        """Call `function` with these values of its parameters."""
        passed = {name: values[name] for name in self.signature.parameters if name in values}
        bound = inspect.BoundArguments(self.signature, passed)
        return function(*bound.args, **bound.kwargs)

    def decode(self, arguments: Mapping[str, JsonValue], bound: "Bound") -> dict[str, Any]:
        """The recorded arguments of an earlier call as values, and those that are not recorded from `bound`."""
        decoded = {
            name: self._adapters[name].validate_python(value) for name, value in arguments.items() if name in self.own
        }
        return {**bound.values, **decoded}

    def differ_in_prose(self, one: Mapping[str, JsonValue], other: Mapping[str, JsonValue]) -> bool:
        """Whether two calls have different arguments, but only in what is words."""
        return differ_in_prose(one, other, self._authority, self._content)

    def _encode(self, values: Mapping[str, Any]) -> dict[str, JsonValue]:
        done = dict[str, JsonValue]()
        for name, value in values.items():
            if _is_of_framework(type(value)):
                continue
            try:
                done[name] = to_jsonable_python(value, inf_nan_mode="strings")
                digest(done[name])  # a lone surrogate cannot be stored
            except (PydanticSerializationError, ValueError, RecursionError):
                raise TypeError(
                    f"The argument {name!r} of {self._name}, a {type(value).__name__}, cannot be written as JSON: pass"
                    f" plain data, or name it in ignore=[{name!r}] if it does not belong to what the call is."
                ) from None
        return done

    def _is_context(self, name: str) -> bool:
        if name in ("self", "cls"):
            return True
        return any(map(_is_of_framework, _types_in(self._hints.get(name, self.signature.parameters[name].annotation))))

    def _has_context(self, name: str, value: Any) -> bool:
        """Whether an argument is a context; `self` and what is ignored may have attributes that do anything."""
        if name in self.own or name in ("self", "cls"):
            return False
        return self._is_context(name) or _is_of_framework(type(value))

    def _call_ids(self, values: Mapping[str, Any]) -> Iterator[Any]:
        """A parameter of LangChain that is injected with the id of the call."""
        for name, value in values.items():
            if isinstance(value, str) and any(
                getattr(kind, "__name__", "") == "InjectedToolCallId" for kind in _types_in(self._hints.get(name))
            ):
                yield CallId(value)


def differ_in_prose(
    one: Mapping[str, JsonValue],
    other: Mapping[str, JsonValue],
    authority: Collection[str] | None = None,
    content: Collection[str] = (),
) -> bool:
    """Whether two calls have different arguments, but only in what is words.

    The arguments in `content` are only words; if `authority` is given, all but those are. Else it is guessed.
    """
    mine, theirs = dict(_leaves(dict(one))), dict(_leaves(dict(other)))
    different = [path for path in {*mine, *theirs} if digest([mine.get(path)]) != digest([theirs.get(path)])]

    def is_words(path: tuple[str, ...]) -> bool:
        if path[0] in content:
            return True
        if authority is not None:
            return path[0] not in authority
        return _is_words(path, mine.get(path), theirs.get(path))

    return bool(different) and all(map(is_words, different))


def _is_words(path: tuple[str, ...], *values: JsonValue) -> bool:
    """Whether a value is only words, by the name of its argument or by what stands in it."""
    name = next((part for part in reversed(path) if not part.isdigit()), "")
    texts = [value for value in values if value is not None]
    if not all(isinstance(value, str) for value in texts):
        return False
    return name.lower() in PROSE_NAMES or any(_is_prose(str(value)) for value in texts)


@dataclass(frozen=True)
class CallId:
    """The id that a framework gave to a call, where it passes nothing else."""

    tool_call_id: str


@dataclass(frozen=True)
class Bound:
    """The arguments of one call."""

    values: dict[str, Any]
    """All arguments by name, as the function gets them."""
    json: dict[str, JsonValue]
    """Those that identify the call."""
    contexts: list[Any]
    """Those that do not."""

    @cached_property
    def ids(self) -> tuple[str | None, str | None]:
        """The ids of the run and of the call that a framework passed in a context; None for what it did not.

        They stay the same when the framework resumes the run. Some servers of models give equal ids to calls of
        different turns, so the place of the turn in the run belongs to the id.
        """
        call = next(filter(None, (_text(context, "tool_call_id") for context in self.contexts)), None)
        if call is None:
            return None, None
        run, task = next(filter(any, map(_run_and_task, self.contexts)), (None, None))
        return run, self._history.asked.get(call) or (f"{task}/{call}" if task else call)

    @property
    def answered(self) -> Set[str]:
        """The ids of earlier calls whose results the framework has on record, so that they were read."""
        return self._history.answered

    @cached_property
    def _history(self) -> "_History":
        return next((found for one in self.contexts if any(found := _history_of(one))), _History({}, set()))


class _History(NamedTuple):
    """What a run has called so far."""

    asked: dict[str, str]
    """By id of the framework, the id that also names the turn."""
    answered: set[str]
    """Those with a result."""


def _history_of(context: Any) -> _History:
    """The history that a context has: a list of messages in pydantic-ai and LangGraph."""
    history = _History({}, set())
    for turn, message in enumerate(_messages_of(context) or _messages_of(getattr(context, "state", None)), 1):
        history.asked.update({id: f"{turn}/{id}" for id in _asked_in(message)})
        history.answered.update(history.asked[id] for id in _answered_in(message) if id in history.asked)
    # OpenAI Agents takes a call by its id alone: it notes those of the run, and passes on those that a session has.
    notes = getattr(context, "_tool_invocations", None)
    for id, note in (notes if isinstance(notes, Mapping) else {}).items():
        history.asked[id] = id
        if getattr(note, "completed", False):
            history.answered.add(id)
    inputs = getattr(context, "turn_input", None)
    outputs = [item for item in inputs or () if _text(item, "type") == "function_call_output"]
    history.answered.update(id for item in outputs if (id := _text(item, "call_id")))
    return history


def _messages_of(holder: Any) -> Sequence[Any]:
    messages = holder.get("messages") if isinstance(holder, Mapping) else getattr(holder, "messages", None)
    return messages if isinstance(messages, list) else ()


def _asked_in(message: Any) -> Iterator[str]:
    """The ids of the calls that a model asks for in a message."""
    yield from _parts(message, "tool-call")
    yield from (id for call in getattr(message, "tool_calls", None) or () if (id := _text(call, "id")))


def _answered_in(message: Any) -> Iterator[str]:
    """The ids of the calls whose results are in a message."""
    yield from _parts(message, "tool-return")
    is_result = getattr(message, "type", None) == "tool" and getattr(message, "status", None) != "error"
    if is_result and (id := _text(message, "tool_call_id")):
        yield id


def _parts(message: Any, kind: str) -> Iterator[str]:
    """The ids of the calls to which the parts of this kind belong."""
    for part in getattr(message, "parts", ()):
        if getattr(part, "part_kind", None) == kind and (id := _text(part, "tool_call_id")):
            yield id


def _run_and_task(context: Any) -> tuple[str | None, str | None]:
    """The run to which a context belongs, and the task of its turn; None for what it does not say."""
    if settings := _settings(context):  # of LangGraph, which names the thread, and the task by its checkpoint
        return _text(settings, "thread_id"), _text(settings, "checkpoint_ns")
    # Of pydantic-ai, in which a resumed run has another id, but belongs to the same conversation.
    return _text(context, "conversation_id") or _text(context, "run_id"), None


def _settings(context: Any) -> Mapping[str, Any]:
    """What LangGraph has configured for a run; empty if `context` is neither its configuration nor has it."""
    config = context if isinstance(context, Mapping) else getattr(context, "config", None)
    settings = config.get("configurable") if isinstance(config, Mapping) else None
    return settings if isinstance(settings, Mapping) else {}


def _text(context: Any, name: str) -> str | None:
    """The value of this name as text that any store can keep, since it may come from a model; None if there is none."""
    value = context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)
    if not value:
        return None
    text = str(value)
    if len(text) <= MAX_ID and text.isprintable():
        return text
    return f"sha256-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters, also of those that are written as text; without those that cannot be found."""
    inner = inspect.unwrap(function)
    while isinstance(inner, partial):
        inner = inspect.unwrap(inner.func)
    names, found = getattr(inner, "__globals__", {}), dict[str, Any]()
    for name, annotation in inspect.get_annotations(inner).items():
        with suppress(Exception):  # a name that only a type checker sees
            alone = SimpleNamespace(__annotations__={name: annotation})
            found |= typing.get_type_hints(alone, globalns=names, include_extras=True)
    return found


def _is_transaction(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Connection | AsyncConnection)


def _types_in(hint: Any) -> Iterator[Any]:
    """The classes in a type, also those that `Annotated` adds to it."""
    if hint is None or hint is inspect.Parameter.empty:
        return
    if metadata := getattr(hint, "__metadata__", ()):
        yield from (one if isinstance(one, type) else type(one) for one in metadata)
    if arguments := typing.get_args(hint):
        yield typing.get_origin(hint)
        for argument in arguments:
            yield from _types_in(argument)
    elif isinstance(hint, type):
        yield hint


def _is_of_framework(kind: Any) -> bool:
    return str(getattr(kind, "__module__", "")).partition(".")[0] in FRAMEWORKS


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint)
    except (PydanticSchemaGenerationError, TypeError, NameError):
        return TypeAdapter(Any)


def _leaves(value: JsonValue, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], JsonValue]]:
    """The values inside a JSON value that hold no others, each with the names on the way to it."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _leaves(item, (*path, str(number)))
    else:
        yield path, value


def _is_prose(text: str) -> bool:
    parts = text.split()
    return len(parts) >= PROSE_LENGTH and sum(word.strip(".,;:!?'\"()").isalpha() for word in parts) * 2 > len(parts)
