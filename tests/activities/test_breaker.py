"""The circuit breaker as data: what moves it, for all interleavings of several workers."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from activities.boundary.breaker import Breaker, BreakerState
from workflows.faults import Code
from workflows.routing import STANDARD_BREAKER, TRIAL_LEASE, CircuitBreaker

DOWN = Code.SERVER_ERROR


def after(breaker: Breaker, *callers: str, policy: CircuitBreaker = STANDARD_BREAKER) -> Breaker:
    """The breaker after a failure of each of these calls, at the time 100."""
    for caller in callers:
        breaker = breaker.failed(breaker.generation, caller, DOWN, policy, now=100)
    return breaker


@pytest.mark.parametrize(
    ("callers", "state"),
    [("ab", "closed"), ("aaaaaaaaa", "closed"), ("aab", "open"), ("abb", "open"), ("aaaaab", "open"), ("abc", "open")],
)
def test_it_opens_after_failures_of_different_calls(callers: str, state: str) -> None:
    """Three in a row, and never because of the retries of one bad call."""
    assert after(Breaker(), *callers).state == state


def test_a_success_starts_the_count_again() -> None:
    """Only failures in a row count."""
    breaker = after(Breaker(), "a", "b").succeeded(0, STANDARD_BREAKER, now=100)

    assert breaker == Breaker()
    assert after(breaker, "c", "d").state is BreakerState.CLOSED


def test_a_report_of_an_older_generation_changes_nothing() -> None:
    """Calls that began before the outage neither prolong it nor end it."""
    opened = after(Breaker(), "a", "b", "c")

    assert opened.failed(0, "d", DOWN, STANDARD_BREAKER, now=103) == opened
    assert opened.succeeded(0, STANDARD_BREAKER, now=103) == opened
    trial = opened.trying(now=105)
    assert trial.failed(0, "d", DOWN, STANDARD_BREAKER, now=106) == trial
    assert trial.succeeded(opened.generation, STANDARD_BREAKER, now=106) == trial


def test_a_trial_that_lost_its_lease_decides_nothing() -> None:
    """A worker that was frozen reports after another worker has taken the next trial."""
    frozen = after(Breaker(), "a", "b", "c").trying(now=105)
    now = 105 + TRIAL_LEASE
    second = frozen.trying(now)

    assert (frozen.wait(STANDARD_BREAKER, now - 1), frozen.wait(STANDARD_BREAKER, now)) == (1, 0)
    assert second.succeeded(frozen.generation, STANDARD_BREAKER, now) == second
    assert second.failed(frozen.generation, "a", DOWN, STANDARD_BREAKER, now) == second
    assert second.renewed(frozen.generation, now + 1) == second
    assert second.released(frozen.generation) == second


def test_trials_decide() -> None:
    """A failure opens it for another recovery time, and the second success closes it."""
    trial = after(Breaker(), "a", "b", "c").trying(now=105)
    failed = trial.failed(trial.generation, "d", Code.TIMEOUT, STANDARD_BREAKER, now=107)
    once = trial.succeeded(trial.generation, STANDARD_BREAKER, now=107)
    again = once.trying(now=107)
    twice = again.succeeded(again.generation, STANDARD_BREAKER, now=108)

    assert (failed.state, failed.wait(STANDARD_BREAKER, 107), failed.code) == (BreakerState.OPEN, 5, Code.TIMEOUT)
    assert (failed.since, failed.failures) == (100, 4)
    assert (once.state, once.wait(STANDARD_BREAKER, 107)) == (BreakerState.HALF_OPEN, 0)
    assert (twice.state, twice.since, twice.is_clean) == (BreakerState.CLOSED, 108, True)


def test_a_trial_without_a_verdict_frees_its_lease() -> None:
    """Its worker shut down, or the call was cancelled: the next trial need not wait."""
    trial = after(Breaker(), "a", "b", "c").trying(now=105)
    released = trial.released(trial.generation)

    assert (released.state, released.wait(STANDARD_BREAKER, 105)) == (BreakerState.HALF_OPEN, 0)
    assert released.renewed(trial.generation, now=106) == released


def test_a_clock_that_was_set_back_holds_nobody() -> None:
    """An hour back would otherwise be an hour without calls."""
    opened = after(Breaker(), "a", "b", "c")

    assert opened.wait(STANDARD_BREAKER, now=100 - 3600) == 0
    assert opened.trying(now=105).wait(STANDARD_BREAKER, now=105 - 3600) == 0


@dataclass
class Call:
    """A call that is under way."""

    worker: str
    caller: str
    generation: int
    epoch: int
    """How often the state had changed, as the test counts it."""
    fails: bool
    renewed: float | None = None
    """When the lease was renewed; None if it is no trial."""


class Workers(RuleBasedStateMachine):
    """Workers with stale caches that make calls, are late, and die; one row, written by compare-and-set.

    A worker does what `activities.boundary.breakers` does: it decides by its cache, and writes by the row.
    """

    NAMES = ("one", "two", "three")

    @initialize(
        failures=st.integers(1, 4), calls=st.integers(1, 3), trials=st.integers(1, 3), recovery=st.sampled_from([1, 4])
    )
    def begin(self, failures: int, calls: int, trials: int, recovery: float) -> None:
        """A service that is down, as the workers find out; one call takes its time."""
        self.policy = CircuitBreaker(failures, calls, recovery, trials)
        self.now, self.row, self.epoch, self.is_down = 1000.0, Breaker(), 0, True
        self.cached = {name: (Breaker(), 0, 1000.0) for name in self.NAMES}
        self.calls = list[Call]()
        self.failed_since_success = set[str]()
        self.begin_call("one", "a")
        self.traffic("two", "abcabc")
        self.wait(2, set())

    def write(self, worker: str, row: Breaker) -> None:
        """Write the row, and so know it."""
        if row.state is BreakerState.OPEN and self.row.state is BreakerState.CLOSED:
            assert len(self.failed_since_success) >= self.policy.calls, "opened by too few calls"
        # What a generation has to tell apart: other states, and other trials.
        self.epoch += row.state is not self.row.state or (not row.until) is not (not self.row.until)
        self.row = row
        self.cached[worker] = (row, self.epoch, self.now)

    @rule(is_down=st.booleans(), worker=st.sampled_from(NAMES), callers=st.text("abc", max_size=4))
    def fall_or_rise(self, is_down: bool, worker: str, callers: str) -> None:
        """The service goes down or is back, and calls come."""
        self.is_down = is_down
        self.traffic(worker, callers)

    def traffic(self, worker: str, callers: str) -> None:
        """Calls come and end at once."""
        for caller in callers:
            if self._admits(worker, caller):
                self._end(self.calls.pop())

    @rule(worker=st.sampled_from(NAMES), caller=st.sampled_from("abc"))
    def begin_call(self, worker: str, caller: str) -> None:
        """A call comes, and takes its time."""
        self._admits(worker, caller)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def end_call(self, data: st.DataObject) -> None:
        """A call ends, perhaps long after it began: what it says may be of the time before the outage."""
        self._end(self._drawn(data))

    def _admits(self, worker: str, caller: str) -> bool:
        """Whether a call is let through, perhaps as a trial."""
        if self.now - self.cached[worker][2] > 1:
            self.cached[worker] = (self.row, self.epoch, self.now)
        known, epoch, _ = self.cached[worker]
        if known.state is BreakerState.CLOSED:
            self.calls.append(Call(worker, caller, known.generation, epoch, fails=self.is_down))
            return True
        if known.wait(self.policy, self.now) or self.row.state is BreakerState.CLOSED:
            return False
        if self.row.wait(self.policy, self.now):
            return False
        assert not self.live_trials(), "two trials at the same time"
        self.epoch += 1
        self.write(worker, self.row.trying(self.now))
        trial = Call(worker, caller, self.row.generation, self.epoch, fails=self.is_down, renewed=self.now)
        self.calls.append(trial)
        return True

    def _end(self, call: Call) -> None:
        before, is_current = self.row, call.epoch == self.epoch
        if call.fails:
            row = self.row.failed(call.generation, call.caller, DOWN, self.policy, self.now)
            self.failed_since_success |= {call.caller} if is_current else set()
        else:
            row = self.row.succeeded(call.generation, self.policy, self.now)
        assert is_current or row == before, "a late answer changed something"
        self.write(call.worker, row)
        if row.is_clean:
            self.failed_since_success.clear()

    def _drawn(self, data: st.DataObject) -> Call:
        return self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def cut_off(self, data: st.DataObject) -> None:
        """A call ends without a verdict."""
        call = self._drawn(data)
        self.write(call.worker, self.row.released(call.generation))

    @rule(worker=st.sampled_from(NAMES))
    def die(self, worker: str) -> None:
        """A worker is killed: none of its calls is heard of again."""
        self.calls = [one for one in self.calls if one.worker != worker]
        self.cached[worker] = (self.row, self.epoch, self.now)

    @rule(seconds=st.sampled_from([0.125, 2, 5]), frozen=st.sets(st.sampled_from(NAMES)))
    def wait(self, seconds: float, frozen: set[str]) -> None:
        """Time passes; workers that are not frozen renew the leases of their trials."""
        self.now += seconds
        for call in self.calls:
            if call.worker not in frozen and call.renewed is not None and call.generation == self.row.generation:
                self.write(call.worker, self.row.renewed(call.generation, self.now))
                call.renewed = self.now

    @precondition(lambda self: self.row.state is not BreakerState.CLOSED)
    @rule(worker=st.sampled_from(NAMES))
    def reset(self, worker: str) -> None:
        """A person closes it."""
        self.write(worker, self.row.closed(self.now))
        self.failed_since_success.clear()

    def live_trials(self) -> list[Call]:
        """The trials that run, whose lease holds."""
        return [
            one
            for one in self.calls
            if one.epoch == self.epoch and one.renewed is not None and self.now - one.renewed < TRIAL_LEASE
        ]

    @invariant()
    def at_most_one_trial(self) -> None:
        """Over all workers."""
        assert len(self.live_trials()) <= 1

    @invariant()
    def it_closes_when_the_service_is_back(self) -> None:
        """From any state, by calls alone, if they are answered."""
        row, now = self.row, self.now
        for _ in range(10):
            if row.state is BreakerState.CLOSED:
                return
            now += row.wait(self.policy, now)
            row = row.trying(now)
            row = row.succeeded(row.generation, self.policy, now)
        raise AssertionError(f"still {row.state}")


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(stateful_step_count=30)
