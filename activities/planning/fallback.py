"""Several planners in an order of preference: if one cannot be used and a retry cannot help, the next one plans."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from activities.borders import classify
from activities.boundary.attempt import FaultRaised
from activities.planning.conversation import whole_situation
from activities.planning.planner import ConversationalPlanner, Planner, PlannerReply, RecordedTurn
from activities.providers.fallback import ask_first_usable
from activities.toolbox.declare.kind import Kind
from workflows.faults.fault import Code
from workflows.limits.spending import MAX_OUTPUT
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Price
from workflows.plans.proposal import PassedOver, Proposed

AnyPlanner = TypeVar("AnyPlanner", bound=Planner)


class FallbackPlanner:
    """A planner that asks several planners in order, until one of them can be used."""

    def __init__(self, planners: Sequence[Planner]) -> None:
        self._planners = tuple(planners)
        self._conversational = [planner for planner in planners if isinstance(planner, ConversationalPlanner)]
        self.name = ", ".join(planner.name for planner in planners)

    @property
    def prices(self) -> dict[str, Price | None]:
        return {name: price for planner in self._conversational for name, price in planner.prices.items()}

    @property
    def longest_reply(self) -> int:
        return max((planner.longest_reply for planner in self._conversational), default=MAX_OUTPUT)

    def preamble(self, kinds: Mapping[str, Kind]) -> int:
        return max((planner.preamble(kinds) for planner in self._conversational), default=0)

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposed:
        """Return the proposal of the first usable planner, with that planner's name.

        Raises:
            Exception: an error of `ask_first_usable`, or a FaultRaised that also names the planners passed over.
        """

        async def ask(planner: Planner) -> PlannerReply:
            return _named_reply(await planner.propose(situation, kinds), planner)

        return (await _ask(self._planners, ask)).proposed

    async def converse(
        self, situation: Situation, kinds: Mapping[str, Kind], past: Sequence[RecordedTurn], *, task: str, branch: int
    ) -> PlannerReply:
        async def ask(planner: Planner) -> PlannerReply:
            if isinstance(planner, ConversationalPlanner):
                return await planner.converse(situation, kinds, past, task=task, branch=branch)
            # A planner without a conversation must be told the whole task each time.
            return _named_reply(await planner.propose(whole_situation(past, task, situation), kinds), planner)

        return await _ask(self._planners, ask)

    async def summarise(self, past: Sequence[RecordedTurn], oldest: int) -> PlannerReply:
        """Return the summary of the first usable planner that keeps a conversation."""
        return await _ask(self._conversational, lambda planner: planner.summarise(past, oldest))


async def _ask(planners: Sequence[AnyPlanner], ask: Callable[[AnyPlanner], Awaitable[PlannerReply]]) -> PlannerReply:
    passed_over = list[PassedOver]()
    try:
        reply = await ask_first_usable(planners, ask, passed_over)
    except Exception as error:  # `classify` maps every exception to a fault
        fault = classify(error)
        if not passed_over or fault.code is Code.BUG:
            raise
        # The fault names the other planners, too: a person has to repair all of them.
        others = (f"Also {other.planner} could not be used ({other.code}): {other.reason}" for other in passed_over)
        raise FaultRaised(fault.model_copy(update={"reason": " ".join([fault.reason, *others])})) from error
    return PlannerReply(reply.proposed.model_copy(update={"passed_over": tuple(passed_over)}), reply.exchange)


def _named_reply(answer: object, planner: Planner) -> PlannerReply:
    proposed = answer if isinstance(answer, Proposed) else Proposed.model_validate({"proposal": answer})
    return PlannerReply(proposed.model_copy(update={"planner": proposed.planner or planner.name}))
