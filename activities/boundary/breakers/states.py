"""The circuit breaker of a service as data (M. Nygard, "Release It!", 2007): its states, and what moves it.

Used when the row of a service is read or changed: before a call and after it, and when the turns of calls come.

closed     calls are made; failures in a row are counted, and a success sets the count to 0; a call that alone finds
           the service down waits, and tries again after a second, then after 2, 4 ... up to the recovery time
open       no call is made until the recovery time is over, or until the time that a service which limits its callers
           has named
half_open  as many calls at once as the window allows: 1, and 1 more after each success, so 2, 4, 8 ...; a limit halves
           the window, which then grows by 1 a round, and an outage sets it back to 1 (as TCP does, RFC 5681)

Every function here is pure. A call is admitted under a generation, which grows with each change of state and with each
place; a report of an older generation changes nothing. So calls that began before an outage can neither prolong it nor
end it. The place of a call has a lease, which expires if the worker dies; a call without its place changes nothing.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel

from activities.toolbox.declare.tool import CallLimit
from workflows.faults.circuit_breaker import CircuitBreaker
from workflows.faults.fault import Code

MAX_WINDOW = 64
"""How many calls may be under way at once while a breaker is not closed."""
STEEP_WINDOW = 4.0
"""Up to this many calls at once, the window grows by 1 with each success, even after the service limited calls."""
TRIAL_LEASE = 5.0
"""Seconds until another trial call may follow that of a worker that died; a live worker renews the lease."""
CALL_LEASE = 10.0
"""Seconds from the turn of a call until the next call has its turn, if the call was not made."""
LIMIT_PATIENCE = 600.0
"""The most seconds that a call waits for a service that limits its callers, while no call succeeds there."""
LONGEST_LIMIT = LIMIT_PATIENCE / 2
"""The longest pause, in seconds, for a service that limits its callers. It is less than LIMIT_PATIENCE, so that no call
gives up because the service asks for a wrong pause."""
FIRST_LIMIT = 1.0
"""The shortest pause, in seconds, for a service that limits its callers; the first pause if it asks for none."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Instant(NamedTuple):
    """The time of a transition, and whether calls wait for their turn then."""

    now: float
    is_awaited: bool = False
    """Whether calls wait for their turn."""


class Admission(BaseModel, frozen=True):
    """The right of one call to be made although the breaker is not closed."""

    generation: int
    until: float
    """When the lease ends."""


class Alone(BaseModel, frozen=True):
    """A call that found the service down while the breaker is closed: it may wait, and delays no other call."""

    failures: int = 0
    """Failures in a row, while no other call succeeded."""
    until: float = 0.0
    """When the call may be repeated; 0 if it does not wait."""
    pause: float = 0.0
    """How many seconds in the future `until` was when it was set."""
    lease: float = 0.0
    """Until when the call counts as under way; its worker renews it."""

    @property
    def waits(self) -> bool:
        """Whether the call waits, or is made again after a wait."""
        return self.until > 0

    def pause_left(self, now: float) -> float:
        """Seconds until the call may be repeated; 0 also after the clock was set back."""
        left = self.until - now
        return left if 0 < left <= self.pause else 0.0


class FirstLimit(BaseModel, frozen=True):
    """The first answer of a service that limits its callers; alone, it delays only the call that got it."""

    caller: str
    until: float
    """When the call may be repeated."""


