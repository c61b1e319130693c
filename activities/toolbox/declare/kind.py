"""A tool that was checked: everything that the worker needs to know to offer it and to run it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_type_hints

from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic.errors import PydanticUserError
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.toolbox.declare import companions, conditions
from activities.toolbox.declare.conditions import Condition
from activities.toolbox.declare.tool import DECORATORS, Options, Tool
from activities.toolbox.injection import ASYNC_ONLY, INJECTABLE, Key, LanguageModel, Transaction
from workflows import routing
from workflows.catalogue import Effect, ToolSpec
from workflows.plan import canonical, digest, nearest

DAY = routing.STEP_DEADLINE.total_seconds()
DATABASES = ("sqlite", "postgresql")
"""Those in which the ledger can be kept, as SQLAlchemy names them."""
BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


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
    datasource: AsyncEngine | None = None
    """The database of its `Transaction`; None for the worker's store."""

    @property
    def is_async(self) -> bool:
        """Whether it runs on the event loop; otherwise in a thread."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def asks_model(self) -> bool:
        """Whether it takes a model, which not every worker has."""
        return LanguageModel in self.injected.values()

    @cached_property
    def args_schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return self.args.model_json_schema()

    @cached_property
    def ensure(self) -> Condition | None:
        """What every result of it keeps."""
        return Condition.read(self.spec.ensure) if self.spec.ensure else None

    def parse(self, args: JsonValue) -> BaseModel:
        """Read arguments as the JSON that they are, so that a strict model takes a date or a tuple.

        Raises:
            pydantic.ValidationError: they do not fit.
        """
        return self.args.model_validate_json(canonical(args))


def describe(tool: Tool[..., Any]) -> tuple[Kind | None, list[str]]:
    """Make a Kind of a tool, or say in one sentence per mistake what its author has to change."""
    if not inspect.isfunction(tool.function):
        return None, [f"{tool.__name__}: is no function: put the decorator directly above a def."]
    mistakes = _own_mistakes(tool)
    try:
        hints = get_type_hints(tool.function)
    except companions.UNRESOLVED as error:
        return None, [*mistakes, f"{tool.__name__}: an annotation cannot be resolved ({error}): import what it names."]
    parameters = list(inspect.signature(tool.function).parameters)
    mistakes += [*_parameter_mistakes(tool, parameters, hints), *_datasource_mistakes(tool, hints)]
    mistakes += [*_tokens_mistakes(tool, hints), *_thread_mistakes(tool)]
    if parameters and companions.is_model(hints.get(parameters[0])):
        args, result = hints[parameters[0]], hints.get("return")
        mistakes += companions.mistakes(tool, args, result)
        mistakes += conditions.mistakes(tool.__name__, tool.options.ensure, args, result)
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
        "observe": companions.as_data(options.observe, args),
        "reconcile": companions.as_data(options.reconcile, args),
        "undo": companions.as_data(options.undo, args),
        "fallback": options.fallback.__name__ if options.fallback else None,
        "ensure": options.ensure,
        "untrusted": options.untrusted,
        "tokens": options.tokens,
        "tokens_overhead": options.tokens_beside,
        "is_threaded": not inspect.iscoroutinefunction(tool.function),
        **({} if options.settle is None else {"settle": options.settle}),
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
        datasource=options.datasource,
    )


def _own_mistakes(tool: Tool[..., Any]) -> list[str]:
    name, options = tool.__name__, tool.options
    mistakes = []
    if tool.effect is None:
        mistakes.append(f"{name}: a bare @tool does not say what a call changes: use one of {', '.join(DECORATORS)}.")
    if not (tool.__doc__ or "").strip():
        mistakes.append(f"{name}: has no docstring, which is what a planner reads: say in one sentence what it does.")
    there = [*Options.__dataclass_fields__]
    for option in tool.unknown:
        near = nearest(option, there)
        mistakes.append(f"{name}: there is no option {option!r}{near}: use {', '.join(there)}.")
    if name in {spec.kind for spec in routing.INTERNAL}:
        mistakes.append(f"{name}: is the name of one of Replan's own activities: rename the function.")
    if options.retry not in routing.PROFILES:
        mistakes.append(
            f"{name}: there is no retry profile {options.retry!r}: use one of {', '.join(routing.PROFILES)}."
        )
    if not isinstance(options.timeout, int | float) or not 0 < options.timeout <= DAY:
        mistakes.append(f"{name}: timeout={options.timeout!r} must be a number of seconds above 0, a day at most.")
    if not isinstance(options.untrusted, bool):
        mistakes.append(f"{name}: untrusted={options.untrusted!r} must be True or False.")
    return [*mistakes, *_settle_mistakes(name, options)]


def _settle_mistakes(name: str, options: Options) -> list[str]:
    settle = options.settle
    if settle is None:
        return []
    if options.reconcile is None:
        return [f"{name}: settle={settle!r} says when reconcile= is believed, and there is none: leave it out."]
    if not isinstance(settle, int | float) or not 0 <= settle <= DAY:
        return [f"{name}: settle={settle!r} must be a number of seconds from 0 to a day."]
    return []


def _tokens_mistakes(tool: Tool[..., Any], hints: Mapping[str, Any]) -> list[str]:
    """What is wrong with what a tool may use of a model: without a promise nothing could be set aside for it."""
    name, tokens, beside = tool.__name__, tool.options.tokens, tool.options.tokens_beside
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
        return [f"{name}: tokens={tokens!r} must be a whole number: what one call may use of a model, both ways."]
    if beside is not None and (not isinstance(beside, int) or not 0 <= beside <= tokens):
        return [f"{name}: tokens_beside={beside!r} must be a whole number, and no more than tokens={tokens}."]
    if tokens and LanguageModel not in hints.values():
        return [f"{name}: has tokens={tokens} but takes no LanguageModel: leave it out."]
    if not tokens and LanguageModel in hints.values():
        return [f"{name}: takes a LanguageModel: say how many tokens one call may use, e.g. tokens=10_000."]
    return []


def _thread_mistakes(tool: Tool[..., Any]) -> list[str]:
    """What is wrong with a tool that nothing can stop: "not found" is no proof while its thread may still run."""
    name, options, is_plain = tool.__name__, tool.options, not inspect.iscoroutinefunction(tool.function)
    if not isinstance(options.enforces_timeout, bool):
        return [f"{name}: enforces_timeout={options.enforces_timeout!r} must be True or False."]
    if options.enforces_timeout and not is_plain:
        return [f"{name}: enforces_timeout= is for a plain def; an async def is stopped at its timeout: leave it out."]
    is_single = tool.effect in (Effect.KEYED, Effect.UNKEYED)
    if is_plain and is_single and options.reconcile is not None and not options.enforces_timeout:
        return [
            f"{name}: a plain def runs on after its timeout, so reconcile= may look too early: write async def, or give"
            f" its client a timeout below {options.timeout:g} s and say enforces_timeout=True."
        ]
    return []


def _datasource_mistakes(tool: Tool[..., Any], hints: Mapping[str, Any]) -> list[str]:
    """What is wrong with the database that a tool names; its URL, which may hold a password, is never said."""
    name, datasource = tool.__name__, tool.options.datasource
    if datasource is None:
        return []
    if not isinstance(datasource, AsyncEngine):
        kind = type(datasource).__name__
        return [f"{name}: datasource= is of type {kind}, not an AsyncEngine: write create_async_engine(URL)."]
    if datasource.dialect.name not in DATABASES:
        there = " and ".join(DATABASES)
        return [f"{name}: datasource= is a {datasource.dialect.name} database: Replan's ledger knows {there}."]
    if Transaction not in hints.values():
        return [f"{name}: has a datasource but takes no Transaction: add a parameter tx: Transaction."]
    return []


def _parameter_mistakes(tool: Tool[..., Any], parameters: list[str], hints: Mapping[str, Any]) -> list[str]:
    name = tool.__name__
    how = inspect.signature(tool.function).parameters
    if not parameters or not companions.is_model(hints.get(parameters[0])) or how[parameters[0]].kind not in BY_PLACE:
        return [f"{name}: its first parameter must be one pydantic model: def {name}(args: MyArguments, ...)."]
    mistakes = []
    for extra in parameters[1:]:
        if how[extra].kind not in BY_NAME:
            mistakes.append(f"{name}: parameter {extra!r} must be one that can be given by name: without / and *.")
        elif hints.get(extra) not in INJECTABLE:
            mistakes.append(
                f"{name}: parameter {extra!r} has no type that can be given: {', '.join(INJECTABLE.values())}."
            )
        elif hints[extra] in ASYNC_ONLY and not inspect.iscoroutinefunction(tool.function):
            mistakes.append(f"{name}: a plain def runs in a thread and cannot use {extra!r}: write async def.")
    if tool.effect is Effect.TRANSACTIONAL and Transaction not in hints.values():
        mistakes.append(f"{name}: is transactional but takes no Transaction: add a parameter tx: Transaction.")
    if tool.effect is Effect.KEYED and Key not in hints.values():
        mistakes.append(f"{name}: is keyed but takes no Key: add a parameter key: Key, and send it downstream.")
    if tool.effect is Effect.READ and Key in hints.values():
        mistakes.append(f"{name}: is a read, which needs no Key: leave it out, or say what the call changes.")
    return mistakes
