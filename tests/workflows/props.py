"""What the tests of the loop have in common: words, an echo, a planner that remembers."""

from collections.abc import Mapping

from pydantic import BaseModel

from activities.planning.planner import ScriptedPlanner
from activities.toolbox.declare.kind import Kind
from replan import tool
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Question


class Word(BaseModel):
    """An argument."""

    word: str = ""


class Said(BaseModel):
    """A result."""

    said: str


@tool.read
async def echo(args: Word) -> Said:
    """Say the word."""
    return Said(said=args.word)


class Recording:
    """A planner that plays proposals and keeps what it was told."""

    name = "recording"

    def __init__(self, *proposals: NewSteps | Answer | Question | GiveUp) -> None:
        """Prepare the proposals, one per request."""
        self._script = ScriptedPlanner(proposals)
        self.told = list[Situation]()

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer | Question | GiveUp:
        """Play the next proposal."""
        self.told.append(situation)
        return await self._script.propose(situation, kinds)
