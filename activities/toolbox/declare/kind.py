"""Checks a tool and makes its `Kind`: everything that the worker needs to offer the tool and to run it."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic.errors import PydanticUserError
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.borders import declared
from activities.libraries import libraries_of
from activities.storage.store import IN_FILE, is_in_memory
from activities.toolbox.declare import approval, companions, conditions
from activities.toolbox.declare.approval import Approval, when_of
from activities.toolbox.declare.condition_clauses import clause_of
from activities.toolbox.declare.conditions import Condition
from activities.toolbox.declare.tool import DECORATORS, NAMES, NOT_PURE, OPTIONS, Rule, Tool, ToolOptions
from activities.toolbox.injection import ASYNC_ONLY, INJECTABLE, Key, LanguageModel, Transaction
from workflows.faults.circuit_breaker import CircuitBreaker
from workflows.json_values import canonical, digest
from workflows.plans import own_activities
from workflows.plans.catalogue import ALWAYS, EVERY_CALL, MAX_SAYS, Effect, ToolSpec, is_always_authority
from workflows.text import nearest, shorten

PURE_TIMEOUT = 1.0
"""The most seconds that one attempt of a pure tool may take: the workflow task of its step waits for it."""
DATABASES = ("sqlite", "postgresql")  # databases that can hold the ledger, by SQLAlchemy's names
BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Kind:
    """One kind, which is a tool as a worker offers it.

    The workflow bases its decisions on `spec`; only the worker needs the other fields. Those without a description are
    as in `ToolOptions`.
    """

    spec: ToolSpec
    description: str
    function: Callable[..., Any]
    args: type[BaseModel]
    result: TypeAdapter[Any]
    injected: Mapping[str, type]  # the types of the parameters after the first, by name
    raises: declared.Entries = field(default_factory=dict)
    requests: int | None = None
    datasource: AsyncEngine | None = None
    breaker: CircuitBreaker | None = None
    service: str = ""
    """The name of the service that the tool calls, with the credential; tools with the same name share a breaker."""
    names_service: Callable[[Any], str] | None = None
    """Names the service for the arguments of a call; `service` is then the name of the tool."""
    credential: str | None = None
    limit: str | None = None
    for_people: frozenset[str] = frozenset()
    """Arguments that only a person may give, when the call is shown for an approval; no schema has them."""
    is_hidden: bool = False
    """Whether only an option of another kind calls this kind; no plan may call it."""

    @property
    def is_async(self) -> bool:
        """Whether the function runs on the event loop; otherwise it runs in a thread."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def asks_model(self) -> bool:
        """Whether the function has a parameter of the type LanguageModel."""
        return LanguageModel in self.injected.values()

    @cached_property
    def args_schema(self) -> dict[str, Any]:
        return self.args.model_json_schema()

    @cached_property
    def result_schema(self) -> dict[str, Any]:
        return self.result.json_schema()

    @cached_property
    def libraries(self) -> frozenset[str] | None:
        """The top-level packages that the function can use, as far as its code says; None if that is not known."""
        return libraries_of(self.function)

    @cached_property
    def ensure(self) -> Condition | None:
        """The condition that every result must fulfil; None if the tool declares none."""
        return Condition.read(self.spec.ensure) if self.spec.ensure else None

    @cached_property
    def approve(self) -> Condition | str | None:
        """When a person must approve a call: "always", or a condition over its arguments; None for never."""
        declared = self.spec.approve
        return declared if declared in (None, ALWAYS) else Condition.read(declared)

    def service_of(self, args: BaseModel) -> str:
        """The name of the service that a call with these arguments uses; its breaker and its limit apply to the call.

        Raises:
            Exception: whatever the function of `service=` raises; TypeError if it returns no text.
        """
        if self.names_service is None:
            return self.service
        name: object = self.names_service(args)
        if not isinstance(name, str):
            raise TypeError(f"service= of {self.spec.kind} returned a {type(name).__name__}: return a name.")
        # The arguments come from a plan: whatever is no name is neither kept nor shown.
        return _with_credential(name if _NAME.fullmatch(name) else digest(name), self.credential)

    def parse(self, args: JsonValue) -> BaseModel:
        """Validate the arguments of a call. Raises pydantic's ValidationError if they do not fit the tool."""
        # From JSON: a strict model rejects a date as a Python str, but accepts it in JSON.
        return self.args.model_validate_json(canonical(args))


_NAME = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:\]-]{0,79}")  # a host with a port is one, too


def _with_credential(service: str, credential: str | None) -> str:
    return "/".join(filter(None, [service, credential]))


