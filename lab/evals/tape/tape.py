"""What goes wrong in a world, as pure functions of a seed, a call and the world's clock.

Nothing is drawn from a stream: a stream has no order where calls run at the same time. Each draw has a key, and so is
the same for every arm, however its calls are scheduled.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, Field, JsonValue

from workflows.json_values import digest

Share = float
"""A probability."""
CERTAIN_CALLS = 2
"""An answer is lost, and a worker killed, at one of the first calls only: else no arm could end."""
DIGITS = 13
"""Hexadecimal digits of a draw: 52 bits, which a float holds exactly."""


def draw(*key: JsonValue) -> float:
    """A number from [0, 1) that is always the same for the same key."""
    return int(digest(*key)[:DIGITS], 16) / 16.0**DIGITS


class Trouble(StrEnum):
    """What goes wrong with a call apart from the state of the world."""

    NONE = ""
    BLIP = "blip"
    """A 503 of this one call."""
    OUTAGE = "outage"
    """A 503 of every call of the tool for a while."""
    LIMIT = "limit"
    """A 429 of every call of the tool for a while, with Retry-After."""
    DENIED = "denied"
    """A 401 of every call with these arguments."""
    WITHDRAWN = "withdrawn"
    """A 403: the permission was withdrawn."""
    LOCKED = "locked"
    """A 423: somebody else holds a lock for a while."""

    @property
    def is_transient(self) -> bool:
        return self in (Trouble.BLIP, Trouble.OUTAGE, Trouble.LIMIT, Trouble.LOCKED)


class Point(StrEnum):
    """Where a call is cut."""

    NONE = ""
    LOST = "lost"
    """The effect is applied, and the answer is lost."""
    KILL_BEFORE = "kill_before"
    """The worker is killed before the effect."""
    KILL_AFTER = "kill_after"
    """The effect is applied, and the worker is killed before it has the answer."""


class Call(NamedTuple):
    """What the tape is asked about."""

    task: str
    tool: str
    args: JsonValue
    number: int
    """From 1: how often the task has made this call, with equal arguments."""
    at: float
    """Seconds of the world's clock."""
    of_tool: int = 1
    """From 1: how often the task has called the tool."""

    @property
    def key(self) -> list[JsonValue]:
        """The call without its number and its time."""
        return [self.task, self.tool, self.args]


class Windows(BaseModel, frozen=True):
    """Spans of time in which a tool does not work: at most one in each period of the clock."""

    share: Share = Field(ge=0, le=1)
    """The share of periods that have one."""
    period: float = Field(default=20.0, gt=0)
    seconds: float = Field(default=6.0, gt=0)

    def end(self, seed: int, name: str, tool: str, at: float) -> float | None:
        """When the window ends that is open at a time; None if none is. With a share of 1 it never ends."""
        if self.share >= 1:
            return float("inf")
        period = int(at // self.period)
        if draw(seed, name, tool, period, "is there") >= self.share:
            return None
        begin = self.period * period + draw(seed, name, tool, period, "begin") * max(0.0, self.period - self.seconds)
        return begin + self.seconds if begin <= at < begin + self.seconds else None


class Tape(BaseModel, frozen=True):
    """All that goes wrong."""

    seed: int
    blips: Share = 0.10
    outages: Windows = Windows(share=0.35)
    limits: Windows = Windows(share=0.25, seconds=3.0)
    denied: Share = 0.04
    """Of the reads, keyed on their arguments."""
    taken: Share = 0.30
    """Of the tasks whose first choice another actor takes before their first call about it."""
    lost: Share = 0.08
    """Of the effects; the next two alike."""
    kills: Share = 0.02
    lying: Share = 0.0
    """Of the errors: a transient one has the status of a persistent one, and the other way round."""

    @classmethod
    def calm(cls, seed: int) -> "Tape":
        """Nothing goes wrong: a canary."""
        never = Windows(share=0.0)
        return cls(seed=seed, blips=0, outages=never, limits=never, denied=0, taken=0, lost=0, kills=0)

    @classmethod
    def down(cls, seed: int) -> "Tape":
        """No call ever succeeds: the other canary."""
        return cls(seed=seed, blips=0, outages=Windows(share=1.0), limits=Windows(share=0.0), denied=0, kills=0)

    def trouble(self, call: Call, *, is_effect: bool) -> Trouble:
        """What goes wrong with a call; the first that applies of outage, limit, blip, denied."""
        if self.outages.end(self.seed, "outage", call.tool, call.at) is not None:
            return Trouble.OUTAGE
        if self.limits.end(self.seed, "limit", call.tool, call.at) is not None:
            return Trouble.LIMIT
        if draw(self.seed, "blip", *call.key, call.number) < self.blips:
            return Trouble.BLIP
        if not is_effect and draw(self.seed, "denied", *call.key) < self.denied:
            return Trouble.DENIED
        return Trouble.NONE

    def retry_after(self, call: Call) -> float:
        """Seconds until the limit ends that a call meets."""
        end = self.limits.end(self.seed, "limit", call.tool, call.at)
        return 0.0 if end is None else end - call.at

    def point(self, call: Call) -> Point:
        """Where the call of an effect is cut that nothing else goes wrong with."""
        if call.number > CERTAIN_CALLS:
            return Point.NONE
        drawn = draw(self.seed, "cut", *call.key, call.number)
        limit = 0.0
        for point, share in self._cuts():
            limit += share
            if drawn < limit:
                return point
        return Point.NONE

    def _cuts(self) -> Iterator[tuple[Point, Share]]:
        yield Point.LOST, self.lost
        yield Point.KILL_BEFORE, self.kills / 2
        yield Point.KILL_AFTER, self.kills / 2

    def is_taken(self, task: str) -> bool:
        """Whether another actor takes the first choice of a task."""
        return draw(self.seed, "taken", task) < self.taken

    def lies(self, call: Call) -> bool:
        """Whether the status of an error says the opposite."""
        return draw(self.seed, "lie", *call.key, call.number) < self.lying
