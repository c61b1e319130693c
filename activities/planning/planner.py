"""The protocols of planners, the turns that are recorded of a conversation, and the planner that plays a script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from pydantic import TypeAdapter

from activities.providers.messages import AssistantTurn, StopReason, Usage, UserTurn
from activities.toolbox.declare.kind import Kind
from workflows.catalogue import Price
from workflows.plan import GiveUp, Proposal, Proposed
from workflows.situation import Situation


class Planner(Protocol):
    """What proposes the next steps of a task: a model, rules, or a script."""

    @property
    def name(self) -> str:
        """The planner's name, in the form that the option `--planner` takes."""

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposal | Proposed:
        """Propose what comes next; after a crash the same situation may come again.

        A planner with more to report returns a Proposed: who answered, what it cost, why the answer is unusable.
        """


@runtime_checkable
class ConversationalPlanner(Planner, Protocol):
    """A planner whose conversation is recorded turn by turn."""

    @property
    def prices(self) -> Mapping[str, Price | None]:
        """The price of each of its models, by the model's name; None if it is unknown."""

    def preamble(self, kinds: Mapping[str, Kind]) -> int:
        """Tokens of what a model is told before the task: instructions and kinds; an estimate."""

    async def converse(
        self, situation: Situation, kinds: Mapping[str, Kind], past: Sequence["RecordedTurn"], *, task: str, branch: int
    ) -> "PlannerReply":
        """Propose what comes next on `branch` of the conversation of `task`; `past` are its turns so far.

        If `compact` is set in the proposal, the oldest turns must be summarised first.
        """

    async def summarise(self, past: Sequence["RecordedTurn"], oldest: int) -> "PlannerReply":
        """Summarise the first `oldest` turns of `past` and their results; `exchange.said.text` is the summary."""


# The transcript stores exchanges as JSON: the names of their fields must stay.


@dataclass(frozen=True)
class Exchange:
    """One request to a model and its reply."""

    told: UserTurn
    """The user turn that this request added; every later request repeats it."""
    said: AssistantTurn
    stop: StopReason
    usage: Usage


@dataclass(frozen=True)
class RecordedTurn:
    """One turn of a conversation, or a summary of the oldest turns."""

    task: str
    """The run id of the first run of the task."""
    branch: int
    turn: int
    situation: Situation
    """What was new in the task since the turn before, as the workflow sent it."""
    proposed: Proposed
    exchange: Exchange | None = None
    """None if no model was asked: for a hand-written plan, or a planner without a model."""
    upto: int = 0
    """For a summary: how many of the oldest turns it replaces; 0 for a turn."""

    @property
    def is_summary(self) -> bool:
        return self.upto > 0


@dataclass(frozen=True)
class PlannerReply:
    """A planner's proposal, and the exchange with a model that led to it; None if no model was asked."""

    proposed: Proposed
    exchange: Exchange | None = None


_SCRIPT = TypeAdapter[Sequence[Proposal]](Sequence[Proposal])


class ScriptedPlanner:
    """Plays the n-th proposal at the n-th request of a task, so that a crash changes nothing."""

    name = "scripted"

    def __init__(self, proposals: Sequence[Proposal]) -> None:
        self._proposals = tuple(proposals)

    @classmethod
    def read(cls, path: Path) -> "ScriptedPlanner":
        """Read the proposals from a JSON file: a list of `{"type": "steps" | "answer" | "question" | "give_up", ...}`.

        Raises OSError, or pydantic.ValidationError if it contains something else.
        """
        return cls(_SCRIPT.validate_json(path.read_bytes()))

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposal:
        """The proposal for this turn; give up after the last one."""
        if situation.turn > len(self._proposals):
            return GiveUp(reason=f"The script has {len(self._proposals)} proposals; this is request {situation.turn}.")
        return self._proposals[situation.turn - 1]
