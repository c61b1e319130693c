"""The activity `find_effect`: whether a transactional call happened stands in the ledger."""

import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from temporalio import activity

from activities.borders import classify
from activities.boundary import ledger
from activities.boundary.attempt import Attempt, FaultRaised, attempt
from activities.boundary.ledger import Entry, Once, OtherArguments, Unanswered, Undone, find
from activities.errors import NeedsPerson, Refused
from workflows import routing
from workflows.catalogue import REFUSAL_MAY_FOLLOW_SUCCESS, Effect, ToolSpec
from workflows.faults import Applied, Code, Fault
from workflows.plan import StepReturn


class Effects:
    """Lets each effect happen once."""

    def __init__(self, engine: AsyncEngine, store: str | None = None, ledgers: Iterable[AsyncEngine] = ()) -> None:
        """Keep claims in `engine`, the store, whose name is `store`; `ledgers` are all that this worker has."""
        self._engine = engine
        self._store = store
        self._ledgers = tuple(ledgers) or (engine,)

    def check_store(self, this: Attempt) -> None:
        """Let no effect happen, and be looked for, beside a ledger that knows nothing of what the task has done.

        Raises:
            FaultRaised: the task works with another store than this worker.
        """
        wanted = this.call.store
        if wanted and self._store and wanted != self._store:
            reason = f"The task works with the store {wanted}, and this worker with {self._store}: nothing was done."
            remedy = "Start the worker with the --store or --state of the task, and end this one."
            raise FaultRaised(Fault.of(Code.WRONG_STORE, f"{reason} {remedy}"))

    async def is_undone_by(self, this: Attempt) -> bool:
        """Whether this call was to take an effect back and has done so."""
        undoes = this.call.undoes
        return undoes is not None and await ledger.undone_by(self._ledgers, undoes.key) == this.call.key

    async def mark(self, this: Attempt) -> None:
        """Write down what this call took back, if anything, so that nobody is given its result any more."""
        undone, task = this.call.undoes, this.call.task or activity.info().workflow_id or ""
        if undone is not None:
            entry = Entry(undone.key, task, undone.step, undone.kind, digest="")
            await ledger.undo(self._ledgers, entry, by=this.call.key)

    async def once(
        self,
        spec: ToolSpec,
        this: Attempt,
        asked: str,
        work: Callable[[], Awaitable[JsonValue]],
        tx: AsyncConnection | None,
    ) -> Once:
        """What the call with arguments of the digest `asked` comes to; of one that the ledger knows, what it came to.

        `tx` is the transaction of a transactional call.

        Raises:
            FaultRaised: it may not be made, or nobody knows whether it was.
        """
        info, entry = activity.info(), _entry(spec, this, asked)
        try:
            if tx is not None:
                return await ledger.once(tx, entry, work)
            if spec.effect is Effect.UNKEYED:
                return await ledger.claimed(self._engine, entry, work, functools.partial(_happened_not, this))
            if spec.effect in REFUSAL_MAY_FOLLOW_SUCCESS and await ledger.undone_by([self._engine], entry.key):
                raise Undone(entry.key)
            return Once(await work(), replayed=False)
        except Undone:
            reason = f"The step {info.activity_id!r} was done and then undone: to do it once more, give it another id."
            raise FaultRaised(Fault.of(Code.CONFLICT, reason, by_id=True), is_certain=True) from None
        except OtherArguments:
            what = f"The step {info.activity_id!r} has called {spec.kind} before with other arguments"
            fault = Fault.of(Code.CONFLICT, f"{what}: give it another id.", by_id=True)
            raise FaultRaised(fault, is_certain=True) from None
        except Unanswered:
            this.called = True  # by the attempt that claimed the key
            reason = f"An earlier attempt of {spec.kind} left no answer: find out whether it happened."
            raise FaultRaised(Fault.of(Code.WORKER_LOST, reason, applied=Applied.UNKNOWN)) from None

    async def late(self, spec: ToolSpec, this: Attempt, asked: str, work: Callable[[], Awaitable[JsonValue]]) -> None:
        """Write down what a call comes to whose attempt is over; `work` waits for it."""
        if spec.effect is Effect.UNKEYED:
            entry = _entry(spec, this, asked)
            await ledger.settled(self._engine, entry, work, functools.partial(_happened_not, this))
        else:
            await work()


def _entry(spec: ToolSpec, this: Attempt, asked: str) -> Entry:
    info = activity.info()
    task = this.call.task or info.workflow_id or ""
    return Entry(this.call.key, task, info.activity_id, spec.kind, asked, this.call.fencing_token)


def _happened_not(this: Attempt, error: BaseException) -> bool:
    """Whether what was raised proves that the effect did not happen."""
    if not this.called:
        return True
    if not isinstance(error, Exception):  # cancelled in the middle
        return False
    fault = error.fault if isinstance(error, FaultRaised) else classify(error)
    return this.applied(fault, error) is Applied.NONE


class Finding:
    """Looks effects up."""

    def __init__(self, ledgers: Iterable[AsyncEngine], store: str | None = None) -> None:
        """Look into these, for tasks that work with `store`, the first of them."""
        self._ledgers = tuple(ledgers)
        self._effects = Effects(self._ledgers[0], store, self._ledgers)

    def activities(self) -> list[Callable[..., Any]]:
        """What the worker registers."""
        return [self.find_effect]

    @activity.defn(name=routing.FIND_EFFECT.kind)
    async def find_effect(self, wanted: dict[str, str]) -> StepReturn:
        """What the call with the key `key` came to."""
        async with attempt(routing.FIND_EFFECT) as this:
            self._effects.check_store(this)
            for engine in self._ledgers:
                if found := await self._find(engine, wanted["key"]):
                    return StepReturn(result=found.result, attempt=this.number, replayed=True)
            raise Refused("No ledger of this worker has such an effect.", code="not_found")

    async def _find(self, engine: AsyncEngine, key: str) -> Once | None:
        try:
            return await find(engine, key)
        except Unanswered:
            raise NeedsPerson("The ledger has the call, but not what it came to.") from None
