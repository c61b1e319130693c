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

CALLED: tuple[str, ...] = ("tool_calls", "pay")
DONE = StepReturn(result=1)
RETRIED: dict[tuple[str, ...], int] = {("retries", "pay", "unreachable"): 1}
WASTED: dict[tuple[str, ...], int] = {("retries", "pay", "gone"): 1, ("wasted_attempts", "pay", "gone"): 1}
CALLS: Mapping[str, tuple[Any, tuple[Fault, ...], Fault | None, dict[tuple[str, ...], int]]] = {
    "at once": (DONE, (), None, {CALLED: 1}),
    "after two faults": (
        StepReturn(result=1, attempt=3),
        (DOWN, BUSY),
        None,
        {CALLED: 3, **RETRIED, ("retries", "pay", "busy"): 1},
    ),
    "after a crash": (StepReturn(result=1, attempt=2), (), None, {CALLED: 2, ("retries", "pay", "unreported"): 1}),
    "after a wait": (DONE, (), fault(Code.UNREACHABLE, 4), {CALLED: 1, **RETRIED}),
    "refused": (GONE, (), None, {CALLED: 1}),
    "again although it was refused": (StepReturn(result=1, attempt=2), (GONE,), None, {CALLED: 2, **WASTED}),
    "again after a wait although it was refused": (GONE, (), GONE, {CALLED: 1, **WASTED}),
    "replayed": (
        StepReturn(result=1, replayed=True),
        (),
        None,
        {CALLED: 1, ("replayed_results", "pay", "ledger"): 1},
    ),
    "not called": (fault(Code.CIRCUIT_OPEN), (), None, {("circuit_open", "pay"): 1}),
    "not called in the end": (fault(Code.CIRCUIT_OPEN, 2), (DOWN,), None, {CALLED: 1, ("circuit_open", "pay"): 1}),
    "cancelled": (None, (), None, {CALLED: 1}),
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


def test_a_call_is_counted_by_what_each_attempt_followed() -> None:
    """A retry after a persistent fault is a wasted one, wherever it was decided.

    Labels come from fixed sets: each sample has a value for each label of its metric, and no other.
    """
    for name, (returned, earlier, repeated, expected) in CALLS.items():
        found = samples(returned, earlier, repeated)
        assert counted(found) == expected, name
        for metric, labels, _ in found:
            assert len(labels) == len(metric.labels)
            assert set(map(str, labels)) <= {"pay", "ledger", metrics.UNREPORTED, *Code}


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
