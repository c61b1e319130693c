"""The strategy `react`: a model calls the tools as they are, one turn at a time, several calls at once where it likes.

Its calls become steps whose ids are made of the turn and the place in it, since a provider may use its own twice.
"""

from collections.abc import Mapping, Sequence

from activities import prompts
from activities.llm import ends
from activities.llm.ends import ENDS, FINISH, Unusable
from activities.llm.language_model import Offer
from activities.llm.reply import Reply
from activities.llm.turns import ToolCall
from activities.toolbox.find_tools import NAME as FIND_TOOLS
from activities.toolbox.kind import Kind
from workflows.plan import MAX_STEPS, Answer, GiveUp, NewSteps, Question, Step
from workflows.situation import Situation

MAX_ID = 200
"""Characters of a provider's id that a step keeps."""
MAX_BECAUSE = 200
"""Characters of what a model says beside its calls that people are shown as their reason."""


class TurnByTurn:
    """The tools as they are, and text for the end."""

    cut = prompts.CUT_TURN

    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        """What a model is that calls tools."""
        return prompts.turns(kinds, by_finish=situation.result_schema is not None)

    def offers(self, situation: Situation, kinds: Mapping[str, Kind]) -> list[Offer]:
        """All kinds, and the ends; `finish` only where the answer is no text."""
        finish = [ends.finish(situation.result_schema)] if situation.result_schema is not None else []
        return [*map(_offer, kinds.values()), *finish, *ends.others()]

    def read(
        self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int
    ) -> NewSteps | Answer | Question | GiveUp:
        """The steps that the calls are, or the answer that a text is."""
        calls = reply.turn.calls
        if not calls:
            return _text(reply, situation)
        if any(_ends(call, situation) for call in calls):
            if len(calls) > 1:
                raise Unusable(prompts.alone(next(call.name for call in calls if _ends(call, situation))))
            return ends.ended(calls[0], situation.result_schema)
        return searched(calls, situation, branch, because=reply.turn.text)


def search(kinds: Mapping[str, Kind]) -> list[Offer]:
    """`find_tools`, where there are more kinds than a model is shown."""
    return [_offer(kinds[FIND_TOOLS])] if FIND_TOOLS in kinds else []


def searched(calls: Sequence[ToolCall], situation: Situation, branch: int, because: str = "") -> NewSteps:
    """The steps that calls of kinds are.

    Raises:
        Unusable: there are too many, or the arguments of one cannot be read.
    """
    broken = [prompts.broken(call.name, call.broken) for call in calls if call.broken]
    if broken:
        raise Unusable("; ".join(broken))
    if len(calls) > MAX_STEPS:
        raise Unusable(prompts.too_many(len(calls), MAX_STEPS))
    steps = (
        Step(id=step_id(situation.turn, index, branch), kind=call.name, args=call.args, provider_call=call.id[:MAX_ID])
        for index, call in enumerate(calls)
    )
    return NewSteps(steps=tuple(steps), because=" ".join(because.split())[:MAX_BECAUSE])


def step_id(turn: int, index: int, branch: int) -> str:
    """The id of a call as a step: unique in the task, also after a reset that led to another turn."""
    return f"t{turn}.c{index}" + (f".b{branch}" if branch else "")


def _offer(kind: Kind) -> Offer:
    return Offer(kind.spec.kind, " ".join(kind.description.split()), kind.args_schema)


def _ends(call: ToolCall, situation: Situation) -> bool:
    return call.name in ENDS and (call.name != FINISH or situation.result_schema is not None)


def _text(reply: Reply, situation: Situation) -> Answer:
    words = reply.turn.text.strip()
    if not words:
        raise Unusable(prompts.NOTHING)
    if situation.result_schema is not None:
        raise Unusable(prompts.UNFINISHED)
    return Answer(result=words)
