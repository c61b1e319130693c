"""The strategy `plan`: a model answers with a whole plan, or with the end of the task."""

from collections.abc import Mapping

from activities import prompts
from activities.llm import ends
from activities.llm.ends import ENDS, PROPOSE, Unusable
from activities.llm.language_model import Offer
from activities.llm.proposal_schema import propose_plan
from activities.llm.reply import Reply
from activities.llm.turn_by_turn import search, searched
from activities.llm.turns import ToolCall
from activities.toolbox.kind import Kind
from workflows.plan import Answer, GiveUp, NewSteps, Question, nearest
from workflows.situation import Situation


class WholePlans:
    """One call of `propose_plan` at a time."""

    cut = prompts.CUT

    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        """What a planner is."""
        return prompts.plans(kinds, searchable=bool(search(kinds)))

    def offers(self, situation: Situation, kinds: Mapping[str, Kind]) -> list[Offer]:
        """`propose_plan`, whose schema is made from the kinds, and the ends."""
        return [propose_plan(kinds), *search(kinds), ends.finish(situation.result_schema), *ends.others()]

    def read(
        self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int
    ) -> NewSteps | Answer | Question | GiveUp:
        """The proposal that one call is."""
        calls = reply.turn.calls
        if not calls:
            raise Unusable(prompts.TEXT if reply.turn.text.strip() else prompts.EMPTY)
        if len(calls) > 1:
            raise Unusable(prompts.many(len(calls)))
        return _called(calls[0], situation, kinds, branch)


def _called(
    call: ToolCall, situation: Situation, kinds: Mapping[str, Kind], branch: int
) -> NewSteps | Answer | Question | GiveUp:
    if call.name in ENDS:
        return ends.ended(call, situation.result_schema)
    if any(offer.name == call.name for offer in search(kinds)):
        return searched([call], situation, branch)
    if call.name != PROPOSE:
        raise Unusable(prompts.unknown(call.name, nearest(call.name, [PROPOSE, *ENDS]), kinds))
    if call.broken:
        raise Unusable(prompts.broken(call.name, call.broken))
    plan = ends.parsed(NewSteps, PROPOSE, call.args)
    if not plan.steps:
        raise Unusable(prompts.NO_STEPS)
    return plan