def describe(tool: Tool[..., Any]) -> tuple[Kind | None, list[str]]:
    """The Kind of a tool and no mistakes; or None and its mistakes, each a sentence that also says what to do."""
    if not inspect.isfunction(tool.function):
        return None, [f"{tool.__name__}: this is no function: put the decorator directly above a def."]
    try:
        hints = get_type_hints(tool.function)
    except companions.UNRESOLVED as error:
        unresolved = f"{tool.__name__}: an annotation cannot be resolved ({error}): import what it names."
        return None, [*_declaration_mistakes(tool), unresolved]
    parameters = inspect.signature(tool.function).parameters
    mistakes = list(_mistakes(tool, parameters, hints))
    if mistakes:
        return None, mistakes
    try:
        return _build(tool, hints, list(parameters)), []
    except PydanticUserError:
        return None, [f"{tool.__name__}: pydantic has no schema for its arguments or result: use pydantic models."]


def _build(tool: Tool[..., Any], hints: Mapping[str, Any], parameters: Sequence[str]) -> Kind:
    """Make the Kind of a tool without mistakes; raises PydanticUserError if pydantic has no schema for a type."""
    args: type[BaseModel] = hints[parameters[0]]
    result = TypeAdapter[Any](hints["return"])
    description = inspect.cleandoc(tool.__doc__ or "")
    spec, service = _spec(tool, args), tool.options.service
    # That no argument of a read leaves the worker changes nothing for calls under way.
    is_private = spec.effect is Effect.READ and not spec.authority
    promised = spec.model_copy(update={"authority": None}) if is_private else spec
    whole: JsonValue = [promised.model_dump(mode="json"), args.model_json_schema(), result.json_schema(), description]
    # Of what is in the digest already; and whether a person has read it changes nothing for calls under way.
    facts = {"asks": _asks(spec), "says": _says(spec, description), "unread": tool.origin.unread}
    return Kind(
        spec=spec.model_copy(update={"digest": digest(whole), **facts}),
        description=description,
        function=tool.function,
        args=args,
        result=result,
        injected={name: hints[name] for name in parameters[1:]},
        raises=declared.entries(tool.options.raises),
        requests=tool.options.requests,
        datasource=tool.options.datasource,
        breaker=None if tool.pure else tool.options.breaker,
        service=_with_credential(service if isinstance(service, str) else tool.__name__, tool.options.credential),
        names_service=service if callable(service) else None,
        credential=tool.options.credential,
        limit=tool.options.limit,
        for_people=tool.origin.for_people,
        is_hidden=tool.origin.is_hidden,
    )


def _asks(spec: ToolSpec) -> str:
    """When a person must approve a call, in words; empty for never."""
    if spec.approve in (None, ALWAYS):
        return EVERY_CALL if spec.approve else ""
    return clause_of(Condition.read(spec.approve))


def _says(spec: ToolSpec, description: str) -> str:
    """A description's first sentence, for requests to approve a call; empty for a read that declares no approval."""
    if spec.effect is Effect.READ and spec.approve is None:
        return ""
    paragraph = " ".join(description.split("\n\n")[0].split())
    return shorten(re.split(r"(?<=[.!?])\s", paragraph)[0], MAX_SAYS)


def _spec(tool: Tool[..., Any], args: type[BaseModel]) -> ToolSpec:
    options = {option: getattr(tool.options, option) for option in OPTIONS if option in ToolSpec.model_fields}
    for option in ("observe", "reconcile", "undo"):
        options[option] = companions.as_data(options[option], args, is_undo=option == "undo")
    if tool.options.fallback:
        options["fallback"] = tool.options.fallback.__name__
    if isinstance(approve := options.pop("approve"), Approval):
        options["approvers"] = approve.approvers
    if (when := when_of(approve)) != conditions.NEVER:
        options["approve"] = when
    if tool.pure:
        options |= {"pure": True, "timeout": min(tool.options.timeout, PURE_TIMEOUT)}
    spec = ToolSpec.model_validate(
        {
            "kind": tool.__name__,
            "effect": tool.effect,
            "is_threaded": not inspect.iscoroutinefunction(tool.function),
            **{option: value for option, value in options.items() if value is not None},
        }
    )
    if spec.effect is Effect.READ or spec.authority is not None:  # else all are authority but those of `content`
        names = [field.alias or name for name, field in args.model_fields.items()]
        spelt_otherwise = [name for name in names if _snake(name) != name.lower() and spec.authority_of([_snake(name)])]
        if more := [name for name in spelt_otherwise if name not in (spec.authority or ())]:
            return spec.model_copy(update={"authority": (*(spec.authority or ()), *more)})
    return spec


