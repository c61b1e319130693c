"""What is counted of one call, as a table: retries, wasted attempts, what was replayed and what was not called."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from client.replay import replayer
from tests.counting import CountingRuntime
from tests.processes import ROOT
from workflows.account import metrics
from workflows.account.entries_of_steps import Settled
from workflows.account.metrics import Sample
from workflows.account.state import JournalState
from workflows.account.task import Task
from workflows.faults.fault import Code, Fault
from workflows.limits.budget import Spent
from workflows.plans.proposal import StepReturn


def fault(code: Code, attempt: int = 1, **more: Any) -> Fault:
    """A fault of an attempt."""
    return Fault.of(code, "It failed.", source="pay", attempt=attempt, **more)


DOWN, BUSY, GONE = fault(Code.UNREACHABLE), fault(Code.BUSY, 2), fault(Code.GONE)

CALLS: Mapping[str, tuple[Any, tuple[Fault, ...], Fault | None, dict[tuple[str, ...], int]]] = {
    "at once": (StepReturn(result=1), (), None, {("tool_calls", "pay"): 1}),
    "after two faults": (
        StepReturn(result=1, attempt=3),
        (DOWN, BUSY),
        None,
        {("tool_calls", "pay"): 3, ("retries", "pay", "unreachable"): 1, ("retries", "pay", "busy"): 1},
    ),
    "after a crash": (
        StepReturn(result=1, attempt=2),
        (),
        None,
        {("tool_calls", "pay"): 2, ("retries", "pay", "unreported"): 1},
    ),
    "after a wait": (
        StepReturn(result=1),
        (),
        fault(Code.UNREACHABLE, 4),
        {("tool_calls", "pay"): 1, ("retries", "pay", "unreachable"): 1},
    ),
    "refused": (GONE, (), None, {("tool_calls", "pay"): 1}),
    "again although it was refused": (
        StepReturn(result=1, attempt=2),
        (GONE,),
        None,
        {("tool_calls", "pay"): 2, ("retries", "pay", "gone"): 1, ("wasted_attempts", "pay", "gone"): 1},
    ),
    "again after a wait although it was refused": (
        GONE,
        (),
        GONE,
        {("tool_calls", "pay"): 1, ("retries", "pay", "gone"): 1, ("wasted_attempts", "pay", "gone"): 1},
    ),
    "replayed": (
        StepReturn(result=1, replayed=True),
        (),
        None,
        {("tool_calls", "pay"): 1, ("replayed_results", "pay", "ledger"): 1},
    ),
    "not called": (fault(Code.CIRCUIT_OPEN), (), None, {("circuit_open", "pay"): 1}),
    "not called in the end": (
        fault(Code.CIRCUIT_OPEN, 2),
        (DOWN,),
        None,
        {("tool_calls", "pay"): 1, ("circuit_open", "pay"): 1},
    ),
    "cancelled": (None, (), None, {("tool_calls", "pay"): 1}),
}


STOPPED, OPEN = fault(Code.WORKER_SHUTDOWN, 2), fault(Code.CIRCUIT_OPEN)


@pytest.mark.parametrize(
    ("returned", "earlier", "before", "expected"),
    [
        (DOWN, (), None, DOWN),
        (BUSY, (DOWN,), None, BUSY),
        (STOPPED, (DOWN,), None, DOWN),
        (OPEN, (), BUSY, BUSY),
        (OPEN, (), None, None),
        (StepReturn(result=1), (), None, None),
    ],
    ids=["a fault", "the last", "not a shutdown", "before a breaker", "only a breaker", "a result"],
)
def test_a_retry_follows_the_last_attempt_that_called_the_tool(
    returned: Any, earlier: tuple[Fault, ...], before: Fault | None, expected: Fault | None
) -> None:
    """Between the two there may be waits for a breaker or for another worker."""
    assert metrics.last_fault(returned, earlier, before) == expected


@pytest.mark.full
async def test_a_hundred_replays_count_nothing() -> None:
    """A worker that takes over a task, or answers a query about it, repeats what another has counted."""
    counting, files = CountingRuntime(), sorted((ROOT / "tests" / "histories").glob("*.json"))
    config: Any = {**replayer().config(), "runtime": counting}
    histories = [WorkflowHistory.from_json(file.stem, file.read_text()) for file in files]
    for history in (histories * 4)[:100]:
        await Replayer(**config).replay_workflow(history, raise_on_replay_failure=False)

    assert counting.drain() == Counter()


def counted(samples: Any) -> dict[tuple[str, ...], int]:
    """Sums of counters, without the prefix of their names."""
    found = Counter[tuple[str, ...]]()
    for metric, labels, value in samples:
        if not metric.buckets and value:
            found[metric.name.removeprefix("replan_"), *map(str, labels)] += value
    return dict(found)


STATE = JournalState(task=Task(text="x"), task_id="t", started_at=datetime(2026, 11, 29, tzinfo=UTC))


def samples(returned: Any, earlier: Any, repeated: Any) -> list[Sample]:
    """The samples of an execution of the tool `pay`."""
    entry = Settled.of_execution(returned, earlier, repeated, {}, source="pay", purpose="steps")
    return [sample for sample in entry.samples(STATE) if sample.value and sample.metric is not metrics.HELPED_RETRIES]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_counted_by_what_each_attempt_followed(name: str) -> None:
    """A retry after a persistent fault is a wasted one, wherever it was decided."""
    returned, earlier, repeated, expected = CALLS[name]

    assert counted(samples(returned, earlier, repeated)) == expected


def test_what_a_payment_bought_and_what_was_lost_add_up_to_what_was_paid() -> None:
    """The rest of what an execution used is of attempts without a result."""
    used = {"source": "plan", "used": Spent(tokens=90, usd=0.25), "purpose": "planning"}

    assert counted(Settled(**used, tokens=60, usd=0.2).samples(STATE)) == {
        ("tokens", "planning"): 60,
        ("tokens", "lost"): 30,
        ("cost_microusd", "planning"): 200_000,
        ("cost_microusd", "lost"): 50_000,
    }
    assert counted(Settled(**used).samples(STATE)) == {
        ("tokens", "lost"): 90,
        ("cost_microusd", "lost"): 250_000,
    }


def test_labels_come_from_fixed_sets() -> None:
    """Each sample has a value for each label of its metric, and no other."""
    for returned, earlier, repeated, _ in CALLS.values():
        for metric, labels, _ in samples(returned, earlier, repeated):
            assert len(labels) == len(metric.labels)
            assert set(map(str, labels)) <= {"pay", "ledger", metrics.UNREPORTED, *Code}
