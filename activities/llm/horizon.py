"""How far a model looks ahead: whole plans, or the calls of one turn."""

from collections.abc import Mapping
from typing import Protocol

from activities.llm.language_model import Offer
from activities.llm.reply import Reply
from activities.toolbox.kind import Kind
from workflows.plan import Answer, GiveUp, NewSteps, Question
from workflows.situation import Situation


class Horizon(Protocol):
    """A strategy, as a model is told it."""

    @property
    def cut(self) -> str:
        """What a model is told whose reply was cut off."""

    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        """What the model is, and what it may do."""

    def offers(self, situation: Situation, kinds: Mapping[str, Kind]) -> list[Offer]:
        """What it may call, in an order that stays the same."""

    def read(
        self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int
    ) -> NewSteps | Answer | Question | GiveUp:
        """The proposal that a reply is.

        Raises:
            Unusable: it is none.
        """
