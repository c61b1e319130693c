"""All timeouts and retries of activities, as numbers; `routes` makes the options of activities of them.

Read when an activity is scheduled, when one of its attempts fails, and before each wait.

Only a tool's own `timeout=` is in its spec, and how long the console waits for an answer is in client/.

The policy is full jitter over a doubling backoff (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture
Blog, 2015). The server adds no jitter of its own, so the boundary sends `backoff` as `next_retry_delay`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta

from workflows.plans.catalogue import Effect, ToolSpec

MAX_PARALLEL = 20
"""How many steps of one task may run at the same time."""
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
HEARTBEAT_EVERY = timedelta(seconds=5) / 3
"""The time between two heartbeats of an attempt, independent of HEARTBEAT: a cancel comes with their answers."""
CANCEL_NOTICE = timedelta(seconds=1)
"""A running activity learns of its cancellation within this time."""
HTTP_CONNECT_TIMEOUT = 10.0
"""The most seconds that connecting to a web server may take, and the most seconds between two parts of a page."""
HTTP_READ_DEADLINE = 20.0
"""The most seconds for reading the body of a web server's answer; the rest of the body is left out."""
# A system that is down in the evening may be repaired in the morning.
STEP_DEADLINE = timedelta(days=1)
"""The schedule-to-close timeout of each activity, and the most that a step waits in total between activities."""
LONGEST_TIMER = timedelta(days=36_525)
"""A hundred years: the longest timer of a workflow. A date beyond the year 9999 would fail the workflow task."""
LONGEST_READABLE = 252_000_000_000.0
"""Seconds. A task with a longer `answer_within` is refused: no version of Replan could ask a person for so long."""
ANSWER_WITHIN = timedelta(days=3)
"""How long a request to a person is open, unless the task says otherwise; then the task ends."""
REMIND_AFTER = timedelta(days=1)
"""How long a request to a person is open before its reminder; half of its time if that is shorter."""
CANARY_LIMIT = 3600.0
"""Seconds to wait for what becomes of the canary: the first task that is told that the cause was repaired."""
LIST_IS_BEHIND = 1.0
"""Seconds by which the server's list of tasks may be behind."""
GRACE = timedelta(seconds=5)
"""Added to a tool's timeout and overtime (the wait for its thread), so that a live worker reports a timeout before
Temporal does. `route` adds HEARTBEAT, too, so that a worker that died is not taken for a slow tool."""
LONGEST_OVERTIME, OVERTIME_TIMES = 60.0, 10
"""The limits of the overtime: how long an attempt of a tool with an effect still waits for the tool's thread after its
timeout. It is ten times the timeout, at most 60 seconds."""
THREADS_RETRY_AFTER = 5.0
"""Seconds until a call is repeated if its worker had no free thread; a supervisor may restart the worker meanwhile."""
PURE_TIMEOUT = 1.0
"""The most seconds that one attempt of a pure tool may take: the workflow task of its step waits for it."""
LONGEST_LOCAL = timedelta(seconds=7)
"""The most that a local activity may take. Its workflow task waits for it, and must end within 10 seconds; above 8
seconds the SDK would ask the server for more time."""
EXIT_WITHIN = timedelta(seconds=12)
"""Within this time after a worker has cancelled its calls, its process ends, even if threads still run."""
DELIVERY_FIRST, DELIVERY_CAP = timedelta(seconds=1), timedelta(minutes=15)
"""The first wait and the longest wait between two attempts to notify a receiver of a request."""

NON_RETRYABLE = (
    *("persistent_infrastructural", "persistent_semantic", "NotFoundError", "RuntimeError"),
    # An attempt whose worker went silent is a loss, not an attempt of the tool, and its outcome is unknown.
    *("TemporalTimeout:StartToClose", "TemporalTimeout:Heartbeat"),
)
"""Types of errors that Temporal's RetryPolicy does not retry: the workflow decides what follows."""


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


