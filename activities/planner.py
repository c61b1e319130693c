"""The protocol of planners."""

from collections.abc import Mapping
from typing import Protocol

from activities.toolbox.kind import Kind
from workflows.plan import Answer, GiveUp, NewSteps, Proposed, Question
from workflows.situation import Situation


class UnknownPlanner(ValueError):
    """No planner has this name, or it cannot be used; the message says what to do."""


class Planner(Protocol):
    """Whoever proposes: a model, rules, or a script."""

    @property
    def name(self) -> str:
        """How people call it."""

    async def propose(
        self, situation: Situation, kinds: Mapping[str, Kind]
    ) -> NewSteps | Answer | Question | GiveUp | Proposed:
        """Propose what comes next; the same situation may be asked about again after a crash.

        A planner that has more to say returns a Proposed: who answered, what it cost, why the answer cannot be used.
        """
