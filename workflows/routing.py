"""All timeouts and retries of activities: from a ToolSpec to the options of its activity.

A tool's own `timeout=` stands in its spec; how long the console waits for an answer stands in client/.

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
"""Seconds; for a longer Retry-After the workflow sets a timer, instead of a backoff of the activity."""
MAX_LOSSES = 5
"""Uncounted attempts of a step, whose workers went silent; after these it needs a person, as its tool may kill
workers."""
MISSING_TOOL_PATIENCE = 60.0
"""Seconds that an activity waits for a worker that knows it (a rolling deploy)."""
HEARTBEAT = timedelta(seconds=5)
"""A worker that sends no heartbeat for so long is lost."""
HEARTBEAT_EVERY = HEARTBEAT / 3
CANCEL_NOTICE = timedelta(seconds=1)
"""A running activity learns of its cancellation within this time."""
HTTP_CONNECT_TIMEOUT = 10.0
"""Seconds to connect to a web server, and between two parts of its answer."""
HTTP_READ_DEADLINE = 20.0
"""Seconds after which the rest of an answer is not read."""
STEP_DEADLINE = timedelta(days=1)
"""Schedule-to-close timeout of each activity, and the most that a step waits in all; longer than a night."""
GRACE = timedelta(seconds=5)
"""Start-to-close is the tool's timeout, any overtime and this, so that the boundary reports a timeout first."""
LONGEST_OVERTIME, OVERTIME_TIMES = 60.0, 10
"""An attempt whose effect runs in a thread waits for it after its timeout: ten timeouts more, at most 60 seconds."""
EXIT_WITHIN = timedelta(seconds=12)
"""After a worker has cancelled its calls to shut down, its process ends within this time, even if threads run."""

NON_RETRYABLE = (
    *("persistent_infrastructural", "persistent_semantic", "NotFoundError", "RuntimeError"),
    # An attempt whose worker went silent is a loss, not an attempt of the tool, and its outcome is unknown.
    *("TemporalTimeout:StartToClose", "TemporalTimeout:Heartbeat"),
)
"""Error types after which the workflow decides, instead of Temporal's retry policy."""


@dataclass(frozen=True)
class Profile:
    """Attempts and backoff of a kind; intervals in seconds."""

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
PRUNE = INSPECT.model_copy(update={"timeout": 600.0})
"""`inspect` for the inquiry `prune`, which asks the server about many tasks and deletes what they left."""
FIND_EFFECT = ToolSpec(kind="find_effect", effect=Effect.READ, timeout=10)
INTERNAL = (PLAN, REPLAN, COMPACT, CATALOGUE, INSPECT, FIND_EFFECT)
"""Our own activities; no tool may have one of these names."""


INQUIRY_TAKEN_WITHIN = timedelta(seconds=5)
"""A live worker begins to work on an inquiry of the console within this time."""
INQUIRY_LIMITS: Mapping[str, timedelta] = {"plan": timedelta(minutes=10), "prune": timedelta(minutes=11)}
INQUIRY_LIMIT = timedelta(seconds=30)
"""How long a worker may work on an inquiry that has no limit of its own."""


def inspect(about: str) -> ToolSpec:
    """The activity that answers inquiries `about` something."""
    return PRUNE if about == "prune" else INSPECT


@dataclass(frozen=True)
class Route:
    activity: str
    start_to_close: timedelta
    schedule_to_close: timedelta
    heartbeat: timedelta
    retry: RetryPolicy
    task_queue: str | None = None


def route(spec: ToolSpec, attempts: int) -> Route:
    """The options for a kind with at most `attempts` attempts, on the workflow's own task queue."""
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
            non_retryable_error_types=NON_RETRYABLE,
        ),
    )


def overtime(spec: ToolSpec) -> float:
    """Seconds after its timeout that an attempt waits for its thread; a read does not wait."""
    if not spec.is_threaded or spec.effect is Effect.READ:
        return 0.0
    return min(LONGEST_OVERTIME, OVERTIME_TIMES * spec.timeout)


def longest_attempt(spec: ToolSpec) -> float:
    """Seconds after which an attempt whose end was not seen has ended.

    A thread ends with its process at the latest, up to `EXIT_WITHIN` after the attempt was reported.
    """
    extra = overtime(spec)
    return spec.timeout + (max(extra, EXIT_WITHIN.total_seconds()) if extra else 0.0)


def attempts(spec: ToolSpec, retries_left: int, used: int) -> int:
    """Attempts that a step may still have after `used` ones, if its kind has `retries_left`."""
    first = 0 if used else 1
    return max(0, min(PROFILES[spec.retry].attempts - used, first + retries_left))


def backoff(profile: str, attempt: int, jitter: float) -> float:
    """Seconds before the attempt after `attempt` (from 1), for a `jitter` drawn evenly from [0, 1)."""
    chosen = PROFILES[profile]
    return min(chosen.cap, chosen.first * 2.0 ** min(attempt - 1, 30)) * jitter


def seconds_left(waited: float) -> float:
    """Seconds that a step may still wait; the time of its attempts does not count."""
    return STEP_DEADLINE.total_seconds() - waited


def circuit_wait(waits: int) -> float:
    """Seconds to wait for an open circuit breaker: 5 s, doubling to 5 min."""
    return float(min(300, 5 * 2 ** min(waits, 10)))


def sibling_wait(waits: int) -> float:
    """Seconds before a step uses retries that other steps gave back: 0.5 s, doubling to 10 s."""
    return min(10.0, 0.5 * 2.0 ** min(waits, 10))


def loss_wait(losses: int) -> float:
    """Seconds to wait after `losses` (from 1) attempts whose workers went silent: 1 s, doubling to a minute."""
    return float(min(60, 2 ** min(max(losses, 1) - 1, 10)))


def missing_tool_wait(waits: int) -> float:
    """Seconds to wait for a worker that knows the kind: 1 s, doubling to 15 s."""
    return float(min(15, 2 ** min(waits, 10)))
