"""Each effect once, without a server: the decorators, and the store and process behind them."""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.effects import identity
from activities.effects.arguments import Arguments, Bound
from activities.effects.database import Database
from activities.effects.desk import UNSAID, CallRecord, Desk, Settlement
from activities.effects.effect_store import EffectStore
from activities.effects.flow import Joined
from activities.effects.function import EffectOptions, Function
from activities.effects.recognition import Identity
from activities.effects.undoing import check_undo, plan_undo
from activities.effects.upkeep import Pruned, prune
from activities.storage.store import Cipher
from workflows.json_values import digest
from workflows.plans.catalogue import Effect

P = ParamSpec("P")
R = TypeVar("R")
Keywords = ParamSpec("Keywords")


class Decorator(Generic[Keywords]):
    """One decorator of `Effects`: used as `@effects.unkeyed`, or as `@effects.unkeyed(timeout=5)`."""

    def __init__(self, effects: "Effects", effect: Effect, options: Callable[Keywords, EffectOptions]) -> None:
        self._effects, self._effect = effects, effect  # `options` only says which keywords the decorator takes

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...  # type: ignore[overload-overlap]  # no options

    @overload
    def __call__(
        self, *none: Keywords.args, **options: Keywords.kwargs
    ) -> Callable[[Callable[..., R]], Callable[..., R]]: ...

    def __call__(self, *functions: Any, **keywords: Any) -> Any:
        """The function to call in place of the decorated one."""
        if functions and not callable(functions[0]):
            raise TypeError(
                f"@effects.{self._effect.value} takes keywords only, as in timeout=5: got {functions[0]!r}."
            )
        options = EffectOptions(**keywords)
        if functions:
            return self._effects.declare(self._effect, functions[0], options)
        return lambda function: self._effects.declare(self._effect, function, options)


class TransactionalDecorator(Generic[Keywords]):
    """The decorator `@effects.transactional(ENGINE)`."""

    def __init__(self, effects: "Effects", options: Callable[Keywords, EffectOptions]) -> None:
        self._effects = effects

    def __call__(
        self, datasource: Engine | AsyncEngine, /, *none: Keywords.args, **keywords: Keywords.kwargs
    ) -> Callable[[Callable[..., R]], Callable[..., R]]:
        """`datasource` is the function's database: an Engine for a `def`, an AsyncEngine for an `async def`."""
        named: dict[str, Any] = dict(keywords)
        options = EffectOptions(**named)
        return lambda function: self._effects.declare(Effect.TRANSACTIONAL, function, options, datasource)


