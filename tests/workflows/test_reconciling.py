"""How long nothing that is found proves nothing."""

from datetime import UTC, datetime

import pytest

from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, StepRecord
from workflows.account.task import Task
from workflows.calls.reconciling import is_unseen, seconds_until_settled
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans.catalogue import Effect, ToolSpec
from workflows.plans.proposal import Step

NOW = datetime(2026, 11, 21, tzinfo=UTC)
SPEC = ToolSpec(kind="pay", effect=Effect.KEYED, timeout=600, settle=10)


@pytest.mark.parametrize(
    ("unseen", "exiting", "seconds"),
    [(True, False, 0.5 + 12 + 10), (False, True, 12 + 10), (True, True, 0.5 + 12 + 10), (False, False, 10)],
)
def test_a_thread_may_go_on_until_its_process_is_gone(unseen: bool, exiting: bool, seconds: float) -> None:
    """A worker that shuts down reports its attempts first: what it left running ends when the process had to exit.

    An attempt of another kind that nobody saw end may send until its deadline: frozen, it wakes up at the last moment.
    """
    threaded = SPEC.model_copy(update={"timeout": 0.5, "is_threaded": True})

    assert seconds_until_settled(threaded, unseen, is_exiting=exiting) == seconds
    assert exiting or seconds_until_settled(SPEC, unseen) == (610 if unseen else 10)


@pytest.mark.parametrize(
    ("codes", "used", "expected"),
    [
        ([Code.UNREACHABLE], 1, False),
        ([Code.WORKER_LOST], 1, True),
        ([Code.TIMEOUT], 1, True),
        ([Code.UNREACHABLE] * 4, 4, False),
        ([Code.UNREACHABLE] * 3, 4, True),
        ([Code.TIMEOUT, Code.UNREACHABLE], 2, True),
        ([Code.WORKER_SHUTDOWN, Code.UNREACHABLE], 2, True),
    ],
    ids=lambda given: ",".join(given) if isinstance(given, list) else str(given),
)
def test_every_attempt_of_a_call_counts(codes: list[Code], used: int, expected: bool) -> None:
    """Also one before the last, and one of which no fault is known at all."""
    record = StepRecord(step=Step(id="a", kind="pay"), revision=1, effect=Effect.KEYED, kind="pay", used=used)
    faults = [Fault.of(code, "It failed.", applied=Applied.UNKNOWN, source="pay") for code in codes]
    notes = [FaultRecord.of_call(fault, "a", 1, "retry", at=NOW) for fault in faults]
    progress = Progress(task=Task(text="a task"), task_id="t", started_at=NOW, records=[record], faults=notes)

    assert is_unseen(progress, record, faults[-1]) is expected
