"""ToolSpec -> activity name, task queue, timeouts, RetryPolicy. The only file with retry numbers.

The policy is full jitter over a doubling backoff (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture
Blog, 2015). The server adds no jitter of its own, so the boundary sends `backoff` as `next_retry_delay`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from temporalio.common import RetryPolicy

from workflows.catalogue import Effect, ToolSpec

MAX_PARALLEL = 20
"""Steps of one task that run at the same time."""
RETRIES_PER_KIND = 12
"""Retries that all steps of one kind may use within a task."""
LONGEST_RETRY_AFTER = 60.0
"""Seconds; a longer Retry-After becomes a durable wait of the workflow instead of an activity's backoff."""
MAX_LOSSES = 5
"""Attempts of a step that a silent worker may take without one of the step's own attempts being used; then a person has
to look, since the tool itself may be what kills the worker."""
MISSING_TOOL_PATIENCE = 60.0
"""Seconds that a kind which no worker knows is waited for (a rolling deploy)."""
HEARTBEAT = timedelta(seconds=5)
"""Without a heartbeat for this long a worker counts as lost."""
HEARTBEAT_EVERY = HEARTBEAT / 3
CANCEL_NOTICE = timedelta(seconds=1)
"""How often a running activity learns of its cancellation at the latest."""
SILENCE = 10.0
"""Seconds that a web page may take to connect, and to say the next word."""
READING = 20.0
"""Seconds after which a web page that is still arriving is cut."""
STEP_DEADLINE = timedelta(days=1)
"""Schedule-to-close of each call, and how long a step waits between its calls in all: it survives a night without any
worker, but does not stay for ever."""
GRACE = timedelta(seconds=5)
"""What start-to-close leaves the boundary to report its own timeout."""
LONGEST_OVERTIME, OVERTIME_TIMES = 60.0, 10
"""An effect in a thread is waited for beyond its timeout: ten times as long, but at most so many seconds."""
EXIT = timedelta(seconds=12)
"""How long a worker process may live after it has cancelled its calls to shut down, whatever their threads do."""


@dataclass(frozen=True)
class Profile:
    """How often and how patiently a kind is tried: intervals in seconds."""

    attempts: int
    first: float
    cap: float


PROFILES: Mapping[str, Profile] = {
    "standard": Profile(attempts=4, first=0.25, cap=10.0),
    "patient": Profile(attempts=8, first=1.0, cap=60.0),
    "once": Profile(attempts=1, first=0.25, cap=0.25),
}


PLAN = ToolSpec(kind="plan", effect=Effect.READ, timeout=300, retry="patient")
REPLAN = ToolSpec(kind="replan", effect=Effect.READ, timeout=300, retry="patient")
COMPACT = ToolSpec(kind="compact", effect=Effect.READ, timeout=300, retry="patient")
CATALOGUE = ToolSpec(kind="catalogue", effect=Effect.READ, timeout=30)
INSPECT = ToolSpec(kind="inspect", effect=Effect.READ, timeout=10)
FIND_EFFECT = ToolSpec(kind="find_effect", effect=Effect.READ, timeout=10)
OWN = (PLAN, REPLAN, COMPACT, CATALOGUE, INSPECT, FIND_EFFECT)
"""Our own activities, routed like any kind; no tool may take their names."""


@dataclass(frozen=True)
class Route:
    """Everything that Temporal needs to know to run one call."""

    activity: str
    start_to_close: timedelta
    schedule_to_close: timedelta
    heartbeat: timedelta
    retry: RetryPolicy
    task_queue: str | None = None


def route(spec: ToolSpec, attempts: int) -> Route:
    """Route a call of `spec` with at most `attempts` attempts, on the workflow's own task queue."""
    profile = PROFILES[spec.retry]
    return Route(
        activity=spec.kind,
        start_to_close=timedelta(seconds=spec.timeout + overtime(spec)) + GRACE,
        schedule_to_close=STEP_DEADLINE,
        heartbeat=HEARTBEAT,
        retry=RetryPolicy(
            initial_interval=timedelta(seconds=profile.first),
            backoff_coefficient=2.0,
            maximum_interval=timedelta(seconds=profile.cap),
            maximum_attempts=attempts,
            non_retryable_error_types=_never_again(),
        ),
    )


def overtime(spec: ToolSpec) -> float:
    """Seconds that an attempt stays open beyond its timeout while its thread runs; a read is left behind at once."""
    if not spec.is_threaded or spec.effect is Effect.READ:
        return 0.0
    return min(LONGEST_OVERTIME, OVERTIME_TIMES * spec.timeout)


def longest_attempt(spec: ToolSpec) -> float:
    """Seconds after which no attempt is under way any more whose end nobody saw.

    A thread ends with its process at the latest, and that may take `EXIT` after the attempt was reported.
    """
    extra = overtime(spec)
    return spec.timeout + (max(extra, EXIT.total_seconds()) if extra else 0.0)


def attempts(spec: ToolSpec, retries_left: int, used: int) -> int:
    """Attempts that a step may still have after `used` ones, while `retries_left` retries of its kind remain."""
    first = 0 if used else 1
    return max(0, min(PROFILES[spec.retry].attempts - used, first + retries_left))


def backoff(profile: str, attempt: int, jitter: float) -> float:
    """Seconds before the attempt after `attempt` (from 1), for a `jitter` drawn evenly from [0, 1)."""
    chosen = PROFILES[profile]
    return min(chosen.cap, chosen.first * 2.0 ** min(attempt - 1, 30)) * jitter


def seconds_left(waited: float) -> float:
    """Seconds that a step may still wait after it waited so long; the time of its attempts does not count."""
    return STEP_DEADLINE.total_seconds() - waited


def circuit_wait(waits: int) -> float:
    """Seconds to wait for an open breaker: 5 s doubling to 5 min."""
    return float(min(300, 5 * 2 ** min(waits, 10)))


def sibling_wait(waits: int) -> float:
    """Seconds before a step takes the retries that its siblings gave back: 0.5 s doubling to 10 s."""
    return min(10.0, 0.5 * 2.0 ** min(waits, 10))


def loss_wait(losses: int) -> float:
    """Seconds before the attempt after `losses` (from 1) that went with their workers: 1 s doubling to a minute."""
    return float(min(60, 2 ** min(max(losses, 1) - 1, 10)))


def missing_tool_wait(waits: int) -> float:
    """Seconds to wait for a worker that knows the kind: 1 s doubling to 15 s."""
    return float(min(15, 2 ** min(waits, 10)))


def _never_again() -> list[str]:
    """Error types that end the retries although our boundary did not raise them as non-retryable.

    An attempt whose worker went silent comes back to the workflow: it counts as a loss, not as an attempt of the tool,
    and leaves it unknown whether the effect of an unkeyed kind took place.
    """
    silent = ["TemporalTimeout:StartToClose", "TemporalTimeout:Heartbeat"]
    return ["persistent_infrastructural", "persistent_semantic", "NotFoundError", "RuntimeError", *silent]
