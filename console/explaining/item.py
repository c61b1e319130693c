"""One thing that is explained: what happened, why, what was decided, what followed, and what it cost."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from console.call import Event

Decision = Literal[
    "retry", "wait", "fallback", "replan", "reconcile", "escalate", "send_back", "failover", "end", "undecided"
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Sentence(_Frozen):
    """A sentence, and the events that prove it."""

    text: str
    events: tuple[Event, ...] = ()


class Cost(_Frozen):
    """What a fault cost."""

    failed_attempts: int = 0
    """Attempts of calls that ended in a fault."""
    observations: int = 0
    """Attempts of looking at the world again, or for an effect that may have happened."""
    planning_calls: int = 0
    """Requests for a proposal that were needed in addition."""
    waited: float = 0.0
    """Seconds of backoffs and timers."""
    lost: float = 0.0
    """Seconds in attempts that left no word, until the one that did began."""
    unattended: float = 0.0
    """Seconds in which something was to be done and no worker took it."""

    def __add__(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(
            failed_attempts=self.failed_attempts + other.failed_attempts,
            observations=self.observations + other.observations,
            planning_calls=self.planning_calls + other.planning_calls,
            waited=self.waited + other.waited,
            lost=self.lost + other.lost,
            unattended=self.unattended + other.unattended,
        )


class Item(_Frozen):
    """One deviation from the plan, explained."""

    steps: tuple[str, ...] = ()
    """The steps that it concerns; none where it concerns the whole task."""
    what: Sentence
    why: Sentence | None = None
    decision: Decision
    then: tuple[Sentence, ...] = ()
    cost: Cost = Cost()

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """All that is said, in order."""
        return (self.what, *((self.why,) if self.why else ()), *self.then)

    @property
    def events(self) -> list[Event]:
        """All events that prove it, in order."""
        return sorted({event for one in self.sentences for event in one.events})

    @property
    def at(self) -> Event:
        """The event at which it became known."""
        return max(self.what.events, default=Event(1, 1))

    def document(self) -> dict[str, Any]:
        """The item as JSON; where a task has several runs, `run` says whose events these are."""
        run = self.at.run
        return {
            "what": self.what.text,
            "why": self.why.text if self.why else None,
            "decision": self.decision,
            "then": [one.text for one in self.then],
            "steps": list(self.steps),
            "cost": self.cost.model_dump(),
            "run": run,
            "events": [event.id for event in self.events if event.run == run],
        }
