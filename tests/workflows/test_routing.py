"""Routes: what a kind's promise means for Temporal."""

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from activities.boundary.attempt import HEARTBEAT_EVERY
from workflows.faults import retries, routes
from workflows.faults.fault import Quadrant
from workflows.plans import own_activities
from workflows.plans.catalogue import Effect, ToolSpec

PROFILES = sorted(retries.PROFILES)


def spec(effect: Effect = Effect.READ, retry: str = "standard", timeout: float = 30) -> ToolSpec:
    """A kind in one line."""
    return ToolSpec.model_validate({"kind": "k", "effect": effect, "retry": retry, "timeout": timeout})


@pytest.mark.parametrize("effect", Effect)
def test_no_persistent_fault_is_ever_retried(effect: Effect) -> None:
    """The policy itself refuses them, even if whoever raised one forgot to say so.

    Nor does it answer a silent worker: the workflow counts that as a loss, and not as one of the tool's attempts.
    """
    lost = {"TemporalTimeout:StartToClose", "TemporalTimeout:Heartbeat"}
    never = routes.route(spec(effect), 4).retry.non_retryable_error_types or []

    assert {Quadrant.PERSISTENT_INFRASTRUCTURAL, Quadrant.PERSISTENT_SEMANTIC, "NotFoundError", *lost} <= set(never)
    assert not {Quadrant.TRANSIENT_INFRASTRUCTURAL, Quadrant.TRANSIENT_SEMANTIC} & set(never)


@pytest.mark.parametrize("one", [*own_activities.SPECS, *map(spec, Effect)], ids=lambda one: f"{one.kind} {one.effect}")
def test_every_call_is_bounded_in_every_way(one: ToolSpec) -> None:
    """Each attempt has a limit above the tool's own, heartbeats, and the step as a whole ends one day."""
    route = routes.route(one, 3)

    assert route.activity == one.kind
    assert timedelta(seconds=one.timeout) < route.start_to_close < route.schedule_to_close <= timedelta(days=1)
    assert HEARTBEAT_EVERY < route.heartbeat < route.start_to_close
    assert route.retry.maximum_attempts == 3


@pytest.mark.parametrize(
    ("effect", "timeout", "extra"),
    [(Effect.UNKEYED, 0.5, 5), (Effect.KEYED, 30, 60), (Effect.IDEMPOTENT, 600, 60), (Effect.READ, 30, 0)],
)
def test_an_effect_in_a_thread_has_room_beyond_its_timeout(effect: Effect, timeout: float, extra: float) -> None:
    """Ten times its timeout, a minute at the most; what only reads needs none, nor what an event loop can stop."""
    stoppable = spec(effect, timeout=timeout)
    threaded = stoppable.model_copy(update={"is_threaded": True})
    room = routes.route(threaded, 1).start_to_close - routes.route(stoppable, 1).start_to_close

    assert (room.total_seconds(), retries.overtime(threaded), retries.overtime(stoppable)) == (extra, extra, 0)
    assert retries.longest_attempt(stoppable) == timeout <= retries.longest_attempt(threaded) - extra


@pytest.mark.parametrize(
    ("retry", "left", "used", "expected"),
    [
        ("standard", 12, 0, 4),
        ("standard", 12, 1, 3),
        ("standard", 12, 4, 0),
        ("standard", 12, 9, 0),
        ("standard", 2, 0, 3),
        ("standard", 0, 0, 1),
        ("standard", 0, 1, 0),
        ("standard", -1, 0, 0),
        ("patient", 12, 0, 8),
        ("once", 12, 0, 1),
        ("once", 12, 1, 0),
    ],
)
def test_attempts_are_bounded_by_the_profile_and_by_the_retries_that_are_left(
    retry: str, left: int, used: int, expected: int
) -> None:
    """`min(4, 1 + left)`: the very first attempt of a step is no retry."""
    assert retries.attempts(spec(retry=retry), left, used) == expected


@given(st.sampled_from(PROFILES), st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_backoff_is_anywhere_below_a_doubling_bound(profile: str, attempt: int, jitter: float) -> None:
    """Full jitter: from nothing to the bound, which doubles up to the cap and never overflows."""
    chosen = retries.PROFILES[profile]
    bound = min(chosen.cap, chosen.first * 2.0 ** min(attempt - 1, 100))

    assert retries.backoff(profile, attempt, jitter) == pytest.approx(bound * jitter)


def test_durable_waits_double_up_to_a_cap() -> None:
    """However long a breaker stays open or a kind stays unknown, and however often a worker is lost."""
    waits = [(retries.circuit_wait(waits), retries.missing_tool_wait(waits)) for waits in (0, 1, 3, 4, 10**6)]

    assert waits == [(5, 1), (10, 2), (40, 8), (80, 15), (300, 15)]
    assert [retries.loss_wait(losses) for losses in (1, 2, 5, 9)] == [1, 2, 16, 60]


def test_days_are_counted_from_the_first_moment() -> None:
    """A reminder leaves time for an answer: after a day, or halfway. The deadline of a step counts its waits."""
    reminders = [retries.remind_after(timedelta(days=days)).total_seconds() / 86_400 for days in (3, 2, 1, 30)]

    assert reminders == [1, 1, 0.5, 1]
    assert [retries.seconds_left(hours * 3600) for hours in (0, 23, 25)] == [24 * 3600, 3600, -3600]


def test_our_own_activities_only_read() -> None:
    """Asking the planner twice is harmless, so a lost answer is asked for again."""
    assert {one.effect for one in own_activities.SPECS} == {Effect.READ}
    assert len({one.kind for one in own_activities.SPECS}) == len(own_activities.SPECS)
