"""The circuit breaker of a kind as data (M. Nygard, "Release It!", 2007): its states, and what moves it between them.

closed     calls are made; failures in a row are counted, and a success sets the count to 0
open       no call is made until the recovery time is over
half_open  one trial call at a time is made; a trial holds a lease, which expires if its worker dies

Every function here is pure. A call is admitted under a generation, and the generation grows with each change of state
and with each trial: a report of an older generation changes nothing. So calls that began before an outage can neither
prolong it nor end it, and a trial whose lease was lost decides nothing.
"""

from enum import StrEnum

from pydantic import BaseModel

from workflows.faults import Code
from workflows.routing import TRIAL_LEASE, CircuitBreaker


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker(BaseModel, frozen=True):
    """The state of one kind's breaker. Times are seconds since 1970, by the one clock that all workers use."""

    state: BreakerState = BreakerState.CLOSED
    generation: int = 0
    since: float = 0.0
    """When the outage began or, if the breaker is closed, when it was closed; 0 if it was never open."""
    failures: int = 0
    """Failures in a row, also those of trial calls."""
    callers: tuple[str, ...] = ()
    """The different calls that have failed; at most as many as the policy asks for."""
    code: Code | None = None
    """The code of the newest failure."""
    until: float = 0.0
    """When the recovery time ends or, in `half_open`, the lease of the trial call; 0 if no trial is under way."""
    successes: int = 0
    """Successful trial calls since the newest failure."""

    @property
    def is_clean(self) -> bool:
        """Whether a successful call changes nothing."""
        return self.state is BreakerState.CLOSED and not self.failures

    def wait(self, policy: CircuitBreaker, now: float) -> float:
        """Seconds until a call may be made; 0 if it may be made now, as a trial unless the breaker is closed."""
        if self.state is BreakerState.CLOSED:
            return 0.0
        left = self.until - now
        # More is left than there ever was: the clock was set back, and nobody knows how much is left.
        longest = policy.recovery if self.state is BreakerState.OPEN else TRIAL_LEASE
        return left if 0 < left <= longest else 0.0

    def trying(self, now: float) -> "Breaker":
        """The breaker with a new trial call, which `wait` allows; the trial's generation is that of the result."""
        return self._next(BreakerState.HALF_OPEN, until=now + TRIAL_LEASE)

    def renewed(self, generation: int, now: float) -> "Breaker":
        """The breaker after its trial call is still running."""
        return self.model_copy(update={"until": now + TRIAL_LEASE}) if self._is_trial(generation) else self

    def released(self, generation: int) -> "Breaker":
        """The breaker after its trial call ended without a verdict about the service."""
        return self._next(BreakerState.HALF_OPEN, until=0.0) if self._is_trial(generation) else self

    def succeeded(self, generation: int, policy: CircuitBreaker, now: float) -> "Breaker":
        """The breaker after the service answered a call."""
        if self.state is BreakerState.CLOSED and generation == self.generation:
            return self.model_copy(update={"failures": 0, "callers": (), "code": None})
        if not self._is_trial(generation):
            return self
        if self.successes + 1 >= policy.trials:
            return self.closed(now)
        return self._next(BreakerState.HALF_OPEN, until=0.0, successes=self.successes + 1)

    def failed(self, generation: int, caller: str, code: Code, policy: CircuitBreaker, now: float) -> "Breaker":
        """The breaker after a call failed; `caller` tells the call, and its attempts share it."""
        if self._is_trial(generation):
            return self._open(policy, now).model_copy(update={"failures": self.failures + 1, "code": code})
        if self.state is not BreakerState.CLOSED or generation != self.generation:
            return self
        callers = self.callers if caller in self.callers else (*self.callers, caller)[: policy.calls]
        counted = self.model_copy(update={"failures": self.failures + 1, "callers": callers, "code": code})
        if counted.failures < policy.failures or len(callers) < policy.calls:
            return counted
        return counted._open(policy, now).model_copy(update={"since": now})

    def closed(self, now: float) -> "Breaker":
        """The breaker after its service has recovered, or after a person closed it."""
        return Breaker(generation=self.generation + 1, since=now)

    def _open(self, policy: CircuitBreaker, now: float) -> "Breaker":
        return self._next(BreakerState.OPEN, until=now + policy.recovery, successes=0)

    def _next(self, state: BreakerState, **changed: float) -> "Breaker":
        return self.model_copy(update={"state": state, "generation": self.generation + 1, **changed})

    def _is_trial(self, generation: int) -> bool:
        return self.state is BreakerState.HALF_OPEN and generation == self.generation
