"""Writes the JSON documents of Replan, and reads JSON that others wrote.

Runs when a command with `--json` or the HTTP API answers, and when a person or a program gives JSON.
"""

import json
from typing import Any

from pydantic import JsonValue

from client.problem import Problem
from client.remedy import Door
from workflows.json_values import depth
from workflows.text import visible

SCHEMA = 1
MAX_DEPTH = 200
"""The most levels of JSON that is read; pydantic and Temporal's server take a few more."""


def parsed(text: str | bytes) -> JsonValue:
    """Read JSON that can be sent on; bytes may be UTF-8, UTF-16 or UTF-32.

    Raises:
        ValueError: it is no JSON (NaN and 1e999 are not), is in another encoding, or has a lone surrogate; the last two
            are UnicodeErrors.
        RecursionError: it is nested more than MAX_DEPTH levels deep.
    """
    value: JsonValue = json.loads(text, parse_constant=_reject_constant)
    if depth(value) > MAX_DEPTH:
        raise RecursionError(f"nested more than {MAX_DEPTH} levels deep")
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value


def _reject_constant(name: str) -> None:
    # Python reads NaN and Infinity as numbers by default.
    raise ValueError(f"{name} is not a number in JSON")


def written(value: Any, indent: int | None = 2) -> str:
    """`value` as JSON that is safe on a terminal: invisible characters are escaped. Without `indent`, in one line."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=lambda model: model.model_dump(mode="json"))
    return visible(text, kept="\n")


def of_start(task_id: str, run_id: str | None, ui_url: str | None) -> str:
    """The JSON document of a task that was just started."""
    return of_anything({"task_id": task_id, "run_id": run_id, "status": "running", "ui_url": ui_url})


def of_anything(fields: dict[str, Any]) -> str:
    """A JSON document with the version of the documents (`schema`) and these fields."""
    return written({"schema": SCHEMA, **fields})


def of_event(name: str, /, **fields: Any) -> str:
    """An event as JSON in one line; line breaks in it are escaped."""
    return written({"schema": SCHEMA, "event": name, **fields}, indent=None)


def of_problem(problem: Problem, door: Door) -> str:
    """The JSON document of a problem; `door` formats the remedies for the reader."""
    return of_anything({"error": problem.fields(door)})
