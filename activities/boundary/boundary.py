"""The one way from Temporal to a tool.

decode -> validate -> give -> run -> encode -> check the size -> check what the tool ensures -> one log line; every
exception becomes a Fault. The tool's transaction, where it has one, commits after all checks, and with it the ledger's
row: an effect that has happened is not repeated, its result comes back.
"""

import asyncio
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from pydantic import BaseModel, JsonValue, ValidationError
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity
from temporalio.common import RawValue

from activities import deadline
from activities.borders import validation
from activities.boundary.attempt import Attempt, FaultRaised, attempt, shape
from activities.boundary.effects import Effects
from activities.boundary.failpoints import Breaks, Point
from activities.boundary.ledger import Once
from activities.boundary.threads import StillRunning, Threads
from activities.providers.messages import LanguageModel
from activities.providers.metering import MeteredModel
from activities.toolbox.declare import conditions
from activities.toolbox.declare.conditions import Condition
from activities.toolbox.declare.kind import Kind
from activities.toolbox.injection import Transaction
from activities.toolbox.resources import Resources
from workflows.catalogue import Effect, ToolSpec
from workflows.faults import Applied, Code, Fault
from workflows.plan import PRUNED_ENCODING, StepReturn, canonical, digest, pruned

MAX_RESULT = 1024 * 1024
"""Bytes of a result as JSON; a large one lies in the store."""
MAX_EFFECT_RESULT = 48 * 1024
"""Bytes of what an effect returns: it happened, and must not depend on a store that keeps large results."""

log = structlog.get_logger("replan.step")


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
        self._effects = Effects(resources.engine, store, ledgers)
        self.threads = Threads()
        self._late = set[asyncio.Task[None]]()

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
        value, args = _decode(kind, payload, this)
        self._effects.check_store(this)
        if await self._effects.is_undone_by(this):
            this.replayed = True
            return StepReturn(result=None, attempt=this.number, replayed=True)
        self._break(kind, after=False)
        self._breaks.reach(kind.spec.kind, Point.BEFORE_CLAIM)
        asked = digest(kind.spec.kind, value)
        try:
            async with asyncio.timeout(kind.spec.timeout) as this.time:
                done = await self._once(kind, this, args, asked)
        except StillRunning as left:
            late = asyncio.create_task(self._see_end(kind, this, args, asked, left.thread))
            self._late.add(late)  # the loop itself keeps no task alive
            late.add_done_callback(self._late.discard)
            raise
        this.committing, this.replayed = True, done.replayed
        await self._effects.mark(this)
        self._breaks.reach(kind.spec.kind, Point.AFTER_COMMIT)
        if kind.spec.effect is Effect.TRANSACTIONAL:
            self._break(kind, after=True)
        return StepReturn(
            result=done.result,
            attempt=this.number,
            replayed=done.replayed,
            earlier=tuple(this.earlier),
            model_calls=len(this.meter.replies),
            tokens=this.meter.tokens,
            usd=this.meter.usd,
        )

    async def _once(self, kind: Kind, this: Attempt, args: BaseModel, asked: str) -> Once:
        """Call the tool as often as its effect allows: the ledger is part of its transaction, or stands around it."""
        if kind.spec.effect is Effect.TRANSACTIONAL:
            async with self._resources.given(kind, this.call, self._model(this)) as given:
                tx = next(given[name] for name, type in kind.injected.items() if type is Transaction)
                work = functools.partial(self._call, kind, this, args, given)
                try:
                    done = await self._effects.once(kind.spec, this, asked, work, tx)
                except BaseException:
                    this.committing = not tx.in_transaction()  # a tool that commits for itself
                    raise
                this.committing = True
            return done

        async def work_alone() -> JsonValue:
            async with self._resources.given(kind, this.call, self._model(this)) as given:
                result = await self._call(kind, this, args, given)
                this.returned = Transaction not in kind.injected.values()  # else its commit is still to come
            this.returned = True
            return result

        return await self._effects.once(kind.spec, this, asked, work_alone, None)

    def _model(self, this: Attempt) -> LanguageModel | None:
        """The worker's model for one attempt, which pays for what it uses."""
        model, this.meter.price = self._resources.model, self._resources.price
        return MeteredModel(model, this.meter) if model else None

    async def _call(self, kind: Kind, this: Attempt, args: BaseModel, given: dict[str, Any]) -> JsonValue:
        """Call the tool and check what it returns."""
        asked = conditions.seen(args.model_dump) if kind.ensure else None
        self._breaks.reach(kind.spec.kind, Point.AFTER_CLAIM)
        deadline.check()
        this.called = True
        value = await self._invoke(kind, this, args, given)
        if kind.spec.effect is not Effect.TRANSACTIONAL:
            self._break(kind, after=True)
        this.returned = True
        result = _encode(kind, asked, value)
        self._breaks.reach(kind.spec.kind, Point.BEFORE_COMMIT)
        return result

    def _break(self, kind: Kind, *, after: bool) -> None:
        fault = self._breaks.next(kind.spec.kind, after=after)
        if fault is not None:
            raise FaultRaised(fault)

    async def _invoke(self, kind: Kind, this: Attempt, args: BaseModel, given: dict[str, Any]) -> Any:
        call = functools.partial(kind.function, args, **given)
        return await call() if kind.is_async else await self.threads.run(kind.spec, call, this.time)

    async def _see_end(
        self, kind: Kind, this: Attempt, args: BaseModel, asked: str, thread: asyncio.Future[Any]
    ) -> None:
        """Wait for a thread that outlived its attempt, and write down and log what it came to."""

        async def work() -> JsonValue:
            value = await thread
            this.returned = True
            return _encode(kind, conditions.seen(args.model_dump) if kind.ensure else None, value)

        raised = None
        try:
            await self._effects.late(kind.spec, this, asked, work)
        except (Exception, SystemExit) as error:  # its attempt is over: nobody else will hear of it
            raised = type(error).__name__
        info = activity.info()
        more = {"attempt": this.number, "error": raised, "live": self.threads.live}
        log.warning("thread_ended", task=info.workflow_id, step=info.activity_id, kind=kind.spec.kind, **more)