class Effects:
    """Makes the effects of a program's functions once each, whatever is killed, and says so where nobody can know.

    `Effects("sqlite:///agent.db", session="order-17")`, then a decorator for each function: `read`, `idempotent`,
    `keyed`, `transactional` or `unkeyed`. Nothing is opened before the first call.
    """

    def __init__(
        self,
        store: str,
        session: str | None = None,
        *,
        cipher: Cipher | None = None,
        restarts: bool = False,
        watch: bool = True,
        on_joined: Callable[[Joined], None] | None = None,
    ) -> None:
        """Remember where effects are recorded.

        Args:
            store: `sqlite:///FILE.db`, the path of a SQLite file, or `postgresql://USER@HOST/DATABASE`.
            session: The name of what the agent works at; calls are recognised within it. `scope` sets it for a block.
            cipher: Encrypts arguments and results.
            restarts: After it was killed, the agent begins from its start, and makes its calls again in order.
            watch: Count what calls send, by hooks in this process; without them, no rejection proves anything.
            on_joined: Called when a call was taken for an earlier one; by default a warning is logged.

        Raises:
            ValueError: `store` is no URL of a database, or `session` is empty.
        """
        self._store = EffectStore(Database(store, cipher), restarts=restarts, watch=watch, on_joined=on_joined)
        self._desk = Desk(self._store.database, self._store.own_calls)
        self._session = identity.checked("session", session) if session is not None else None
        self._ordinals = identity.Ordinals()
        self.functions = dict[str, Function]()
        """The functions that were declared, by name."""
        self.idempotent = Decorator(self, Effect.IDEMPOTENT, EffectOptions)
        """A function whose repetition is harmless: after a crash it is called again."""
        self.keyed = Decorator(self, Effect.KEYED, EffectOptions)
        """A function that sends its key to a service, which then applies it once. Its parameter `Key` is filled."""
        self.transactional = TransactionalDecorator(self, EffectOptions)
        """`transactional(ENGINE)`: a function that writes into a database of its own, in a transaction that also
        records that it was applied. Its parameter of the type Connection or AsyncConnection is filled."""
        self.unkeyed = Decorator(self, Effect.UNKEYED, EffectOptions)
        """A function that must not be repeated: it is claimed before it is called, and never called again blindly."""

    @overload
    def read(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def read(self, /) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def read(self, function: Callable[..., Any] | None = None, /) -> Any:
        """A function that changes nothing: it is called as it is."""
        return function if function is not None else lambda decorated: decorated

    def scope(
        self,
        *,
        session: str | None = None,
        key: str | None = None,
        run: str | None = None,
        call: str | None = None,
    ) -> AbstractContextManager[None]:
        """Say of the calls inside the block to what they belong.

        Args:
            session: The name of what the agent works at.
            key: The caller's own key: an equal key is the same call, another key another one.
            run: The id of the agent's run, if its framework keeps it when the run is resumed.
            call: The id of the tool call.
        """
        return identity.scope(session, key, run, call)

    def open(self) -> None:
        """Open the store; the first call does so by itself.

        Raises:
            StoreUnavailable: the store cannot be opened; the message says why, and what to do.
        """
        self._store.begin()

    def close(self) -> None:
        """End in order: wait for what is to be recorded, and say that all answers were handed over.

        A process does so by itself when it ends, unless it is killed.
        """
        self._store.close()

    def calls(self, session: str | None = None) -> list[CallRecord]:
        """The calls of a session, or of all sessions of the store, the oldest first; raises StoreUnavailable."""
        return self._desk.calls(session)

    def settle(self, key: str, answer: Settlement, *, result: Any = UNSAID, by: str = "") -> CallRecord:
        """Say what became of a call of which nobody knows it, or whether a doubtful call is the earlier one again.

        Args:
            key: The key of the call, as the error has it.
            answer: `applied` or `not-applied`; of a doubtful call `same` or `another`.
            result: What an applied call returned, as JSON: the next equal call gets it. Without it, it raises
                OutcomeUnknown once more.
            by: Who says so.

        Raises:
            EffectRefused: it is settled already, still runs, or has another question.
            StoreUnavailable: the store cannot be reached.
        """
        return self._desk.settle(key, answer, result=result, by=by)

    def undo(self, key: str) -> CallRecord:
        """Undo an applied call with its `undo=` function; of a call that is undone already, nothing is called.

        The function gets those recorded arguments that it has parameters for, and `result`. It is a call as any other,
        with a key of its own: killed in the middle, the next `undo` finishes it.

        Raises:
            EffectRefused: the call was not applied, or has no `undo=`.
            TypeError: the `undo=` function is an `async def`: use `undo_async`.
            EffectError, StoreUnavailable, or what the function raises: as any call of it.
        """
        planned = plan_undo(self._desk, self.functions, key)
        if planned is not None:
            if planned.function.is_async:
                raise TypeError(f"{planned.function.name} is an async function: await effects.undo_async({key!r}).")
            planned.begin()
            try:
                planned.make()
            except BaseException:
                planned.take_back()
                raise
            planned.end()
        return self._desk.call(key)

    async def undo_async(self, key: str) -> CallRecord:
        """`undo` in an event loop, for an `undo=` function of either sort; raises as it does."""
        planned = await asyncio.to_thread(plan_undo, self._desk, self.functions, key)
        if planned is not None and planned.function.is_async:
            await asyncio.to_thread(planned.begin)
            try:
                await planned.make_async()
            except BaseException:
                await asyncio.to_thread(planned.take_back)
                raise
            await asyncio.to_thread(planned.end)
        return await asyncio.to_thread(self.undo, key)

    def prune(self, days: float, *, dry_run: bool = False) -> Pruned:
        """Delete calls that were made more than `days` ago and are settled, and owners that nothing needs any more.

        A call that is not in the store any more is made when it comes again, whatever its key. With `dry_run`, nothing
        is deleted. Raises StoreUnavailable.
        """
        return prune(self._desk, days, is_dry_run=dry_run)

    @property
    def desk(self) -> Desk:
        """What a person can ask about the calls of the store."""
        return self._desk

    def __enter__(self) -> Self:
        self._store.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._store.close(is_in_order=kind is None)

    def _identify(self, name: str, bound: Bound) -> tuple[Identity, str]:
        """The identity of a call, and its session; raises ValueError without a session."""
        said, (run, call) = identity.current_scope(), bound.ids
        session = said.session or self._session or identity.temporal_workflow()
        if not session:
            raise ValueError(
                f"{name} was called without a session, in which equal calls are recognised: give"
                ' Effects(..., session="order-17"), or call it inside effects.scope(session="order-17").'
            )
        own = digest(name, bound.json)
        if temporal := self._ordinals.ids(own):
            return Identity(own, said.key, temporal.run, temporal.call, temporal.workflow), session
        return Identity(own, said.key, said.run or run, said.call or call, answered=bound.answered), session

    def declare(
        self, effect: Effect, function: Callable[..., Any], options: EffectOptions, datasource: Any = None
    ) -> Any:
        """The function to call in place of `function`; raises TypeError or ValueError with the remedy for a mistake."""
        made = self._function(effect, function, options, datasource)
        self.functions[made.name] = made
        return made.wrapper()

    def _function(
        self, effect: Effect, function: Callable[..., Any], options: EffectOptions, datasource: Any
    ) -> Function:
        arguments = Arguments(function, ignore=options.ignore, authority=options.authority, content=options.content)
        made = Function(self._store, self._identify, function, effect, options, arguments, datasource)
        name, is_async = made.name, made.is_async
        if name in self.functions and self.functions[name].function is not function:
            there = self.functions[name].function
            if (there.__module__, there.__qualname__) != (function.__module__, function.__qualname__):
                raise ValueError(f"Two functions are called {name}: give one of them a name=.")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{name} is a generator: an effect returns its result.")
        if (effect is Effect.KEYED) is not (arguments.key is not None):
            need = (
                "needs a parameter with the type Key, which it sends to the service" if effect is Effect.KEYED else ""
            )
            raise TypeError(
                f"{name} {need or f'is {effect.value}: only a keyed function has a parameter of the type Key'}."
            )
        if effect is Effect.TRANSACTIONAL:
            self._check_datasource(name, datasource, arguments, is_async=is_async)
        if options.reconcile is not None and effect not in (Effect.KEYED, Effect.UNKEYED):
            raise TypeError(f"{name} is {effect.value}, which needs no reconcile=: its repetition finds out.")
        if options.reconcile is not None and inspect.iscoroutinefunction(options.reconcile) and not is_async:
            raise TypeError(f"{name} is a plain function: reconcile= must be one, too.")
        if options.timeout <= 0 or options.settle < 0:
            raise ValueError(f"timeout= of {name} must be above 0 seconds, and settle= not below 0.")
        if options.undo is not None:
            check_undo(name, made)
        _ = made.raises, made.result  # their mistakes are raised now
        return made

    def _check_datasource(self, name: str, datasource: Any, arguments: Arguments, *, is_async: bool) -> None:
        wanted = AsyncEngine if is_async else Engine
        if not isinstance(datasource, wanted):
            raise TypeError(f"{name} needs @effects.transactional(ENGINE) with an {wanted.__name__} of its database.")
        if arguments.transaction is None:
            kind = "AsyncConnection" if is_async else "Connection"
            raise TypeError(f"{name} needs a parameter with the type {kind}: the transaction in which it writes.")
