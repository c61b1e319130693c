"""Other tools that a tool names: what looks again after its refusal, what finds out whether its effect happened, what
undoes it, what takes over from it.

All but the last say where the other's arguments come from, as paths over the call: `args.day`, `result.id`, `key`.
Omitted arguments are taken from `args` by name.
"""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, RootModel

from activities.toolbox.declare.conditions import Fields, NoField
from activities.toolbox.declare.tool import Companion, Tool
from activities.toolbox.expressions.evaluation import Type
from workflows import catalogue
from workflows.catalogue import Effect
from workflows.plan import nearest

UNRESOLVED = (NameError, AttributeError, TypeError, SyntaxError)
"""What an annotation raises that names nothing."""


def mistakes(tool: Tool[..., Any], args: type[BaseModel], result: Any) -> list[str]:
    """Say in one sentence per mistake what is wrong with the other tools that a tool names."""
    name, options, call = tool.__name__, tool.options, {"args": args, "result": result}
    return [
        *_observe_mistakes(name, options.observe, {"args": args}),
        *_reconcile_mistakes(tool, {"args": args, "key": str}, result),
        *_undo_mistakes(name, options.undo, call),
        *_fallback_mistakes(tool, args),
    ]


def as_data(companion: Tool[..., Any] | Companion | None, args: type[BaseModel]) -> catalogue.Companion | None:
    """The companion as plain data, with the arguments that are taken by name written out."""
    if companion is None:
        return None
    companion = _as_companion(companion)
    theirs = _args_of(companion.tool)
    by_name = {name: f"args.{name}" for name in (theirs.model_fields if theirs else ()) if name in args.model_fields}
    return catalogue.Companion(kind=companion.tool.__name__, args={**by_name, **companion.paths})


def is_model(hint: Any) -> bool:
    """Whether it is a model whose JSON is an object, as the arguments of a step are."""
    return (
        isinstance(hint, type)
        and not get_args(hint)
        and issubclass(hint, BaseModel)
        and not issubclass(hint, RootModel)
    )


def _observe_mistakes(name: str, observe: Tool[..., Any] | Companion | None, call: Mapping[str, Any]) -> list[str]:
    if observe is None:
        return []
    look = _as_companion(observe).tool
    if isinstance(look, Tool) and look.effect is not Effect.READ:
        return [f"{name}: observe={look.__name__} must be a @tool.read with a model: looking must change nothing."]
    return _path_mistakes(name, "observe", _as_companion(observe), call)


def _reconcile_mistakes(tool: Tool[..., Any], call: Mapping[str, Any], result: Any) -> list[str]:
    name, reconcile = tool.__name__, tool.options.reconcile
    if reconcile is None:
        return []
    if tool.effect is Effect.READ:
        return [f"{name}: is a @tool.read, so there is no effect to find out about: leave reconcile= out."]
    look = _as_companion(reconcile).tool
    if isinstance(look, Tool) and look.effect is not Effect.READ:
        return [f"{name}: reconcile={look.__name__} must be a @tool.read with a model: looking must change nothing."]
    mistakes = _path_mistakes(name, "reconcile", _as_companion(reconcile), call)
    found = _hints_of(look).get("return") if isinstance(look, Tool) else None
    if not mistakes and (missing := _missing(found, result)):
        mistakes.append(
            f"{name}: what reconcile={look.__name__} finds becomes its result, and {missing}: give both one model."
        )
    return mistakes


def _missing(found: Any, result: Any) -> str | None:
    """What a value of the type `found` lacks to be a `result`, as the middle of a sentence."""
    if found == result or None in (found, result):  # a tool without a result has a mistake of its own
        return None
    if not (is_model(found) and is_model(result)):
        return "that is of another type"
    required = {field for field, info in result.model_fields.items() if info.is_required()}
    lacks = sorted(required - {*found.model_fields})
    return f"{found.__name__} lacks {lacks} of {result.__name__}" if lacks else _other_type(found, result, required)


def _other_type(found: type[BaseModel], result: type[BaseModel], fields: Iterable[str]) -> str | None:
    there, wanted = Fields.of(found), Fields.of(result)
    for field in sorted(fields):
        one, other = there.type(f"result.{field}"), wanted.type(f"result.{field}")
        if one and other and one is not other:
            return f"{field!r} of {found.__name__} is {one.value}, of {result.__name__} {other.value}"
    return None


