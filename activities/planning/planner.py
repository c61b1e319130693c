"""A planner that plays prepared proposals: for demonstrations and tests, and the shape of every other planner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from pydantic import TypeAdapter

from activities.providers.messages import AssistantTurn, Stop, Usage, UserTurn
from activities.toolbox.declare.kind import Kind
from workflows.catalogue import Price
from workflows.plan import Answer, GiveUp, NewSteps, Proposal, Proposed, Question
from workflows.situation import Situation


@dataclass(frozen=True)
class Exchange:
    """One request to a model and its answer."""

    told: UserTurn
    """What was new; it is repeated in every later request."""
    said: AssistantTurn
    stop: Stop
    usage: Usage


@dataclass(frozen=True)
class Past:
    """One turn of a conversation that has been answered."""

    task: str
    """The first run of the task that it belongs to."""
    branch: int
    turn: int
    situation: Situation
    """What was new, as the workflow told it."""
    proposed: Proposed
    exchange: Exchange | None = None
    """None where no model was asked: a plan by hand, or a planner without a model."""
    upto: int = 0
    """For a summary: how many of the oldest turns it stands for; 0 for a turn."""

    @property
    def is_summary(self) -> bool:
        """Whether it stands for the turns before it."""
        return self.upto > 0


@dataclass(frozen=True)
class Said:
    """What a planner proposes, and the exchange with a model that it comes from."""

    proposed: Proposed
    exchange: Exchange | None = None


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


@runtime_checkable
class Conversing(Planner, Protocol):
    """A planner whose conversation is recorded turn by turn."""

    @property
    def prices(self) -> Mapping[str, Price | None]:
        """What the tokens of each of its models cost, by the model's name; None where that is not known."""

    def preamble(self, kinds: Mapping[str, Kind]) -> int:
        """Tokens of what is told before the task: instructions and kinds; an estimate."""

    async def converse(
        self, situation: Situation, kinds: Mapping[str, Kind], past: Sequence[Past], *, task: str, branch: int
    ) -> Said:
        """Propose what comes next, on `branch` of the conversation of `task`, which is so far `past`.

        A proposal whose `compact` is set says that the oldest turns have to be summarised before.
        """

    async def summarise(self, past: Sequence[Past], oldest: int) -> Said:
        """Summarise the `oldest` of these turns and what came of them; what was said is the summary."""


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
