"""Compares the arguments of a step with its tool, and the tool with the version that the step was planned for."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, BaseModel, JsonValue, Secret, SecretBytes, SecretStr, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.fields import FieldInfo

from activities.borders import validation
from activities.toolbox.declare.condition_clauses import clause_of
from activities.toolbox.declare.conditions import Condition, Undecided, condition_value
from activities.toolbox.declare.fields import Fields, NoField
from activities.toolbox.declare.kind import Kind
from activities.toolbox.expressions.evaluation import Type
from workflows.inquiries import ApprovalNeed, Misfit, NextCall, PlannedStep
from workflows.json_values import canonical
from workflows.people.requests import is_secret
from workflows.plans.catalogue import Effect, ToolSpec
from workflows.plans.references import is_reference, references

MAX_CHANGES = 5


def unknown_arguments(kind: Kind, args: JsonValue) -> list[str]:
    """The names in `args` that the tool does not declare; empty if the tool accepts any name."""
    schema = kind.args_schema
    if not isinstance(args, dict) or is_reference(args) or schema.get("additionalProperties"):
        return []
    known = {*schema.get("properties", ()), *kind.args.model_fields} - kind.for_people
    return [name for name in args if name not in known]


def wrong_arguments(kind: Kind, args: JsonValue) -> list[Any]:
    """The errors of pydantic for arguments that the tool rejects, without errors that a reference may have caused."""
    try:
        kind.parse(args)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return [mistake for mistake in found if not _may_come_from_reference(args, mistake["loc"], mistake["type"])]
    return []


def changes(kind: Kind, args: JsonValue, effect: Effect | None) -> str:
    """What changed in a tool so that a call planned for an earlier version no longer fits; empty if the call fits.

    `effect` is the tool's effect in that earlier version; None if it is not known.
    """
    # Validation ignores unknown names: without the amount, say, the tool would refund everything.
    found = [f"{name[: validation.MAX_NAME]!r} is gone" for name in unknown_arguments(kind, args)]
    found += [_change(error) for error in wrong_arguments(kind, args)]
    if effect is not None and effect is not kind.spec.effect:
        found.insert(0, f"its effect was {effect.value} and is {kind.spec.effect.value} now")
    found = list(dict.fromkeys(found))
    more = f" and {len(found) - MAX_CHANGES} more" if len(found) > MAX_CHANGES else ""
    return "; ".join(found[:MAX_CHANGES]) + more


def added_arguments(kind: Kind, args: BaseModel, passed: JsonValue) -> dict[str, JsonValue]:
    """The arguments that a call has in addition to those that were `passed`, by name: the defaults of the tool's model.

    An argument that was given without some of its parts is returned whole, with the defaults of these parts. Not
    returned are secrets, as the model declares them, arguments that only a person may give, and values that are made
    anew for each call, such as the time. Empty if the model cannot be written as JSON.
    """
    if not isinstance(passed, dict):
        return {}
    try:
        whole, again = (
            _completed(model, passed, model.model_dump(mode="json", by_alias=True, warnings=False))
            for model in (args, kind.parse(passed))
        )
    except Exception:  # a serializer or validator is code of the tool, and may raise anything
        return {}
    properties = kind.args_schema.get("properties", {})
    found = dict[str, JsonValue]()
    for name, value in whole.items():
        declared = properties.get(name, {})
        if name in kind.for_people or is_secret(declared) or (name in passed and value == passed[name]):
            continue
        if value != again.get(name) or name in _made_anew(args):
            continue
        # The model of a foreign tool leaves the defaults to its server.
        found[name] = declared.get("default") if value is None and name not in passed else value
    return found


def _made_anew(model: BaseModel) -> set[str]:
    """The names of the fields whose default a function makes; a class such as `list` does not count as a function."""
    fields = type(model).model_fields.items()
    made = [(field, info) for field, info in fields if not isinstance(info.default_factory, type | None)]
    return {name for field, info in made for name in _names(type(model), field, info)}


def _completed(model: BaseModel, passed: Mapping[str, JsonValue], dumped: Any) -> dict[str, JsonValue]:
    """The arguments `passed` to a model, with the fields that were left out; `dumped` is the whole model as JSON."""
    found = dict(passed)
    for field, info in type(model).model_fields.items():
        names, written = _names(type(model), field, info), info.serialization_alias or info.alias or field
        value: Any = getattr(model, field)
        is_shown = info.repr and not isinstance(value, Secret | SecretStr | SecretBytes)
        if not names or not is_shown or not isinstance(dumped, dict) or written not in dumped:
            continue
        name = next((name for name in names if name in passed), None)
        if name is None:
            found[names[0]] = dumped[written]
        else:
            found[name] = _with_parts(value, passed[name], dumped[written])
    return found


def _with_parts(value: Any, passed: JsonValue, dumped: Any) -> JsonValue:
    """`passed`, with the fields that were left out of the models in it; `dumped` is the validated `value` as JSON."""
    if isinstance(value, BaseModel) and isinstance(passed, dict):
        return _completed(value, passed, dumped)
    if not (isinstance(value, list | tuple) and isinstance(passed, list) and isinstance(dumped, list)):
        return passed
    if len(value) == len(passed) == len(dumped):
        return [_with_parts(*parts) for parts in zip(value, passed, dumped, strict=True)]
    return passed


def _names(model: type[BaseModel], field: str, info: FieldInfo) -> list[str]:
    """The names under which a field may be given; empty if its alias is a path into another argument."""
    alias = info.validation_alias
    if alias is None:
        return [field]
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    is_by_name = model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name")
    return [choice for choice in choices if isinstance(choice, str)] + ([field] if is_by_name else [])


def approvals(kinds: Mapping[str, Kind], calls: Iterable[PlannedStep]) -> dict[str, ApprovalNeed]:
    """For each call, by the id of its step, whether the tool declares that a person must approve the call."""
    return {call.step: _approval(kinds[call.kind], call.args) for call in calls if call.kind in kinds}


def _approval(kind: Kind, args: Mapping[str, JsonValue]) -> ApprovalNeed:
    """Whether a person must approve a call, and why: `may` if a reference or a missing value leaves it open."""
    if not isinstance(kind.approve, Condition):
        return ApprovalNeed(asks="yes" if kind.approve else "no", why=kind.spec.asks)
    known = {name: value for name, value in args.items() if not any(references(value))}
    try:
        model = _without(kind.args, args.keys() - known).model_validate_json(canonical(known))
        values = {"args": condition_value(model.model_dump)}
        is_asked = kind.approve.holds(values)
    except (ValidationError, Undecided):
        return ApprovalNeed(asks="may", why=kind.spec.asks)
    return ApprovalNeed(asks="yes", why=clause_of(kind.approve, values)) if is_asked else ApprovalNeed(asks="no")


def _without(model: type[BaseModel], names: Collection[str]) -> type[BaseModel]:
    """The model without the fields `names` and without all validators, which may use these fields."""
    if not names:
        return model
    fields: dict[str, Any] = {
        name: (field.annotation, field)
        for name, field in model.model_fields.items()
        if name not in names and field.alias not in names
    }
    return create_model(model.__name__, __config__=model.model_config, **fields)


def misfits(kinds: Mapping[str, Kind], calls: Iterable[NextCall]) -> list[Misfit]:
    """The next calls of open tasks that do not fit their tools, with the reasons."""
    found = list[Misfit]()
    for call in calls:
        if difference := "; ".join(_differences(kinds, call)):
            found.append(Misfit(task=call.task, step=call.step, kind=call.undoes or call.kind, difference=difference))
    return found


def _differences(kinds: Mapping[str, Kind], call: NextCall) -> Iterator[str]:
    """Why a call of an open task does not fit the tools, as parts of a sentence."""
    kind = kinds.get(call.kind)
    if call.undoes:
        undone = kinds.get(call.undoes)
        if undone is not None and undone.spec.undo is None:
            yield f"its undo= is gone, it was {call.kind}"
        elif kind is None:
            yield f"its undo= {call.kind} is gone"
        elif difference := changes(kind, call.args, call.effect):
            yield f"its undo= {call.kind} takes the call no more: {difference}"
        return
    if kind is None:
        yield "the tool is gone"
        return
    if difference := changes(kind, call.args, call.effect):
        yield difference
    for path, reference in _references(call.args):
        source = kinds.get(call.sources.get(str(reference["$from"]), ""))
        if source is not None and (difference := _result_change(kind, call.args, path, reference, source)):
            yield difference
    if call.tool is not None:
        yield from _companion_changes(kinds, kind, call.tool)


def _references(value: JsonValue, path: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, dict[str, JsonValue]]]:
    """Each reference in arguments, with its path."""
    if is_reference(value):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _references(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _references(item, (*path, index))


def _result_change(
    kind: Kind,
    args: Mapping[str, JsonValue],
    at: Sequence[str | int],
    reference: Mapping[str, JsonValue],
    source: Kind,
) -> str:
    """How the result of a step that is still to come does not fit a reference to it; empty if it fits, or may fit."""
    step, path = reference["$from"], str(reference.get("path", ""))
    where = f"{validation.field_name(tuple(at))} is {path!r} of the result of step {step}"
    try:
        found = _type_in_result(source, path)
    except NoField as error:
        return f"{where}, which {source.spec.kind} does not return{error}"
    sample = _SAMPLES.get(found) if found else None
    if sample is None:
        return ""
    try:
        kind.parse(_replaced(dict(args), at, sample))
    except ValidationError as error:
        for wrong in error.errors(include_url=False, include_context=False, include_input=False):
            # A number may be in a text, say, and what is at another place may come from another reference.
            if wrong["type"].endswith("_type") and tuple(wrong["loc"])[: len(at)] == tuple(at):
                type_name = found.value if found else ""
                return f"{where}, which {source.spec.kind} returns as {type_name}: {validation.expected(wrong)}"
    return ""


_SAMPLES: Mapping[Type, JsonValue] = {Type.NUMBER: 1, Type.TEXT: "1", Type.TRUTH: True, Type.LIST: [], Type.OBJECT: {}}
"""A value of each type. An empty one, which may have no fields, is only told from a value of another type."""


def _type_in_result(kind: Kind, path: str) -> Type | None:
    """The type at a path into the results of a kind; None if it is not known. Raises NoField if nothing is there."""
    try:
        schemas = [kind.result.json_schema(by_alias=by_alias, mode="serialization") for by_alias in (False, True)]
    except (PydanticUserError, PydanticInvalidForJsonSchema):
        return None
    dotted = ".".join(["result", *filter(None, path.split("."))])
    try:
        return Fields(schemas[0], schemas[0]).type(dotted)
    except NoField:
        return Fields(schemas[1], schemas[1]).type(dotted)


def _replaced(value: Any, path: Sequence[str | int], item: JsonValue) -> Any:
    """A copy of `value` with `item` at the path."""
    if not path:
        return item
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(copy[path[0]], path[1:], item)
    return copy


def _companion_changes(kinds: Mapping[str, Kind], kind: Kind, planned: ToolSpec) -> Iterator[str]:
    """How the other tools that a tool named, when a call was planned for it, do not fit any more."""
    if planned.undo is not None and kind.spec.undo is None:
        yield f"its undo= is gone, it was {planned.undo.kind}"
    elif planned.fallback is not None and planned.fallback not in kinds:
        yield f"its fallback= {planned.fallback} is gone"
    for option, companion in (("undo", planned.undo), ("reconcile", planned.reconcile), ("observe", planned.observe)):
        if companion is None or (option == "undo" and kind.spec.undo is None):
            continue
        other = kinds.get(companion.kind)
        if other is None:
            yield f"its {option}= {companion.kind} is gone"
            continue
        found = [f"{name!r} is gone" for name in unknown_arguments(other, dict.fromkeys(companion.args))]
        needed = {*other.args_schema.get("required", ())} - companion.args.keys() - other.for_people
        found += [f"{name!r} is new and required" for name in sorted(needed)]
        for name, path in companion.args.items():
            try:
                _type_in_result(kind, path.removeprefix("result.")) if path.startswith("result.") else None
            except NoField as error:
                found.append(f"{name!r} was {path}, which {kind.spec.kind} does not return{error}")
        if found:
            yield f"its {option}= {companion.kind} takes the call no more: {'; '.join(found)}"


def _change(error: Any) -> str:
    """What has changed in a tool, judging by an error of pydantic for arguments that once were valid."""
    field, kind = validation.field_name(error["loc"]), str(error["type"])
    if kind == "missing":
        return f"{field} is new and required"
    if kind == "extra_forbidden":
        return f"{field} is gone"
    what = "has another type" if kind.endswith(("_type", "_parsing")) else "has another rule"
    return f"{field} {what}: {validation.expected(error)}"


def _may_come_from_reference(value: JsonValue, loc: Sequence[int | str], error_type: str) -> bool:
    """Whether pydantic may report this error at `loc` only because a reference in `value` has no value yet."""
    for part in loc:
        if is_reference(value):
            return True
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]  # any other part names a member of a union and is no place in the value
    return error_type not in ("missing", "extra_forbidden") and any(references(value))
