"""The protocol of planners that keep a conversation: they are told what is new, and what was said before."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from activities.llm.exchange import Past, Said
from activities.planner import Planner
from activities.toolbox.kind import Kind
from workflows.catalogue import Price
from workflows.situation import Situation


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
