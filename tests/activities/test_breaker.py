"""The circuit breaker as data: what moves it, for all interleavings of several workers."""

from dataclasses import dataclass

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from activities.boundary.breakers import states
from activities.boundary.breakers.states import Breaker, BreakerState, Instant
from workflows.faults.circuit_breaker import STANDARD_BREAKER, CircuitBreaker
from workflows.faults.fault import Code

DOWN = Code.SERVER_ERROR
AWAITED, DESERTED = True, False


def after(breaker: Breaker, *callers: str, policy: CircuitBreaker = STANDARD_BREAKER) -> Breaker:
    """The breaker after a failure of each of these calls, at the time 100."""
    for caller in callers:
        breaker = breaker.failed(caller, breaker.generation, DOWN, policy, now=100)
    return breaker


def trying(breaker: Breaker, now: float, *callers: str) -> Breaker:
    return breaker.admitting(now, states.TRIAL_LEASE, *callers)


def succeeded(breaker: Breaker, caller: str, now: float, is_awaited: bool) -> Breaker:
    """The breaker after a success of a call that has a place."""
    return breaker.succeeded(caller, breaker.places[caller].generation, STANDARD_BREAKER, Instant(now, is_awaited))


def failed(breaker: Breaker, caller: str, now: float) -> Breaker:
    """The breaker after a call that has a place found the service down."""
    return breaker.failed(caller, breaker.places[caller].generation, Code.TIMEOUT, STANDARD_BREAKER, now)


def limited(breaker: Breaker, caller: str, now: float, asked: float | None = None) -> Breaker:
    """The breaker after the service limited a call, whether or not that has a place."""
    place = breaker.places.get(caller)
    generation = place.generation if place else breaker.generation
    return breaker.limited(caller, generation, asked, 0.0, STANDARD_BREAKER, now)


OPENED_BY = {"ab": "closed", "aaaaaaaaa": "closed", "aab": "open", "abb": "open", "aaaaab": "open", "abc": "open"}


def test_it_opens_after_failures_of_different_calls() -> None:
    """Three in a row, and never because of the retries of one bad call; trials close it or open it again."""
    answered = after(Breaker(), "a", "b").succeeded("a", 0, STANDARD_BREAKER, Instant(100))

    assert {callers: after(Breaker(), *callers).state for callers in OPENED_BY} == OPENED_BY
    assert answered == Breaker()
    assert after(answered, "c", "d").state is BreakerState.CLOSED

    trial = trying(after(Breaker(), "a", "b", "c"), 105, "d")
    opened = failed(trial, "d", 107)
    once = succeeded(trial, "d", 107, DESERTED)
    twice = succeeded(trying(once, 107, "e"), "e", 108, DESERTED)

    assert (opened.state, opened.wait(107), opened.code) == (BreakerState.OPEN, 5, Code.TIMEOUT)
    assert (opened.since, opened.failures) == (100, 4)
    assert (once.state, once.wait(107)) == (BreakerState.HALF_OPEN, 0)
    assert (twice.state, twice.since, twice.is_clean) == (BreakerState.CLOSED, 108, True)


def alone(
    breaker: Breaker, caller: str, now: float, requested: float | None = None, policy: CircuitBreaker = STANDARD_BREAKER
) -> Breaker:
    """The breaker after a call that may wait found the service down, as a 503 shows by itself."""
    about = {"may_wait": True, "requested": requested, "jitter": 0.0}
    return breaker.failed(caller, breaker.generation, DOWN, policy, now, **about)  # type: ignore[arg-type]


def test_a_call_that_alone_finds_the_service_down_waits_from_its_second_failure_on() -> None:
    """For a second, then twice as long, up to the recovery time; and it delays no other call."""
    breaker, waits, now = Breaker(), list[float](), 100.0
    for _ in range(6):
        breaker = alone(breaker, "a", now)
        waits.append(breaker.undue(now).get("a", 0.0))
        now += waits[-1]

    assert waits == [0, 1, 2, 4, 5, 5]
    assert (breaker.state, breaker.wait(100), breaker.room(100)) == (BreakerState.CLOSED, 0, states.MAX_WINDOW)
    assert alone(alone(Breaker(), "a", 100), "a", 100, requested=30).undue(100) == {"a": 30}
    quick = CircuitBreaker(recovery=0.5)
    assert alone(alone(Breaker(), "a", 100, policy=quick), "a", 100, policy=quick).undue(100) == {"a": 0.5}