@dataclass(frozen=True)
class CircuitBreaker:
    """When a tool is left alone because its service is down, and when it is called again.

    The breaker opens after `failures` consecutive failures of at least `calls` different calls, and no call is made for
    `recovery` seconds. Then one trial call is made, by all workers together: after a failure it is open again, after a
    success the calls that wait follow, two at once, then four, then eight. It closes after `trials` successes, when no
    call waits any more.
    """

    failures: int = 3
    calls: int = 2
    recovery: float = 5.0
    trials: int = 2

    def __str__(self) -> str:
        """The fields that differ from their default values, such as `recovery=60`; empty if none does."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return ", ".join(
            f"{name}={value:g}" for name, value in values.items() if value != getattr(CircuitBreaker, name)
        )


STANDARD_BREAKER = CircuitBreaker()


@dataclass(frozen=True)
class CallLimit:
    """The most calls of a service in any period of `seconds`, as a tool declares it: `10/s`, `300/min`, `1000/h`."""

    calls: int
    seconds: float

    @classmethod
    def of(cls, text: str) -> "CallLimit":
        """Read a limit such as `10/s`.

        Raises:
            ValueError: `text` is no limit, or allows more than MAX_LIMIT calls.
        """
        found = re.fullmatch(r"([1-9][0-9]{0,5})/(s|min|h)", text)
        if found is None or int(found[1]) > MAX_LIMIT:
            raise ValueError(f"{text!r} is no limit, e.g. 10/s")
        return cls(int(found[1]), {"s": 1.0, "min": 60.0, "h": 3600.0}[found[2]])


MAX_LIMIT = 1000
"""The highest `calls` of a CallLimit: the time of each call is kept, so that no period has more calls."""
TRIAL_LEASE = 5.0
"""Seconds until another trial call may follow that of a worker that died; a live worker renews the lease."""
TURN_LEASE = 10.0
"""Seconds from the turn of a call until the next call has its turn, if the call was not made."""
MAX_WINDOW = 64
"""How many calls may be under way at once while a breaker is not closed."""
STEEP_WINDOW = 4.0
"""Up to this many calls at once, the window grows by 1 with each success, even after the service limited calls."""
LIMIT_PATIENCE = 600.0
"""The most seconds that a call waits for a service that limits its callers, while no call succeeds there."""
LONGEST_LIMIT = LIMIT_PATIENCE / 2
"""The longest pause, in seconds, for a service that limits its callers. It is less than LIMIT_PATIENCE, so that no call
gives up because the service asks for a wrong pause."""
FIRST_LIMIT = 1.0
"""The shortest pause, in seconds, for a service that limits its callers; the first pause if it asks for none."""
TURN_CALLS = 2
"""How often a waiting call has its turn; if it is not made even then, it loses its place in the queue."""
TURNS_APART = 0.05
"""The fewest seconds between two checks of a worker for calls whose turn has come."""
TURNS_CHECKED = 5.0
"""The most seconds between two checks of a worker for calls whose turn has come."""
BREAKERS_CACHED = 1.0
"""Seconds for which a worker uses the states of the circuit breakers that it has read from the store."""
OBSERVATION_PATIENCE = 60.0
"""The most seconds that the read of the current state waits for an open circuit breaker before a new plan is made."""


# The reply of a model may take minutes, and its provider may be overloaded for minutes.
PLAN = ToolSpec(kind="plan", effect=Effect.READ, timeout=300, retry="patient")
REPLAN = ToolSpec(kind="replan", effect=Effect.READ, timeout=300, retry="patient")
COMPACT = ToolSpec(kind="compact", effect=Effect.READ, timeout=300, retry="patient")
CATALOGUE = ToolSpec(kind="catalogue", effect=Effect.READ, timeout=30)
INSPECT = ToolSpec(kind="inspect", effect=Effect.READ, timeout=10)
PRUNE = INSPECT.model_copy(update={"timeout": 600.0})
"""The spec of the activity `inspect` when it answers the inquiry `prune`: with a longer timeout, because it asks the
server about many tasks and deletes their data."""
FIND_EFFECT = ToolSpec(kind="find_effect", effect=Effect.READ, timeout=10)
NOTIFY = ToolSpec(kind="notify_people", effect=Effect.READ, timeout=10)
FIND_WAITING = ToolSpec(kind="find_waiting", effect=Effect.READ, timeout=60, retry="patient")
LOOK_AT_CANARY = ToolSpec(kind="look_at_canary", effect=Effect.READ, timeout=20, retry="patient")
# One batch operation of the server at a time: another one may have to be waited for.
SIGNAL_WAITING = ToolSpec(kind="signal_waiting", effect=Effect.READ, timeout=3600, retry="patient")
PLANNING = (PLAN, REPLAN, COMPACT)
"""The activities that may ask a model as the planner."""
RESOLVING = (FIND_WAITING, LOOK_AT_CANARY, SIGNAL_WAITING)
"""The activities with which an incident is resolved."""
INTERNAL = (*PLANNING, CATALOGUE, INSPECT, FIND_EFFECT, NOTIFY, *RESOLVING)
"""Replan's own activities; no tool may have one of these names."""
INTERNAL_KINDS = frozenset(spec.kind for spec in INTERNAL)


