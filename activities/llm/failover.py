"""Several planners in an order: where one cannot be used, and time will not change that, the next one takes over."""

from collections.abc import Mapping, Sequence

import structlog

from activities.borders import classify
from activities.planning import Planner
from activities.toolbox.kind import Kind
from workflows.faults import Code, Fault, Quadrant
from workflows.plan import Answer, GiveUp, NewSteps, Proposed, Question
from workflows.task import Situation

log = structlog.get_logger("replan.planner")


class Failover:
    """Asks each time the first planner first, so that a key which was mended is used at once."""

    def __init__(self, planners: Sequence[Planner]) -> None:
        """Ask in this order; there is at least one."""
        self._planners = tuple(planners)
        self.name = ", ".join(planner.name for planner in planners)

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposed:
        """What the first planner says that can be used; its name stands in the proposal.

        Raises:
            Exception: what the last one raised, or the first that raised what time or a mended program can cure.
        """
        *others, last = self._planners
        for planner in others:
            try:
                return _signed(await planner.propose(situation, kinds), planner)
            except Exception as error:  # total: whatever the borders call persistent and not ours
                fault = classify(error)
                if not _is_unusable(fault):
                    raise
                log.warning("planner_unusable", planner=planner.name, code=fault.code.value, reason=fault.reason)
        return _signed(await last.propose(situation, kinds), last)


def _is_unusable(fault: Fault) -> bool:
    return fault.quadrant is Quadrant.PERSISTENT_INFRASTRUCTURAL and fault.code is not Code.BUG


def _signed(said: NewSteps | Answer | Question | GiveUp | Proposed, planner: Planner) -> Proposed:
    return said if isinstance(said, Proposed) else Proposed(proposal=said, planner=planner.name)
