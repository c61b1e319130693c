"""The decorators that make a function a tool. Each declares what a call changes in the world:

@tool.pure            nothing, and it only computes: no I/O, always the same result for the same arguments
@tool.read            nothing
@tool.idempotent      something; a second call changes nothing more
@tool.keyed           something; it sends the idempotency key, so that the service applies the effect once
@tool.transactional   something, in one transaction that commits all of its writes or none
@tool.unkeyed         something; it must not be repeated

`ToolOptions` is the only list of their options: its fields are the keywords of the decorators, and `--check` applies
its rules. `kind.py` copies an option into the `ToolSpec` if the spec has a field of the same name.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

from sqlalchemy.ext.asyncio import AsyncEngine

from activities.borders.declared import Raises
from activities.toolbox.declare.approval import Approval
from workflows.faults import retries
from workflows.faults.circuit_breaker import STANDARD_BREAKER, CircuitBreaker
from workflows.plans.catalogue import Effect

P = ParamSpec("P")
Keywords = ParamSpec("Keywords")
R = TypeVar("R")

MAX_LIMIT = 1000
"""The highest `calls` of a CallLimit: the time of each call is kept, so that no period has more calls."""
DAY = retries.STEP_DEADLINE.total_seconds()


@dataclass(frozen=True)
class CallLimit:
    """The most calls of a service in any period of `seconds`, as a tool declares it: `10/s`, `300/min`, `1000/h`."""

    calls: int
    seconds: float

    @classmethod
    def of(cls, text: str) -> "CallLimit":
        """Read a limit such as `10/s`.

        Raises:
            ValueError: `text` is no limit, or allows more than MAX_LIMIT calls.
        """
        found = re.fullmatch(r"([1-9][0-9]{0,5})/(s|min|h)", text)
        if found is None or int(found[1]) > MAX_LIMIT:
            raise ValueError(f"{text!r} is no limit, e.g. 10/s")
        return cls(int(found[1]), {"s": 1.0, "min": 60.0, "h": 3600.0}[found[2]])


@dataclass(frozen=True)
class Rule:
    """A rule for the values of an option; `ending` ends a message such as "timeout=0 must be ..."."""

    holds: Callable[[Any], bool]
    ending: str


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_valid_numbers(value: CircuitBreaker) -> bool:
    counts = (value.failures, value.calls, value.trials)
    return all(type(count) is int and count >= 1 for count in counts) and _TIMEOUT.holds(value.recovery)


def _is_limit(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(CallLimit.of(value))
    except ValueError:
        return False


_PROFILE = Rule(lambda value: value in list(retries.PROFILES), f"one of {', '.join(retries.PROFILES)}")
_TIMEOUT = Rule(lambda value: _is_number(value) and 0 < value <= DAY, "a number of seconds above 0, at most a day")
_SETTLE = Rule(lambda value: _is_number(value) and 0 <= value <= DAY, "a number of seconds from 0 to a day")
_BOOL = Rule(lambda value: isinstance(value, bool), "True or False")
_BREAKER = Rule(
    lambda value: value is None or (isinstance(value, CircuitBreaker) and _has_valid_numbers(value)),
    "None for no circuit breaker, or CircuitBreaker(failures=3, calls=2, recovery=5, trials=2): whole numbers of 1 or"
    " more, and seconds above 0, at most a day",
)
_NAME = Rule(
    lambda value: (
        value is None or (isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", value)))
    ),
    "a name of up to 80 letters, digits, and . _ -",
)
_SERVICE = Rule(
    lambda value: callable(value) or _NAME.holds(value),
    f"{_NAME.ending}, or a function that returns one for the arguments of a call",
)
_LIMIT = Rule(
    lambda value: value is None or _is_limit(value),
    f"e.g. '10/s', '300/min' or '1000/h', at most {MAX_LIMIT} calls",
)
_ONE = Rule(lambda value: type(value) is int and value == 1, "1, or left out")
NAMES = Rule(
    lambda value: (
        value is None or (isinstance(value, tuple | list) and all(isinstance(name, str) and name for name in value))
    ),
    'the names of arguments, e.g. ("receiver", "amount")',
)
_COUNT = Rule(lambda value: type(value) is int and value >= 0, "a whole number of tokens, 0 or more")


@dataclass(frozen=True)
class Companion:
    """Another tool that an option such as `undo` names, and where the arguments of that tool come from.

    `paths` has a path for some of its arguments: `args.day`, `result.id` or `key`. Every other argument gets the value
    of the argument with the same name of the tool that has the option.
    """

    tool: "Tool[..., Any]"
    paths: dict[str, str] = field(default_factory=dict)


Other: TypeAlias = "Tool[..., Any] | Companion | None"


@dataclass(frozen=True, kw_only=True)
class ToolOptions:
    """The options that every decorator takes."""

    # Read after a call has failed, and in a rollback
    observe: Other = None
    """The read tool that the workflow calls after a call of this tool was rejected; its result shows the planner the
    current state."""
    reconcile: Other = None
    """The read tool that finds out whether a call with an unknown outcome was applied."""
    settle: Annotated[float | None, _SETTLE] = None
    """The workflow accepts "not found" from `reconcile` only if this many seconds have passed since the call's last
    attempt."""
    undo: Other = None
    """The tool that undoes the effect of a call when the task is rolled back."""
    fallback: "Tool[..., Any] | None" = None
    """The tool that the workflow calls with the same arguments if the last retry of this tool has failed."""

    # Read when the tool has returned
    ensure: str | None = None
    """A condition over `args` and `result`; the worker rejects a result for which the condition is not true."""

    # Read before the tool is called
    approve: str | Approval = "never"
    """Which calls a person must approve: `never`, `always`, or a condition over `args`, e.g. `args.amount > 500`; an
    `Approval` says which people."""

    # Read when the tool has raised an exception
    raises: Raises = field(default_factory=dict)
    """How to classify exceptions of a library that are in no table of `activities/borders`: by class, a code of
    docs/errors.md, `fault(...)`, or a function that returns one of these two."""
    requests: Annotated[Literal[1] | None, _ONE] = None
    """1 promises that a call sends at most one request that may change something, and that no library repeats it: then
    a rejection proves that nothing was applied, also where Replan cannot count what the tool sends."""

    # Read when a call is scheduled
    retry: Annotated[Literal["standard", "patient", "once"], _PROFILE] = "standard"
    """The name of a retry profile in `workflows/faults/retries.py`, which says how often and how fast a failed call is
    repeated."""
    timeout: Annotated[float, _TIMEOUT] = 30.0
    """Seconds after which one attempt times out; for a `@tool.pure` at most 1, which is also its default."""

    # Read in each attempt
    datasource: AsyncEngine | None = None
    """The database of the tool's `Transaction`; None for the worker's store."""

    # Read when a proposal is compared with the contract of the task
    untrusted: Annotated[bool, _BOOL] = False
    """True if results are untrusted content, e.g. a web page. After such a result, a call with an effect must be in the
    contract of its task; see docs/untrusted.md."""
    authority: Annotated[Sequence[str] | None, NAMES] = None
    """The arguments that the contract of a task fixes: whom, where, which or how much. None for all arguments except
    `content`; for a read, None for the addresses, and empty if no argument leaves the worker and its own model."""
    content: Annotated[Sequence[str], NAMES] = ()
    """The arguments that are only content, such as the text of a message: they may come from anywhere."""

    # Read when a call is scheduled: what it may use is reserved
    tokens: Annotated[int, _COUNT] = 0
    """The most tokens of a model that one call may use; 0 for a tool without a model."""
    tokens_overhead: Annotated[int | None, _COUNT] = None
    """The part of `tokens` that does not depend on the call's arguments: for instructions and output. None if the model
    also reads content that is not in the arguments."""

    # Read in each attempt, before the tool is called
    enforces_timeout: Annotated[bool, _BOOL] = False
    """True if a plain `def` always ends by itself before its `timeout`. The worker cannot stop the thread of a plain
    `def`."""
    breaker: Annotated[CircuitBreaker | None, _BREAKER] = STANDARD_BREAKER
    """When Replan stops calling the tool because its service is down; None for never."""
    service: Annotated[str | Callable[[Any], str] | None, _SERVICE] = None
    """The name of the service that the tool calls: tools of one service share a circuit breaker and a limit. None if no
    other tool calls it. A function returns the name for the arguments of a call, e.g. the host of an address."""
    credential: Annotated[str | None, _NAME] = None
    """The name of the credential with which the tool calls its service, e.g. of an environment variable; never its
    value. Limits and outages of one credential do not stop the calls with another one."""
    limit: Annotated[str | None, _LIMIT] = None
    """The most calls of the service in any second, minute or hour, by all workers together, e.g. `10/s`, `300/min`."""


OPTIONS = tuple(option.name for option in fields(ToolOptions))
NOT_PURE = (
    *("observe", "reconcile", "settle", "undo", "requests", "retry", "datasource"),
    *("tokens", "tokens_overhead", "enforces_timeout", "breaker", "service", "credential", "limit"),
)
"""The options that `@tool.pure` does not take, since they are about I/O, effects or repeated attempts."""


@dataclass(frozen=True)
class ToolOrigin:
    """Facts about a tool that was made without a decorated function, e.g. from a tool of an MCP server."""

    place: str = ""
    """The file and line of the declaration; empty for those of the function."""
    because: str = ""
    """Why the tool has its effect; empty if a decorator declares the effect."""
    for_people: frozenset[str] = frozenset()
    """The arguments that only a person may give."""
    is_hidden: bool = False
    """Whether only an option of another tool calls this tool."""
    unread: Literal["new", "changed"] | None = None
    """Whether no person has read the words of a foreign server in it; see `ToolSpec.unread`."""


class Tool(Generic[P, R]):
    """A function and what its decorator declared. It can be called like the function, e.g. in a unit test."""

    def __init__(
        self,
        function: Callable[P, R],
        effect: Effect | None,
        options: ToolOptions,
        unknown: Sequence[str] = (),
        decorator: str = "",
        *,
        pure: bool = False,
        origin: "ToolOrigin | None" = None,
    ) -> None:
        # Checked when a worker loads it, not here. `effect` is None for a bare `@tool`, and for a `decorator` that does
        # not exist; `unknown` are unknown keywords.
        self.function = self.__wrapped__ = function
        self.effect = effect
        self.options = options
        self.unknown = unknown
        self.decorator = decorator
        self.pure = pure
        self.origin = origin or ToolOrigin()
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__module__ = getattr(function, "__module__", "")
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def using(self, /, **paths: str) -> Companion:
        """Use this tool as an option of another tool, and say where its arguments come from.

        `undo=refund.using(order="result.id")` calls `refund` with the `id` of the other tool's result as `order`.
        """
        return Companion(self, paths)


class _Decorator(Generic[Keywords]):
    """One decorator: used as `@tool.read`, or as `@tool.read(timeout=5)` with keywords of `ToolOptions`."""

    def __init__(
        self, effect: Effect | None, options: Callable[Keywords, ToolOptions], unknown: str = "", *, pure: bool = False
    ) -> None:
        self._effect = effect  # `options` only says which keywords the decorator takes
        self._unknown = unknown
        self._pure = pure

    @overload
    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...  # type: ignore[overload-overlap]  # options are keywords only

    @overload
    def __call__(self, *none: Keywords.args, **options: Keywords.kwargs) -> Callable[[Callable[P, R]], Tool[P, R]]: ...

    def __call__(self, *functions: Any, **keywords: Any) -> Any:
        """Declare a tool. Mistakes are not raised here, but reported together when a worker loads the tool."""
        options = ToolOptions(**{name: value for name, value in keywords.items() if name in OPTIONS})
        unknown = [name for name in keywords if name not in OPTIONS]

        def declare(function: Callable[..., Any]) -> Tool[..., Any]:
            return Tool(function, self._effect, options, unknown, self._unknown, pure=self._pure)

        return declare(*functions) if functions else declare


class _Decorators:
    pure = _Decorator(Effect.READ, ToolOptions, pure=True)
    read = _Decorator(Effect.READ, ToolOptions)
    idempotent = _Decorator(Effect.IDEMPOTENT, ToolOptions)
    keyed = _Decorator(Effect.KEYED, ToolOptions)
    transactional = _Decorator(Effect.TRANSACTIONAL, ToolOptions)
    unkeyed = _Decorator(Effect.UNKEYED, ToolOptions)

    def __call__(self, function: Callable[P, R]) -> Tool[P, R]:
        """Accept a bare `@tool`, which is a mistake: `--check` then names the decorators to use."""
        return Tool(function, None, ToolOptions())

    if not TYPE_CHECKING:  # a type checker reports an unknown decorator itself

        def __getattr__(self, name: str) -> _Decorator[...]:
            """Accept a decorator that does not exist, so that `--check` reports it beside the other mistakes."""
            if name.startswith("_"):  # a protocol of Python, such as copying, asks for it
                raise AttributeError(name)
            return _Decorator(None, ToolOptions, name)


tool = _Decorators()

DECORATORS = ("tool.pure", *(f"tool.{effect.value}" for effect in Effect))
