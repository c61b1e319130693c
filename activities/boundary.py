"""The one way from Temporal to a tool.

decode -> validate -> give -> run -> encode -> check the size -> check what the tool ensures -> one log line; every
exception becomes a Fault. The tool's transaction, where it has one, commits after all checks, and with it the ledger's
row: an effect that has happened is not repeated, its result comes back.
"""

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from pydantic import BaseModel, JsonValue, ValidationError
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity
from temporalio.common import RawValue

from activities import ledger
from activities.attempt import Attempt, FaultRaised, attempt, shape
from activities.borders import classify, validation
from activities.breaking import Breaks, Point
from activities.ledger import Entry, Once, OtherArguments, Unanswered, Undone, claimed, once, undone_by
from activities.toolbox import deadline, postcondition
from activities.toolbox.condition import Condition
from activities.toolbox.injection import Resources, Transaction
from activities.toolbox.kind import Kind
from workflows.call import Call, Undoes
from workflows.catalogue import Effect, ToolSpec
from workflows.faults import Applied, Code, Fault
from workflows.plan import StepReturn, canonical, digest

Work = Callable[[], Awaitable[JsonValue]]

MAX_RESULT = 1024 * 1024
"""Bytes of a result as JSON; a large one lies in the store."""
MAX_EFFECT_RESULT = 48 * 1024
"""Bytes of what an effect returns: it happened, and must not depend on a store that keeps large results."""
MAX_THREADS = 64
"""Plain functions that run at the same time; one that hangs after its timeout keeps its thread."""


class Boundary:
    """Makes activities of kinds."""

    def __init__(
        self,
        resources: Resources,
        breaks: Breaks | None = None,
        *,
        store: str | None = None,
        ledgers: Iterable[AsyncEngine] = (),
    ) -> None:
        """Give tools what `resources` has; plain functions run in threads of their own; `breaks` fail on purpose.

        Effects of tasks that work with another store than `store` are refused. What is undone is marked in that of the
        `ledgers` that has it; without any there is that of the store.
        """
        self._resources = resources
        self._breaks = breaks or Breaks((), {})
        self._store = store
        self._ledgers = tuple(ledgers) or (resources.engine,)
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="tool")

    def activities(self, kinds: Mapping[str, Kind]) -> list[Callable[..., Any]]:
        """An activity for each kind, and one that catches all others."""
        return [*(self.activity(kind) for kind in kinds.values()), _unknown_kind()]

    def activity(self, kind: Kind) -> Callable[..., Any]:
        """The activity of a kind, under the kind's name."""

        async def run(payload: RawValue) -> StepReturn:
            with deadline.within(kind.spec.timeout):
                async with attempt(kind.spec) as this:
                    return await self._run(kind, payload, this)

        return activity.defn(name=kind.spec.kind)(run)

    async def _run(self, kind: Kind, payload: RawValue, this: Attempt) -> StepReturn:
        args = _decode(kind, payload, this)
        self._check_store(kind, this)
        if this.call.undoes and await undone_by(self._ledgers, this.call.undoes.key) == this.call.key:
            this.replayed = True
            return StepReturn(result=None, attempt=this.number, replayed=True)
        asked = postcondition.seen(args.model_dump) if kind.ensure else None
        name, is_committed = kind.spec.kind, kind.spec.effect is Effect.TRANSACTIONAL
        self._break(kind, after=False)
        self._breaks.reach(name, Point.BEFORE_CLAIM)
        async with (
            asyncio.timeout(kind.spec.timeout),
            self._resources.given(kind, this.call) as given,
        ):

            async def work() -> JsonValue:
                self._breaks.reach(name, Point.AFTER_CLAIM)
                deadline.check()
                this.called = True
                value = await self._invoke(kind, args, given)
                if not is_committed:
                    self._break(kind, after=True)
                this.returned = True
                result = _encode(kind, asked, value)
                self._breaks.reach(name, Point.BEFORE_COMMIT)
                return result

            done = await self._once(kind, this, args, given, work)
            this.committing, this.replayed = True, done.replayed
        if this.call.undoes is not None:
            await self._mark(this.call.undoes, this.call)
        self._breaks.reach(name, Point.AFTER_COMMIT)
        if is_committed:
            self._break(kind, after=True)
        earlier = tuple(this.earlier)
        return StepReturn(result=done.result, attempt=this.number, replayed=done.replayed, earlier=earlier)

    async def _once(
        self,
        kind: Kind,
        this: Attempt,
        args: BaseModel,
        given: Mapping[str, Any],
        work: Callable[[], Awaitable[JsonValue]],
    ) -> Once:
        """The result of a call; of one that the ledger knows, the result that it had."""
        info, name = activity.info(), kind.spec.kind
        asked = digest(name, args.model_dump(mode="json", by_alias=True))
        task = this.call.task or info.workflow_id or ""
        entry = Entry(this.call.key, task, info.activity_id, name, asked, this.call.claim)
        try:
            match kind.spec.effect:
                case Effect.TRANSACTIONAL:
                    tx = next(given[parameter] for parameter, type in kind.injected.items() if type is Transaction)
                    return await once(tx, entry, work)
                case Effect.UNKEYED:
                    return await claimed(self._resources.engine, entry, work, functools.partial(_happened_not, this))
                case Effect.KEYED if await undone_by([self._resources.engine], entry.key):
                    raise Undone(entry.key)
                case _:
                    return Once(await work(), replayed=False)
        except Undone:
            reason = f"The step {info.activity_id!r} was done and then undone: to do it once more, give it another id."
            raise FaultRaised(Fault.of(Code.CONFLICT, reason)) from None
        except OtherArguments:
            reason = f"The step {info.activity_id!r} has called {name} before with other arguments: give it another id."
            raise FaultRaised(Fault.of(Code.CONFLICT, reason)) from None
        except Unanswered:
            this.called = True  # by the attempt that claimed the key
            reason = f"An earlier attempt of {name} left no answer: find out whether it happened before it is repeated."
            raise FaultRaised(Fault.of(Code.WORKER_LOST, reason, effect=Applied.UNKNOWN)) from None

    async def _mark(self, undone: Undoes, call: Call) -> None:
        """Write down that an effect was taken back, so that nobody is given its result any more."""
        task = call.task or activity.info().workflow_id or ""
        await ledger.undo(self._ledgers, Entry(undone.key, task, undone.step, undone.kind, digest=""), by=call.key)

    def _check_store(self, kind: Kind, this: Attempt) -> None:
        """Let no effect happen beside a ledger that knows nothing of what the task has done."""
        wanted = this.call.store
        if wanted and self._store and wanted != self._store and kind.spec.effect is not Effect.READ:
            reason = f"The task works with the store {wanted}, and this worker with {self._store}: nothing was done."
            remedy = "Start the worker with the --store or --state of the task, and end this one."
            raise FaultRaised(Fault.of(Code.WRONG_STORE, f"{reason} {remedy}"))

    def _break(self, kind: Kind, *, after: bool) -> None:
        fault = self._breaks.next(kind.spec.kind, after=after)
        if fault is not None:
            raise FaultRaised(fault)

    async def _invoke(self, kind: Kind, args: BaseModel, given: dict[str, Any]) -> Any:
        if kind.is_async:
            return await kind.function(args, **given)
        call = functools.partial(copy_context().run, kind.function, args, **given)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _happened_not(this: Attempt, error: Exception) -> bool:
    """Whether what was raised proves that the effect did not happen."""
    fault = error.fault if isinstance(error, FaultRaised) else classify(error)
    return this.applied(fault, error) is Applied.NONE


