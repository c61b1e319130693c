"""Local activities in a history: each is one marker event, which the SDK writes when the activity has ended."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

LOCAL_ACTIVITY = "core_local_activity"
"""The name of the markers of local activities."""
DATA, RESULT = "data", "result"
"""The names of a marker's details: the SDK's own record of the activity, which no codec encodes, and the result."""


@dataclass(frozen=True)
class LocalActivity:
    """One local activity, with all its attempts."""

    id: str
    kind: str
    attempt: int
    """The number of its last attempt."""
    result: Sequence[Payload]
    failure: Failure | None
    """Why its last attempt failed; None if it has a result."""
    task: int
    """The event id of the completed workflow task that ran it."""
    at: datetime
    """When it ended, by the clock of the workflow: the event is written later."""


def local_activity(event: HistoryEvent) -> LocalActivity | None:
    """The local activity that the marker event `event` records; None for any other event."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != LOCAL_ACTIVITY:
        return None
    data = json.loads(marker.details[DATA].payloads[0].data)
    at = event.event_time.ToDatetime(UTC)
    if time := data.get("complete_time"):
        # As `workflow.now()` has it, to the microsecond; in arithmetic of floats the last digits would differ.
        at = datetime.fromtimestamp(time["seconds"], UTC) + timedelta(microseconds=time["nanos"] // 1000)
    return LocalActivity(
        id=data["activity_id"],
        kind=data["activity_type"],
        attempt=data["attempt"],
        result=marker.details[RESULT].payloads if RESULT in marker.details else (),
        failure=marker.failure if marker.HasField("failure") else None,
        task=marker.workflow_task_completed_event_id,
        at=at,
    )
