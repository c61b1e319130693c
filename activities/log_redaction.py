"""What a log line may contain of arguments, results and exceptions: cut, without secrets, or only types and sizes."""

import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from activities.borders.table import class_name, traceback_of
from activities.scrubbing import text_of
from activities.toolbox.declare.kind import Kind

MAX_WORDS = 300
"""Characters of an exception's message in the log."""
MAX_VALUES = 2_000
"""Characters of the arguments or the result in the log of a worker with `--log-values`."""
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def scrubbed(error: BaseException) -> str:
    """The class of an exception and at most MAX_WORDS characters of its message, with `***` for possible secrets."""
    return f"{class_name(error)}: {text_of(error, str, MAX_WORDS)}"


def raised_at(error: BaseException, last: int = 6) -> list[str]:
    """Where an exception was raised: at most `last` frames as `file:line function`, the innermost frame at the end.

    Frames in libraries are left out, except the innermost frame.
    """
    # The line to fix is the tool's.
    stack = traceback.extract_tb(traceback_of(error))
    frames = outside_libraries(stack[:-1])[1 - last :] + stack[-1:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]


def outside_libraries(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    return [frame for frame in frames if not frame.filename.startswith(("<", *_LIBRARIES))]


def shape(value: Any, kind: Kind) -> JsonValue:
    """The type and size of each argument that the kind declares, for the log, without values and dictionary keys."""
    if not isinstance(value, dict):
        return type(value).__name__
    known = {info.alias or name for name, info in kind.args.model_fields.items()}
    return {name: _type_and_size(item) for name, item in value.items() if name in known}


def _type_and_size(value: Any) -> str:
    name = type(value).__name__
    return f"{name}[{len(value)}]" if isinstance(value, str | list | dict) else name
