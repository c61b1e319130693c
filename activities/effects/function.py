"""A function whose calls are made once each: what the decorators of `Effects` return does its work here."""

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Literal

from pydantic import JsonValue, PydanticSchemaGenerationError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from activities import sends
from activities.borders import declared, judge
from activities.borders.meaning import entries_of
from activities.borders.proof import proves_no_effect
from activities.borders.sql import DATABASE_ERRORS
from activities.effects import ledger
from activities.effects.arguments import Arguments, Bound
from activities.effects.calls import CallRequest, Claim, UnresolvedCall
from activities.effects.database import unavailable
from activities.effects.driving import drive, in_task, run
from activities.effects.effect_store import EffectStore
from activities.effects.flow import Flow, Running, Work, calling, new_key
from activities.effects.key import Key
from activities.effects.ledger import LedgerEntry
from activities.effects.recognition import Identity
from activities.effects.waiting import ThreadClient
from activities.libraries import libraries_of
from activities.storage.store import reading, writing
from workflows.faults.fault import Quadrant
from workflows.json_values import digest
from workflows.plans.catalogue import Effect

MAX_RESULT = 1024 * 1024
"""The most bytes of a result as JSON."""


MAX_KEY = 250
"""The most characters of the key of a row."""


@dataclass(frozen=True, kw_only=True)
class EffectOptions:
    """What a decorator of `Effects` is told about a function."""

    name: str | None = None
    """The name under which its effects are recorded; by default that of the function."""
    timeout: float = 30.0
    """Seconds of a call. An `async def` is cancelled then; the outcome is unknown."""
    reconcile: Callable[..., Any] | None = None
    """Looks for the effect of a `keyed` or `unkeyed` call: called with those arguments (and `key`) that it has
    parameters for, it returns the result of the call, or None if the call was not applied."""
    settle: float = 10.0
    """Seconds between two looks that find nothing, before that counts."""
    undo: Callable[..., Any] | None = None
    """A function of the same Effects that undoes it, called with those arguments that it has parameters for, and with
    `result`."""
    raises: declared.Raises | None = None
    """What exceptions and HTTP statuses mean, as in `replan.faults`."""
    requests: Literal[1] | None = None
    """1 if the function sends at most one request that may change something."""
    ignore: Collection[str] = ()
    """Arguments that do not say what the call is, such as a client; they are not recorded."""
    authority: Collection[str] | None = None
    """The arguments that say whom, what, where and how much; without it, and without `content`, this is guessed."""
    content: Collection[str] = ()
    """The arguments that are only words, such as the text of a message."""


