"""Checks the other tools that a tool names in its options: `observe`, `reconcile`, `undo` and `fallback`.

For `observe`, `reconcile` and `undo`, paths say where the arguments of the other tool come from: `args.day`,
`result.id`, `key`. An argument without a path is taken from `args` by its name. `fallback` gets the same `args`.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeGuard, get_args, get_type_hints

from pydantic import BaseModel, JsonValue, RootModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from activities.toolbox.declare.fields import Fields, NoField
from activities.toolbox.declare.tool import Companion, Tool
from activities.toolbox.expressions.evaluation import Type
from workflows.plans import catalogue
from workflows.plans.catalogue import Effect
from workflows.text import nearest

UNRESOLVED = (NameError, AttributeError, TypeError, SyntaxError)
"""The errors of `get_type_hints` for an annotation that cannot be resolved."""


def mistakes(tool: Tool[..., Any], args: type[BaseModel], result: Any) -> Iterator[str]:
    """Yield a sentence for each mistake in `observe`, `reconcile`, `undo` and `fallback` of a tool with these types."""
    name, options = tool.__name__, tool.options
    if options.observe is not None:
        yield from _companion_mistakes(name, "observe", _as_companion(options.observe), {"args": args})
    if options.reconcile is not None:
        yield from _reconcile_mistakes(tool, _as_companion(options.reconcile), {"args": args, "key": str}, result)
    if options.undo is not None:
        yield from _companion_mistakes(name, "undo", _as_companion(options.undo), {"args": args, "result": result})
    if options.fallback is not None:
        yield from _fallback_mistakes(tool, options.fallback, args)


def as_data(
    companion: Tool[..., Any] | Companion | None, args: type[BaseModel], *, is_undo: bool = False
) -> catalogue.CompanionSpec | None:
    """Convert a companion to plain data with a path for each of its arguments; None if there is no companion.

    A companion is another tool that an option such as `undo` names. If its argument has no path, the value comes from
    the field of the same name in `args`, the argument model of the tool that has the option. With `is_undo`, the data
    also have the defaults of these fields.
    """
    if companion is None:
        return None
    companion = _as_companion(companion)
    theirs = _args_of(companion.tool)
    ours = arguments(args)
    names = [name for name in (arguments(theirs) if theirs else ()) if name not in companion.tool.origin.for_people]
    by_name = {name: f"args.{name}" for name in names if name in ours}
    paths = {**by_name, **companion.paths}
    defaults = _defaults(paths, args, theirs) if is_undo and theirs else {}
    return catalogue.CompanionSpec(kind=companion.tool.__name__, args=paths, defaults=defaults)


def _defaults(paths: Mapping[str, str], args: type[BaseModel], theirs: type[BaseModel]) -> dict[str, JsonValue]:
    """For each argument of an undo whose path leads to an optional argument of the call, the default of the latter.

    A default of None is left out if the undo requires the argument. A default that is made anew for each call is left
    out, too, since it is not known afterwards.
    """
    found, ours, others = dict[str, JsonValue](), arguments(args), arguments(theirs)
    for name, path in paths.items():
        source = ours.get(path.removeprefix("args."))
        if source is None or source.is_required() or source.default_factory is not None or name not in others:
            continue
        if source.default is not None or not others[name].is_required():
            with suppress(PydanticSerializationError):
                found[name] = to_jsonable_python(source.default)
    return found


def is_model(hint: Any) -> TypeGuard[type[BaseModel]]:
    """Whether an annotation is a model whose JSON is an object, as the arguments of a step must be."""
    is_class = isinstance(hint, type) and not get_args(hint)
    return is_class and issubclass(hint, BaseModel) and not issubclass(hint, RootModel)


def _companion_mistakes(name: str, option: str, companion: Companion, types: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistakes in a companion's effect and paths; `types` has the type of each name that may begin a path."""
    other, is_undo = companion.tool, option == "undo"
    if isinstance(other, Tool) and other.pure and not is_undo:
        yield f"{name}: {option}={other.__name__} is a @tool.pure, which cannot see the world: name a @tool.read."
    elif not isinstance(other, Tool) or (other.effect is Effect.READ) is not is_undo:
        yield from _path_mistakes(name, option, companion, types)
    elif is_undo:
        yield f"{name}: undo={other.__name__} is a @tool.read, which changes nothing: name a tool that undoes it."
    else:
        yield f"{name}: {option}={other.__name__} must be a @tool.read: observing must change nothing."


def _reconcile_mistakes(
    tool: Tool[..., Any], reconcile: Companion, types: Mapping[str, Any], result: Any
) -> Iterator[str]:
    name, read = tool.__name__, reconcile.tool
    if tool.effect is Effect.READ:
        yield f"{name}: a @tool.read has no effect to find out about: leave reconcile= out."
        return
    wrong = list(_companion_mistakes(name, "reconcile", reconcile, types))
    yield from wrong
    found = _hints_of(read).get("return") if isinstance(read, Tool) else None
    if not wrong and (differs := difference(found, result)):
        yield f"{name}: the result of reconcile={read.__name__} becomes its result, but {differs}: use one model."


