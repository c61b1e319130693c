"""The boundary: each call of a tool by a Temporal activity goes through it.

Runs in each attempt of a step's call, of a read that observes or reconciles, and of an undo:
decode -> validate -> ask the circuit breaker -> inject faults -> call -> encode -> check the size -> check the tool's
`ensure` condition -> one log line; every exception becomes a Fault. The transaction of the tool, if it has one, commits
after all checks, together with its row in the ledger: the effect is applied once, and a repeated call returns the
recorded result.
"""

import asyncio
import functools
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import BaseModel, JsonValue, ValidationError
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity
from temporalio.common import RawValue

from activities import deadline, sends
from activities.borders import validation
from activities.borders.sql import DATABASE_ERRORS
from activities.boundary.approved import Approvals, Verifier
from activities.boundary.attempt import CallAttempt, FaultRaised, attempt_of, is_interruption
from activities.boundary.breakers.open_breaker import BreakerGuard
from activities.boundary.breakers.rows import Breakers
from activities.boundary.effects import StepEffects
from activities.boundary.failpoints import Failpoint, FaultInjection
from activities.boundary.threads import StillRunning, Threads
from activities.boundary.tool_loop import ToolBlocks, ToolLoop, contained
from activities.effects.ledger import EffectResult
from activities.extent import fault_of_extent
from activities.log_redaction import shape
from activities.providers.metering import total
from activities.storage.store import time_limit
from activities.toolbox.declare import conditions
from activities.toolbox.declare.arguments import changes
from activities.toolbox.declare.kind import Kind
from activities.toolbox.injection import Transaction
from activities.toolbox.resources import Resources
from workflows.faults import retries
from workflows.faults.fault import Applied, Code, Fault
from workflows.inquiries import Capacity
from workflows.json_values import canonical, digest
from workflows.plans.catalogue import Effect, ToolSpec
from workflows.plans.proposal import StepReturn
from workflows.plans.references import PRUNED_ENCODING, pruned
from workflows.plans.repeated_calls import WAITED

MAX_RESULT = 1024 * 1024
"""The most bytes of a result as JSON, for a tool that reads or is idempotent."""
MAX_EFFECT_RESULT = 48 * 1024
"""The most bytes of any other tool's result as JSON: small enough to stay in history, without external storage."""
MAX_LOCAL_RESULT = 8 * 1024
"""The most bytes of a local activity's result as JSON: one workflow task may record the results of many."""

log = structlog.get_logger("replan.step")


