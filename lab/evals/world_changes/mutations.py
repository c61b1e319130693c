"""Replan without one of its parts: a worker of this evaluation replaces the part in its own process, before it serves.

The product has no such switches. Each mutation makes the scenarios fail that name it, which shows that they are able to
fail.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.effects import ledger
from activities.effects.ledger import EffectResult, LedgerEntry, Work
from workflows import agent
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord
from workflows.calls.observing import observe
from workflows.faults import routes
from workflows.faults.fault import Fault, Quadrant
from workflows.plans.catalogue import Catalogue
from workflows.plans.repeated_calls import RepeatGuard


@dataclass(frozen=True)
class Mutation:
    """A part that is taken away."""

    name: str
    title: str
    planner: str
    """With which planner the scenarios are run under it."""
    replace: Callable[[], None]
    """Replaces the part in this process."""


def _put(owner: Any, **parts: Any) -> None:
    """Put parts in the place of those that a module or a class has."""
    for name, part in parts.items():
        setattr(owner, name, part)


def _without_guard() -> None:
    """A call that failed for good may be made again although nothing has changed."""
    _put(RepeatGuard, refuses=lambda self, kind, args, effects, **_: False)


def _without_observation() -> None:
    """After a rejection nothing is read: the planner is told what the fault said, and no more."""

    async def unobserved(progress: Progress, catalogue: Catalogue, faults: Sequence[FaultRecord]) -> None:
        specs = {kind: spec.model_copy(update={"observe": None}) for kind, spec in catalogue.specs.items()}
        await observe(progress, catalogue.model_copy(update={"specs": specs}), faults)

    _put(agent, observe=unobserved)


def _without_ledger() -> None:
    """No key is claimed and no result recorded, so that nobody knows of an effect that was applied."""

    async def in_transaction(tx: AsyncConnection, entry: LedgerEntry, work: Work) -> EffectResult:
        return EffectResult(await work(), replayed=False)

    async def at_most_once(
        engine: AsyncEngine, entry: LedgerEntry, work: Work, proves_no_effect: Callable[[BaseException], bool]
    ) -> EffectResult:
        return EffectResult(await work(), replayed=False)

    _put(ledger, apply_in_transaction=in_transaction, apply_at_most_once=at_most_once)


def _with_retried_rejections() -> None:
    """A rejection is retried like an outage: Temporal's policy does not know that it stays."""
    retryable: Any = Fault.retryable

    def also_rejections(self: Fault, *, is_safe: bool = False) -> bool:
        return self.quadrant is Quadrant.PERSISTENT_SEMANTIC or bool(retryable(self, is_safe=is_safe))

    _put(Fault, retryable=also_rejections)
    known = tuple(name for name in routes.NON_RETRYABLE if name != Quadrant.PERSISTENT_SEMANTIC)
    _put(routes, NON_RETRYABLE=known)


MUTATIONS: Mapping[str, Mutation] = {
    mutation.name: mutation
    for mutation in (
        Mutation("no-guard", "no repeat guard", "stubborn", _without_guard),
        Mutation("no-observation", "no observation", "steady", _without_observation),
        Mutation("no-ledger", "no ledger", "by-hand", _without_ledger),
        Mutation("retried", "rejections are retried", "by-hand", _with_retried_rejections),
    )
}