def difference(found: Any, result: Any) -> str | None:
    """Why a value of type `found` cannot replace a `result`, as a part of a sentence; None if it can replace it."""
    if found == result or None in (found, result):  # a tool without a result type is reported elsewhere
        return None
    if not (is_model(found) and is_model(result)):
        return "it is of another type"
    required = {field for field, info in arguments(result).items() if info.is_required()}
    if lacks := sorted(required - {*arguments(found)}):
        return f"{found.__name__} lacks {lacks} of {result.__name__}"
    found_fields, result_fields = Fields.of(found), Fields.of(result)
    for field in sorted(required):
        found_type, other = found_fields.type(f"result.{field}"), result_fields.type(f"result.{field}")
        if found_type and other and found_type is not other:
            return f"{field!r} of {found.__name__} is {found_type.value}, of {result.__name__} {other.value}"
    return None


def _path_mistakes(name: str, option: str, companion: Companion, types: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistakes in the paths of a companion; `types` is as in `_companion_mistakes`."""
    if not isinstance(companion.tool, Tool):
        yield _no_tool_mistake(name, option, companion.tool)
        return
    theirs, other = _args_of(companion.tool), companion.tool.__name__
    if theirs is None:
        yield f"{name}: {option}={other} must take a pydantic model of arguments."
        return
    needed = arguments(theirs)
    for field, path in companion.paths.items():
        if field not in needed:
            has = sorted(needed)
            yield f"{name}: {other} has no argument {field!r}{nearest(field, has)}: it has {has}."
        elif reason := _wrong_path(path, types):
            yield f"{name}: {field}={path!r} {reason}."
        elif path == "key" and Fields.of(theirs).type(f"args.{field}") not in (Type.TEXT, None):
            yield f"{name}: the key is a str, but {field!r} of {other} is not: give it an argument of type str."
    filled = {*companion.paths, *arguments(types["args"])}
    for field, info in needed.items():
        if info.is_required() and field not in filled:
            yield f'{name}: {other} needs {field!r}: write {option}={other}.using({field}="args...").'


def _wrong_path(path: str, types: Mapping[str, Any]) -> str | None:
    """Why a path leads to no value, as the end of a sentence; None if it leads to a value."""
    root, _, rest = path.partition(".")
    if path == "key" and path in types:
        return None
    if not rest or root not in types:
        roots = " or ".join(types)
        return f"must be a path over {roots}, e.g. {next(iter(types))}.{rest.split('.')[0] or path}"
    try:
        Fields.of(types[root]).type(path)
    except NoField as missing:
        return f"leads nowhere{missing}"
    return None


def _fallback_mistakes(tool: Tool[..., Any], fallback: object, args: type[BaseModel]) -> Iterator[str]:
    name = tool.__name__
    if not isinstance(fallback, Tool):
        yield _no_tool_mistake(name, "fallback", fallback)
        return
    theirs, other = _args_of(fallback), fallback.__name__
    if cycle := _cycle(name, fallback):
        yield f"{name}: its fallbacks lead back to {cycle}: let the last one have none."
    # An effect of None is a bare @tool, which is reported for the other tool itself.
    elif tool.effect is Effect.READ and fallback.effect not in (Effect.READ, None):
        yield f"{name}: fallback={other} changes something, and a @tool.read must not: name another @tool.read."
    elif theirs is None or not _accepts_arguments(theirs, args):
        yield f"{name}: fallback={other} must take the same arguments: give both the same model."


def _cycle(name: str, fallback: Tool[..., Any]) -> str | None:
    """The tool to which a chain of fallbacks returns; None if the chain ends."""
    names, following = {name}, fallback
    while isinstance(following.options.fallback, Tool) and following.__name__ not in names:
        names.add(following.__name__)
        following = following.options.fallback
    return following.__name__ if following.__name__ in names else None


def _no_tool_mistake(name: str, option: str, companion: object) -> str:
    called = getattr(companion, "__name__", repr(companion))
    return f"{name}: {option}={called} is no tool: decorate it, e.g. with @tool.read."


def _accepts_arguments(fallback_args: type[BaseModel], args: type[BaseModel]) -> bool:
    taken, passed = arguments(fallback_args), arguments(args)
    required = {name for name, info in taken.items() if info.is_required()}
    return issubclass(args, fallback_args) or required <= set(passed) <= set(taken)


def arguments(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by their names in a call: the alias, or else the name of the field."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _as_companion(other: Tool[..., Any] | Companion) -> Companion:
    return other if isinstance(other, Companion) else Companion(other)


def _args_of(tool: Tool[..., Any]) -> type[BaseModel] | None:
    """The model of a tool's arguments; None if the first parameter has no such type."""
    first = next(iter(inspect.signature(tool.function).parameters), None)
    model = _hints_of(tool).get(first) if first else None
    return model if is_model(model) else None


def _hints_of(tool: Tool[..., Any]) -> Mapping[str, Any]:
    """The type hints of a tool's function; empty if an annotation cannot be resolved."""
    try:
        return get_type_hints(tool.function)
    except UNRESOLVED:  # `describe` reports it
        return {}