class Boundary:
    """Makes the activity of each kind, which calls the kind's tool."""

    def __init__(
        self,
        resources: Resources,
        faults: FaultInjection | None = None,
        *,
        store: str | None = None,
        ledgers: Iterable[AsyncEngine] = (),
        loop: ToolLoop | None = None,
        threads: Threads | None = None,
        breakers: Breakers | None = None,
        people: Verifier | None = None,
    ) -> None:
        """Inject `resources` into tools, and `faults` into calls.

        `store` is the id of the worker's store; a call of a task that works with another store is rejected. `ledgers`
        are the databases with a ledger that this worker has open, by default the store alone. `breakers` are needed
        with a `loop`, since they use the store on the worker's own event loop. `people` verifies what doors have
        signed; without it, no call is made whose tool says who must approve it.
        """
        self._resources = resources
        self._faults = faults or FaultInjection((), {})
        self._effects = StepEffects(resources.engine, store, tuple(ledgers) or (resources.engine,))
        self._approvals = Approvals(people)
        self._loop = loop
        self.threads = threads or Threads()
        self.breakers = breakers or Breakers(resources.engine)
        self.running = list[str]()
        """The calls that run now, as `kind (task/step)`."""
        self._late_calls = set[asyncio.Task[None]]()
        sends.start()

    def activities(
        self, kinds: Mapping[str, Kind], is_elsewhere: Callable[[str], Awaitable[bool]] | None = None
    ) -> list[Callable[..., Any]]:
        """An activity for each kind, and one for all kinds that this worker does not have.

        `is_elsewhere` says whether another worker of the queue has a kind; None if that is not known.
        """
        return [*(self.activity(kind) for kind in kinds.values()), _unknown_kind(is_elsewhere)]

    def activity(self, kind: Kind) -> Callable[..., Any]:
        """The activity of a kind; its type is the kind's name."""

        async def run(payload: RawValue) -> StepReturn:
            with deadline.within(kind.spec.timeout), self._listed(kind) as call:
                async with attempt_of(kind.spec, kind) as attempt:
                    guard = BreakerGuard(self.breakers, kind, attempt)
                    attempt.settle = guard.end
                    if kind.spec.pure:
                        return await self._compute(kind, payload, attempt)
                    if activity.info().is_local:
                        reason = f"The {kind.spec.kind} of this worker is no @tool.pure, as the task's was."
                        raise FaultRaised(Fault.of(Code.MISSING_TOOL, reason))
                    work = functools.partial(self._run, kind, payload, attempt, guard)
                    if self._loop:
                        work = functools.partial(self._on_loop, self._loop, work, call, kind.spec)
                    return await (_uninterrupted(work, attempt) if kind.spec.effect is Effect.UNKEYED else work())

        return activity.defn(name=kind.spec.kind)(run)

    async def _on_loop(
        self, loop: ToolLoop, work: Callable[[], Coroutine[Any, Any, StepReturn]], call: str, spec: ToolSpec
    ) -> StepReturn:
        """Run `work` on the event loop of the tools. Raises FaultRaised if `work` blocks it after the timeout."""
        try:
            return await loop.run(work, call, spec.timeout + (retries.GRACE / 2).total_seconds())
        except ToolBlocks:
            late = f"{spec.kind} gave no answer within {spec.timeout:g} s: it blocks its event loop."
            reason = f"{late} Write it as a plain def, or await."
            fault = Fault.of(Code.TIMEOUT, reason, still_running=spec.effect is not Effect.READ)
            raise FaultRaised(fault) from None

    def capacity(self, slots: int) -> Capacity:
        """How many of the worker's `slots` and threads are in use."""
        return Capacity(calls=len(self.running), slots=slots, outlived=self.threads.outlived, threads=self.threads.size)

    @contextmanager
    def _listed(self, kind: Kind) -> Iterator[str]:
        """List the call in `running` during the block, unless it is local; yield its name there, `kind (task/step)`."""
        info = activity.info()
        call = f"{kind.spec.kind} ({info.workflow_id}/{info.activity_id})"
        if info.is_local:  # it holds no slot, and ends within a second
            yield call
            return
        self.running.append(call)
        try:
            yield call
        finally:
            self.running.remove(call)

    async def _run(self, kind: Kind, payload: RawValue, attempt: CallAttempt, guard: BreakerGuard) -> StepReturn:
        value, args = _decode(kind, payload, attempt)
        if await self._effects.has_undone(attempt):  # then nothing is called, which nobody has to approve
            attempt.replayed = True
            return StepReturn(result=None, attempt=attempt.number, replayed=True)
        self._approvals.check(kind, value, args, attempt)
        self._effects.check_store(attempt)
        if attempt.call.provided is None:  # the arguments of another version may name no service
            await guard.admit(kind.service_of(args))
        self._raise_injected(attempt, Failpoint.BEFORE_CLAIM)
        self._faults.stop(kind.spec.kind, Failpoint.BEFORE_CLAIM)
        call, began = _Call(kind, attempt, args, digest(kind.spec.kind, value)), time.monotonic()
        try:
            async with time_limit(kind.spec.timeout) as attempt.time:
                done = await self._apply(call)
        except StillRunning as running:
            late = asyncio.create_task(self._record_late(call, running.thread))
            self._late_calls.add(late)  # the loop itself keeps no reference to a task
            late.add_done_callback(self._late_calls.discard)
            raise
        except TimeoutError:
            if attempt.raised:  # the end of the attempt came while that was written down
                raise attempt.raised from None
            raise
        attempt.committing, attempt.replayed = True, done.replayed
        await self._effects.mark_undone(attempt)
        self._faults.stop(kind.spec.kind, Failpoint.AFTER_COMMIT)
        if kind.spec.effect is Effect.TRANSACTIONAL:
            self._raise_injected(attempt, Failpoint.AFTER_COMMIT)
        used, lasted = total(attempt.meter.use), round(time.monotonic() - began, 1)
        return StepReturn(
            result=done.result,
            attempt=attempt.number,
            replayed=done.replayed,
            earlier=tuple(attempt.earlier),
            model_calls=used.calls,
            tokens=used.tokens,
            usd=used.usd,
            estimated=used.estimated,
            held=attempt.held,
            lasted=lasted if lasted >= WAITED else 0.0,
        )

    async def _compute(self, kind: Kind, payload: RawValue, attempt: CallAttempt) -> StepReturn:
        """Call a pure tool in a thread: a tool that blocks the tools' event loop must not delay a workflow task."""

        def work() -> JsonValue:  # validators, too, are code of the tool
            value, args = _decode(kind, payload, attempt)
            self._approvals.check(kind, value, args, attempt)
            call = _Call(kind, attempt, args, digest(kind.spec.kind, value))
            if attempt.call.provided is not None:
                return _encode_provided(call, attempt.call.provided.result)
            before = call.arguments_for_ensure()
            attempt.called = True
            returned = kind.function(args)
            _note_return(attempt, returned)
            attempt.show(result=returned)
            return encode(kind, before, returned, _max_bytes(kind.spec))

        self._raise_injected(attempt, Failpoint.BEFORE_CLAIM)
        for failpoint in (Failpoint.BEFORE_CLAIM, Failpoint.AFTER_CLAIM):
            self._faults.stop(kind.spec.kind, failpoint)
        try:
            async with asyncio.timeout(kind.spec.timeout) as attempt.time:
                result = await self.threads.run(kind.spec, work, attempt.time)
        except TimeoutError:
            if not attempt.time.expired():  # the tool itself raised it
                raise
            late = f"{kind.spec.kind} gave no answer within {kind.spec.timeout:g} s: a @tool.pure must only compute."
            reason = f"{late} If it waits for something or takes long, declare it as @tool.read."
            raise FaultRaised(Fault.of(Code.TIMEOUT, reason)) from None
        self._raise_injected(attempt, Failpoint.AFTER_COMMIT)
        for failpoint in (Failpoint.BEFORE_COMMIT, Failpoint.AFTER_COMMIT):
            self._faults.stop(kind.spec.kind, failpoint)
        return StepReturn(result=result, attempt=attempt.number, earlier=tuple(attempt.earlier))

    async def _apply(self, call: "_Call") -> EffectResult:
        """Call the tool, unless the ledger has its result; a transactional tool and the ledger share a transaction."""
        kind, attempt = call.kind, call.attempt
        if kind.spec.effect is Effect.TRANSACTIONAL:
            async with self._resources.values_for(kind, attempt.call) as values:
                tx = next(values[name] for name, type in kind.injected.items() if type is Transaction)
                work = functools.partial(self._call_tool, call, values)
                try:
                    done = await self._effects.apply(attempt, call.digest, work, tx)
                except BaseException:
                    attempt.committing = not tx.in_transaction()  # a tool that commits by itself
                    raise
                attempt.committing = True
            return done

        async def work_outside() -> JsonValue:
            async with self._resources.values_for(kind, attempt.call) as parameters:
                result = await self._call_tool(call, parameters)
                attempt.returned = Transaction not in kind.injected.values()  # else its commit is still to come
            attempt.returned = True
            return result

        return await self._effects.apply(attempt, call.digest, work_outside, None)

    async def _call_tool(self, call: "_Call", injected: dict[str, Any]) -> JsonValue:
        """Call the tool's function, unless a result is provided; return the checked result as JSON."""
        kind, attempt = call.kind, call.attempt
        if (provided := attempt.call.provided) is not None:
            return _encode_provided(call, provided.result)
        before = call.arguments_for_ensure()  # the tool may change its arguments
        self._faults.stop(kind.spec.kind, Failpoint.AFTER_CLAIM)
        deadline.check()
        attempt.called = True

        def begin() -> AbstractContextManager[sends.Sends]:
            attempt.reached = True
            return sends.counted(attempt.sends)

        def in_thread() -> Any:
            with begin():
                return kind.function(call.args, **injected)

        async def on_loop() -> Any:
            with begin():
                return await kind.function(call.args, **injected)

        try:
            value = await (on_loop() if kind.is_async else self.threads.run(kind.spec, in_thread, attempt.time))
        except Exception as error:
            attempt.raised = None if attempt.time.expired() else error
            raise
        if kind.spec.effect is not Effect.TRANSACTIONAL:
            self._raise_injected(attempt, Failpoint.AFTER_COMMIT)
        _note_return(attempt, value)
        attempt.show(result=value)
        result = encode(kind, before, value, _max_bytes(kind.spec))
        self._faults.stop(kind.spec.kind, Failpoint.BEFORE_COMMIT)
        return result

    def _raise_injected(self, attempt: CallAttempt, failpoint: Failpoint) -> None:
        fault = self._faults.fault(attempt.spec.kind, failpoint)
        if fault is not None:
            attempt.reached = True  # the fault is the answer of the service
            raise FaultRaised(fault)

    async def _record_late(self, call: "_Call", thread: asyncio.Future[Any]) -> None:
        """Wait for a thread that outlived its attempt, then record and log its result."""
        kind, attempt = call.kind, call.attempt

        async def work() -> JsonValue:
            value = await thread
            _note_return(attempt, value)
            return encode(kind, call.arguments_for_ensure(), value, _max_bytes(kind.spec))

        raised = None
        try:
            await self._effects.record_late(attempt, call.digest, work)
        except BaseException as error:  # its attempt has ended, so nobody else can report it
            raised = type(error).__name__
        log.warning("thread_ended", error=raised, live=self.threads.live)


