"""How a model is shown demonstrations: as turns before the conversation."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from activities.planning import prompts
from activities.planning.text_calls import written_answer
from activities.providers.messages import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from activities.providers.untrusted import fenced
from activities.toolbox.declare.kind import Kind
from activities.toolbox.find_tools import NAME as FIND_TOOLS
from workflows.plans.catalogue import Effect
from workflows.plans.demonstration import DemonstratedMove, Demonstration

DEPTH = 4
"""How deep a sample value is nested."""
SAMPLES: Mapping[str, JsonValue] = {
    **{"date": "2026-01-31", "time": "14:30:00", "date-time": "2026-01-31T14:30:00Z", "email": "ann@example.com"},
    **{"uri": "https://example.com/", "uuid": "00000000-0000-4000-8000-000000000000"},
}
"""A value of each format."""


def turns(demonstrations: Iterable[Demonstration], names: Mapping[str, str], *, is_textual: bool = False) -> list[Turn]:
    """Demonstrations as turns of a conversation; `names` are the names by which the kinds are called.

    With `is_textual`, the last turn of each is as a model ends a task in textual ReAct.
    """
    found = list[Turn]()
    for number, demonstration in enumerate(demonstrations):
        told = UserTurn(f"{prompts.EXAMPLE_TASK.format(task=demonstration.task)}\n{prompts.NEXT_MOVE}")
        for index, move in enumerate(demonstration.moves):
            call = ToolCall(f"example_{number}_{index}", names.get(move.kind, move.kind), move.args)
            thought = move.thought or (prompts.EXAMPLE_THOUGHT.format(kind=move.kind) if is_textual else "")
            found += [told, AssistantTurn(thought, (call,))]
            told = UserTurn(prompts.NEXT_MOVE, (ToolResult(call.id, fenced(move.kind, move.result)),))
        thought = demonstration.thought or prompts.EXAMPLE_END
        end = written_answer(thought, demonstration.answer) if is_textual else demonstration.answer
        found += [told, AssistantTurn(end)]
    return found


def built_in(kinds: Mapping[str, Kind]) -> list[Demonstration]:
    """A demonstration made from a tool that only reads, with sample values; none if there is no such tool."""
    reads = [kind for name, kind in kinds.items() if kind.spec.effect is Effect.READ and name != FIND_TOOLS]
    if not reads:
        return []
    kind = min(reads, key=lambda read: len(read.args_schema.get("required", ())))
    args, result = _sample(kind.args_schema, "", kind.args_schema), _sample(kind.result_schema, "", kind.result_schema)
    move = DemonstratedMove(kind=kind.spec.kind, args=args if isinstance(args, dict) else {}, result=result)
    name = kind.spec.kind
    return [
        Demonstration(
            task=f"Say what {name} shows for these sample values.",
            moves=(move.model_copy(update={"thought": prompts.EXAMPLE_THOUGHT.format(kind=name)}),),
            thought="The observation holds what was asked.",
            answer=f"{name} shows the sample values above.",
        )
    ]


def _sample(schema: Any, name: str, whole: Mapping[str, Any], depth: int = DEPTH) -> JsonValue:
    """A value that a schema may describe."""
    if not isinstance(schema, dict) or not depth:
        return f"some {name}" if name else "some text"
    if "$ref" in schema:
        part = whole.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2])
        return _sample(part, name, whole, depth - 1)
    chosen = [schema["const"]] if "const" in schema else [*schema.get("examples", ()), *schema.get("enum", ())]
    if chosen:
        found: JsonValue = chosen[0]
        return found
    options: Sequence[Any] = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf") or ()
    if options:
        return _sample(options[0], name, whole, depth - 1)
    match schema.get("type"):
        case "object":
            required = schema.get("required") or list(schema.get("properties", {}))
            fields = schema.get("properties", {})
            return {field: _sample(fields[field], field, whole, depth - 1) for field in required if field in fields}
        case "array":
            return [_sample(schema.get("items", {}), name, whole, depth - 1)]
        case "integer" | "number":
            return schema.get("minimum", 1)  # type: ignore[no-any-return]  # it is a number
        case "boolean":
            return True
        case "null":
            return None
    return SAMPLES.get(str(schema.get("format")), f"some {name}" if name else "some text")