def _unknown_kind() -> Callable[..., Any]:
    """The activity that catches every kind this worker does not know, so that it too becomes a Fault."""

    async def run(args: Sequence[RawValue]) -> StepReturn:
        name = activity.info().activity_type
        async with attempt(ToolSpec(kind=name, effect=Effect.READ)):
            reason = f"This worker does not know the kind {name!r}: start it with the tools file that defines it."
            raise FaultRaised(Fault.of(Code.MISSING_TOOL, reason))

    return activity.defn(dynamic=True)(run)


def _decode(kind: Kind, payload: RawValue, this: Attempt) -> BaseModel:
    try:
        value = activity.payload_converter().from_payload(payload.payload)
    except Exception as error:
        reason = "The arguments cannot be decoded: is a payload codec or a newer worker missing?"
        raise FaultRaised(Fault.of(Code.UNDECODABLE, reason)) from error
    this.shape = shape(value, kind)
    try:
        return kind.parse(value)
    except ValidationError as error:
        wrong = validation.fields(error.errors(include_url=False, include_context=False, include_input=False))
        raise FaultRaised(Fault.of(Code.INVALID_INPUT, f"{kind.spec.kind} cannot take this: {wrong}.")) from None


def _encode(kind: Kind, asked: Any, value: Any) -> JsonValue:
    """Check a result against what the kind promises and write it as JSON, before anything is committed."""
    checked = kind.result.validate_python(value)
    result: JsonValue = kind.result.dump_python(checked, mode="json")
    if not _is_finite(kind.result.dump_python(checked)):
        reason = f"{kind.spec.kind} returned a NaN or an infinity, which JSON does not have: return None or a text."
        raise FaultRaised(Fault.of(Code.UNSERIALISABLE, reason))
    size = len(canonical(result).encode())
    limit = MAX_RESULT if kind.spec.effect in (Effect.READ, Effect.IDEMPOTENT) else MAX_EFFECT_RESULT
    if size > limit:
        reason = f"{kind.spec.kind} returned {size} bytes, more than {limit}: let it return less."
        raise FaultRaised(Fault.of(Code.TOO_LARGE, reason))
    if kind.ensure is not None:
        _ensure(kind, kind.ensure, asked, checked, result)
    return result


def _ensure(kind: Kind, condition: Condition, asked: Any, returned: Any, result: JsonValue) -> None:
    """Refuse a result that breaks what the tool ensures: something happened, but nobody can say what."""
    values = {"args": asked, "result": postcondition.seen(functools.partial(kind.result.dump_python, returned))}
    reason = postcondition.broken(kind.spec.kind, condition, values)
    if reason is not None:
        raise FaultRaised(Fault.of(Code.UNEXPECTED_RESULT, reason, observed=result, effect=Applied.UNKNOWN))


def _is_finite(value: Any) -> bool:
    """Whether every number in a result is one that the wire carries: pydantic would write null for the others."""
    if isinstance(value, dict | list | tuple | set | frozenset):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
