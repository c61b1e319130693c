"""The tool `propose_plan`, whose schema is made from the catalogue."""

from collections.abc import Mapping
from typing import Any

from activities import prompts
from activities.llm.ends import PROPOSE, Schema, only
from activities.llm.language_model import Offer
from activities.toolbox.kind import Kind
from workflows.plan import MAX_STEPS

REFERENCE = "reference"
DEFINITIONS = "#/$defs/"

DESCRIBING = ("description", "title", "default")

SHARED: Mapping[str, Schema] = {
    "id": {"type": "string", "description": "A letter, then letters, digits, - or _; new in this task."},
    "title": {"type": "string", "description": "What it does, in a few words, for people."},
    "needs": {"type": "array", "items": {"type": "string"}, "description": "Ids of steps to be finished before."},
    # `$from` cannot be named as a property: Anthropic takes letters, digits, `_`, `.` and `-` alone there
    REFERENCE: {
        "type": "object",
        "description": 'The result of another step: {"$from": "<step id>"}, or a part of it, with "path": "a.0".',
        "additionalProperties": {"type": "string"},
        "required": ["$from"],
    },
}
"""What steps of all kinds have."""


def propose_plan(kinds: Mapping[str, Kind]) -> Offer:
    """The call that carries a plan of steps of these kinds."""
    return Offer(PROPOSE, prompts.PROPOSE, _plan(kinds))


def _plan(kinds: Mapping[str, Kind]) -> Schema:
    definitions: Schema = dict(SHARED)
    for name, kind in kinds.items():
        parts = kind.args_schema.get("$defs", {})
        definitions |= {f"{name}.{part}": _opened(schema, name) for part, schema in parts.items()}
        definitions[f"{name}.arguments"] = _arguments(kind)
    steps = {"type": "array", "minItems": 1, "maxItems": MAX_STEPS, "items": {"anyOf": [_step(name) for name in kinds]}}
    because = {"type": "string", "description": "Why these steps, in one sentence, for the people who watch."}
    return {**only({"because": because, "steps": steps}, required=["steps"]), "$defs": definitions}


def _step(kind: str) -> Schema:
    """A step of one kind, whole in itself: servers that hold a model to a schema read each choice alone."""
    shared = {name: {"$ref": f"{DEFINITIONS}{name}"} for name in ("id", "title", "needs")}
    own = {"kind": {"type": "string", "enum": [kind]}, "args": {"$ref": f"{DEFINITIONS}{kind}.arguments"}}
    return only({**shared, **own}, required=["id", "kind", "args"])


def _arguments(kind: Kind) -> Schema:
    plain = {name: part for name, part in kind.args_schema.items() if name != "$defs"}
    opened: Schema = _opened(plain, kind.spec.kind)
    return opened


def _opened(schema: Any, kind: str) -> Any:
    """The schema with a reference allowed wherever a value is, and its definitions found under the kind's name."""
    if isinstance(schema, list):
        return [_opened(item, kind) for item in schema]
    if not isinstance(schema, dict):
        return schema
    opened: Schema = {}
    for name, part in schema.items():
        if name == "properties":
            opened[name] = {field: _or_reference(_opened(inner, kind)) for field, inner in part.items()}
        elif name in ("items", "additionalProperties") and isinstance(part, dict):
            opened[name] = _or_reference(_opened(part, kind))
        elif name == "$ref":
            opened[name] = f"{DEFINITIONS}{kind}.{str(part).removeprefix(DEFINITIONS)}"
        elif name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            opened["anyOf" if name == "oneOf" else name] = _opened(part, kind)
        elif name != "discriminator":
            opened[name] = part
    return opened


def _or_reference(schema: Schema) -> Schema:
    """The schema or a reference, described as before."""
    about: Schema = {name: schema[name] for name in DESCRIBING if name in schema}
    plain = {name: part for name, part in schema.items() if name not in about}
    return {**about, "anyOf": [plain, {"$ref": f"{DEFINITIONS}{REFERENCE}"}]}