@dataclass(frozen=True)
class _Call:
    """A call of a tool, with its validated arguments."""

    kind: Kind
    attempt: CallAttempt
    args: BaseModel
    digest: str
    """The digest of the kind and of the arguments as they were sent."""

    def arguments_for_ensure(self) -> Any:
        """The arguments as the tool's `ensure` condition gets them; None if the tool has no such condition."""
        return conditions.condition_value(self.args.model_dump) if self.kind.ensure else None


async def _uninterrupted(work: Callable[[], Coroutine[Any, Any, StepReturn]], attempt: CallAttempt) -> StepReturn:
    """Await `work`, and pass every cancel on to it, except an operator's pause or reset of a call that was made.

    Such a call may not be repeated, so it would leave an unknown outcome behind if it were cut off.
    """
    running = asyncio.ensure_future(contained(work))
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            if not (attempt.called and is_interruption()):
                running.cancel()
    return running.result()()


def _unknown_kind(is_elsewhere: Callable[[str], Awaitable[bool]] | None) -> Callable[..., Any]:
    """The activity for all kinds that this worker does not have; it always fails with `missing_tool`."""

    async def run(args: Sequence[RawValue]) -> StepReturn:
        name = activity.info().activity_type
        async with attempt_of(ToolSpec(kind=name, effect=Effect.READ)):
            reason = f"This worker does not know the kind {name!r}: start it with the tools file that defines it."
            wait = None
            with suppress(*DATABASE_ERRORS):
                # The server hands a call to the worker that has waited longest, several times in a row.
                wait = retries.OTHER_WORKER_WAIT if is_elsewhere and await is_elsewhere(name) else None
            raise FaultRaised(Fault.of(Code.MISSING_TOOL, reason, retry_after=wait))

    return activity.defn(dynamic=True)(run)


