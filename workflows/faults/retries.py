"""Numbers of retries, timeouts and waits of a task; `routes` makes the options of its activities of them.

Read when an activity is scheduled, when one of its attempts fails, and before each wait. The timeout of an activity is
in its ToolSpec; what only one module waits for is in that module.

The policy is full jitter over a doubling backoff (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture
Blog, 2015). The server adds no jitter of its own, so the boundary sends `backoff` as `next_retry_delay`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from workflows.plans.catalogue import Effect, ToolSpec

RETRIES_PER_KIND = 12
"""How many retries all steps of one kind (which call the same tool) may use together within a task."""
LONGEST_RETRY_AFTER = 60.0
"""Seconds. For a longer wait that a called system asks for, the workflow sets a timer: Temporal does not retry."""
MAX_LOSSES = 5
"""How many attempts of a step may be lost because their workers went silent. After more losses a person has to act,
since the tool may crash its workers."""
MISSING_TOOL_PATIENCE = 60.0
"""Seconds to wait for a worker that has an activity: during a rolling deploy, there may be none for a while."""
OTHER_WORKER_WAIT = 1.0
"""Seconds before an activity is repeated, to reach a worker of the queue that is known to have the tool. Few of many
workers may have it, so the waits do not grow."""
HEARTBEAT = timedelta(seconds=20)
"""The heartbeat timeout of each activity: a worker that sends no heartbeat for so long counts as lost.

On a machine whose processors all are busy, the server hands a call over, and takes a heartbeat, some 10 seconds late.
"""
# A system that is down in the evening may be repaired in the morning.
STEP_DEADLINE = timedelta(days=1)
"""The schedule-to-close timeout of each activity, and the most that a step waits in total between activities."""
LONGEST_TIMER = timedelta(days=36_525)
"""A hundred years: the longest timer of a workflow. A date beyond the year 9999 would fail the workflow task."""
ANSWER_WITHIN = timedelta(days=3)
"""How long a request to a person is open, unless the task says otherwise; then the task ends."""
REMIND_AFTER = timedelta(days=1)
"""How long a request to a person is open before its reminder; half of its time if that is shorter."""
GRACE = timedelta(seconds=5)
"""Added to a tool's timeout and overtime (the wait for its thread), so that a live worker reports a timeout before
Temporal does. `route` adds HEARTBEAT, too, so that a worker that died is not taken for a slow tool."""
LONGEST_OVERTIME, OVERTIME_TIMES = 60.0, 10
"""The limits of the overtime: how long an attempt of a tool with an effect still waits for the tool's thread after its
timeout. It is ten times the timeout, at most 60 seconds."""
LONGEST_LOCAL = timedelta(seconds=7)
"""The most that a local activity may take. Its workflow task waits for it, and must end within 10 seconds; above 8
seconds the SDK would ask the server for more time."""
EXIT_WITHIN = timedelta(seconds=12)
"""Within this time after a worker has cancelled its calls, its process ends, even if threads still run."""
DELIVERY_FIRST, DELIVERY_CAP = timedelta(seconds=1), timedelta(minutes=15)
"""The first wait and the longest wait between two attempts to notify a receiver of a request."""


@dataclass(frozen=True)
class Profile:
    """How a tool is retried: at most `attempts` attempts, with waits from `first` seconds, doubling up to `cap`."""

    attempts: int
    first: float
    cap: float


PROFILES: Mapping[str, Profile] = {
    "standard": Profile(attempts=4, first=0.25, cap=10.0),
    "patient": Profile(attempts=8, first=1.0, cap=60.0),
    "once": Profile(attempts=1, first=0.25, cap=0.25),
}


def overtime(spec: ToolSpec) -> float:
    """Seconds that an attempt still waits for the tool's thread after its timeout; 0 for a read or without a thread."""
    if not spec.is_threaded or spec.effect is Effect.READ:
        return 0.0
    return min(LONGEST_OVERTIME, OVERTIME_TIMES * spec.timeout)


def longest_attempt(spec: ToolSpec) -> float:
    """The most seconds that an attempt can run, even if its worker went silent and nothing reported its end.

    The tool's thread may run on after that; it ends with the worker's process, within `EXIT_WITHIN`.
    """
    extra = overtime(spec)
    return spec.timeout + (max(extra, EXIT_WITHIN.total_seconds()) if extra else 0.0)


def attempts(spec: ToolSpec, retries_left: int, used: int) -> int:
    """How many more attempts a step may have after `used`, with `retries_left` retries for its kind in the task."""
    first, most = 0 if used else 1, PROFILES[spec.retry].attempts
    return max(0, min(most, most - used, first + retries_left))


def backoff(profile: str, attempt: int, jitter: float) -> float:
    """Seconds to wait after the attempt with the number `attempt` (from 1); `jitter` is a random number from [0, 1)."""
    chosen = PROFILES[profile]
    # The exponent is bounded, because a larger one would overflow a float.
    return min(chosen.cap, chosen.first * 2.0 ** min(max(attempt - 1, 0), 30)) * jitter


def seconds_left(waited: float, *, is_draft: bool = False) -> float:
    """Seconds that a step may still wait after `waited`: up to STEP_DEADLINE in total, for a draft up to a minute."""
    return (LONGEST_RETRY_AFTER if is_draft else STEP_DEADLINE.total_seconds()) - max(waited, 0.0)


def _doubling(first: float, cap: float) -> Callable[[int], float]:
    """A function from the number of earlier waits to the seconds of the next wait: `first`, doubling up to `cap`."""
    return lambda waits: min(cap, first * 2.0 ** min(max(waits, 0), 10))  # a larger exponent would overflow a float


circuit_wait = _doubling(5.0, 300.0)
"""Seconds to wait for an open circuit breaker, or for a planner that cannot be reached."""
sibling_wait = _doubling(0.5, 10.0)
"""Seconds before a step is repeated with retries that other steps did not need."""
missing_tool_wait = _doubling(1.0, 15.0)
"""Seconds to wait for a worker that has the step's tool."""
canary_wait = _doubling(0.5, 15.0)
"""Seconds between two checks of the canary, the first task of a resolved incident."""
loss_wait = _doubling(0.5, 60.0)
"""Seconds to wait after so many attempts (from 1) whose workers went silent: 1 s after the first."""


def remind_after(within: timedelta) -> timedelta:
    """The time from the start of a request to its reminder, if the request is open for the time `within`."""
    return min(REMIND_AFTER, max(within, timedelta(0)) / 2)


def timer(seconds: float) -> timedelta:
    """The duration of a timer, at least 0 and at most LONGEST_TIMER: another program may have sent `seconds`."""
    longest = LONGEST_TIMER.total_seconds()
    return timedelta(seconds=min(max(seconds, 0.0), longest))  # a NaN becomes 0
