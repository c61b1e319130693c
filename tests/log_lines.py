"""What a line of a worker's log may hold, made from the table of events; and the lines that a worker wrote."""

import json
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, Literal, NotRequired, Required, Union, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from typing_extensions import TypedDict

from runtime.log_lines import COMMON, EVENTS, Fields


def _line_of(name: str) -> Any:
    """The type of the lines of one event: it has no other fields."""
    event, types = EVENTS[name], get_type_hints(Fields, include_extras=True)
    fixed: Any = {
        "level": Literal[tuple(event.levels.split())],
        "event": Literal[name],
        "logger": Literal[event.logger],
    }
    always = {field: Required[fixed.get(field, types[field])] for field in (*COMMON, *event.always.split())}
    sometimes = {field: NotRequired[types[field]] for field in event.sometimes.split()}
    line = TypedDict(name, {**always, **sometimes})  # type: ignore[misc]  # its fields are data
    line.__doc__ = event.meaning
    return with_config(ConfigDict(extra="forbid"))(line)


@cache
def schema() -> TypeAdapter[Any]:
    """A line of any event of Replan."""
    lines: Any = Union[tuple(_line_of(name) for name in EVENTS)]  # noqa: UP007  # its members are data
    return TypeAdapter(lines)


@cache
def _schema_of(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_line_of(name))


def captured() -> AbstractContextManager[list[Any]]:
    """The lines that this process writes meanwhile, with what is bound to the attempt that writes them."""
    return capture_logs(processors=[merge_contextvars])


def lines_of(log: Path) -> list[dict[str, Any]]:
    """The lines of a log, each of which is JSON."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def wrong(line: dict[str, Any]) -> str | None:
    """What is wrong with a line; None for a good one. A line of a library or a tool only needs what all lines have."""
    if lacking := [name for name in COMMON if not isinstance(line.get(name), str)]:
        return f"no {', '.join(lacking)}: {line}"
    if not line["logger"].startswith("replan."):
        return None
    if line["event"] not in EVENTS:
        return f"unknown event: {line}"
    try:
        _schema_of(line["event"]).validate_python(line)
    except ValidationError as error:
        return f"{error}: {line}"
    return None
