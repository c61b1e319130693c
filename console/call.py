"""One call of a task, as its history tells it: for what it was made, and how it ended."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue
from temporalio.exceptions import RetryState

from workflows import routing
from workflows.faults import Code, Fault, Quadrant
from workflows.plan import Proposed
from workflows.situation import Situation

PLANNING = (routing.PLAN.kind, routing.REPLAN.kind)
CONVERSING = (*PLANNING, routing.COMPACT.kind)
"""What a planner is asked; the last one only shortens the conversation."""
OWN = frozenset({*CONVERSING, routing.CATALOGUE.kind, routing.INSPECT.kind})
LOOK = ":look"
"""What follows a step's id in the id of the observation that was made for it."""
RECONCILE = ":reconcile"
"""What follows the id of a call in the id of the read that finds out whether it happened."""
UNDO = "undo:"
"""What stands before a step's id in the id of the call that takes it back."""


class Event(NamedTuple):
    """Where something is written: the run of the task, from 1, and the event's id in it."""

    run: int
    id: int


class Closed(StrEnum):
    """How a call ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Failing:
    """A fault as far as the history tells."""

    reason: str
    quadrant: Quadrant | None = None
    fault: Fault | None = None

    @classmethod
    def of(cls, fault: Fault) -> "Failing":
        """A fault that is known in full."""
        return cls(fault.reason, fault.quadrant, fault)

    @property
    def code(self) -> Code | None:
        """What happened; None where it cannot be read."""
        return self.fault.code if self.fault else None


@dataclass
class Call:
    """One scheduling of an activity, with all its attempts."""

    id: str
    kind: str
    at: datetime
    scheduled: Event
    args: JsonValue = None
    allowed: int = 1
    """Attempts that it was granted; 0 means no limit."""
    situation: Situation | None = None
    """What a planner was told."""
    started: Event | None = None
    started_at: datetime | None = None
    """When its last attempt began."""
    attempt: int = 0
    """The number of its last attempt, as far as it is written down."""
    last: Failing | None = None
    """What ended the attempt before the last one."""
    earlier: tuple[Fault, ...] = ()
    """The faults of the attempts before the last one, as far as a worker lived to tell."""
    ended: Event | None = None
    ended_at: datetime | None = None
    closed: Closed | None = None
    """How it ended; None while it has not."""
    result: JsonValue = None
    replayed: bool = False
    proposed: Proposed | None = None
    """What a planner returned."""
    failing: Failing | None = None
    retry_state: RetryState | None = None
    """Why no attempt followed the last one, where the server ended that."""

    @property
    def events(self) -> tuple[Event, ...]:
        """All that is written about it."""
        return tuple(one for one in (self.scheduled, self.started, self.ended) if one)

    @property
    def step(self) -> str:
        """The step for which it was made."""
        return self.id.removeprefix(UNDO).partition(":")[0]

    @property
    def owner(self) -> str:
        """The id of the call for which it was made: its own, unless it looked or found out something."""
        return f"{UNDO if self.id.startswith(UNDO) else ''}{self.step}"

    @property
    def outlived(self) -> bool:
        """Whether a thread of it outlived its attempt, so that its effect may be applied at any time."""
        last = [self.failing.fault] if self.failing and self.failing.fault else []
        return any(fault.may_run_on for fault in (*self.earlier, *last))

    @property
    def is_look(self) -> bool:
        """Whether it looked at the world again after a refusal."""
        return self.id.endswith(LOOK)

    @property
    def is_reconcile(self) -> bool:
        """Whether it found out if a call had happened."""
        return self.id.endswith(RECONCILE)

    @property
    def is_undo(self) -> bool:
        """Whether it took back what a step had done."""
        return self.id.startswith(UNDO) and not self.is_reconcile

    @property
    def is_planning(self) -> bool:
        """Whether it asked for a proposal."""
        return self.kind in PLANNING

    @property
    def is_own(self) -> bool:
        """Whether it was made for the task itself and for no step."""
        return self.kind in OWN

    @property
    def is_step(self) -> bool:
        """Whether it carried out a step of a plan."""
        return not (self.is_own or self.is_look or self.is_reconcile or self.is_undo)
