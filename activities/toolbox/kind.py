"""A tool that was checked: everything that the worker needs to know to offer it and to run it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic.errors import PydanticUserError

from activities.toolbox.injection import ASYNC_ONLY, INJECTABLE, Transaction
from activities.toolbox.tool import DECORATORS, Companion, Options, Tool
from workflows import catalogue, routing
from workflows.catalogue import Effect, ToolSpec
from workflows.plan import digest, nearest


@dataclass(frozen=True)
class Kind:
    """One kind: its spec, which the workflow decides by, and what only the worker needs."""

    spec: ToolSpec
    description: str
    function: Callable[..., Any]
    args: type[BaseModel]
    result: TypeAdapter[Any]
    injected: Mapping[str, type]
    """The parameters after the first, by name."""

    @property
    def is_async(self) -> bool:
        """Whether it runs on the event loop; otherwise in a thread."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def args_schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return self.args.model_json_schema()


def describe(tool: Tool[..., Any]) -> tuple[Kind | None, list[str]]:
    """Make a Kind of a tool, or say in one sentence per mistake what its author has to change."""
    mistakes = _own_mistakes(tool)
    try:
        hints = get_type_hints(tool.function)
    except (NameError, TypeError) as error:
        return None, [*mistakes, f"{tool.__name__}: an annotation cannot be resolved ({error}): import what it names."]
    parameters = list(inspect.signature(tool.function).parameters)
    mistakes += _parameter_mistakes(tool, parameters, hints) + _companion_mistakes(tool, parameters, hints)
    if "return" not in hints or hints["return"] is type(None):
        mistakes.append(f"{tool.__name__}: says nothing of its result: annotate it, e.g. -> Price (a pydantic model).")
    if mistakes:
        return None, mistakes
    try:
        return _build(tool, hints, parameters), []
    except PydanticUserError:
        return None, [f"{tool.__name__}: pydantic has no schema for its arguments or result: use pydantic models."]


def _build(tool: Tool[..., Any], hints: Mapping[str, Any], parameters: list[str]) -> Kind:
    args: type[BaseModel] = hints[parameters[0]]
    result, options = TypeAdapter[Any](hints["return"]), tool.options
    promise: dict[str, Any] = {
        "kind": tool.__name__,
        "effect": tool.effect,
        "retry": options.retry,
        "timeout": options.timeout,
        "observe": _companion(options.observe, args),
        "fallback": options.fallback.__name__ if options.fallback else None,
    }
    description = inspect.cleandoc(tool.__doc__ or "")
    spec = ToolSpec.model_validate(promise)
    whole: JsonValue = [spec.model_dump(mode="json"), args.model_json_schema(), result.json_schema(), description]
    return Kind(
        spec=spec.model_copy(update={"digest": digest(whole)}),
        description=description,
        function=tool.function,
        args=args,
        result=result,
        injected={name: hints[name] for name in parameters[1:]},
    )


def _own_mistakes(tool: Tool[..., Any]) -> list[str]:
    name, options = tool.__name__, tool.options
    mistakes = []
    if tool.effect is None:
        mistakes.append(f"{name}: a bare @tool does not say what a call changes: use one of {', '.join(DECORATORS)}.")
    if not (tool.__doc__ or "").strip():
        mistakes.append(f"{name}: has no docstring, which is what a planner reads: say in one sentence what it does.")
    if name in {spec.kind for spec in routing.OWN}:
        mistakes.append(f"{name}: is the name of one of Replan's own activities: rename the function.")
    if options.retry not in routing.PROFILES:
        mistakes.append(
            f"{name}: there is no retry profile {options.retry!r}: use one of {', '.join(routing.PROFILES)}."
        )
    if not options.timeout > 0:
        mistakes.append(f"{name}: timeout={options.timeout!r} must be a number of seconds above 0.")
    return mistakes


