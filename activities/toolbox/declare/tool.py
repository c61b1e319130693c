"""The decorators that make a function a tool; which one says what a call may change in the world.

@tool.read            nothing to protect
@tool.idempotent      repeating is harmless
@tool.keyed           the idempotency key is sent downstream, which makes a second call the first
@tool.transactional   the writes commit in one transaction, or not at all
@tool.unkeyed         may not be repeated
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from sqlalchemy.ext.asyncio import AsyncEngine

from workflows.catalogue import Effect

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Companion:
    """Another tool and where its arguments come from: paths over `args`, `result` and `key`, else `args` by name."""

    tool: "Tool[..., Any]"
    paths: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """What a decorator was told."""

    observe: "Tool[..., Any] | Companion | None" = None
    reconcile: "Tool[..., Any] | Companion | None" = None
    settle: float | None = None
    undo: "Tool[..., Any] | Companion | None" = None
    fallback: "Tool[..., Any] | None" = None
    ensure: str | None = None
    retry: str = "standard"
    timeout: float = 30.0
    datasource: AsyncEngine | None = None
    untrusted: bool = False
    tokens: int = 0
    tokens_beside: int | None = None
    enforces_timeout: bool = False


class Tool(Generic[P, R]):
    """A function with its promise; calling it calls the function, so that a unit test needs nothing else."""

    def __init__(
        self, function: Callable[P, R], effect: Effect | None, options: Options, unknown: Sequence[str] = ()
    ) -> None:
        """Keep what was declared; whether it makes sense is checked when a worker loads it."""
        self.function = function
        self.effect = effect
        self.options = options
        self.unknown = unknown  # names that are no options
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__module__ = getattr(function, "__module__", "")
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def using(self, /, **paths: str) -> Companion:
        """Name this tool as a companion of another, with `field="args.other_field"` for its arguments."""
        return Companion(self, paths)


class _Declare:
    """One of the decorators: `@tool.read` alone or with options."""

    def __init__(self, effect: Effect) -> None:
        self._effect = effect

    @overload
    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...

    @overload
    def __call__(
        self,
        *,
        observe: Tool[..., Any] | Companion | None = None,
        reconcile: Tool[..., Any] | Companion | None = None,
        settle: float | None = None,
        undo: Tool[..., Any] | Companion | None = None,
        fallback: Tool[..., Any] | None = None,
        ensure: str | None = None,
        retry: Literal["standard", "patient", "once"] = "standard",
        timeout: float = 30.0,
        datasource: AsyncEngine | None = None,
        untrusted: bool = False,
        tokens: int = 0,
        tokens_beside: int | None = None,
        enforces_timeout: bool = False,
    ) -> Callable[[Callable[P, R]], Tool[P, R]]: ...

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        *,
        observe: Tool[..., Any] | Companion | None = None,
        reconcile: Tool[..., Any] | Companion | None = None,
        settle: float | None = None,
        undo: Tool[..., Any] | Companion | None = None,
        fallback: Tool[..., Any] | None = None,
        ensure: str | None = None,
        retry: Literal["standard", "patient", "once"] = "standard",
        timeout: float = 30.0,
        datasource: AsyncEngine | None = None,
        untrusted: bool = False,
        tokens: int = 0,
        tokens_beside: int | None = None,
        enforces_timeout: bool = False,
        **unknown: Any,
    ) -> Any:
        """Declare a tool: `observe` looks again after a refusal, `reconcile` finds out whether an effect happened, and
        is believed that it did not `settle` seconds after the last attempt, `undo` takes the effect back, `fallback`
        takes over when retries are used up, `ensure` is a condition over `args` and `result` that every result keeps,
        `retry` names a profile of `workflows/routing.py`, `timeout` is in seconds an attempt, `datasource` is the
        database of its `Transaction`; of an `untrusted` one anybody may have written what it returns, so that nothing
        which a task plans afterwards may change the world in new ways; `tokens` is how many of a model one call may
        use, and `tokens_beside` how many of these are not for reading the arguments, where nothing else is read; a
        plain `def` that `enforces_timeout` ends by itself before its `timeout`, since nothing else can end it. An
        `unknown` option is refused when a worker loads the tool, beside all its other mistakes.
        """
        options = Options(
            observe,
            reconcile,
            settle,
            undo,
            fallback,
            ensure,
            retry,
            timeout,
            datasource,
            untrusted,
            tokens,
            tokens_beside,
            enforces_timeout,
        )
        if function is not None:
            return Tool(function, self._effect, options, tuple(unknown))
        return lambda chosen: Tool(chosen, self._effect, options, tuple(unknown))


class _Decorators:
    read = _Declare(Effect.READ)
    idempotent = _Declare(Effect.IDEMPOTENT)
    keyed = _Declare(Effect.KEYED)
    transactional = _Declare(Effect.TRANSACTIONAL)
    unkeyed = _Declare(Effect.UNKEYED)

    def __call__(self, function: Callable[P, R]) -> Tool[P, R]:
        """Take a bare `@tool`, which a worker refuses with the names of the decorators."""
        return Tool(function, None, Options())


tool = _Decorators()

DECORATORS = ("tool.read", "tool.idempotent", "tool.keyed", "tool.transactional", "tool.unkeyed")
"""What there is to choose from, for messages."""