def _snake(argument: str) -> str:
    """An argument's name in snake case, as workflows compare names: `page_url` for `pageUrl` and `page[url]`."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", argument)
    return re.sub(r"[\W_]+", "_", name).strip("_").lower()


Parameters = Mapping[str, inspect.Parameter]


def _mistakes(tool: Tool[..., Any], parameters: Parameters, hints: Mapping[str, Any]) -> Iterator[str]:
    yield from _declaration_mistakes(tool)
    yield from _parameter_mistakes(tool, parameters, hints)
    yield from _datasource_mistakes(tool, hints)
    yield from _tokens_mistakes(tool, hints)
    yield from _function_mistakes(tool)
    first = hints.get(next(iter(parameters), ""))
    yield from _contract_mistakes(tool, first)
    if tool.options.requests is not None and tool.effect in (Effect.READ, Effect.TRANSACTIONAL):
        yield f"{tool.__name__}: requests= is for tools whose effect leaves by a request: leave it out."
    yield from _pure_mistakes(tool, parameters)
    if companions.is_model(first):
        yield from companions.mistakes(tool, first, hints.get("return"))
        yield from conditions.mistakes(tool.__name__, tool.options.ensure, first, hints.get("return"))
        yield from conditions.approval_mistakes(tool.__name__, when_of(tool.options.approve), first)
        yield from approval.mistakes(tool.__name__, tool.options.approve)
    if "return" not in hints or hints["return"] is type(None):
        yield f"{tool.__name__}: the result has no type: annotate it, e.g. -> Price (a pydantic model)."


def _declaration_mistakes(tool: Tool[..., Any]) -> Iterator[str]:
    name, options = tool.__name__, tool.options
    if tool.decorator:
        near = nearest(tool.decorator, [name.removeprefix("tool.") for name in DECORATORS])
        yield f"{name}: there is no decorator @tool.{tool.decorator}{near}: use one of {', '.join(DECORATORS)}."
    elif tool.effect is None:
        yield f"{name}: a bare @tool does not say what a call changes: use one of {', '.join(DECORATORS)}."
    if not (tool.__doc__ or "").strip():
        yield f"{name}: there is no docstring: say in one sentence what the tool does, for the planner."
    for option in tool.unknown:
        yield f"{name}: there is no option {option!r}{nearest(option, OPTIONS)}: use one of {', '.join(OPTIONS)}."
    if name in own_activities.KINDS:
        yield f"{name}: this is the name of one of Replan's own activities: rename the function."
    yield from _option_mistakes(name, options)
    yield from (f"{name}: raises= {wrong}" for wrong in declared.mistakes(options.raises))
    for option in ("service", "credential", "limit"):
        if options.breaker is None and getattr(options, option) is not None:
            yield f"{name}: {option}= has a meaning only with a breaker: leave it out, or breaker=None."
    if options.settle is not None and options.reconcile is None:
        yield f"{name}: settle={options.settle!r} has a meaning only with reconcile=: leave it out."


def _option_mistakes(name: str, options: ToolOptions) -> Iterator[str]:
    for option, hint in get_type_hints(ToolOptions, include_extras=True).items():
        value = getattr(options, option)
        if get_origin(hint) is not Annotated or value is getattr(ToolOptions, option):
            continue  # not given
        rules = [rule for rule in get_args(hint)[1:] if isinstance(rule, Rule) and not rule.holds(value)]
        yield from (f"{name}: {option}={value!r} must be {rule.ending}." for rule in rules)


def _parameter_mistakes(tool: Tool[..., Any], parameters: Parameters, hints: Mapping[str, Any]) -> Iterator[str]:
    name, types = tool.__name__, hints.values()
    first, *others = parameters or [""]
    if not companions.is_model(hints.get(first)) or parameters[first].kind not in BY_PLACE:
        yield f"{name}: the first parameter must be one pydantic model: def {name}(args: MyArguments, ...)."
        return
    for other in others:
        if parameters[other].kind not in BY_NAME:
            yield f"{name}: parameter {other!r} cannot be given by name: write it without / and *."
        elif hints.get(other) not in INJECTABLE:
            yield f"{name}: parameter {other!r}: unsupported type; use one of {', '.join(INJECTABLE.values())}."
        elif hints[other] in ASYNC_ONLY and not inspect.iscoroutinefunction(tool.function):
            yield f"{name}: a plain def runs in a thread and cannot use {other!r}: write async def."
    if tool.effect is Effect.TRANSACTIONAL and Transaction not in types:
        yield f"{name}: a @tool.transactional must take a Transaction: add a parameter tx: Transaction."
    if tool.effect is Effect.KEYED and Key not in types:
        yield f"{name}: a @tool.keyed must take a Key: add a parameter key: Key, and send it downstream."
    if tool.effect is Effect.READ and Key in types:
        yield f"{name}: a @tool.read needs no Key: leave it out, or declare what a call changes."


def _datasource_mistakes(tool: Tool[..., Any], hints: Mapping[str, Any]) -> Iterator[str]:
    name, datasource = tool.__name__, tool.options.datasource
    # No message shows the engine: its URL may hold a password.
    if datasource is None:
        return
    if not isinstance(datasource, AsyncEngine):
        type_name = type(datasource).__name__
        yield f"{name}: datasource= is of type {type_name}, not an AsyncEngine: use create_async_engine(URL)."
    elif datasource.dialect.name not in DATABASES:
        yield f"{name}: datasource= is a {datasource.dialect.name} database: Replan supports {' and '.join(DATABASES)}."
    elif is_in_memory(datasource):
        yield f"{name}: datasource= is a SQLite database in memory: {IN_FILE}."
    elif Transaction not in hints.values():
        yield f"{name}: datasource= has a meaning only with a Transaction: add a parameter tx: Transaction."


def _tokens_mistakes(tool: Tool[..., Any], hints: Mapping[str, Any]) -> Iterator[str]:
    name, tokens, overhead = tool.__name__, tool.options.tokens, tool.options.tokens_overhead
    if not isinstance(tokens, int):
        return
    if isinstance(overhead, int) and overhead > tokens:
        yield f"{name}: tokens_overhead={overhead!r} must not be more than tokens={tokens}."
    if tokens and LanguageModel not in hints.values():
        yield f"{name}: tokens={tokens} has a meaning only with a LanguageModel: leave it out."
    if not tokens and LanguageModel in hints.values():
        yield f"{name}: it takes a LanguageModel: say how many tokens one call may use, e.g. tokens=10_000."


def _contract_mistakes(tool: Tool[..., Any], args: Any) -> Iterator[str]:
    """Yield the mistakes in `authority=` and `content=`; `args` is the type of the first parameter."""
    name, authority, content = tool.__name__, tool.options.authority, tool.options.content
    if not companions.is_model(args) or not NAMES.holds(authority) or not NAMES.holds(content):
        return
    fields = [field.alias or field_name for field_name, field in args.model_fields.items()]
    for option, names in {"authority": authority or (), "content": content}.items():
        for wrong in (argument for argument in names if argument not in fields):
            yield f"{name}: {option}= names {wrong!r}, which is no argument{nearest(wrong, fields)}."
    if authority is not None and content:
        yield f"{name}: authority= says which arguments are not content: leave content= out, or authority=."
    if content and tool.effect is Effect.READ:
        yield f"{name}: a read changes nothing, so content= has no meaning: leave it out."
    for always in (argument for argument in content if is_always_authority(_snake(argument))):
        yield f"{name}: content= names {always!r}, which can do more than inform somebody: leave it out there."


def _function_mistakes(tool: Tool[..., Any]) -> Iterator[str]:
    name, options, is_plain = tool.__name__, tool.options, not inspect.iscoroutinefunction(tool.function)
    # Its body runs when its result is read, which is after the call.
    if inspect.isgeneratorfunction(tool.function) or inspect.isasyncgenfunction(tool.function):
        yield f"{name}: it is a generator function: return a list instead of yielding its items."
    if options.enforces_timeout is True and not is_plain:
        yield f"{name}: enforces_timeout= is for a plain def; an async def is stopped at its timeout: leave it out."
    # Nothing can stop a thread: it may apply the effect after `reconcile` has found nothing.
    is_single = tool.effect in (Effect.KEYED, Effect.UNKEYED)
    if is_plain and is_single and options.reconcile is not None and not options.enforces_timeout:
        yield (
            f"{name}: a plain def runs on after its timeout, so reconcile= may look too early: write async def, or give"
            f" its client a timeout below {options.timeout:g} s and say enforces_timeout=True."
        )


def _pure_mistakes(tool: Tool[..., Any], parameters: Parameters) -> Iterator[str]:
    if not tool.pure:
        return
    name, options, remedy = tool.__name__, tool.options, "or declare @tool.read"
    if inspect.iscoroutinefunction(tool.function):
        yield f"{name}: a @tool.pure only computes, in a thread: write a plain def, {remedy}."
    for other in [*parameters][1:]:
        yield f"{name}: a @tool.pure only computes and cannot use {other!r}: leave it out, {remedy}."
    for option in NOT_PURE:
        if getattr(options, option) != getattr(ToolOptions, option):
            yield f"{name}: a @tool.pure only computes, so {option}= has no meaning: leave it out, {remedy}."
    is_given = options.timeout is not ToolOptions.timeout
    if is_given and isinstance(options.timeout, int | float) and options.timeout > PURE_TIMEOUT:
        most = f"at most {PURE_TIMEOUT:g} s"
        yield f"{name}: timeout={options.timeout!r} is too long for a @tool.pure: give it {most}, {remedy}."