def _parameter_mistakes(tool: Tool[..., Any], parameters: list[str], hints: Mapping[str, Any]) -> list[str]:
    name = tool.__name__
    if not parameters or not _is_model(hints.get(parameters[0])):
        return [f"{name}: its first parameter must be one pydantic model: def {name}(args: MyArguments, ...)."]
    mistakes = []
    for extra in parameters[1:]:
        if hints.get(extra) not in INJECTABLE:
            mistakes.append(
                f"{name}: parameter {extra!r} has no type that can be given: {', '.join(INJECTABLE.values())}."
            )
        elif hints[extra] in ASYNC_ONLY and not inspect.iscoroutinefunction(tool.function):
            mistakes.append(f"{name}: a plain def runs in a thread and cannot use {extra!r}: write async def.")
    if tool.effect is Effect.TRANSACTIONAL and Transaction not in hints.values():
        mistakes.append(f"{name}: is transactional but takes no Transaction: add a parameter tx: Transaction.")
    return mistakes


def _companion_mistakes(tool: Tool[..., Any], parameters: list[str], hints: Mapping[str, Any]) -> list[str]:
    if not parameters or not _is_model(hints.get(parameters[0])):
        return []
    args, options = hints[parameters[0]], tool.options
    return _observe_mistakes(tool.__name__, args, options) + _fallback_mistakes(tool.__name__, args, options)


def _observe_mistakes(name: str, args: type[BaseModel], options: Options) -> list[str]:
    if options.observe is None:
        return []
    companion = _as_companion(options.observe)
    theirs, look = _args_of(companion.tool), companion.tool.__name__
    if companion.tool.effect is not Effect.READ or theirs is None:
        return [f"{name}: observe={look} must be a @tool.read with a model of arguments: looking must change nothing."]
    mistakes = []
    for field, path in companion.paths.items():
        root, _, rest = path.partition(".")
        if field not in theirs.model_fields:
            has = sorted(theirs.model_fields)
            mistakes.append(f"{name}: {look} has no argument {field!r}{nearest(field, has)}: it has {has}.")
        elif root != "args" or rest.split(".")[0] not in args.model_fields:
            mistakes.append(
                f"{name}: {field}={path!r} must be a path over args, which has {sorted(args.model_fields)}."
            )
    filled = {*companion.paths, *args.model_fields}
    for field, info in theirs.model_fields.items():
        if info.is_required() and field not in filled:
            mistakes.append(f'{name}: {look} needs {field!r}: write observe={look}.using({field}="args...").')
    return mistakes


def _fallback_mistakes(name: str, args: type[BaseModel], options: Options) -> list[str]:
    if options.fallback is None:
        return []
    theirs, other = _args_of(options.fallback), options.fallback.__name__
    seen, following = {name}, options.fallback
    while following.options.fallback is not None and following.__name__ not in seen:
        seen.add(following.__name__)
        following = following.options.fallback
    if following.__name__ in seen and following.options.fallback is not None:
        return [f"{name}: its fallbacks lead back to {following.__name__}: let the last one have none."]
    if theirs is None or not _accepts(theirs, args):
        return [f"{name}: fallback={other} must take the same arguments: give both the same model."]
    return []


def _accepts(theirs: type[BaseModel], ours: type[BaseModel]) -> bool:
    required = {field for field, info in theirs.model_fields.items() if info.is_required()}
    return issubclass(ours, theirs) or required <= set(ours.model_fields) <= set(theirs.model_fields)


def _companion(observe: Tool[..., Any] | Companion | None, args: type[BaseModel]) -> catalogue.Companion | None:
    """The companion as plain data, with the arguments that are taken by name written out."""
    if observe is None:
        return None
    companion = _as_companion(observe)
    theirs = _args_of(companion.tool)
    by_name = {
        field: f"args.{field}" for field in (theirs.model_fields if theirs else ()) if field in args.model_fields
    }
    return catalogue.Companion(kind=companion.tool.__name__, args={**by_name, **companion.paths})


def _as_companion(observe: Tool[..., Any] | Companion) -> Companion:
    return observe if isinstance(observe, Companion) else Companion(observe)


def _args_of(tool: Tool[..., Any]) -> type[BaseModel] | None:
    hints = get_type_hints(tool.function)
    first = next(iter(inspect.signature(tool.function).parameters), None)
    model = hints.get(first) if first else None
    return model if _is_model(model) else None


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and not get_args(hint) and issubclass(hint, BaseModel)
