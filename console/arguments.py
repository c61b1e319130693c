"""Reads what a user types as an argument: JSON, also in a file that `@FILE` names, and durations."""

import json
from pathlib import Path

from pydantic import JsonValue

from client.problem import Problem
from runtime.settings_file import seconds
from workflows.plans.proposal import Step

AN_OBJECT = """write an object, e.g. '{"query": "refund"}', or @FILE"""


def read_arguments(text: str) -> dict[str, JsonValue]:
    """Read a tool's arguments: a JSON object, or @FILE with a JSON object; raise Problem for anything else."""
    read = read_json(text, "The arguments are", AN_OBJECT)
    if not isinstance(read, dict):
        raise Problem("bad_arguments", "The arguments must be a JSON object", AN_OBJECT)
    return read


def read_json(text: str, name: str, example: str) -> JsonValue:
    """Read JSON that can be sent, or @FILE with such JSON; raise Problem for anything else.

    `name` begins the sentence about what is wrong, as in `The arguments are`; `example` says what to write.
    """
    try:
        read: JsonValue = json.loads(_text_of(text[1:]) if text.startswith("@") else text)
    except RecursionError as error:
        raise _too_deep(name) from error
    except ValueError as error:
        raise Problem("bad_arguments", f"{name} not JSON ({error})", example) from error
    # Python's JSON reader accepts what the server or pydantic cannot take.
    try:
        json.dumps(read, ensure_ascii=False).encode()
        Step(id="call", kind="call", args={"": read}).model_dump_json()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        reason = f"{name} no valid text, with a lone surrogate ({half})"
        raise Problem("bad_arguments", reason, "write the whole character") from error
    except (RecursionError, ValueError) as error:  # pydantic's limit is lower than Python's
        raise _too_deep(name) from error
    return read


def read_duration(option: str, text: str | None) -> float | None:
    """The seconds of a duration such as `90`, `5m` or `1h30m`; None for None; raise Problem for anything else."""
    try:
        return None if text is None else seconds(text)
    except ValueError as error:
        reason, _, remedy = str(error).partition(": ")
        raise Problem("usage", f"{option} {reason}", remedy) from error


def _too_deep(name: str) -> Problem:
    return Problem("bad_arguments", f"{name} nested too deeply", "make them flatter")


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        reason = f"The file {file!r} cannot be read ({error.strerror})"
        raise Problem("bad_arguments", reason, "check the path after the @") from error
