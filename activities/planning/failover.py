"""Several planners in an order: where one cannot be used, and time will not change that, the next one takes over."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from activities.borders import classify
from activities.boundary.attempt import FaultRaised
from activities.planning.model_planner import whole
from activities.planning.planner import Conversing, Past, Planner, Said
from activities.providers.fallback import is_unusable
from activities.toolbox.declare.kind import Kind
from workflows.catalogue import Price
from workflows.faults import Code, Fault
from workflows.plan import PassedOver, Proposed
from workflows.situation import Situation

log = structlog.get_logger("replan.planner")

Asked = TypeVar("Asked", bound=Planner)


class Failover:
    """Asks each time the first planner first, so that a key which was mended is used at once."""

    def __init__(self, planners: Sequence[Planner]) -> None:
        """Ask in this order; there is at least one."""
        self._planners = tuple(planners)
        self.name = ", ".join(planner.name for planner in planners)

    @property
    def prices(self) -> dict[str, Price | None]:
        """That of each."""
        asked = (planner.prices for planner in self._planners if isinstance(planner, Conversing))
        return {name: price for one in asked for name, price in one.items()}

    def preamble(self, kinds: Mapping[str, Kind]) -> int:
        """The longest."""
        told = (planner.preamble(kinds) for planner in self._planners if isinstance(planner, Conversing))
        return max(told, default=0)

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposed:
        """What the first planner says that can be used; its name stands in the proposal.

        Raises:
            Exception: what the last one raised, or the first that raised what time or a mended program can cure.
        """

        async def ask(planner: Planner) -> Said:
            return _said(await planner.propose(situation, kinds), planner)

        return (await self._first(self._planners, ask)).proposed

    async def converse(
        self, situation: Situation, kinds: Mapping[str, Kind], past: Sequence[Past], *, task: str, branch: int
    ) -> Said:
        """The same; a planner without a conversation is told the whole of the task."""

        async def ask(planner: Planner) -> Said:
            if isinstance(planner, Conversing):
                return await planner.converse(situation, kinds, past, task=task, branch=branch)
            return _said(await planner.propose(whole(past, task, situation), kinds), planner)

        return await self._first(self._planners, ask)

    async def summarise(self, past: Sequence[Past], oldest: int) -> Said:
        """The summary of the first planner that can make one."""

        async def ask(planner: Conversing) -> Said:
            return await planner.summarise(past, oldest)

        return await self._first([one for one in self._planners if isinstance(one, Conversing)], ask)

    async def _first(self, planners: Sequence[Asked], ask: Callable[[Asked], Awaitable[Said]]) -> Said:
        passed = list[PassedOver]()
        for planner in planners:
            try:
                return _after(passed, await ask(planner))
            except Exception as error:  # total: whatever the borders call persistent and not ours
                fault = classify(error)
                if planner is planners[-1] or not is_unusable(fault):
                    if not passed or fault.code is Code.BUG:
                        raise
                    raise FaultRaised(_told(fault, passed)) from error
                log.warning("planner_unusable", planner=planner.name, code=fault.code.value, reason=fault.reason)
                passed.append(PassedOver(planner=planner.name, code=fault.code.value, reason=fault.reason))
        raise AssertionError  # the last one answered, or raised


def _told(fault: Fault, passed: Sequence[PassedOver]) -> Fault:
    """The last fault, with who could not be used before it."""
    before = " ".join(f"Before it {one.planner} could not be used ({one.code}): {one.reason}" for one in passed)
    return fault.model_copy(update={"reason": f"{fault.reason} {before}"})


def _said(answer: object, planner: Planner) -> Said:
    proposed = answer if isinstance(answer, Proposed) else Proposed.model_validate({"proposal": answer})
    return Said(proposed.model_copy(update={"planner": proposed.planner or planner.name}))


def _after(passed: Sequence[PassedOver], said: Said) -> Said:
    return Said(said.proposed.model_copy(update={"passed_over": tuple(passed)}), said.exchange)
