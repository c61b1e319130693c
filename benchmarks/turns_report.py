"""The report of one run of `benchmarks.turns`: its JSON document and its table."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table
from temporalio.api.history.v1 import HistoryEvent

from benchmarks.anatomy import anatomy, size
from benchmarks.goals import Verdict
from benchmarks.machine import Machine

EVENTS = 12
"""Of a turn: one question to a model and one call of a tool, each an activity with the workflow task after it."""
OF_TWIN = 1.6
FLAT = 1.10
"""What the last fifth of the turns may take of what the first does."""

Turns = Sequence[Sequence[HistoryEvent]]


class Side(BaseModel):
    """What the turns of one side take in its history."""

    model_config = ConfigDict(frozen=True)

    turns: int
    fewest: int
    most: int
    """Events of a turn."""
    first: float
    last: float
    """Bytes of a turn, the mean over the first and the last fifth."""
    mean: float
    """Bytes of a turn."""
    parts: dict[str, float]
    """Bytes of a turn by what they are, the largest first."""

    @classmethod
    def of(cls, turns: Turns) -> "Side":
        """Sum the turns up."""
        events, bytes = [len(turn) for turn in turns], [size(turn) for turn in turns]
        fifth = max(1, len(turns) // 5)
        found = anatomy([event for turn in turns for event in turn])
        return cls(
            turns=len(turns),
            fewest=min(events),
            most=max(events),
            first=_mean(bytes[:fifth]),
            last=_mean(bytes[-fifth:]),
            mean=_mean(bytes),
            parts={name: round(whole / len(turns), 1) for name, whole in found.most_common()},
        )


class TurnsReport(BaseModel):
    """A ReAct task and its bare twin, with the same arguments and results."""

    model_config = ConfigDict(frozen=True)

    schema_: Literal[1] = Field(default=1, alias="schema")
    machine: Machine
    replan: Side
    bare: Side
    goals: tuple[Verdict, ...]

    @classmethod
    def of(cls, replan: Turns, bare: Turns) -> "TurnsReport":
        """Compare the two."""
        return cls.judged(Side.of(replan), Side.of(bare))

    @classmethod
    def judged(cls, ours: Side, twin: Side) -> "TurnsReport":
        """Hold what was counted against the goals."""
        goals = (
            _verdict("events of a turn, at most 12", EVENTS, ours.most),
            _verdict("bytes of a turn, at most 1.6 times bare", OF_TWIN, ours.mean / twin.mean),
            _verdict("bytes of a turn in the last fifth, at most 1.10 times the first", FLAT, ours.last / ours.first),
        )
        return cls(machine=Machine.this(), replan=ours, bare=twin, goals=goals)

    def table(self) -> Table:
        """Events and bytes of a turn, then what the bytes are."""
        table = Table("of a turn", "bare", "Replan", "of bare")
        ours, bare = self.replan, self.bare
        table.add_row("events", _span(bare), _span(ours), f"{ours.most / bare.most:.2f}")
        for name in ("mean", "first", "last"):
            title = "bytes" if name == "mean" else f"bytes, {name} fifth"
            table.add_row(title, *_compared(getattr(bare, name), getattr(ours, name)))
        for name in ours.parts:
            table.add_row(f"  {name}", *_compared(bare.parts.get(name, 0.0), ours.parts[name]))
        return table


def _mean(values: Sequence[int]) -> float:
    return round(sum(values) / len(values), 1)


def _span(side: Side) -> str:
    return f"{side.most}" if side.fewest == side.most else f"{side.fewest}-{side.most}"


def _compared(bare: float, ours: float) -> tuple[str, str, str]:
    return f"{bare:.0f}" if bare else "", f"{ours:.0f}", f"{ours / bare:.2f}" if bare else ""


def _verdict(goal: str, limit: float, value: float) -> Verdict:
    return Verdict(goal=goal, limit=limit, value=value, met=value <= limit)
