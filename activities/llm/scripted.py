"""A planner that plays prepared proposals: for demonstrations and tests, and the shape of every other planner."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from activities.toolbox.kind import Kind
from workflows.plan import Answer, GiveUp, NewSteps, Proposal, Question
from workflows.situation import Situation

_SCRIPT = TypeAdapter[Sequence[Proposal]](Sequence[Proposal])


class ScriptedPlanner:
    """Plays the n-th proposal at the n-th request of a task, so that a crash changes nothing."""

    name = "scripted"

    def __init__(self, proposals: Sequence[NewSteps | Answer | Question | GiveUp]) -> None:
        """Prepare the proposals, one per request."""
        self._proposals = tuple(proposals)

    @classmethod
    def read(cls, path: Path) -> "ScriptedPlanner":
        """Read the proposals from a JSON file: a list of `{"type": "steps" | "answer" | "question" | "give_up", ...}`.

        Raises:
            OSError: the file cannot be read.
            pydantic.ValidationError: it holds something else.
        """
        return cls(_SCRIPT.validate_json(path.read_bytes()))

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer | Question | GiveUp:
        """Play the proposal whose turn it is; give up when the script has ended."""
        if situation.turn > len(self._proposals):
            return GiveUp(reason=f"The script has {len(self._proposals)} proposals; this is request {situation.turn}.")
        return self._proposals[situation.turn - 1]
