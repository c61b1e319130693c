"""The six situations, and what a run of one may come to."""

from collections import Counter
from enum import StrEnum
from typing import NamedTuple


class Act(StrEnum):
    """What befalls a call."""

    OK = "ok"
    DIE_BEFORE = "die before"
    """Its process is killed before the effect."""
    DIE_AFTER = "die after"
    """Its process is killed after the effect."""
    LOSE_ANSWER = "lose the answer"
    """It raises after the effect."""
    REJECT = "reject"
    """The service rejects it."""


class Call(NamedTuple):
    """A call of an agent: what befalls it, its words, and whether it is meant as the first one once more."""

    act: Act
    note: str
    is_again: bool = False


class Situation(NamedTuple):
    """Calls of an agent, the number of effects that are meant, and whether another process makes the later calls."""

    title: str
    calls: tuple[Call, ...]
    wanted: int
    in_new_process: bool | None = None
    """None: either; each run draws it."""


SITUATIONS = {
    1: Situation(
        "killed after the effect, same call again",
        (Call(Act.DIE_AFTER, "refund"), Call(Act.OK, "refund", is_again=True)),
        1,
        in_new_process=True,
    ),
    2: Situation(
        "answer lost, called again up to 3 times until there is one",
        (Call(Act.LOSE_ANSWER, "refund"), *[Call(Act.OK, "refund", is_again=True)] * 3),
        1,
    ),
    3: Situation(
        "killed after the effect, the model rewords",
        (Call(Act.DIE_AFTER, "refund approved"), Call(Act.OK, "your refund is approved", is_again=True)),
        1,
        in_new_process=True,
    ),
    4: Situation("two equal calls, both meant", (Call(Act.OK, "tip"), Call(Act.OK, "tip")), 2),
    5: Situation(
        "killed before the effect, same call again",
        (Call(Act.DIE_BEFORE, "refund"), Call(Act.OK, "refund", is_again=True)),
        1,
        in_new_process=True,
    ),
    6: Situation(
        "rejected (409), the world changed, same call again",
        (Call(Act.REJECT, "refund"), Call(Act.OK, "refund")),
        1,
    ),
}


class End(StrEnum):
    """What a run came to."""

    WANTED = "as wanted"
    PERSON = "a person"
    """Nothing is there too often, and the agent was told that nobody can know."""
    WRONG = "wrong"


def end_of(effects: int, wanted: int, *, is_asked: bool) -> End:
    """The end of a run with so many effects."""
    if effects == wanted and not is_asked:
        return End.WANTED
    return End.PERSON if is_asked and effects <= wanted else End.WRONG


def told(ends: Counter[End]) -> str:
    """The ends of the runs of a cell, in a few words."""
    if len(ends) == 1:
        return str(next(iter(ends)))
    return ", ".join(f"{ends[end]} {end}" for end in End if ends[end])
