"""Compares what a worker counted with what the accounts of its tasks say."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from client.history.fetch import fetch_history
from client.history.records import History
from workflows.measures import COUNTED, TASKS, counted

BUFFERED = 500_000
"""How many updates of metrics may come between two tests."""
UNCOUNTED = {WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.TERMINATED}
"""A task that did not end has not told all."""
Counts = Counter[tuple[str, frozenset[tuple[str, str]]]]
"""Sums by name and labels."""


COUNTERS = {metric.name for metric in COUNTED}
LABELS = {label for metric in COUNTED for label in metric.labels}


class CountingRuntime(Runtime):
    """A runtime that keeps the counters of workflows, by task queue."""

    def __init__(self) -> None:
        self._buffer = MetricBuffer(BUFFERED)
        self._counted = dict[str, Counts]()
        super().__init__(telemetry=TelemetryConfig(metrics=self._buffer))

    def of(self, queue: str) -> Counts:
        """What the tasks of a queue have counted since the runtime was made."""
        self.drain()
        return self._counted.get(queue, Counter())

    def drain(self) -> Counter[str]:
        """Take over what was counted since the last time, and return how many updates each metric had."""
        updates = [one for one in self._buffer.retrieve_updates() if one.metric.name.startswith("replan_")]
        for update in updates:
            name, labels = update.metric.name, dict(update.attributes)
            if labels.pop("workflow_type", None) == "AgentWorkflow":
                on = str(labels.pop("task_queue"))
                kept = frozenset((name, str(value)) for name, value in labels.items() if name in LABELS)
                self._counted.setdefault(on, Counter())[name, kept] += int(update.value)
        return Counter(update.metric.name for update in updates)


def summed(histories: Sequence[History]) -> Counts:
    """What the accounts of these tasks say, in the form of the metrics."""
    found = Counts()
    for metric in COUNTED:
        for history in histories:
            for labels, value in counted(history.account.counts or {}, metric).items():
                found[metric.name, frozenset(zip(metric.labels, labels, strict=True))] += value
    return found


async def check_counts(client: Client, queue: str, tasks: Sequence[str]) -> None:
    """Compare the metrics of the tasks of a queue, if these `tasks` are all, have ended, and were not reset."""
    runtime: Any = client.service_client.config.runtime
    if not isinstance(runtime, CountingRuntime):
        return
    handles = [client.get_workflow_handle(id) for id in tasks]
    seen = [await handle.describe() for handle in handles]
    if not tasks or any(one.status in UNCOUNTED for one in seen):
        return
    histories = [await fetch_history(client, handle) for handle in handles]
    metrics = runtime.of(queue)
    ended = sum(value for (name, _), value in metrics.items() if name == TASKS.name)
    if ended != len(histories) or any(history.resets or history.unreadable for history in histories):
        return
    counters = Counter({key: value for key, value in metrics.items() if key[0] in COUNTERS})
    told = summed(histories)
    differences = {key: (counters[key], told[key]) for key in {*counters, *told} if counters[key] != told[key]}
    assert not differences, f"metrics and histories differ: {differences}"
