"""The parts of an unfinished reply that people can read: its text, and the arguments of calls that are words.

The JSON of other arguments is for the program, and reasoning is no answer: neither is shown.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json

from activities.providers.messages import Request
from activities.providers.streaming import WRONG_SHAPE, ReplyDraft

MAX_READ = 2**18
"""Of a longer text, only the last MAX_READ characters are read; a call with longer arguments is not read. A usable
reply is shorter (`MAX_OUTPUT`)."""
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)|<(?:t(?:h(?:i(?:nk?)?)?)?)?\Z", re.DOTALL)
"""The reasoning that some servers write into the text, and an incomplete opening mark at the end of the text so far."""
_WHOLE_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_OPENED_BEFORE = re.compile(r"\A(?:(?!<think>).)*?</think>", re.DOTALL)
"""Reasoning whose opening mark the server's template wrote, so that only the closing one comes."""
_MARK = re.compile(r"</?think>")


def split_thoughts(text: str) -> tuple[str, str]:
    """Split a whole text into its reasoning, without the marks, and the text without the reasoning."""
    thoughts = list[str]()

    def take(found: re.Match[str]) -> str:
        thoughts.append(_MARK.sub("", found[0]).strip())
        return ""

    # Only a whole mark counts here: `<` at the end may be text.
    left = _WHOLE_THOUGHT.sub(take, _OPENED_BEFORE.sub(take, text))
    return ("\n".join(filter(None, thoughts)), left.strip()) if thoughts else ("", text)


def words(draft: ReplyDraft, request: Request) -> tuple[int, str]:
    """The text for people in a draft so far: the number of its characters, and its end, about MAX_READ at most.

    While the draft grows, text is only added at the end: earlier characters stay where they are.
    """
    if request.answer is not None:  # an answer by a schema, written as text
        return 0, ""
    try:
        text, calls = draft.text(), draft.calls()
    except WRONG_SHAPE:  # the reply will be rejected
        return 0, ""
    left_out = max(0, len(text) - MAX_READ)
    paths = {tool.name: tool.words for tool in request.tools}
    said = [part for name, arguments in calls for part in _texts_of_call(paths.get(name, ()), arguments)]
    found = "\n".join(filter(None, [_THOUGHT.sub("", text[left_out:]).lstrip(), *said]))
    return left_out + len(found), found


def _texts_of_call(paths: Sequence[str], arguments: Any) -> Iterator[str]:
    if not paths or not isinstance(arguments, str) or not arguments or len(arguments) > MAX_READ:
        return
    try:
        args = from_json(arguments, allow_partial="trailing-strings")
    except ValueError:  # it is no JSON, and the reply will be rejected
        return
    # In the order in which the model writes them, so that what was said stays where it is.
    for name, value in args.items() if isinstance(args, dict) else ():
        yield from _texts_at(value, [path.split(".")[1:] for path in paths if path.split(".")[0] == name])


def _texts_at(value: JsonValue, paths: Sequence[Sequence[str]]) -> Iterator[str]:
    for path in paths:
        if not path and isinstance(value, str):
            yield value
        elif path and isinstance(value, list):
            named = (item.get(path[0]) for item in value if isinstance(item, Mapping))
            yield from (text for text in named if isinstance(text, str))