class Breaker(BaseModel, frozen=True):
    """The state of one service's breaker. Times are seconds since 1970, by the one clock that all workers use."""

    state: BreakerState = BreakerState.CLOSED
    generation: int = 0
    since: float = 0.0
    """When the outage or the limit began or, if the breaker is closed, when it was closed; 0 if it was never open."""
    failures: int = 0
    """Failures in a row, also those of calls that had a place."""
    callers: tuple[str, ...] = ()
    """The different calls that have failed; at most as many as the policy asks for."""
    alone: dict[str, Alone] = {}
    """While the breaker is closed, the calls that have failed since the newest success, by their keys."""
    code: Code | None = None
    """The code of the newest failure: RATE_LIMITED if the service limits its callers, else it is down."""
    until: float = 0.0
    """When the next call may be made, unless the breaker is closed."""
    pause: float = 0.0
    """How many seconds in the future `until` was when it was set."""
    successes: int = 0
    """Successful calls since the newest failure."""
    window: float = 1.0
    """How many calls may be under way at once, unless the breaker is closed; a fraction counts as none."""
    threshold: float = MAX_WINDOW
    """The size from which on the window grows by 1 only after as many successes as it allows calls; set by a limit."""
    places: dict[str, Admission] = {}
    """The calls that may be made, or are under way, by their keys."""
    opened: int = 0
    """The generation with which the breaker was opened last; a call admitted before neither narrows nor widens the
    window."""
    advanced: float = 0.0
    """When a call that had a place last succeeded, or when a service with a limit last let a call through."""
    limits: int = 0
    """How often in a row the service said that it limits its callers, without a time and without a success between."""
    first_limit: FirstLimit | None = None
    limit: str | None = None
    """The most calls in a time, as the service's tools declare it, in each state."""
    taken: tuple[float, ...] = ()
    """When calls were let through, within the time of the limit, the oldest first."""

    @property
    def is_clean(self) -> bool:
        """Whether the breaker is closed without a failure, so that a successful call changes nothing."""
        return self.state is BreakerState.CLOSED and not self.failures

    @property
    def is_limit(self) -> bool:
        """Whether the service answers, and limits its callers."""
        return self.code is Code.RATE_LIMITED

    def wait(self, now: float) -> float:
        """Seconds until a call may be made, if the window has room; 0 if it may be made now."""
        return max(self.pause_left(now), self._limit_wait(now))

    def pause_left(self, now: float) -> float:
        """Seconds for which no call is made, not even a call that has a place but has not begun; 0 without a pause."""
        left = self.until - now
        # More is left than there ever was: the clock was set back, and nobody knows how much is left.
        return left if self.state is not BreakerState.CLOSED and 0 < left <= self.pause else 0.0

    def _limit_wait(self, now: float) -> float:
        limit, recent = self._limit, self._recent(now)
        return recent[-limit.calls] + limit.seconds - now if limit and len(recent) >= limit.calls else 0.0

    @property
    def _limit(self) -> CallLimit | None:
        return CallLimit.of(self.limit) if self.limit else None

    def _recent(self, now: float) -> tuple[float, ...]:
        # A time in the future was taken before the clock was set back.
        return tuple(at for at in self.taken if self._limit and 0 <= now - at < self._limit.seconds)

    def room(self, now: float) -> int:
        """How many more calls may be made now."""
        if self.wait(now):
            return 0
        window = MAX_WINDOW
        if self.state is not BreakerState.CLOSED:
            window = max(0, int(self.window) - len(self.live_places(now)))
        return min(window, self._limit.calls - len(self._recent(now))) if self._limit else window

    def live_places(self, now: float) -> Mapping[str, Admission]:
        """The places whose leases have not expired."""
        longest = max(CALL_LEASE, TRIAL_LEASE)
        return {key: admission for key, admission in self.places.items() if 0 < admission.until - now <= longest}

    def waits_alone(self, caller: str) -> bool:
        """Whether a call waits, or is made again after a wait, although the breaker is closed for others."""
        return caller in self.alone and self.alone[caller].waits

    def undue(self, now: float) -> Mapping[str, float]:
        """By key, the seconds left for each call that waits alone and may not be repeated yet."""
        left = {key: call.pause_left(now) for key, call in self.alone.items()}
        return {key: seconds for key, seconds in left.items() if seconds}

    def underway(self, now: float) -> Mapping[str, float]:
        """By key, the seconds left of the leases of the calls that have a place, or are made again after a wait."""
        alone = {key: call.lease - now for key, call in self.alone.items() if 0 < call.lease - now <= TRIAL_LEASE}
        return {**alone, **{key: admission.until - now for key, admission in self.live_places(now).items()}}

    def limited_to(self, limit: str | None) -> "Breaker":
        """The breaker with `limit`, as the tools of its service declare it; None for no limit."""
        return self if limit == self.limit else self._with(limit=limit, taken=())

    def taking(self, now: float, number: int = 1) -> "Breaker":
        """The breaker after `number` more calls, which `room` allows, were let through."""
        if not self.limit or not number:
            return self
        return self._with(taken=(*self._recent(now), *[round(now, 3)] * number), advanced=now)

    def admitting(self, now: float, lease: float, *callers: str) -> "Breaker":
        """The breaker after these calls got places (or kept them) for `lease` seconds; `room` allows the new places."""
        places, generation = dict(self.live_places(now)), self.generation
        for generation, caller in enumerate(callers, start=generation + 1):  # noqa: B020  # it counts on
            places[caller] = Admission(generation=generation, until=now + lease)
        new = sum(caller not in self.live_places(now) for caller in callers)
        return self.taking(now, new)._with(state=BreakerState.HALF_OPEN, generation=generation, places=places)

    def renewed(self, caller: str, generation: int, now: float) -> "Breaker":
        """The breaker after the lease of a call was renewed, since it is still running: as a trial, or after a wait."""
        if self.waits_alone(caller):
            trying = self.alone[caller].model_copy(update={"lease": now + TRIAL_LEASE})
            return self._with(alone={**self.alone, caller: trying})
        if not self._has_place(caller, generation):
            return self
        admission = Admission(generation=generation, until=now + TRIAL_LEASE)
        return self._with(places={**self.places, caller: admission})

    def released(self, caller: str, generation: int) -> "Breaker":
        """The breaker after a call ended without a verdict about the service; it has no place any more, nor waits."""
        return self.given_back(caller) if self._has_place(caller, generation) or self.waits_alone(caller) else self

    def given_back(self, caller: str) -> "Breaker":
        """The breaker without the place of a call, if it has one, and without its wait."""
        places = {key: admission for key, admission in self.places.items() if key != caller}
        return self._with(places=places, alone={key: call for key, call in self.alone.items() if key != caller})

    def succeeded(self, caller: str, generation: int, policy: CircuitBreaker, moment: Instant) -> "Breaker":
        """The breaker after the service answered a call."""
        if self.state is BreakerState.CLOSED and generation == self.generation:
            return self if self.is_clean else self._with(failures=0, callers=(), alone={}, code=None)
        if not self._has_place(caller, generation):
            return self
        freed = self.given_back(caller)._with(advanced=moment.now, limits=0)  # it does answer some calls
        if generation < self.opened:
            return freed
        if self.successes + 1 >= policy.trials and not moment.is_awaited:
            return self.closed(moment.now)
        grown = self.window + (1 if self.window < self.threshold else 1 / self.window)
        window = min(float(MAX_WINDOW), grown)
        return freed._with(successes=self.successes + 1, window=window)

    def failed(
        self,
        caller: str,
        generation: int,
        code: Code,
        policy: CircuitBreaker,
        now: float,
        *,
        may_wait: bool = False,
        requested: float | None = None,
        jitter: float = 0.0,
    ) -> "Breaker":
        """The breaker after a call found the service down; all attempts of the call have the same `caller`.

        `may_wait`: if the breaker stays closed, the call itself waits after its second failure in a row: for the
        seconds `requested` by the service, or longer. `jitter` is a random number in [0, 1).
        """
        if self._has_place(caller, generation):
            freed = self.given_back(caller)
            if generation < self.opened:
                return freed
            failures = self.failures + 1
            return freed._open(policy.recovery, now, window=1, successes=0, failures=failures, code=code)
        if self.state is not BreakerState.CLOSED or generation != self.generation:
            return self
        callers = self.callers if caller in self.callers else (*self.callers, caller)[: policy.calls]
        counted = self._with(failures=self.failures + 1, callers=callers, code=code)
        if counted.failures >= policy.failures and len(callers) >= policy.calls:
            return counted._open(policy.recovery, now, window=1, successes=0, since=now, alone={})
        call = Alone(failures=self.alone.get(caller, Alone()).failures + 1)
        if may_wait and call.failures > 1:
            pause = max(requested or 0.0, limit_wait(None, call.failures - 2, policy.recovery, jitter))
            call = Alone(failures=call.failures, until=now + pause, pause=pause)
        return counted._with(alone={**self.alone, caller: call})

    def limited(
        self, caller: str, generation: int, requested: float | None, jitter: float, policy: CircuitBreaker, now: float
    ) -> "Breaker":
        """The breaker after the service rejected a call because of a limit.

        `requested` is the wait in seconds that the service asked for, None if it asked for none; `jitter` is a random
        number in [0, 1).
        """
        pause = limit_wait(requested, self.limits, policy.recovery, jitter)
        if self._has_place(caller, generation):
            freed = self.given_back(caller)
            if generation < self.opened:
                return freed
            window = max(1.0, self.window / 2)
            threshold = max(STEEP_WINDOW, window) if self.window >= 2 else self.threshold
            changed = {"window": window, "threshold": threshold, "successes": 0, "limits": self.limits + 1}
            return freed._open(pause, now, code=Code.RATE_LIMITED, **changed)
        if self.state is not BreakerState.CLOSED or generation != self.generation:
            return self
        first, until = self.first_limit, now + pause
        if first is None or first.caller == caller or not now < first.until <= now + LONGEST_LIMIT:
            until = now + max(pause, policy.recovery if requested is None else requested)
            return self._with(first_limit=FirstLimit(caller=caller, until=min(until, now + LONGEST_LIMIT)))
        pause = pause if requested is None else max(pause, first.until - now)
        return self._with(failures=0, callers=(), alone={}, first_limit=None)._open(
            pause, now, window=1, successes=0, since=now, code=Code.RATE_LIMITED, limits=1
        )

    def hurried(self, now: float) -> "Breaker":
        """The breaker after a person reported that its service is back: of the calls that wait, one may be made now."""
        return self._with(until=now, limits=0)

    def closed(self, now: float) -> "Breaker":
        """The breaker after its service has recovered, or after a person closed it."""
        return Breaker(generation=self.generation + 1, since=now, limit=self.limit, taken=self.taken)

    def _open(self, pause: float, now: float, **changed: object) -> "Breaker":
        generation = self.generation + 1
        opened = {"generation": generation, "opened": generation, "until": now + pause, "pause": pause}
        return self._with(state=BreakerState.OPEN, **opened, **changed)

    def _has_place(self, caller: str, generation: int) -> bool:
        admission = self.places.get(caller)
        return admission is not None and admission.generation == generation

    def _with(self, **changed: object) -> "Breaker":
        return self.model_copy(update=changed)


def limit_wait(requested: float | None, limits: int, recovery: float, jitter: float) -> float:
    """Seconds to pause before the next call to a service that limits its callers.

    `requested` is the pause that the service asked for; it is kept between FIRST_LIMIT and LONGEST_LIMIT. If it is
    None: a second, doubling with each of the `limits` before, but at most `recovery`, and up to a tenth more, which
    `jitter`, a random number in [0, 1), chooses.
    """
    if requested is not None:
        return min(max(requested, FIRST_LIMIT), LONGEST_LIMIT)
    return min(recovery, FIRST_LIMIT * 2.0 ** min(limits, 10)) * (1 + jitter / 10)
