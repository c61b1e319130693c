"""From a ToolSpec to the options of its activity: timeouts and retry policy, by the numbers of `retries`.

Runs each time that an activity is scheduled.
"""

from dataclasses import dataclass
from datetime import timedelta

from temporalio.common import RetryPolicy

from workflows.faults import retries
from workflows.plans import own_activities
from workflows.plans.catalogue import ToolSpec

NON_RETRYABLE = (
    *("persistent_infrastructural", "persistent_semantic", "NotFoundError", "RuntimeError"),
    # An attempt whose worker went silent is a loss, not an attempt of the tool, and its outcome is unknown.
    *("TemporalTimeout:StartToClose", "TemporalTimeout:Heartbeat"),
)
"""Types of errors that Temporal's RetryPolicy does not retry: the workflow decides what follows."""
ONE_ATTEMPT = RetryPolicy(maximum_attempts=1)
"""The retry policy of each local activity: an ordinary activity retries it, if it can be retried."""


def local_timeout(spec: ToolSpec) -> timedelta:
    """The start-to-close timeout of a local activity that calls this tool."""
    return min(timedelta(seconds=spec.timeout) + retries.GRACE, retries.LONGEST_LOCAL)


@dataclass(frozen=True)
class Route:
    """The name of an activity, and the timeouts and the retry policy with which it is scheduled."""

    activity: str
    start_to_close: timedelta
    schedule_to_close: timedelta
    heartbeat: timedelta
    retry: RetryPolicy


# Whatever a receiver answers is attempted again, since it may be deployed just now, or a worker with a wrong --notify.
DELIVERY = Route(
    activity=own_activities.NOTIFY.kind,
    start_to_close=timedelta(seconds=own_activities.NOTIFY.timeout) + retries.GRACE,
    schedule_to_close=retries.STEP_DEADLINE,
    heartbeat=timedelta(seconds=own_activities.NOTIFY.timeout) + retries.GRACE,  # it sends none: it ends before
    retry=RetryPolicy(
        initial_interval=retries.DELIVERY_FIRST, backoff_coefficient=2.0, maximum_interval=retries.DELIVERY_CAP
    ),
)
"""The options of the activity that notifies a receiver of a request: attempts for a day, from 1 s to 15 min apart."""


def route(spec: ToolSpec, attempts: int) -> Route:
    """The options (timeouts and retry policy) of an activity that calls this tool with at most `attempts` attempts."""
    profile = retries.PROFILES[spec.retry]
    return Route(
        activity=spec.kind,
        start_to_close=timedelta(seconds=spec.timeout + retries.overtime(spec)) + retries.GRACE + retries.HEARTBEAT,
        schedule_to_close=retries.STEP_DEADLINE,
        heartbeat=retries.HEARTBEAT,
        retry=RetryPolicy(
            initial_interval=timedelta(seconds=profile.first),
            backoff_coefficient=2.0,
            maximum_interval=timedelta(seconds=profile.cap),
            maximum_attempts=attempts,
            non_retryable_error_types=NON_RETRYABLE,
        ),
    )
