"""The decorators that make a function a tool. Which one declares what a call changes in the world:

@tool.read            nothing
@tool.idempotent      something; a second call changes nothing more
@tool.keyed           something; it sends the idempotency key, so that the service applies the effect once
@tool.transactional   something, in one transaction that commits all of its writes or none
@tool.unkeyed         something; it must not be repeated

`ToolOptions` is the only list of their options: the decorators take their keywords from it, `--check` its rules, and
`kind.py` copies into the spec what the spec has a field for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

from sqlalchemy.ext.asyncio import AsyncEngine

from workflows import routing
from workflows.catalogue import Effect

P = ParamSpec("P")
Keywords = ParamSpec("Keywords")
R = TypeVar("R")

DAY = routing.STEP_DEADLINE.total_seconds()


@dataclass(frozen=True)
class Rule:
    """Which values an option takes; `words` end the sentence "timeout=0 must be ..."."""

    holds: Callable[[Any], bool]
    words: str


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_PROFILE = Rule(lambda value: value in list(routing.PROFILES), f"one of {', '.join(routing.PROFILES)}")
_TIMEOUT = Rule(lambda value: _is_number(value) and 0 < value <= DAY, "a number of seconds above 0, at most a day")
_SETTLE = Rule(lambda value: _is_number(value) and 0 <= value <= DAY, "a number of seconds from 0 to a day")
_BOOL = Rule(lambda value: isinstance(value, bool), "True or False")
_COUNT = Rule(lambda value: type(value) is int and value >= 0, "a whole number of tokens, 0 or more")


@dataclass(frozen=True)
class Companion:
    """Another tool and where its arguments come from: paths over `args`, `result` and `key`, else `args` by name."""

    tool: "Tool[..., Any]"
    paths: dict[str, str] = field(default_factory=dict)


Other: TypeAlias = "Tool[..., Any] | Companion | None"


@dataclass(frozen=True, kw_only=True)
class ToolOptions:
    """The options of every decorator."""

    observe: Other = None
    """The read tool that refreshes state after a rejection."""
    reconcile: Other = None
    """The read tool that finds out whether a call with an unknown outcome was applied."""
    settle: Annotated[float | None, _SETTLE] = None
    """Seconds to wait after the last attempt before a "not found" of `reconcile` is trusted."""
    undo: Other = None
    """The tool that undoes the effect."""
    fallback: "Tool[..., Any] | None" = None
    """The tool that takes over after the last retry, with the same arguments."""
    ensure: str | None = None
    """A condition over `args` and `result`; a result that violates it is rejected."""
    retry: Annotated[Literal["standard", "patient", "once"], _PROFILE] = "standard"
    """A profile of `workflows/routing.py`."""
    timeout: Annotated[float, _TIMEOUT] = 30.0
    """Seconds of one attempt."""
    datasource: AsyncEngine | None = None
    """The database of its `Transaction`; None for the worker's store."""
    untrusted: Annotated[bool, _BOOL] = False
    """Whether results are untrusted content: later plans may use only effects that earlier plans or the user named."""
    tokens: Annotated[int, _COUNT] = 0
    """Tokens of a model that one call may use."""
    tokens_overhead: Annotated[int | None, _COUNT] = None
    """Tokens of `tokens` for everything except the arguments; None if the model also reads other content."""
    enforces_timeout: Annotated[bool, _BOOL] = False
    """Whether a plain `def`, which nothing can stop, ends by itself before its `timeout`."""


OPTIONS = tuple(option.name for option in fields(ToolOptions))


class Tool(Generic[P, R]):
    """A function and what its decorator declared. Calling it calls the function, as a unit test wants."""

    def __init__(
        self, function: Callable[P, R], effect: Effect | None, options: ToolOptions, unknown: Sequence[str] = ()
    ) -> None:
        # It is checked when a worker loads it: `effect` is None for a bare `@tool`, `unknown` are no options.
        self.function = function
        self.effect = effect
        self.options = options
        self.unknown = unknown
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__module__ = getattr(function, "__module__", "")
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def using(self, /, **paths: str) -> Companion:
        """This tool as an option of another one, and where its arguments come from.

        `undo=refund.using(order="result.id")` calls `refund` with the `id` of the other tool's result as `order`.
        """
        return Companion(self, paths)


class _Decorator(Generic[Keywords]):
    """`@tool.read`, or `@tool.read(timeout=5)` with the keywords of `options`."""

    def __init__(self, effect: Effect, options: Callable[Keywords, ToolOptions]) -> None:
        self._effect = effect
        self._options = options

    @overload
    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...  # type: ignore[overload-overlap]  # options are keywords only

    @overload
    def __call__(self, *none: Keywords.args, **options: Keywords.kwargs) -> Callable[[Callable[P, R]], Tool[P, R]]: ...

    def __call__(self, *functions: Any, **keywords: Any) -> Any:
        """Declare a tool. An unknown keyword is reported when a worker loads it, with all its other mistakes."""
        options = ToolOptions(**{name: value for name, value in keywords.items() if name in OPTIONS})
        unknown = [name for name in keywords if name not in OPTIONS]

        def declare(function: Callable[..., Any]) -> Tool[..., Any]:
            return Tool(function, self._effect, options, unknown)

        return declare(*functions) if functions else declare


class _Decorators:
    read = _Decorator(Effect.READ, ToolOptions)
    idempotent = _Decorator(Effect.IDEMPOTENT, ToolOptions)
    keyed = _Decorator(Effect.KEYED, ToolOptions)
    transactional = _Decorator(Effect.TRANSACTIONAL, ToolOptions)
    unkeyed = _Decorator(Effect.UNKEYED, ToolOptions)

    def __call__(self, function: Callable[P, R]) -> Tool[P, R]:
        """Take a bare `@tool`, for which `--check` names the decorators."""
        return Tool(function, None, ToolOptions())


tool = _Decorators()

DECORATORS = tuple(f"tool.{effect.value}" for effect in Effect)
