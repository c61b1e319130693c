"""Compares what a worker counted with the accounts of its tasks, and what all readers of a history say of it."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from client import tree
from client.explain import explanation
from client.explain.explanation import Explanation
from client.history.account import replayed_progress
from client.history.fetch import fetch_history
from client.history.reader import read_history
from client.history.records import History
from client.redaction import Redaction
from client.report.row import row_of
from client.wording import count
from runtime.payloads import DATA_CONVERTER
from workflows.account.metrics import (
    CIRCUIT_OPEN,
    COUNTED,
    HELPED_RETRIES,
    RETRIES,
    TASKS,
    WASTED_ATTEMPTS,
    counted,
    total,
)
from workflows.account.progress import Progress
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.limits.budget import TaskBudget
from workflows.plans.catalogue import FORM

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
    for handle in handles:
        await check_journal(client, handle)
    histories = [await fetch_history(client, handle, journal=True) for handle in handles]
    metrics = runtime.of(queue)
    ended = sum(value for (name, _), value in metrics.items() if name == TASKS.name)
    if ended != len(histories) or any(history.resets or history.unreadable for history in histories):
        return
    counters = Counter({key: value for key, value in metrics.items() if key[0] in COUNTERS})
    told = summed(histories)
    differences = {key: (counters[key], told[key]) for key in {*counters, *told} if counters[key] != told[key]}
    assert not differences, f"metrics and histories differ: {differences}"
    for handle, history in zip(handles, histories, strict=True):
        check_readers(history)
        await check_redacted(client, handle)


async def check_journal(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
    """The journal of a replay is that of the run; and its entries make the state from that which the run began with."""
    events, converter = list((await handle.fetch_history()).events), client.data_converter
    replayed = await replayed_progress(handle.id, events, converter)
    if replayed is None:
        return
    # What each answer has after the last one, as a follower reads it.
    page = await handle.query(AgentWorkflow.journal)
    told = page.model_dump(mode="json")["entries"]
    while page.more:
        page = await handle.query(AgentWorkflow.journal, page.cursor)
        told += page.model_dump(mode="json")["entries"]
    assert told == [entry.model_dump(mode="json") for entry in replayed.journal]

    begun = events[0].workflow_execution_started_event_attributes
    (given,) = await converter.decode(begun.input.payloads)
    if begun.continued_execution_run_id:
        snapshot = Progress.model_validate(given)
    else:
        task, at = Task.model_validate(given), begun_at(events[0])
        budget = TaskBudget(limits=task.limits)
        snapshot = Progress(task=task, task_id=handle.id, started_at=at, budget=budget, form=FORM)
    for entry in replayed.journal:
        if entry.number > snapshot.number:
            snapshot.apply(entry)
    if not replayed.dropped and not replayed.folded.ids:
        assert snapshot.model_dump(exclude={"tools"}) == replayed.model_dump(exclude={"tools"})


def begun_at(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(UTC)


def check_readers(history: History) -> None:
    """Every reader of a task that has ended says the same counts: document, last line, explanation, receipt, report."""
    explained, account = explanation.explain_task(history), history.account
    receipt, row, line = explained.receipt, row_of(history), tree.headline(account)
    counts = account.counts or {}
    metrics = RETRIES, HELPED_RETRIES, WASTED_ATTEMPTS, CIRCUIT_OPEN
    retries, helped, wasted, not_made = (total(counts, metric) for metric in metrics)
    sums = {name: sum(number for one, _, number in row.counters if one == name) for name, _, _ in row.counters}
    document = explained.document()

    assert (receipt.helped.number, receipt.not_helped.number) == (helped, retries - helped)
    assert (receipt.wasted.number, receipt.not_made.number) == (wasted, not_made)
    assert f", {count(retries, 'retry', 'retries')}" in line and sums.get(RETRIES.name, 0) == retries
    assert f", {count(account.spent.tool_calls, 'tool call')}" in line
    assert document["cost"]["tool_calls"] == account.spent.tool_calls
    attempts = {step.id: step.attempts for step in account.steps}
    assert [one for one in document["steps"] if one["attempts"] != attempts.get(one["id"], 0)] == []


async def check_redacted(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
    """The explanation of a redacted history has the same decisions, costs and sentences, but for values."""
    events = list((await handle.fetch_history()).events)
    whole, redacted = [await _explained(one) for one in (events, Redaction().events(events))]
    if whole.story.history.unreadable:
        return
    assert [one.decision for one in redacted.items] == [one.decision for one in whole.items]
    for one, other in zip(whole.items, redacted.items, strict=True):
        assert (one.steps, one.cost, one.events) == (other.steps, other.cost, other.events)
        pairs = zip(one.sentences, other.sentences, strict=True)
        assert [(was.text, now.text) for was, now in pairs if not is_alike(was.text, now.text)] == []


def is_alike(text: str, redacted: str) -> bool:
    """Whether a sentence differs from that of a redacted history only in values, of which long ones are cut."""
    if "…" in text + redacted:
        return True
    parts = re.split(r"<text-\d+(?:://)?[ .]*>[.?!]?|\d+(?:\.\d+)?", redacted.rstrip(".?!"))
    return re.fullmatch(".*".join(map(re.escape, parts)), text.rstrip(".?!"), re.DOTALL) is not None


async def _explained(events: Sequence[HistoryEvent]) -> Explanation:
    async def one_by_one() -> AsyncIterator[HistoryEvent]:
        for event in events:
            yield event

    return explanation.explain_task(await read_history("a-task", one_by_one(), DATA_CONVERTER, journal=True))
