"""How a model is shown demonstrations: as text in its instructions, or as turns before the conversation."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from activities.planning import prompts
from activities.planning.text_calls import written_move
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


def written(demonstrations: Iterable[Demonstration], names: Mapping[str, str]) -> str:
    """Demonstrations as textual ReAct; `names` are the names by which the kinds are called."""
    return "\n\n".join([prompts.EXAMPLES, *(_written(each, names) for each in demonstrations)])


def _written(demonstration: Demonstration, names: Mapping[str, str]) -> str:
    lines = [f"Task: {demonstration.task}"]
    for move in demonstration.moves:
        call = ToolCall("", names.get(move.kind, move.kind), move.args)
        lines += [written_move(move.thought or _why(move), [call]), f"Observation: {fenced(move.kind, move.result)}"]
    return "\n".join([*lines, f"Thought: {demonstration.thought or 'I know all.'}", f"Finish[{demonstration.answer}]"])


def turns(demonstrations: Iterable[Demonstration], names: Mapping[str, str]) -> list[Turn]:
    """Demonstrations as turns with native calls."""
    found = list[Turn]()
    for number, demonstration in enumerate(demonstrations):
        told = UserTurn(prompts.EXAMPLE_TASK.format(task=demonstration.task))
        for index, move in enumerate(demonstration.moves):
            call = ToolCall(f"example_{number}_{index}", names.get(move.kind, move.kind), move.args)
            found += [told, AssistantTurn(move.thought, (call,))]
            told = UserTurn(results=(ToolResult(call.id, fenced(move.kind, move.result)),))
        found += [told, AssistantTurn(demonstration.answer)]
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


def _why(move: DemonstratedMove) -> str:
    return prompts.EXAMPLE_THOUGHT.format(kind=move.kind)


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
