"""All timeouts and retries of activities: from a ToolSpec to the options of its activity.

Only a tool's own `timeout=` is in its spec, and how long the console waits for an answer is in client/.

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
"""Attempts of a step that are not counted, because their workers went silent; after so many a person has to act, since
the tool may kill its workers."""
MISSING_TOOL_PATIENCE = 60.0
"""Seconds to wait for a worker that knows an activity; during a rolling deploy there may be none for a short time."""
HEARTBEAT = timedelta(seconds=5)
"""The heartbeat timeout of each activity: a worker that sends no heartbeat for so long counts as lost."""
HEARTBEAT_EVERY = HEARTBEAT / 3
CANCEL_NOTICE = timedelta(seconds=1)
"""A running activity learns of its cancellation within this time."""
HTTP_CONNECT_TIMEOUT = 10.0
"""Seconds that connecting to a web server may take, and the time between two parts of its answer."""
HTTP_READ_DEADLINE = 20.0
"""Seconds after which the rest of an answer is not read."""
# A system that is down in the evening may be repaired in the morning.
STEP_DEADLINE = timedelta(days=1)
"""Schedule-to-close timeout of each activity, and the most that a step waits in all."""
GRACE = timedelta(seconds=5)
"""Added to the tool's timeout and overtime, so that the worker reports a timeout before start-to-close does."""
LONGEST_OVERTIME, OVERTIME_TIMES = 60.0, 10
"""After its timeout an attempt waits for its thread, if that has an effect: ten timeouts more, at most 60 seconds."""
THREADS_RETRY_AFTER = 5.0
"""Seconds before a call is tried again that found no thread free in its worker; a supervisor may restart that worker
meanwhile."""
EXIT_WITHIN = timedelta(seconds=12)
"""After a shutdown has cancelled a worker's calls, its process ends within this time, even if threads still run."""

NON_RETRYABLE = (
    *("persistent_infrastructural", "persistent_semantic", "NotFoundError", "RuntimeError"),
    # An attempt whose worker went silent is a loss, not an attempt of the tool, and its outcome is unknown.
    *("TemporalTimeout:StartToClose", "TemporalTimeout:Heartbeat"),
)
"""Error types after which the workflow decides, instead of Temporal's retry policy."""


@dataclass(frozen=True)
class Profile:
    """The attempts of a kind, and its backoff in seconds: `first`, then doubling to `cap`."""

    attempts: int
    first: float
    cap: float


PROFILES: Mapping[str, Profile] = {
    "standard": Profile(attempts=4, first=0.25, cap=10.0),
    "patient": Profile(attempts=8, first=1.0, cap=60.0),
    "once": Profile(attempts=1, first=0.25, cap=0.25),
}


# The reply of a model may take minutes, and its provider may be overloaded for minutes.
PLAN = ToolSpec(kind="plan", effect=Effect.READ, timeout=300, retry="patient")
REPLAN = ToolSpec(kind="replan", effect=Effect.READ, timeout=300, retry="patient")
COMPACT = ToolSpec(kind="compact", effect=Effect.READ, timeout=300, retry="patient")
CATALOGUE = ToolSpec(kind="catalogue", effect=Effect.READ, timeout=30)
INSPECT = ToolSpec(kind="inspect", effect=Effect.READ, timeout=10)
PRUNE = INSPECT.model_copy(update={"timeout": 600.0})
"""`inspect` for the inquiry `prune`, which asks the server about many tasks and deletes what they left."""
FIND_EFFECT = ToolSpec(kind="find_effect", effect=Effect.READ, timeout=10)
INTERNAL = (PLAN, REPLAN, COMPACT, CATALOGUE, INSPECT, FIND_EFFECT)
"""Replan's own activities; no tool may have one of these names."""
INTERNAL_KINDS = frozenset(spec.kind for spec in INTERNAL)


CONTROL = "-control"
"""The end of the names of control queues."""


def control_queue(queue: str) -> str:
    """The control queue beside `queue`: Replan's own activities are there, and the inquiries of the console."""
    # Each queue has slots and a backlog of its own: tasks are planned and inspected however many calls of tools run,
    # and an inquiry does not wait behind the workflow tasks of many new tasks. An inquiry runs on the control queue.
    return queue if queue.endswith(CONTROL) else f"{queue}{CONTROL}"


INQUIRY_TAKEN_WITHIN = timedelta(seconds=5)
"""A live worker takes an inquiry of the console from the queue within this time."""
# `plan` may need several requests to a model, `prune` runs one long activity.
INQUIRY_LIMITS: Mapping[str, timedelta] = {"plan": timedelta(minutes=10), "prune": timedelta(minutes=11)}
INQUIRY_LIMIT = timedelta(seconds=30)
"""How long a worker may work on an inquiry that has no limit of its own."""


def inspect(about: str) -> ToolSpec:
    """The spec of the activity that answers an inquiry; `about` is the value of `Inquiry.about`."""
    return PRUNE if about == "prune" else INSPECT


@dataclass(frozen=True)
class Route:
    activity: str
    start_to_close: timedelta
    schedule_to_close: timedelta
    heartbeat: timedelta
    retry: RetryPolicy


def route(spec: ToolSpec, attempts: int) -> Route:
    """The activity options for a kind with at most `attempts` attempts."""
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
    """Seconds that an attempt waits for its thread after its timeout; a read does not wait."""
    if not spec.is_threaded or spec.effect is Effect.READ:
        return 0.0
    return min(LONGEST_OVERTIME, OVERTIME_TIMES * spec.timeout)


def longest_attempt(spec: ToolSpec) -> float:
    """Seconds within which an attempt ends, even if nobody sees its end.

    Its thread ends with the worker's process at the latest, up to `EXIT_WITHIN` after the attempt was reported.
    """
    extra = overtime(spec)
    return spec.timeout + (max(extra, EXIT_WITHIN.total_seconds()) if extra else 0.0)


def attempts(spec: ToolSpec, retries_left: int, used: int) -> int:
    """How many more attempts a step may have after `used`, if its kind has `retries_left`."""
    first = 0 if used else 1
    return max(0, min(PROFILES[spec.retry].attempts - used, first + retries_left))


def backoff(profile: str, attempt: int, jitter: float) -> float:
    """Seconds before the attempt after `attempt` (from 1), for a `jitter` drawn evenly from [0, 1)."""
    chosen = PROFILES[profile]
    # The exponent is bounded, because a larger one would overflow a float.
    return min(chosen.cap, chosen.first * 2.0 ** min(attempt - 1, 30)) * jitter


def seconds_left(waited: float) -> float:
    """Seconds that a step may still wait after it waited `waited` seconds; the time of its attempts does not count."""
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
