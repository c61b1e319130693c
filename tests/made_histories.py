"""Histories made by hand, event by event, for what no run here makes."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import History, HistoryEvent

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def payloads(*values: object, encoding: str = "json/plain") -> Payloads:
    """Values as a payload converter writes them."""
    texts = (json.dumps(value).encode() for value in values)
    return Payloads(payloads=[Payload(metadata={"encoding": encoding.encode()}, data=text) for text in texts])


def failure(type: str, message: str = "no", *, cause: Failure | None = None, trace: str = "") -> Failure:
    """The failure of an exception."""
    found = Failure(message=message, cause=cause, stack_trace=trace)
    found.application_failure_info.type = type
    return found


def timeout(type: str) -> Failure:
    """The failure of a timeout: START_TO_CLOSE, HEARTBEAT, ..."""
    found = Failure(message="activity timed out")
    found.timeout_failure_info.timeout_type = TimeoutType.Value(f"TIMEOUT_TYPE_{type}")
    return found


class Made:
    """A history that grows by one event a second, or by what `seconds` says."""

    def __init__(self, workflow: str = "Agent") -> None:
        self.events = list[HistoryEvent]()
        self._at = BEGAN
        started = self._add("WORKFLOW_EXECUTION_STARTED").workflow_execution_started_event_attributes
        started.workflow_type.name, started.workflow_id, started.attempt = workflow, "w-1", 1
        started.original_execution_run_id = "run-1"

    def _add(self, type: str, seconds: float = 1.0) -> HistoryEvent:
        self._at += timedelta(seconds=seconds)
        event = HistoryEvent(event_id=len(self.events) + 1, event_type=EventType.Value(f"EVENT_TYPE_{type}"))
        event.event_time.FromDatetime(self._at)
        self.events.append(event)
        return event

    def add(self, type: str, **attributes: Any) -> Self:
        """Any event, with its attributes as protobuf takes them."""
        event = self._add(type)
        name = f"{type.lower()}_event_attributes"
        empty = getattr(event, name)
        empty.CopyFrom(empty.__class__(**attributes))
        return self

    def call(
        self,
        activity: str,
        *args: object,
        result: object = None,
        failed: Failure | None = None,
        attempt: int = 1,
        last: Failure | None = None,
        options: Mapping[str, float] | None = None,
        seconds: float = 1.0,
        encoding: str = "json/plain",
    ) -> Self:
        """An activity execution that ends with a result or a failure; `last` failed the attempt before."""
        chosen = {"maximum_attempts": 4, "start_to_close": 10.0, "schedule_to_close": 60.0, **(options or {})}
        scheduled = self._add("ACTIVITY_TASK_SCHEDULED")
        of = scheduled.activity_task_scheduled_event_attributes
        of.activity_id, of.activity_type.name = f"{scheduled.event_id}", activity
        of.input.CopyFrom(payloads(*args, encoding=encoding))
        of.retry_policy.maximum_attempts = int(chosen["maximum_attempts"])
        of.retry_policy.backoff_coefficient = 2
        of.retry_policy.initial_interval.FromTimedelta(timedelta(seconds=1))
        for name in ("start_to_close", "schedule_to_close", "heartbeat"):
            getattr(of, f"{name}_timeout").FromTimedelta(timedelta(seconds=chosen.get(name, 0)))
        started = self._add("ACTIVITY_TASK_STARTED").activity_task_started_event_attributes
        started.scheduled_event_id, started.attempt = scheduled.event_id, attempt
        if last is not None:
            started.last_failure.CopyFrom(last)
        if failed is None:
            done = self._add("ACTIVITY_TASK_COMPLETED", seconds).activity_task_completed_event_attributes
            done.scheduled_event_id = scheduled.event_id
            done.result.CopyFrom(payloads(result, encoding=encoding))
        else:
            how = "TIMED_OUT" if failed.HasField("timeout_failure_info") else "FAILED"
            event = self._add(f"ACTIVITY_TASK_{how}", seconds)
            gone = getattr(event, f"activity_task_{how.lower()}_event_attributes")
            gone.scheduled_event_id = scheduled.event_id
            gone.failure.CopyFrom(failed)
        return self

    def end(self, how: str = "COMPLETED") -> Self:
        """The last event."""
        self._add(f"WORKFLOW_EXECUTION_{how}")
        event, name = self.events[-1], f"workflow_execution_{how.lower()}_event_attributes"
        getattr(event, name).SetInParent()
        return self

    @property
    def binary(self) -> bytes:
        return History(events=self.events).SerializeToString()