def test_a_call_waits_alone_until_another_call_ends() -> None:
    """Only if its fault shows that the service is down: a timeout or a 500 may be due to its own arguments.

    After a success either the service is back, or the call itself is to blame: it is due, and its failures count again.
    After a second call that fails there is one queue.
    """
    waiting = alone(alone(Breaker(), "a", 100), "a", 100)
    answered = waiting.succeeded("b", 0, STANDARD_BREAKER, Instant(100))
    opened = alone(waiting, "b", 100)

    assert not after(Breaker(), "a", "a", "a").waits_alone("a")
    assert not after(waiting, "a").waits_alone("a")
    assert (waiting.waits_alone("a"), answered) == (True, Breaker())
    assert not alone(answered, "a", 100).waits_alone("a")
    assert (opened.state, opened.wait(100), opened.alone) == (BreakerState.OPEN, 5, {})


def test_a_trial_that_lost_its_lease_decides_nothing() -> None:
    """A worker that was frozen reports after another worker has taken the next trial."""
    frozen = trying(after(Breaker(), "a", "b", "c"), 105, "d")
    lost, now = frozen.places["d"].generation, 105 + states.TRIAL_LEASE
    second = trying(frozen, now, "e")

    assert (frozen.room(now - 1), frozen.room(now)) == (0, 1)
    assert second.succeeded("d", lost, STANDARD_BREAKER, Instant(now)) == second
    assert second.failed("d", lost, DOWN, STANDARD_BREAKER, now) == second
    assert second.renewed("d", lost, now + 1) == second
    assert second.released("d", lost) == second


def test_the_calls_that_wait_follow_two_then_four_then_eight_at_once() -> None:
    """A service that is back is not run over, and it stays half-open until nobody waits any more."""
    breaker, rooms = after(Breaker(), "a", "b", "c"), list[int]()
    for turn in range(4):
        rooms.append(room := breaker.room(105))
        callers = [f"{turn}.{number}" for number in range(room)]
        breaker = trying(breaker, 105, *callers)
        assert breaker.room(105) == 0
        for caller in callers:
            breaker = succeeded(breaker, caller, 105, AWAITED)

    assert rooms == [1, 2, 4, 8]
    last = trying(breaker, 106, "last")
    assert succeeded(last, "last", 106, DESERTED).state is BreakerState.CLOSED


def test_a_limit_of_one_call_delays_nobody_else() -> None:
    """Limits without a time are tried after a second, then doubling, up to the recovery time."""
    once = limited(limited(Breaker(), "a", 100, 30), "a", 110, 30)
    answered = once.succeeded("c", 0, STANDARD_BREAKER, Instant(111))
    twice = limited(answered, "b", 112, 5)

    assert once.state is BreakerState.CLOSED
    assert (twice.state, twice.code, twice.wait(112), twice.since) == ("open", "rate_limited", 28, 112)
    assert limited(once, "b", 141, 5).state is BreakerState.CLOSED

    breaker, waits, now = limited(limited(Breaker(), "a", 100), "b", 100), list[float](), 100.0
    for _ in range(5):
        waits.append(breaker.wait(now))
        now += breaker.wait(now)
        breaker = limited(trying(breaker, now, "a"), "a", now)
    done = succeeded(trying(breaker, now := breaker.until, "a"), "a", now, AWAITED)

    assert waits == [1, 2, 4, 5, 5]
    assert limited(trying(done, now, "a"), "a", now).wait(now) == 1

    breaker = limited(limited(Breaker(), "a", 100), "b", 100).model_copy(update={"window": 8.0})
    for _ in range(4):
        now = breaker.until
        breaker = limited(trying(breaker, now, "c", "d"), "c", now)
        assert breaker.wait(now) <= 2
        breaker = succeeded(breaker, "d", now, AWAITED)

    assert (breaker.pause, breaker.limits) == (1, 0)


def test_a_limit_halves_the_window_once() -> None:
    """The calls that were admitted before a limit count as one; late answers after a failure change nothing."""
    breaker = limited(limited(Breaker(), "a", 100, 2), "b", 100, 2).model_copy(update={"window": 8})
    breaker = trying(breaker, 102, "c", "d", "e")
    for caller in "cde":
        breaker = limited(breaker, caller, 102.5, 1)
    opened = breaker
    windows = list[int]()
    for number in range(9):
        tried = trying(breaker, 104, f"{number}")
        breaker = succeeded(tried, f"{number}", 104, AWAITED)
        windows.append(int(breaker.window))

    assert (opened.window, opened.wait(102.5), opened.room(103), opened.room(103.5)) == (4, 1, 0, 4)
    assert windows == [4, 4, 4, 4, 5, 5, 5, 5, 5]

    breaker = after(Breaker(), "a", "b", "c").model_copy(update={"window": 8})
    breaker = trying(breaker, 105, "d", "e", "f")
    opened = failed(breaker, "d", 106)
    late = failed(succeeded(opened, "e", 107, AWAITED), "f", 107)

    assert (late.until, late.window, late.failures, late.places) == (111, 1, 4, {})