def _decode(kind: Kind, payload: RawValue, attempt: CallAttempt) -> tuple[JsonValue, BaseModel]:
    """Decode and validate the arguments; return them as the JSON that was sent, and as the tool's model.

    Raises FaultRaised if the arguments cannot be decoded, or are invalid.
    """
    if payload.payload.metadata.get("encoding") == PRUNED_ENCODING:
        raise FaultRaised(Fault.of(Code.NEEDS_PERSON, payload.payload.data.decode()))
    try:
        value = activity.payload_converter().from_payload(payload.payload)
    except Exception as error:
        reason = "The arguments cannot be decoded: this worker may lack a payload codec, or be too old for the task."
        raise FaultRaised(Fault.of(Code.UNDECODABLE, reason)) from error
    if missing := pruned(value):
        raise FaultRaised(Fault.of(Code.NEEDS_PERSON, missing))
    attempt.shape = shape(value, kind)
    is_other = attempt.call.digest not in ("", kind.spec.digest)
    if is_other and (changed := changes(kind, value, attempt.call.effect)):
        if attempt.call.provided is not None and isinstance(value, dict):  # the tool is not called
            return value, kind.args.model_construct(**value)
        reason = f"The plan was made for another version of {kind.spec.kind}, as before a deploy: {changed}."
        raise FaultRaised(Fault.of(Code.CHANGED_TOOL, f"{reason} It was not called."))
    try:
        args = kind.parse(value)
    except ValidationError as error:
        reason = f"The arguments do not fit {kind.spec.kind}: {validation.fields_of(error)}."
        raise FaultRaised(Fault.of(Code.INVALID_INPUT, reason)) from None
    attempt.show(args=args)
    return value, args


