"""The protocols that planners implement, the recorded turns of a conversation, and a planner that plays a script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from pydantic import TypeAdapter

from activities.providers.messages import AssistantTurn, StopReason, Usage, UserTurn
from activities.toolbox.declare.kind import Kind
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Price
from workflows.plans.proposal import GiveUp, Proposal, Proposed
from workflows.text import decode_text


class Planner(Protocol):
    """What proposes the next steps of a task: a model, rules, or a script."""

    @property
    def name(self) -> str:
        """The planner's name, in the form that the option `--planner` takes."""

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposal | Proposed:
        """Propose the next steps, or the end of the task; after a crash of the worker, the call may be repeated.

        A planner that has more to report returns a Proposed: the proposal, the planner's name, its cost, and the
        reasons if the model's reply could not be used.
        """


@runtime_checkable
class ConversationalPlanner(Planner, Protocol):
    """A planner whose conversation is recorded turn by turn."""

    @property
    def prices(self) -> Mapping[str, Price | None]:
        """The price of each of the planner's models, by the model's name; None for a model whose price is unknown."""

    @property
    def longest_reply(self) -> int:
        """The most tokens that the planner allows one reply of its model."""

    def preamble(self, kinds: Mapping[str, Kind]) -> int:
        """Estimate the tokens of what a model is told before the task: the instructions and the kinds."""

    async def converse(
        self, situation: Situation, kinds: Mapping[str, Kind], past: Sequence["RecordedTurn"], *, task: str, branch: int
    ) -> "PlannerReply":
        """Propose the next steps, or the end of the task, in a conversation whose turns so far are `past`.

        `task` is the run id of the task's first run; for `branch` see `RecordedTurn.branch`. If `proposed.compact` of
        the reply is not 0, the caller must first have that many of the oldest turns summarised, and then ask again.
        """

    async def summarise(self, past: Sequence["RecordedTurn"], oldest: int) -> "PlannerReply":
        """Summarise the first `oldest` turns of `past` and their results; the summary is `exchange.said.text`."""


# The transcript stores exchanges as JSON, so the names of their fields must not change.


@dataclass(frozen=True)
class Exchange:
    """One request to a model and its reply."""

    told: UserTurn
    """The user turn that this request added to the conversation; every later request repeats it."""
    said: AssistantTurn
    stop: StopReason
    usage: Usage


@dataclass(frozen=True)
class RecordedTurn:
    """One turn of a conversation: what the planner was told, and its proposal; or a summary of the oldest turns."""

    task: str
    """The run id of the first run of the task."""
    branch: int
    """The number of the branch, 0 at first. If a task is reset and the same turn gets another situation, the planner's
    new answer begins a new branch."""
    turn: int
    situation: Situation
    """What was new in the task since the turn before, as the workflow sent it."""
    proposed: Proposed
    exchange: Exchange | None = None
    """The request to the model and its reply; None for a hand-written plan, or for a planner without a model."""
    upto: int = 0
    """If this is a summary: how many of the oldest turns it replaces. 0 for an ordinary turn."""

    @property
    def is_summary(self) -> bool:
        return self.upto > 0


@dataclass(frozen=True)
class PlannerReply:
    """A planner's proposal, and the exchange with the model that led to it (None if no model was asked)."""

    proposed: Proposed
    exchange: Exchange | None = None


_SCRIPT = TypeAdapter[Sequence[Proposal]](Sequence[Proposal])


class ScriptedPlanner:
    """Returns the n-th proposal of a script for the n-th request of a task, even if the request is repeated."""

    name = "scripted"

    def __init__(self, proposals: Sequence[Proposal]) -> None:
        self._proposals = tuple(proposals)

    @classmethod
    def read(cls, path: Path) -> "ScriptedPlanner":
        """Read the proposals from a JSON file: a list of `{"type": "steps" | "answer" | "question" | "give_up", ...}`.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is no text, or no such list.
        """
        return cls(_SCRIPT.validate_json(decode_text(path.read_bytes())))

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposal:
        """Return the proposal with the number `situation.turn`; a GiveUp if the script has fewer proposals."""
        if situation.turn > len(self._proposals):
            return GiveUp(reason=f"The script has {len(self._proposals)} proposals; this is request {situation.turn}.")
        return self._proposals[situation.turn - 1]
