"""What is done to a trial, and when: a schedule that follows from the seed."""

import random
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

BEGIN, END = 0.02, 0.92
"""The share of the tasks that have ended at the first blow, and at the last."""


class What(StrEnum):
    """What is hit, and how."""

    KILL = "kill"
    FREEZE = "freeze"
    FREEZE_ALL = "freeze all workers"
    TERMINATE = "terminate"
    RESTART_SERVER = "restart the server"
    DROP = "drop the connections"
    RESTART_DATABASE = "restart the database"
    RESET_RUNNING = "reset a running task"
    RESET_CLOSED = "reset a closed task"
    CANCEL = "cancel a running task"
    PRUNE = "prune the store"


class Blow(NamedTuple):
    """One event."""

    at: float
    """The share of the tasks that have ended before."""
    what: What
    draw: float
    """Decides between several of the same, from [0, 1)."""


class Force(NamedTuple):
    """How much of everything."""

    kills: int
    restarts: int
    drops: int
    database: int = 0
    freezes: int = 0
    stops: int = 0
    """How often all workers are frozen at once."""
    terminations: int = 0
    resets: int = 0
    cancels: int = 0
    prunes: int = 0

    @classmethod
    def of(cls, kills: int, restarts: int, drops: int, *, has_database: bool) -> "Force":
        """The rest follows from these."""
        few = -(-kills // 6)
        return cls(
            kills,
            restarts,
            drops,
            3 * has_database,
            freezes=few,
            stops=-(-few // 4),
            terminations=few,
            resets=few,
            cancels=few,
            prunes=few,
        )


def schedule(force: Force, seed: int) -> Sequence[Blow]:
    """All blows in their order, each sort spread evenly over the trial, give or take."""
    dice = random.Random(f"blows/{seed}")  # noqa: S311  # a trial, no secret
    wanted = {
        What.KILL: force.kills,
        What.FREEZE: force.freezes,
        What.FREEZE_ALL: force.stops,
        What.TERMINATE: force.terminations,
        What.RESTART_SERVER: force.restarts,
        What.DROP: force.drops,
        What.RESTART_DATABASE: force.database,
        What.RESET_RUNNING: force.resets,
        What.RESET_CLOSED: force.resets,
        What.CANCEL: force.cancels,
        What.PRUNE: force.prunes,
    }
    return sorted(
        Blow(BEGIN + (END - BEGIN) * (number + dice.random()) / count, what, dice.random())
        for what, count in wanted.items()
        for number in range(count)
    )
