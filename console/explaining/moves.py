"""Many turns of a model in a few rows: those that only went on are told together, as long as nothing lies between."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from console.call import Event
from console.explaining import words
from console.explaining.item import Sentence
from console.explaining.story import Plan, Story
from console.headings import MANY_TURNS

FEW = 3
"""Turns in a row that are told one by one."""
Row = tuple[str, Sentence]
"""What stands before a sentence, and the sentence."""


@dataclass(frozen=True)
class Block:
    """Rows that belong to an event; of those at the same event the lower rank is first."""

    at: Event
    rank: int
    rows: list[Row]
    plan: Plan | None = None
    """The plan that they tell of."""

    @property
    def is_routine(self) -> bool:
        """Whether it says that a turn called for steps, or that a step finished."""
        return self.rank == 2 or (self.plan is not None and self.plan.move is not None)


def folded(story: Story, blocks: Sequence[Block]) -> Iterator[Block]:
    """The same in the same order; where there are many turns, those in a row that only went on are one sentence."""
    many = len([plan for plan in story.plans if plan.move is not None]) > MANY_TURNS
    for (is_routine, _), group in groupby(blocks, key=lambda block: (block.is_routine, block.at.run)):
        row = list(group)
        plans = [block.plan for block in row if block.plan is not None]
        if many and is_routine and len(plans) > FEW:
            yield _together(row, plans)
        else:
            yield from row


def _together(row: Sequence[Block], plans: Sequence[Plan]) -> Block:
    """`Turns 3-40: 45 calls, of get_price (30) and search (15).`"""
    kinds = Counter(step.kind for plan in plans for step in plan.steps)
    counted = words.listed(f"{kind} ({number})" for kind, number in kinds.most_common())
    calls = words.count(kinds.total(), "call")
    first, last = plans[0].turn.call.scheduled, row[-1].at
    proof = tuple(Event(first.run, id) for id in range(first.id, last.id + 1))
    text = f"Turns {plans[0].move}-{plans[-1].move}: {calls}, of {counted}."
    return Block(row[0].at, row[0].rank, [("", Sentence(text=text, events=proof))])
