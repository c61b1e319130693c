"""The planner without a model: fixed forms of clauses, and fixed rules after a refusal."""

from collections.abc import Mapping

from activities.llm.grammar import NotUnderstood, read
from activities.llm.repair import rejection, repair, unfinished
from activities.llm.wording import tell
from activities.toolbox.kind import Kind
from workflows.plan import Answer, GiveUp, NewSteps, Question
from workflows.record import StepStatus
from workflows.situation import Situation


class OfflinePlanner:
    """Proposes the same for the same situation, in no time and for nothing."""

    name = "offline"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer | Question | GiveUp:
        """Read the text into steps; after a refusal take what the world offers; at the end say what came of it."""
        if not situation.records:
            return _first_plan(situation, kinds)
        if unfinished(situation):
            return repair(situation, kinds)
        finished = [record for record in situation.records if record.status is StepStatus.COMPLETED]
        if not finished:
            return GiveUp(reason="No step of the plan was finished.")
        return Answer(result=tell(finished, situation.now.date()))


def _first_plan(situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | GiveUp:
    if situation.rejected:
        return GiveUp(reason=rejection(situation.rejected))
    usable = [kind for kind in kinds if kind not in situation.down]
    try:
        return NewSteps(steps=read(situation.text, situation.now.date(), usable))
    except NotUnderstood as wrong:
        return GiveUp(reason=str(wrong))