def _note_return(attempt: CallAttempt, value: Any) -> None:
    """Record that the tool returned `value`, unless that is an iterator: nobody knows what a generator's body has done.

    Raises FaultRaised if the value is an iterator, or too large or too deep.
    """
    fault = fault_of_extent(attempt.spec.kind, value, _max_bytes(attempt.spec))
    attempt.returned = attempt.ended = fault is None or fault.code is Code.TOO_LARGE
    if fault is not None:
        raise FaultRaised(fault)


def _max_bytes(spec: ToolSpec) -> int:
    if activity.info().is_local:
        return MAX_LOCAL_RESULT
    return MAX_RESULT if spec.effect in (Effect.READ, Effect.IDEMPOTENT) else MAX_EFFECT_RESULT


def encode(kind: Kind, args: Any, value: Any, limit: int) -> JsonValue:
    """Check a result against its type and the `ensure` condition (over `args`, too); return it as JSON.

    It has at most `limit` bytes.

    Raises FaultRaised, ValidationError or PydanticSerializationError if the result fails a check, or cannot be JSON.
    """
    checked = kind.result.validate_python(value)
    result: JsonValue = kind.result.dump_python(checked, mode="json")
    # pydantic would write null for these numbers.
    if not _is_finite(kind.result.dump_python(checked)):
        reason = f"{kind.spec.kind} returned a NaN or an infinity, which JSON does not have: return None or a string."
        raise FaultRaised(Fault.of(Code.UNSERIALISABLE, reason))
    if (size := len(canonical(result).encode())) > limit:
        remedy = "let it return less" + (", or declare it as @tool.read" if kind.spec.pure else "")
        reason = f"{kind.spec.kind} returned {size} bytes, more than {limit}: {remedy}."
        raise FaultRaised(Fault.of(Code.TOO_LARGE, reason))
    if kind.ensure is not None:
        # After a violation, the tool has done something, but nobody knows what: the outcome is unknown.
        plain_result = conditions.condition_value(functools.partial(kind.result.dump_python, checked))
        violation = conditions.violation(kind.spec.kind, kind.ensure, {"args": args, "result": plain_result})
        if violation is not None:
            raise FaultRaised(Fault.of(Code.UNEXPECTED_RESULT, violation, observed=result, applied=Applied.UNKNOWN))
    return result


def _encode_provided(call: _Call, value: JsonValue) -> JsonValue:
    """Check a result that a person provides. Raises FaultRaised if the tool could not have returned it."""
    kind = call.kind
    try:
        # From JSON: a strict model rejects a date as a Python str, but accepts it in JSON.
        result = kind.result.validate_json(canonical(value))
        return encode(kind, call.arguments_for_ensure(), result, _max_bytes(kind.spec))
    except ValidationError as error:
        reason = f"It does not fit the result of {kind.spec.kind}: {validation.fields_of(error)}."
        raise FaultRaised(Fault.of(Code.INVALID_INPUT, reason)) from None


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict | list | tuple | set | frozenset):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