def test_only_a_new_place_counts_against_the_limit() -> None:
    """A call that keeps its place, e.g. since it is made again, was counted when it got it."""
    half_open = trying(after(Breaker(), "a", "b", "c").limited_to("5/s"), 200, "a")

    assert len(half_open.taken) == len(trying(half_open, 200.1, "a").taken) == 1
    assert len(trying(half_open, 200.1, "a", "b").taken) == 2


@given(asked=st.floats(0, 1e300) | st.none(), limits=st.integers(0, 10**6), jitter=st.floats(0, 0.999))
def test_no_time_that_a_service_asks_for_takes_all_patience(asked: float | None, limits: int, jitter: float) -> None:
    """A forged value costs at most half of it; and none makes the workers call without a pause."""
    wait = states.limit_wait(asked, limits, 5.0, jitter)

    assert 0.5 <= wait <= states.LONGEST_LIMIT


def test_a_wait_that_nobody_asked_for_doubles_ten_times_and_gets_up_to_a_tenth_more() -> None:
    assert [states.limit_wait(None, limits, 10_000.0, 0.0) for limits in (0, 1, 10, 11)] == [1.0, 2.0, 1024.0, 1024.0]
    assert states.limit_wait(None, 0, 10_000.0, 0.5) == 1.05


def test_a_trial_without_a_verdict_frees_its_place() -> None:
    """Its worker shut down; a clock that was set back holds nobody, nor does what an older worker wrote."""
    opened = after(Breaker(), "a", "b", "c")
    trial = trying(opened, 105, "d")
    released = trial.released("d", trial.places["d"].generation)

    assert (released.state, released.room(105)) == (BreakerState.HALF_OPEN, 1)
    assert released.renewed("d", trial.generation, now=106) == released
    assert opened.wait(now=100 - 3600) == 0
    assert trial.room(now=105 - 3600) == 1

    older = '{"state":"half_open","generation":7,"since":1.0,"failures":3,"callers":["a"],"until":9.0,"successes":1}'
    breaker = Breaker.model_validate_json(older)

    assert breaker.room(now=1e9) == 1
    assert succeeded(trying(breaker, 1e9, "b"), "b", 1e9, DESERTED).state is BreakerState.CLOSED


@dataclass
class Call:
    """A call that is under way."""

    worker: str
    caller: str
    generation: int
    fails: str
    renewed: float | None = None
    """When the lease was renewed; None if it was admitted by a closed breaker."""