def _unknown_kind() -> Callable[..., Any]:
    """The activity that catches every kind this worker does not know, so that it too becomes a Fault."""

    async def run(args: Sequence[RawValue]) -> StepReturn:
        name = activity.info().activity_type
        async with attempt(ToolSpec(kind=name, effect=Effect.READ)):
            reason = f"This worker does not know the kind {name!r}: start it with the tools file that defines it."
            raise FaultRaised(Fault.of(Code.MISSING_TOOL, reason))

    return activity.defn(dynamic=True)(run)


def _decode(kind: Kind, payload: RawValue, this: Attempt) -> tuple[JsonValue, BaseModel]:
    """The arguments as they were sent, and as the tool takes them."""
    if payload.payload.metadata.get("encoding") == PRUNED_ENCODING:
        raise FaultRaised(Fault.of(Code.NEEDS_PERSON, payload.payload.data.decode()))
    try:
        value = activity.payload_converter().from_payload(payload.payload)
    except Exception as error:
        reason = "The arguments cannot be decoded: is a payload codec or a newer worker missing?"
        raise FaultRaised(Fault.of(Code.UNDECODABLE, reason)) from error
    if missing := pruned(value):
        raise FaultRaised(Fault.of(Code.NEEDS_PERSON, missing))
    this.shape = shape(value, kind)
    try:
        return value, kind.parse(value)
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
    values = {"args": asked, "result": conditions.seen(functools.partial(kind.result.dump_python, returned))}
    reason = conditions.broken(kind.spec.kind, condition, values)
    if reason is not None:
        raise FaultRaised(Fault.of(Code.UNEXPECTED_RESULT, reason, observed=result, applied=Applied.UNKNOWN))


def _is_finite(value: Any) -> bool:
    """Whether every number in a result is one that the wire carries: pydantic would write null for the others."""
    if isinstance(value, dict | list | tuple | set | frozenset):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
