"""What goes on beside the steps, as the server tells it."""

import pytest
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.converter import DataConverter

from client import snapshot
from tests.console.outcomes import outcome


def pending(kind: str, attempt: int = 1, *, waits: bool = False) -> PendingActivityInfo:
    """An activity that goes on; before its second attempt the first had run out of its time."""
    info = PendingActivityInfo(activity_id="plan:1", attempt=attempt, maximum_attempts=4)
    info.activity_type.name = kind
    if attempt > 1:
        info.last_failure.timeout_failure_info.timeout_type = 1  # type: ignore[assignment]
    if waits:
        info.next_attempt_schedule_time.FromSeconds(1)
    return info


@pytest.mark.parametrize(
    ("strategy", "activity", "said"),
    [
        ("plan", pending("plan"), "asking the planner"),
        ("plan", pending("replan"), "asking the planner for a new plan"),
        ("react", pending("replan"), "asking the model"),
        ("react", pending("compact"), "summarising the older turns of the conversation"),
        ("react", pending("plan", 2), "asking the model: attempt 2 of 4, after timeout"),
        ("plan", pending("plan", 3, waits=True), "asking the planner: waiting for attempt 3 of 4, after timeout"),
    ],
)
async def test_a_request_says_what_is_waited_for(strategy: str, activity: PendingActivityInfo, said: str) -> None:
    """Whoever looks at a task that stands still sees that somebody is asked again, and what went wrong before."""
    assert await snapshot.asking(DataConverter.default, outcome(strategy=strategy), activity) == said
