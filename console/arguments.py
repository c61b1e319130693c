"""Reads what a user types as an argument: JSON, also in a file that `@FILE` names, and durations."""

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from client import document
from client.problem import Problem
from client.text import cut
from runtime.validation import first_mistake
from workflows.durations import seconds
from workflows.plans.contract import AllowedEffect
from workflows.text import NOT_TEXT, decode_text

EFFECT_FORM = (
    "write the kind, a number of calls such as 2x if there may be several, and for its arguments NAME=VALUE,"
    " NAME=VALUE|VALUE, NAME<=NUMBER, NAME>=NUMBER, or NAME=@KIND.PATH for a part of a result"
)
MAX_SHOWN = 80
"""How many characters of a wrong argument are shown."""
AN_OBJECT = """write an object, e.g. '{"query": "refund"}', or @FILE"""


def read_arguments(text: str) -> dict[str, JsonValue]:
    """Read a tool's arguments: a JSON object, or @FILE with a JSON object. Raises Problem for anything else."""
    read = read_json(text, "The arguments are", AN_OBJECT)
    if not isinstance(read, dict):
        raise Problem("bad_arguments", f"The arguments must be a JSON object, not {_shown(text)}", AN_OBJECT)
    return read


def read_json(text: str, name: str, example: str) -> JsonValue:
    """Read JSON that can be sent, or @FILE with it. Raises Problem, which begins with `name`, for other texts."""
    try:
        return document.parsed(_text_of(text[1:]) if text.startswith("@") else text)
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        reason = f"{name} no valid text, with a lone surrogate ({half})"
        raise Problem("bad_arguments", reason, "write the whole character") from error
    except RecursionError as error:
        raise Problem("bad_arguments", f"{name} nested too deeply", "make them flatter") from error
    except ValueError as error:
        raise Problem("bad_arguments", f"{name} not JSON ({error}), but {_shown(text)}", example) from error


def read_duration(option: str, text: str | None) -> float | None:
    """The seconds of a duration such as `90`, `5m` or `1h30m`; None for None. Raises Problem for any other text."""
    try:
        return None if text is None else seconds(text)
    except ValueError as error:
        reason, _, remedy = str(error).partition(": ")
        raise Problem("usage", f"{option} {reason}", remedy) from error


def read_effect(text: str) -> AllowedEffect:
    """Read an effect such as `pay 2x iban=DE89 amount<=50 to=@read_invoice.name`. Raises Problem for other texts."""
    shown = f"--contract {cut(text, MAX_SHOWN)!r}"
    if not text.strip():
        raise Problem("usage", f"{shown} is no effect of a contract (it is empty)", EFFECT_FORM)
    try:
        kind, *rest = shlex.split(text)
        count = _COUNT.fullmatch(rest[0]) if rest else None
        args = dict[str, dict[str, Any]]()
        for word in rest[1:] if count else rest:
            name, sign, value = _name_sign_value(word)
            args.setdefault(name, {}).update(_SIGNS[sign](value))
        return AllowedEffect.model_validate({"kind": kind, "args": args, "count": count.group(1) if count else 1})
    except ValidationError as error:
        raise Problem("usage", f"{shown}: {first_mistake(error)}", EFFECT_FORM) from error
    except ValueError as error:
        raise Problem("usage", f"{shown} is no effect of a contract ({error})", EFFECT_FORM) from error


def read_input(file: str) -> str:
    """Read the text of a file, or of standard input for `-`. Raises Problem if the text is empty or cannot be read."""
    try:
        text = decode_text(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else NOT_TEXT
        remedy = "give it a text file that can be read, or - for standard input"
        raise Problem("usage", f"--untrusted-input {file!r} cannot be read ({reason})", remedy) from error
    if not text.strip():
        raise Problem(
            "usage", f"--untrusted-input {file!r} is empty", "give a file with a text, or - for standard input"
        )
    return text


def _name_sign_value(word: str) -> tuple[str, str, str]:
    found = _TERM.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r} has no =, <= or >= after the name of an argument")
    return found.group(1), found.group(2), found.group(3)


def _shown(text: str) -> str:
    """What was typed as JSON, in a message: the begin of the text, or the file."""
    # Where a shell took the quotes away, a person sees it here.
    return f"the file {text[1:]!r}" if text.startswith("@") else repr(cut(text, MAX_SHOWN))


def _json_or_text(text: str) -> JsonValue:
    try:
        read: JsonValue = json.loads(text)
    except ValueError:
        return text
    return read


_COUNT = re.compile(r"([0-9]{1,4})x")
_TERM = re.compile(r"([A-Za-z_][\w-]*)(=@|<=|>=|=)(.*)", re.DOTALL)
_SIGNS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "=": lambda text: {"values": [_json_or_text(part) for part in text.split("|")]},
    "<=": lambda text: {"at_most": text},
    ">=": lambda text: {"at_least": text},
    "=@": lambda text: {"slot": text},
}
"""By sign in an effect of a contract, the function that reads the text behind the sign into the argument's fields."""


def _text_of(file: str) -> str:
    try:
        return decode_text(Path(file).read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else NOT_TEXT
        reason = f"The file {file!r} cannot be read ({why})"
        raise Problem("bad_arguments", reason, "check the path after the @") from error
