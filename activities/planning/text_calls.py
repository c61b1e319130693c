"""Calls that a model writes as text: the forms that models use, how they are read, and how they are written.

Nothing here decides whether such a call is made; `text_strategy.py` does, for an endpoint without native calls.
"""

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from activities.providers.arguments import LENIENT_DECODER, RepeatedKey, is_too_deep, object_of, parse_call
from activities.providers.messages import ToolCall
from workflows.json_values import canonical
from workflows.text import stream_safe

NAMES = ("name", "function", "tool", "tool_name", "action", "function_name")
ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "params")
"""The keys under which models write the name and the arguments of a call."""
MAX_READ = 200_000
"""The most characters of a text that is read as calls."""
MAX_OBJECTS = 200
"""How many JSON objects of a text are examined, to find a call among other words."""
MARKS = ("<tool_call>", "<function_call>", "[TOOL_CALLS]", "<|python_tag|>", "<|tool_call|>", "<function=")
"""What begins a call in the templates of Hermes and Qwen, Mistral, Llama, and Granite."""
OBSERVATION = "Observation:"
FINISH = "Finish"

_Calls = list[tuple[str, Any]]
"""The name and the arguments of each call."""
_FENCE = re.compile(r"\A```[\w-]*[ \t]*\r?\n(.*?)\r?\n?```\Z", re.DOTALL)
_END_MARKS = re.compile(r"(?:<\|(?:eom_id|eot_id|im_end|end_of_text|endoftext)\|>|</s>)\s*\Z")
_BLOCK = re.compile(r"\s*<(tool_call|function_call)>\s*(.*?)\s*(?:</\1>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>\s*(.*?)\s*</function>", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_MISTRAL = re.compile(r"\s*(?:\[TOOL_CALLS\])?\s*([\w.-]+)\s*(?:\[CALL_ID\][\w-]*)?(?:\[ARGS\])?\s*(?=\{)")
_JSON = re.compile(r"(?=[\[{])")
_LINE = r"(?im)^[ \t>*#]*"
_ACTION = re.compile(_LINE + r"Action(?:[ \t]*\d+)?[ \t]*\**[ \t]*:[ \t*]*(?P<name>.+?)[ \t*]*$")
_INPUT = re.compile(_LINE + r"Action[ _]Input(?:[ \t]*\d+)?[ \t]*\**[ \t]*:[ \t*]*")
_OBSERVED = re.compile(_LINE + r"Observation(?:[ \t]*\d+)?[ \t]*\**[ \t]*:")
_THOUGHT = re.compile(_LINE + r"Thought(?:[ \t]*\d+)?[ \t]*\**[ \t]*:[ \t]*")
_FINISH = re.compile(_LINE + r"(?:Action(?:[ \t]*\d+)?[ \t]*:[ \t]*)?Finish[ \t]*\[(?P<answer>.*)\]", re.DOTALL)
_FINAL = re.compile(_LINE + r"Final Answer[ \t]*\**[ \t]*:[ \t]*(?P<answer>.*)", re.DOTALL)
_SHORT = re.compile(r"([\w.-]+)\s*\[(.*)\]\Z", re.DOTALL)


def whole_calls(text: str, names: Collection[str]) -> list[ToolCall]:
    """The calls in a text that is nothing but calls of tools in `names`, in known forms; else an empty list.

    The forms are JSON with a name and arguments, alone, in a list or in a fence; and the forms of Hermes and Qwen
    (`<tool_call>`), Mistral (`[TOOL_CALLS]`), Llama (`<|python_tag|>`, `<function=...>`, `[tool(argument="value")]`).
    """
    if len(text) > MAX_READ:
        return []
    try:
        found = _whole(_END_MARKS.sub("", text).strip())
    except RecursionError:  # marks in marks
        return []
    calls = [parse_call(f"text_{index}", name, args) for index, (name, args) in enumerate(found)]
    return calls if all(call.name in names for call in calls) else []


def called_in(text: str, names: Collection[str]) -> str:
    """Find a call in a text, in any known form and among any other words; return the tool's name, empty if none.

    A mark of MARKS, which only calls have, counts with any name; the mark is returned if the text has none of `names`.
    Any other form counts only with one of `names`.
    """
    text = text[:MAX_READ]
    if calls := whole_calls(text, names):
        return calls[0].name
    if mark := next((mark for mark in MARKS if mark in text), ""):
        return next((name for name in names if name in text), mark)
    for value in _json_objects(text):
        for name, _ in _calls_of(value):
            if name in names:
                return name
    for action in _ACTION.finditer(text):
        short = _SHORT.match(action["name"].strip())
        if short and short[1] in names:
            return short[1]
        if (name := _clean_name(action["name"])) in names and _INPUT.search(text, action.end()):
            return name
    # JSON that is broken, or of which the end is missing.
    keys, arguments = "|".join(NAMES), "|".join(ARGUMENTS)
    for key in re.finditer(rf"[\"'](?:{keys})[\"']\s*:\s*[\"']([\w.-]+)[\"']", text):
        if key[1] in names and re.search(rf"[\"'](?:{arguments})[\"']\s*:", text):
            return key[1]
    return ""


def _whole(text: str) -> _Calls:
    """The calls of a text that is nothing but calls, without blanks at its ends; empty for any other text."""
    if fenced := _FENCE.match(text):
        return _whole(fenced[1].strip()) if "```" not in fenced[1] else []
    for mark in ("<|python_tag|>", "<|tool_call|>"):
        if text.startswith(mark):
            return _whole(text.removeprefix(mark).strip())
    if text.startswith(("<tool_call>", "<function_call>")):
        return _in_series(_BLOCK, text, lambda block: (_whole(block[2]), block.end()))
    if text.startswith("<function="):
        return _in_series(_FUNCTION, text, lambda call: ([(call[1], _function_arguments(call[2]))], call.end()))
    if text.startswith("[TOOL_CALLS]"):
        rest = text.removeprefix("[TOOL_CALLS]").strip()
        return _json_calls(rest) or _in_series(_MISTRAL, rest, _mistral_call)
    return _json_calls(text) or _python_calls(text)


def _in_series(form: re.Pattern[str], text: str, read: Callable[[re.Match[str]], tuple[_Calls, int]]) -> _Calls:
    """The calls of a text that is a series of parts; empty for any other text.

    A part begins with a match of `form`, from which `read` makes its calls and the index of its end.
    """
    found, at = _Calls(), 0
    while at < len(text):
        match = form.match(text, at)
        calls, at = read(match) if match else ([], at)
        if not calls:
            return []
        found += calls
    return found


def _function_arguments(text: str) -> str | dict[str, Any]:
    if not text.startswith("<parameter=") or _PARAMETER.sub("", text).strip():
        return text
    return object_of([(name, _parameter(value)) for name, value in _PARAMETER.findall(text)])


def _parameter(text: str) -> Any:
    value, end = _decode_json(text, 0)
    return value if value is not None and end == len(text) else text


def _mistral_call(head: re.Match[str]) -> tuple[_Calls, int]:
    arguments, end = _decode_json(head.string, head.end())
    return [] if arguments is None else [(head[1], arguments)], end


def _json_calls(text: str) -> _Calls:
    """The calls in a text that is one JSON value, or several objects one after the other; else an empty list."""

    def read(start: re.Match[str]) -> tuple[_Calls, int]:
        value, end = _decode_json(text, start.end())
        return [*_calls_of(value)], _skipped(text, end, " \t\r\n,;")

    return _in_series(_JSON, text, read)


def _decode_json(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at an index, and the index after it; None if there is none, or it is too deep."""
    try:
        value, end = LENIENT_DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at
    return (None, at) if is_too_deep(value) else (value, end)


def _calls_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the calls that a JSON value describes; nothing if the value is anything else."""
    if isinstance(value, list):
        inner = [[*_calls_of(item)] for item in value]
        yield from (call for calls in inner for call in calls) if all(inner) else ()
        return
    if isinstance(value, RepeatedKey):
        yield from ((name, value) for name, _ in _calls_of(dict(value)))
        return
    if not isinstance(value, dict):
        return
    for key, form in (("tool_calls", list), ("function", dict)):
        if isinstance(value.get(key), form):
            yield from _calls_of(value[key])
            return
    name = next((value[key] for key in NAMES if isinstance(value.get(key), str)), None)
    arguments = next((value[key] for key in ARGUMENTS if isinstance(value.get(key), dict | str)), None)
    if name is not None and arguments is not None:
        yield name, arguments


def _python_calls(text: str) -> _Calls:
    """The calls of `[tool(argument="value"), ...]`, or of one such call alone; an empty list for any other text."""
    if not re.match(r"\[?\s*[A-Za-z_][\w.]*\(", text):
        return []
    try:
        body = ast.parse(stream_safe(text), mode="eval").body  # Python normalises names
        calls = body.elts if isinstance(body, ast.List) else [body]
        return [_python_call(call) for call in calls]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return []


def _python_call(call: ast.expr) -> tuple[str, Any]:
    if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name | ast.Attribute):
        raise ValueError("no call with named arguments")
    if any(one.arg is None for one in call.keywords):
        raise ValueError("arguments without names")
    return ast.unparse(call.func), object_of([(one.arg, _literal(one.value)) for one in call.keywords])


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Dict(keys, values):
            return object_of(
                [(key and ast.literal_eval(key), _literal(value)) for key, value in zip(keys, values, strict=True)]
            )
        case ast.List(parts) | ast.Tuple(parts):
            return [_literal(part) for part in parts]
    return ast.literal_eval(node)


def _json_objects(text: str) -> Iterator[Any]:
    at = text.find("{")
    for _ in range(MAX_OBJECTS):
        if at < 0:
            return
        value, end = _decode_json(text, at)
        if value is not None:
            yield value
        at = text.find("{", max(end, at + 1))


# Textual ReAct: Thought, Action, Action Input, Observation (https://arxiv.org/abs/2210.03629).


@dataclass(frozen=True)
class Move:
    """What a model wrote in one turn of textual ReAct."""

    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    """The text in `Finish[...]`; None if the turn does not end the task."""
    ignored: str = ""
    """The text after the first action: observations that the model invented, and its conclusions from them."""


def read_move(text: str, properties: Mapping[str, Sequence[str]], before: Collection[str] = ()) -> Move:
    """Read the first action, or the answer, of a text; a Move without calls and answer if the text has neither.

    `properties` has the names of each tool's arguments. After a call of a tool in `before`, the next action is read,
    too.
    """
    observed = _OBSERVED.search(text)
    own, ignored = (text[: observed.start()], text[observed.start() :]) if observed else (text, "")
    finish = _FINISH.search(own) or _FINAL.search(own)
    action = _ACTION.search(own)
    if finish and (action is None or finish.start() <= action.start()):
        return Move(_thought(own[: finish.start()]), answer=finish["answer"].strip(), ignored=ignored)
    calls, at = list[ToolCall](), 0
    first = action.start() if action else 0
    while action is not None:
        call, at = _action(own, action, f"text_{len(calls)}", properties)
        calls.append(call)
        if call.name not in before or ignored:
            break
        action = _ACTION.search(own, at)
    return Move(_thought(own[:first]), tuple(calls), ignored=(own[at:].strip() + "\n" + ignored).strip() if at else "")


def _action(text: str, action: re.Match[str], id: str, properties: Mapping[str, Sequence[str]]) -> tuple[ToolCall, int]:
    written = action["name"].strip()
    known = {name.lower(): name for name in properties}
    if short := _SHORT.match(written):  # as in the paper: search[words]
        name = known.get(short[1].lower(), short[1])
        fields = properties.get(name, ())
        is_object = short[2].lstrip().startswith("{")
        args: Any = short[2] if is_object or not short[2].strip() or not fields else {fields[0]: short[2].strip()}
        return parse_call(id, name, args), action.end()
    name = known.get(_clean_name(written).lower(), _clean_name(written))
    label = _INPUT.match(text, _skipped(text, action.end()))
    if label is None or not text[label.end() :].strip():
        return _without_input(parse_call(id, name, "{}"), properties), label.end() if label else action.end()
    at = _skipped(text, label.end())
    if fence := re.compile(r"```[\w-]*\s*").match(text, at):
        at = fence.end()
    value, end = _decode_json(text, at)
    if isinstance(value, dict):
        return parse_call(id, name, value), end
    line = text[at:].split("\n", 1)[0].strip()
    return parse_call(id, name, line), at + len(line)


def _without_input(call: ToolCall, properties: Mapping[str, Sequence[str]]) -> ToolCall:
    # The text may have been cut before the arguments, even if the server does not report that.
    return replace(call, broken="Action Input is missing") if properties.get(call.name) else call


def _skipped(text: str, at: int, skip: str | None = None) -> int:
    """The index of the first character from `at` on that is not in `skip`; if `skip` is None, that is no blank."""
    return at + len(text[at:]) - len(text[at:].lstrip(skip))


def _clean_name(name: str) -> str:
    return name.strip().strip("`'\"*").removesuffix("()").strip()


def _thought(text: str) -> str:
    return _THOUGHT.sub("", text).strip()


def written_move(thought: str, calls: Sequence[ToolCall]) -> str:
    """Write a turn of textual ReAct in the form that a model is told to write."""
    lines = [f"Thought: {' '.join(thought.split())}"] if thought.strip() else []
    for call in calls:
        lines += [f"Action: {call.name}", f"Action Input: {canonical(call.args)}"]
    return "\n".join(lines)


def written_answer(thought: str, answer: str) -> str:
    """Write the turn that ends a task in textual ReAct."""
    return f"{written_move(thought, ())}\n{FINISH}[{answer}]"


def written_call(call: ToolCall) -> str:
    """Write a call as JSON, in the form that a model is told to write."""
    return canonical({"name": call.name, "arguments": call.args})