CONTROL = "-control"
"""The suffix of the names of control queues."""


def control_queue(queue: str) -> str:
    """The name of the control queue of `queue`, for Replan's own activities and the inquiries of the console."""
    # Each queue has slots and a backlog of its own: tasks are planned and inspected however many calls of tools run,
    # and an inquiry does not wait behind the workflow tasks of many new tasks. An inquiry runs on the control queue.
    return queue if queue.endswith(CONTROL) else f"{queue}{CONTROL}"


def notification_queue(queue: str) -> str:
    """The name of the queue beside `queue` for notifications, which only workers with `--notify` serve."""
    return f"{queue.removesuffix(CONTROL)}-notify{CONTROL}"


INQUIRY_TAKEN_WITHIN = timedelta(seconds=5)
"""A live worker takes an inquiry of the console from the queue within this time."""
# `plan` may need several requests to a model, `prune` runs one long activity.
INQUIRY_LIMITS: Mapping[str, timedelta] = {"plan": timedelta(minutes=10), "prune": timedelta(minutes=11)}
INQUIRY_LIMIT = timedelta(seconds=30)
"""How long a worker may work on an inquiry (a question of the console) that has no limit in INQUIRY_LIMITS."""


def inspect(about: str) -> ToolSpec:
    """The spec of the activity that answers a question of the console; `about` names it, as in `Inquiry.about`."""
    return PRUNE if about == "prune" else INSPECT


def connect_timeout(timeout: float | None, left: float | None) -> float | None:
    """Seconds to connect: `timeout`, but at most half of what is `left` of the attempt; None for no limit.

    So a failure to connect is reported before the attempt ends, with the proof that nothing was sent.
    """
    return min((limit for limit in (timeout, None if left is None else left / 2) if limit is not None), default=None)


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


def limit_wait(requested: float | None, limits: int, recovery: float, jitter: float) -> float:
    """Seconds to pause before the next call to a service that limits its callers.

    `requested` is the pause that the service asked for; it is kept between FIRST_LIMIT and LONGEST_LIMIT. If it is
    None: a second, doubling with each of the `limits` before, but at most `recovery`, and up to a tenth more, which
    `jitter`, a random number in [0, 1), chooses.
    """
    if requested is not None:
        return min(max(requested, FIRST_LIMIT), LONGEST_LIMIT)
    return min(recovery, FIRST_LIMIT * 2.0 ** min(limits, 10)) * (1 + jitter / 10)


def turn_patience(*, is_limit: bool) -> float:
    """The most seconds that a call waits for its turn at a service, while no call succeeds there.

    `is_limit`: a limit of the service, or a declared limit, delays the call; otherwise the service is down.
    """
    return LIMIT_PATIENCE if is_limit else STEP_DEADLINE.total_seconds()


def remind_after(within: timedelta) -> timedelta:
    """The time from the start of a request to its reminder, if the request is open for the time `within`."""
    return min(REMIND_AFTER, max(within, timedelta(0)) / 2)


def timer(seconds: float) -> timedelta:
    """The duration of a timer, at least 0 and at most LONGEST_TIMER: another program may have sent `seconds`."""
    longest = LONGEST_TIMER.total_seconds()
    return timedelta(seconds=min(max(seconds, 0.0), longest))  # a NaN becomes 0