@dataclass(frozen=True)
class Function:
    """A function with an effect, and how its calls are made."""

    store: EffectStore
    identify: Callable[[str, Bound], tuple[Identity, str]]
    """Gives the identity of a call of the function with this name, and its session."""
    function: Callable[..., Any]
    effect: Effect
    options: EffectOptions
    arguments: Arguments
    datasource: Engine | AsyncEngine | None = None
    """The database of a transactional function."""

    @cached_property
    def name(self) -> str:
        return self.options.name or self.function.__name__

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def raises(self) -> declared.Entries | None:
        return entries_of(self.options.raises)

    @cached_property
    def libraries(self) -> frozenset[str] | None:
        """The packages that the function can use; None if they are not known."""
        return libraries_of(self.function)

    @cached_property
    def result(self) -> TypeAdapter[Any]:
        """Reads and writes the results; raises TypeError if its declared type cannot be written as JSON."""
        annotation = self.arguments.returns
        try:
            return TypeAdapter(annotation)
        except PydanticSchemaGenerationError as error:
            raise TypeError(
                f"{self.name} returns {annotation!r}, which cannot be recorded as JSON: return plain data, a dataclass"
                " or a pydantic model."
            ) from error

    def wrapper(self) -> Callable[..., Any]:
        """The function that is called in place of the decorated one."""
        if self.is_async:

            @wraps(self.function)
            async def wrapped(*args: Any, **named: Any) -> Any:
                return await self._call_async(self.arguments.bind(args, named))

        else:

            @wraps(self.function)
            def wrapped(*args: Any, **named: Any) -> Any:
                return self._call(self.arguments.bind(args, named))

        wrapped.__signature__ = self.arguments.public  # type: ignore[attr-defined]  # what `inspect.signature` reads
        wrapped.__annotations__ = self.arguments.annotations
        wrapped.replan_function = self  # type: ignore[attr-defined]  # `Effects.undo` reads it
        return wrapped

    def _call(self, bound: Bound) -> Any:
        """Make a call in the current thread, which waits for whatever is to be waited for."""
        waiting = ThreadClient()
        client = Running(client_has_left=waiting.has_left)
        self.store.begin()
        if isinstance(self.datasource, Engine):
            self.store.prepare(self.datasource)
        result = run(self.store, self._flow(bound, client), client)
        waiting.when_left(lambda: self.store.abandoned(client))
        return result

    async def _call_async(self, bound: Bound) -> Any:
        """Make a call in a task of its own, which goes on when the client is cancelled."""
        client = Running()
        return await in_task(self.store, self._drive(bound, client), client, f"effect {self.name}")

    async def _drive(self, bound: Bound, client: Running) -> Any:
        if not self.store.is_open:
            await asyncio.to_thread(self.store.begin)
        if isinstance(self.datasource, AsyncEngine):
            await self.store.prepare_async(self.datasource)
        return await drive(self.store, self._flow(bound, client), client)

    def _flow(self, bound: Bound, client: Running) -> Flow:
        identity, session = self.identify(self.name, bound)
        key = self.key_of(session, identity.key) if identity.key is not None else new_key(self.name)
        request = CallRequest(
            session=session,
            function=self.name,
            effect=self.effect,
            identity=identity,
            arguments=bound.json,
            key=key,
            timeout=self.options.timeout,
            differs_in_prose=lambda earlier: self.arguments.differ_in_prose(bound.json, earlier),
            can_look=self.options.reconcile is not None or self.effect is Effect.TRANSACTIONAL,
            returns_nothing=self.arguments.returns in (None, type(None)),
            client=client,
        )
        return calling(request, self.store.rows, self._work(request, bound), client)

    def key_of(self, session: str, key: str) -> str:
        """The key of the row of a call that has a caller's key."""
        whole = f"{session}/{self.name}/{key}"
        return whole if len(whole) <= MAX_KEY else f"{self.name}-{digest(whole)}"

    def _work(self, request: CallRequest, bound: Bound) -> Work:
        attempt = _Attempt(sends.Sends(on_process=self.store.owner.note_started_process))
        return Work(
            make=lambda claim: self._maker(request, bound, claim, attempt),
            encode=self.encode,
            decode=self.decode,
            look=self._looker(bound),
            proves_no_effect=lambda error: self._proves_no_effect(error, attempt),
            raises_unknown=self.effect is not Effect.IDEMPOTENT,
            settle=self.options.settle if self.effect is not Effect.TRANSACTIONAL else 0.0,
            remedy=self.store.remedy,
            is_earlier=lambda claim: (
                attempt.is_replayed
                or (self.effect is Effect.KEYED and claim.is_unproven)
                or (self.effect is Effect.TRANSACTIONAL and claim.is_shared)
            ),
            on_joined=self.store.on_joined,
            later=self.store.later,
            note=self.store.database.note,
        )

    def _maker(self, request: CallRequest, bound: Bound, claim: Claim, attempt: "_Attempt") -> Callable[[], Any]:
        """The function that makes the call with this claim."""
        values = dict(bound.values)
        if self.arguments.key is not None:
            values[self.arguments.key] = Key(claim.key)

        def call(more: Mapping[str, Any]) -> Any:
            attempt.is_called = True
            return self.arguments.call(self.function, {**values, **more})

        if self.effect is Effect.TRANSACTIONAL:
            entry = LedgerEntry(_in_datasource(claim.key), "", "", self.name, request.identity.digest)
            return self._in_transaction(call, entry, attempt)
        return functools.partial(self._counted_async if self.is_async else self._counted, call, attempt)

    def _counted(self, call: Callable[[Mapping[str, Any]], Any], attempt: "_Attempt") -> Any:
        sends.add(changes=True)  # for a call around this one
        with sends.counted(attempt.sends):
            return call({})

    async def _counted_async(self, call: Callable[[Mapping[str, Any]], Any], attempt: "_Attempt") -> Any:
        sends.add(changes=True)
        with sends.counted(attempt.sends):
            return await call({})

    def _in_transaction(
        self, call: Callable[[Mapping[str, Any]], Any], entry: LedgerEntry, attempt: "_Attempt"
    ) -> Callable[[], Any]:
        """The function that makes the call and its row in one transaction of the function's own database."""
        name, datasource = self.arguments.transaction or "", self.datasource
        if isinstance(datasource, AsyncEngine):

            async def apply() -> Any:
                with attempt.before_call(datasource.url):
                    async with writing(datasource).begin() as tx:

                        async def work() -> JsonValue:
                            return _plain(self.encode(await call({name: tx})))

                        done = await ledger.apply_in_transaction(tx, entry, work)
                        attempt.is_committing, attempt.is_replayed = True, done.replayed
                return self.decode(json.dumps(done.result))

            return apply

        def apply_here() -> Any:
            engine = _blocking(datasource)
            with attempt.before_call(engine.url), writing(engine).begin() as tx:
                work = lambda: _plain(self.encode(call({name: tx})))  # noqa: E731
                done = ledger.apply_in_blocking_transaction(tx, entry, work)
                attempt.is_committing, attempt.is_replayed = True, done.replayed
            return self.decode(json.dumps(done.result))

        return apply_here

    def _looker(self, bound: Bound) -> Callable[[UnresolvedCall], Callable[[], Any]] | None:
        """Gives what looks for an earlier call: in the database of a transactional function, or with `reconcile=`."""
        if self.effect is Effect.TRANSACTIONAL:
            return self._look_in_database
        reconcile = self.options.reconcile
        if reconcile is None:
            return None
        wanted = inspect.signature(reconcile).parameters

        def look(step: UnresolvedCall) -> Callable[[], Any]:
            values = {**self.arguments.decode(step.arguments, bound), "key": Key(step.key)}
            taken = {name: values[name] for name in wanted if name in values}

            if not self.is_async:
                return lambda: self._found(reconcile(**taken))

            async def call() -> Any:
                if inspect.iscoroutinefunction(reconcile):
                    return self._found(await reconcile(**taken))
                return self._found(await asyncio.to_thread(reconcile, **taken))

            return call

        return look

    def _found(self, value: Any) -> Any:
        """What `reconcile=` returned; raises TypeError if it may mean that nothing was found, but does not say so."""
        if value is None:
            return None
        if isinstance(value, bool) or (isinstance(value, str | list | tuple | dict | set | frozenset) and not value):
            raise TypeError(
                f"reconcile= of {self.name} returned {value!r}: return the result of the call that it found, or None if"
                " the call was not applied."
            )
        return value

    def _look_in_database(self, step: UnresolvedCall) -> Callable[[], Any]:
        datasource = self.datasource
        if isinstance(datasource, AsyncEngine):

            async def look() -> Any:
                found = await ledger.find_result(datasource, _in_datasource(step.key))
                return self.decode(json.dumps(found.result)) if found else None

            return look

        def look_here() -> Any:
            with reading(_blocking(datasource)).begin() as tx:
                found = ledger.find_result_in(tx, _in_datasource(step.key))
            return self.decode(json.dumps(found.result)) if found else None

        return look_here

    def _proves_no_effect(self, error: BaseException, attempt: "_Attempt") -> bool:
        """Whether it is certain that a call that ended with `error` had no effect."""
        if not attempt.is_called:
            return True
        if self.effect is Effect.TRANSACTIONAL:
            return not attempt.is_committing
        if not isinstance(error, Exception):
            return False
        verdict = judge(error, self.raises)
        if self.effect is Effect.IDEMPOTENT:
            return verdict.fault.quadrant is Quadrant.PERSISTENT_SEMANTIC and not verdict.fault.guessed
        if not self.store.is_watched:
            attempt.sends.is_uncounted = True
        is_alone = self.options.requests is not None
        return proves_no_effect(verdict, error, attempt.sends, lambda: self.libraries, is_alone=is_alone)

    def encode(self, value: Any) -> str | None:
        """A result as JSON; None, with a line in the log, if it cannot be recorded."""
        try:
            text = self.result.dump_json(value, warnings=False).decode()
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            self.store.log.error("The result of %s cannot be recorded: %s", self.name, type(error).__name__)
            return None
        if len(text) > MAX_RESULT:
            self.store.log.error("The result of %s has %d bytes: more than %d.", self.name, len(text), MAX_RESULT)
            return None
        return text

    def decode(self, text: str | None) -> Any:
        """A recorded result as the type that the function returns."""
        if text is None:
            return None
        try:
            return self.result.validate_json(text)
        except ValidationError:  # recorded by another version of the function, or settled by a person
            return json.loads(text)


@dataclass
class _Attempt:
    """What an attempt of a call has done so far."""

    sends: sends.Sends
    is_called: bool = False
    is_committing: bool = False
    """Whether the transaction of the function may have been committed."""
    is_replayed: bool = False
    """Whether the function's database had the result already."""

    @contextmanager
    def before_call(self, url: URL) -> Iterator[None]:
        """In the block, raise StoreUnavailable if the function's database, with this `url`, fails before the call."""
        try:
            yield
        except DATABASE_ERRORS as error:
            if self.is_called:
                raise
            raise unavailable("The datasource", url, error) from error


def _in_datasource(key: str) -> str:
    """The key of the row that a transactional call has in its own database, which may be that of the store, too."""
    return f"tx/{key}"


def _blocking(datasource: Engine | AsyncEngine | None) -> Engine:
    """The database of a plain function, which the decorator has checked."""
    if not isinstance(datasource, Engine):
        raise TypeError(f"A plain function needs an Engine, and not {datasource!r}.")
    return datasource


def _plain(text: str | None) -> JsonValue:
    return json.loads(text) if text is not None else None