class Workers(RuleBasedStateMachine):
    """Workers with stale caches that make calls, are late, and die; one row, written by compare-and-set.

    A worker does what `activities.boundary.breakers.rows` does: it decides by its cache, and writes by the row.
    """

    NAMES = ("one", "two", "three")

    @initialize(
        failures=st.integers(1, 4), calls=st.integers(1, 3), trials=st.integers(1, 3), recovery=st.sampled_from([1, 4])
    )
    def begin(self, failures: int, calls: int, trials: int, recovery: float) -> None:
        """A service that is down, as the workers find out; one call takes its time."""
        self.policy = CircuitBreaker(failures, calls, recovery, trials)
        self.now, self.row, self.trouble, self.is_awaited = 1000.0, Breaker(), "down", True
        self.cached = {name: (Breaker(), 1000.0) for name in self.NAMES}
        self.calls = list[Call]()
        self.failed_since_success, self.limited = set[str](), set[str]()
        self.begin_call("one", "a")
        self.traffic("two", "abcabc")
        self.wait(2, set())

    def write(self, worker: str, row: Breaker) -> None:
        """Write the row, and so know it."""
        if row.state is BreakerState.OPEN and self.row.state is BreakerState.CLOSED:
            if row.is_limit:
                assert len(self.limited) >= 2, "limited by one call"
            else:
                assert len(self.failed_since_success) >= self.policy.calls, "opened by too few calls"
        self.row = row
        self.cached[worker] = (row, self.now)

    @rule(
        trouble=st.sampled_from(["", "down", "limit"]), is_awaited=st.booleans(), worker=st.sampled_from(NAMES),
        callers=st.text("abcdefgh", max_size=6),
    )  # fmt: skip
    def fall_or_rise(self, trouble: str, is_awaited: bool, worker: str, callers: str) -> None:
        """The service goes down, limits its callers or is back, and calls come."""
        self.trouble, self.is_awaited = trouble, is_awaited
        self.traffic(worker, callers)

    def traffic(self, worker: str, callers: str) -> None:
        """Calls come and end at once."""
        for caller in callers:
            if self._admits(worker, caller):
                self._end(self.calls.pop())

    @rule(worker=st.sampled_from(NAMES), caller=st.sampled_from("abcdefgh"))
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
        if any(one.caller == caller for one in self.calls):
            return False  # one attempt of a call at a time
        if self.now - self.cached[worker][1] > 1:
            self.cached[worker] = (self.row, self.now)
        known, _ = self.cached[worker]
        if known.state is BreakerState.CLOSED:
            self.calls.append(Call(worker, caller, known.generation, self.trouble))
            return True
        if self.row.state is BreakerState.CLOSED or not self.row.room(self.now):
            return False
        assert not self.row.wait(self.now)
        self.write(worker, self.row.admitting(self.now, states.TRIAL_LEASE, caller))
        generation = self.row.places[caller].generation
        self.calls.append(Call(worker, caller, generation, self.trouble, renewed=self.now))
        return True

    def _end(self, call: Call) -> None:
        before, place = self.row, self.row.places.get(call.caller)
        is_current = place is not None and place.generation == call.generation
        is_current |= self.row.state is BreakerState.CLOSED and call.generation == self.row.generation
        if call.fails == "limit":
            self.limited |= {call.caller} if is_current else set()
            row = self.row.limited(call.caller, call.generation, None, 0.5, self.policy, self.now)
        elif call.fails:
            self.failed_since_success |= {call.caller} if is_current else set()
            waits = call.caller in "abcd"
            row = self.row.failed(call.caller, call.generation, DOWN, self.policy, self.now, may_wait=waits)
        else:
            moment = Instant(self.now, self.is_awaited)
            row = self.row.succeeded(call.caller, call.generation, self.policy, moment)
            assert not (self.is_awaited and before.state is not row.state is BreakerState.CLOSED), "closed too early"
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
        self.write(call.worker, self.row.released(call.caller, call.generation))

    @rule(worker=st.sampled_from(NAMES))
    def die(self, worker: str) -> None:
        """A worker is killed: none of its calls is heard of again."""
        self.calls = [one for one in self.calls if one.worker != worker]
        self.cached[worker] = (self.row, self.now)

    @rule(seconds=st.sampled_from([0.125, 2, 5]), frozen=st.sets(st.sampled_from(NAMES)))
    def wait(self, seconds: float, frozen: set[str]) -> None:
        """Time passes; workers that are not frozen renew the leases of their trials."""
        self.now += seconds
        for call in self.calls:
            if call.worker not in frozen and call.renewed is not None:
                renewed = self.row.renewed(call.caller, call.generation, self.now)
                call.renewed = self.now if renewed != self.row else call.renewed
                self.write(call.worker, renewed)

    @precondition(lambda self: self.row.state is not BreakerState.CLOSED)
    @rule(worker=st.sampled_from(NAMES))
    def reset(self, worker: str) -> None:
        """A person closes it."""
        self.write(worker, self.row.hurried(self.now) if self.is_awaited else self.row.closed(self.now))
        self.failed_since_success.clear()

    @invariant()
    def live_trials_fit_the_window(self) -> None:
        """Over all workers, a new call is admitted only beside fewer than the window has."""
        live = self.row.live_places(self.now)
        assert self.row.room(self.now) in (0, int(self.row.window) - len(live), states.MAX_WINDOW)
        assert 1 <= self.row.window <= states.MAX_WINDOW

    @invariant()
    def calls_that_wait_alone_delay_no_other(self) -> None:
        row = self.row
        if row.state is BreakerState.CLOSED:
            assert row.room(self.now) == states.MAX_WINDOW
            assert len(row.alone) <= max(self.policy.failures, self.policy.calls)
        else:
            assert not row.alone
        assert all(seconds <= self.policy.recovery * 1.1 for seconds in row.undue(self.now).values())

    @invariant()
    def it_closes_when_the_service_is_back(self) -> None:
        """From any state, by calls alone, if they are answered."""
        row, now = self.row, self.now
        for _ in range(12):
            if row.state is BreakerState.CLOSED:
                return
            now += max(row.wait(now), states.TRIAL_LEASE)  # those that died have lost their leases
            row = row.admitting(now, states.TRIAL_LEASE, "z")
            row = row.succeeded("z", row.places["z"].generation, self.policy, Instant(now))
        raise AssertionError(f"still {row.state}")


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(stateful_step_count=30)