def _undo_mistakes(name: str, undo: Tool[..., Any] | Companion | None, call: Mapping[str, Any]) -> list[str]:
    if undo is None:
        return []
    other = _as_companion(undo).tool
    if isinstance(other, Tool) and other.effect is Effect.READ:
        return [f"{name}: undo={other.__name__} is a @tool.read, which changes nothing: name a tool that undoes it."]
    return _path_mistakes(name, "undo", _as_companion(undo), call)


def _path_mistakes(name: str, option: str, companion: Companion, call: Mapping[str, Any]) -> list[str]:
    """What is wrong with where the arguments of a companion come from; `call` has the types of the paths' roots."""
    if not isinstance(companion.tool, Tool):
        return [_no_tool(name, option, companion.tool)]
    theirs, other = _args_of(companion.tool), companion.tool.__name__
    if theirs is None:
        return [f"{name}: {option}={other} must take a model of arguments."]
    wrong = []
    for field, path in companion.paths.items():
        if field not in theirs.model_fields:
            has = sorted(theirs.model_fields)
            wrong.append(f"{name}: {other} has no argument {field!r}{nearest(field, has)}: it has {has}.")
        elif reason := _wrong_path(path, call):
            wrong.append(f"{name}: {field}={path!r} {reason}.")
        elif path == "key" and Fields.of(theirs).type(f"args.{field}") not in (Type.TEXT, None):
            wrong.append(
                f"{name}: the key is a text, and {field!r} of {other} is none: give it an argument of type str."
            )
    filled = {*companion.paths, *call["args"].model_fields}
    for field, info in theirs.model_fields.items():
        if info.is_required() and field not in filled:
            wrong.append(f'{name}: {other} needs {field!r}: write {option}={other}.using({field}="args...").')
    return wrong


def _wrong_path(path: str, call: Mapping[str, Any]) -> str | None:
    root, _, rest = path.partition(".")
    if path == "key" and path in call:
        return None
    if not rest or root not in call:
        roots = " or ".join(call)
        return f"must be a path over {roots}, e.g. {next(iter(call))}.{rest.split('.')[0] or path}"
    try:
        Fields.of(call[root]).type(path)
    except NoField as missing:
        return f"leads nowhere{missing}"
    return None


def _fallback_mistakes(tool: Tool[..., Any], args: type[BaseModel]) -> list[str]:
    name, fallback = tool.__name__, tool.options.fallback
    if fallback is None:
        return []
    if not isinstance(fallback, Tool):
        return [_no_tool(name, "fallback", fallback)]
    theirs, other = _args_of(fallback), fallback.__name__
    seen, following = {name}, fallback
    while isinstance(following.options.fallback, Tool) and following.__name__ not in seen:
        seen.add(following.__name__)
        following = following.options.fallback
    if following.__name__ in seen:
        return [f"{name}: its fallbacks lead back to {following.__name__}: let the last one have none."]
    if tool.effect is Effect.READ and fallback.effect not in (Effect.READ, None):
        return [f"{name}: fallback={other} changes something, and a @tool.read must not: name another @tool.read."]
    if theirs is None or not _accepts(theirs, args):
        return [f"{name}: fallback={other} must take the same arguments: give both the same model."]
    return []


def _no_tool(name: str, option: str, given: object) -> str:
    called = getattr(given, "__name__", repr(given))
    return f"{name}: {option}={called} is no tool: decorate it, e.g. with @tool.read."


def _accepts(theirs: type[BaseModel], ours: type[BaseModel]) -> bool:
    required = {field for field, info in theirs.model_fields.items() if info.is_required()}
    return issubclass(ours, theirs) or required <= set(ours.model_fields) <= set(theirs.model_fields)


def _as_companion(observe: Tool[..., Any] | Companion) -> Companion:
    return observe if isinstance(observe, Companion) else Companion(observe)


def _args_of(tool: Tool[..., Any]) -> type[BaseModel] | None:
    first = next(iter(inspect.signature(tool.function).parameters), None)
    model = _hints_of(tool).get(first) if first else None
    return model if is_model(model) else None


def _hints_of(tool: Tool[..., Any]) -> Mapping[str, Any]:
    """The annotations of a tool; none where they cannot be resolved, which is a mistake of its own."""
    try:
        return get_type_hints(tool.function)
    except UNRESOLVED:
        return {}
