"""The planner without a model: fixed forms of clauses, and fixed rules after a refusal."""

import re
from collections.abc import Mapping

from activities.llm.grammar import NotUnderstood, read
from activities.llm.repair import rejection, repair, unfinished
from activities.llm.standing import CannotTell, left_to_do
from activities.llm.wording import tell
from activities.toolbox.kind import Kind
from workflows.plan import TURN_ID, Answer, GiveUp, NewSteps, Question
from workflows.record import StepStatus
from workflows.situation import Situation

BEGUN = "A model chose the steps turn by turn, and no rule can say what is missing: what was finished stays."

IN_WORDS = "The rules answer in words, and the answer of this task is to fit a schema: that needs a model."


class OfflinePlanner:
    """Proposes the same for the same situation, in no time and for nothing."""

    name = "offline"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer | Question | GiveUp:
        """Read the text into steps; after a refusal take what the world offers; at the end say what came of it."""
        if situation.result_schema is not None:
            return GiveUp(reason=IN_WORDS)
        try:
            if not situation.planned and not situation.is_last:
                proposal = _first_plan(situation, kinds)
            elif unfinished(situation) and not situation.is_last:
                proposal = repair(situation, kinds)
            else:
                return _answer(situation)
        except CannotTell as unknown:
            return GiveUp(reason=str(unknown))
        is_done = isinstance(proposal, NewSteps) and not proposal.steps  # an earlier run did all that is left
        return _answer(situation) if is_done else proposal


def _answer(situation: Situation) -> Answer | GiveUp:
    finished = [record for record in situation.records if record.status is StepStatus.COMPLETED]
    if not finished:
        return GiveUp(reason="No step of the plan was finished.")
    if not situation.is_last and any(re.fullmatch(TURN_ID, record.step.id) for record in finished):
        return GiveUp(reason=BEGUN)
    return Answer(result=tell(finished, situation.now.date()))


def _first_plan(situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | GiveUp:
    if situation.rejected:
        return GiveUp(reason=rejection(situation.rejected))
    usable = [kind for kind in kinds if kind not in situation.down]
    try:
        steps = read(situation.text, situation.now.date(), usable)
    except NotUnderstood as wrong:
        return GiveUp(reason=str(wrong))
    return NewSteps(steps=left_to_do(steps, situation.earlier, kinds))
