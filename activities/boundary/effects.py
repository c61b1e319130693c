"""Decides by a tool's effect whether a call may be made again; its activity `find_effect` reads ledgers.

Runs in each attempt of a tool's call, right before the tool is called and right after it; `find_effect` runs when the
outcome of a call is unknown.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from temporalio import activity

from activities.boundary.attempt import CallAttempt, FaultRaised, attempt_of
from activities.effects import ledger
from activities.effects.errors import EffectUndone, KeyConflict, OutcomeUnknown
from activities.effects.ledger import EffectResult, LedgerEntry, Work
from activities.errors import Refused
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans import own_activities
from workflows.plans.catalogue import REFUSAL_MAY_FOLLOW_SUCCESS, Effect
from workflows.plans.proposal import StepReturn

_SAME_CALL = "the same call may be made under another id."
_OTHER_KEY = "for another effect, start a task with another effect key."


@dataclass(frozen=True)
class StepEffects:
    """Makes calls so that each effect is applied once, with the help of one worker's ledgers."""

    engine: AsyncEngine
    """The database of the store; the key of an unkeyed call is claimed in it before the call is made."""
    store: str | None = None
    """The id of the store; with None, tasks of any store are accepted."""
    ledgers: Sequence[AsyncEngine] = ()
    """The databases with a ledger that this worker has open."""

    def check_store(self, attempt: CallAttempt) -> None:
        """Raise FaultRaised if the task works with another store, since the task's effects are in the ledger there."""
        store = attempt.call.store
        if store and self.store and store != self.store:
            reason = f"The task works with the store {store}, and this worker with {self.store}: nothing was done."
            remedy = "Start the worker with the --store or --state of the task, and end this one."
            raise FaultRaised(Fault.of(Code.WRONG_STORE, f"{reason} {remedy}"))

    async def has_undone(self, attempt: CallAttempt) -> bool:
        """Whether this call is made to undo an effect, and an earlier attempt of the call has already undone it."""
        undoes = attempt.call.undoes
        return undoes is not None and await ledger.undone_by(self.ledgers, undoes.key) == attempt.call.key

    async def mark_undone(self, attempt: CallAttempt) -> None:
        """If this call undid an effect, mark that effect in the ledger, so that its result is not returned again."""
        undone, task = attempt.call.undoes, attempt.call.task or activity.info().workflow_id or ""
        if undone is not None:
            entry = LedgerEntry(undone.key, task, undone.step, undone.kind, digest="")
            await ledger.mark_undone(self.ledgers, entry, by=attempt.call.key)

    async def apply(
        self, attempt: CallAttempt, arguments_digest: str, work: Work, tx: AsyncConnection | None
    ) -> EffectResult:
        """Apply the effect, or return its recorded result; `tx` is the transaction of a transactional call, else None.

        Raises:
            FaultRaised: the call may not be made, or nobody knows whether its effect was applied.
        """
        spec, step, entry = attempt.spec, activity.info().activity_id, _entry(attempt, arguments_digest)
        try:
            if tx is not None:
                return await ledger.apply_in_transaction(tx, entry, work)
            if spec.effect is Effect.UNKEYED:
                proves_no_effect = functools.partial(_proves_no_effect, attempt)
                return await ledger.apply_at_most_once(self.engine, entry, work, proves_no_effect)
            # These effects have no row in a ledger until `mark_undone` inserts one.
            if spec.effect in REFUSAL_MAY_FOLLOW_SUCCESS and await ledger.undone_by([self.engine], entry.key):
                raise EffectUndone(entry.key)
            return EffectResult(await work(), replayed=False)
        except EffectUndone:
            used_up = "was done and then undone, so its id is used up"
            raise _conflict(attempt, f"The step {step!r} {used_up}") from None
        except KeyConflict:
            raise _conflict(attempt, f"The step {step!r} has called {spec.kind} before with other arguments") from None
        except OutcomeUnknown:
            attempt.called = True  # by the attempt that claimed the key
            what = f"An earlier attempt of {spec.kind} ended without reporting (crash or timeout)"
            if attempt.call.has_effect_key:
                what += ", or a task with the same effect key is making the call"
            reason = f"{what}: find out whether it took effect."
            raise FaultRaised(Fault.of(Code.WORKER_LOST, reason, applied=Applied.UNKNOWN)) from None

    async def record_late(self, attempt: CallAttempt, arguments_digest: str, work: Work) -> None:
        """Record the result of a call that outlived its attempt; `work` waits for that result."""
        if attempt.spec.effect is Effect.UNKEYED:
            entry = _entry(attempt, arguments_digest)
            await ledger.apply_claimed(self.engine, entry, work, functools.partial(_proves_no_effect, attempt))
        else:
            await work()


def _entry(attempt: CallAttempt, arguments_digest: str) -> LedgerEntry:
    info, call = activity.info(), attempt.call
    task = call.task or info.workflow_id or ""
    return LedgerEntry(call.key, task, info.activity_id, attempt.spec.kind, arguments_digest, call.fencing_token)


def _conflict(attempt: CallAttempt, reason: str) -> FaultRaised:
    """The fault of a call whose key the ledger has for other arguments, or for an effect that was undone."""
    # A new id would take the call out of the effect key, which is there to prevent a second effect.
    if attempt.call.has_effect_key:
        reason = f"{reason}, in this task or another with the same effect key: {_OTHER_KEY}"
        return FaultRaised(Fault.of(Code.CONFLICT, reason), is_certain=True)
    return FaultRaised(Fault.of(Code.CONFLICT, f"{reason}: {_SAME_CALL}", by_id=True), is_certain=True)


def _proves_no_effect(attempt: CallAttempt, error: BaseException) -> bool:
    """Whether it is certain that an attempt that ended with `error` had no effect."""
    if not attempt.called:
        return True
    if not isinstance(error, Exception):  # cancelled in the middle
        return False
    fault = error.fault if isinstance(error, FaultRaised) else attempt.judge(error).fault
    return attempt.applied(fault, error) is Applied.NONE


class EffectFinder:
    """Finds recorded results in the ledgers, to reconcile a call with an unknown outcome."""

    def __init__(self, ledgers: Iterable[AsyncEngine], store: str | None = None) -> None:
        """`ledgers` are the databases with a ledger, the store first; `store` is the id of the store."""
        self._ledgers = tuple(ledgers)
        self._effects = StepEffects(self._ledgers[0], store, self._ledgers)

    @activity.defn(name=own_activities.FIND_EFFECT.kind)
    async def find_effect(self, request: dict[str, str]) -> StepReturn:
        """The recorded result of the call whose idempotency key is `request["key"]`.

        Raises:
            ApplicationError: no ledger has the call, its row has no result, its effect was undone, or the store is not
                that of the task.
        """
        async with attempt_of(own_activities.FIND_EFFECT) as attempt:
            self._effects.check_store(attempt)
            for engine in self._ledgers:
                try:
                    found = await ledger.find_result(engine, request["key"])
                except OutcomeUnknown:
                    raise Refused("The ledger has the call, but not its result.", code="no_results") from None
                except EffectUndone:
                    raise Refused("The ledger says that the effect was undone.", code="gone") from None
                if found:
                    return StepReturn(result=found.result, attempt=attempt.number, replayed=True)
            raise Refused("No ledger of this worker has such an effect.", code="not_found")
