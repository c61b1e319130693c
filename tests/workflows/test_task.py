"""The account of a task: its steps over all plans, and the outcome that is made of it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from tests.harness import step
from workflows.account.entries_of_steps import Attempted
from workflows.account.journal import PlanInForce, TaskClosed
from workflows.account.outcome import Ending, Outcome
from workflows.account.progress import MAX_OUTCOME, Progress
from workflows.account.records import FaultRecord, Revision, StepRecord, StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Code, Fault
from workflows.limits.budget import Spent
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import Step

NOW = datetime(2026, 1, 2, tzinfo=UTC)
FINAL = set(TaskStatus) - {TaskStatus.RUNNING, TaskStatus.WAITING, TaskStatus.PAUSED}
REPLAN = {"type": "steps", "steps": [{"id": "a", "kind": "echo", "args": {}}]}


@pytest.mark.parametrize(
    ("given", "replans", "fruitless"),
    [
        ({}, 2, 2),
        ({"strategy": "react"}, 20, 2),
        ({"strategy": "react", "limits": {"tool_calls": 3}}, 20, 2),
        ({"limits": {"replans": 4}}, 4, None),
        ({"limits": {"replans": 4, "fruitless": 3}}, 4, 3),
        ({"revisions": [REPLAN] * 3}, 3, None),
    ],
    ids=str,
)
def test_how_often_a_task_may_replan_follows_from_what_was_given(
    given: dict[str, Any], replans: int, fruitless: int | None
) -> None:
    """The same for a task that was started by hand as for one from the console; what is filled in stays as it is."""
    limits = Task.model_validate({"text": "a task", **given}).limits

    assert (limits.replans, limits.fruitless) == (replans, fruitless)
    assert Task(text="again", limits=limits).limits == limits
    assert Task.model_validate_json(Task(text="on the wire", limits=limits).model_dump_json()).limits == limits


def record(id: str, status: StepStatus, *, revision: int = 1, effect: Effect = Effect.READ, **more: Any) -> StepRecord:
    """A step that stands so."""
    begun = None if status in (StepStatus.PENDING, StepStatus.SKIPPED) else NOW
    given = {"step": step(id, "k"), "kind": "k", "started": begun, **more}
    return StepRecord(revision=revision, effect=effect, status=status, **given)


def progress(*records: StepRecord, **more: Any) -> Progress:
    """A task with these steps."""
    return Progress(task=Task(text="a task"), task_id="t", started_at=NOW, records=list(records), **more)


def plan(one: Progress, number: int, *records: StepRecord) -> None:
    """Accept a plan."""
    one.apply(PlanInForce(number=one.number + 1, revision=Revision(number=number), records=records))


def statuses(one: Progress) -> dict[str, StepStatus]:
    """How each step stands."""
    return {record.step.id: record.status for record in one.records}


def test_a_new_plan_skips_what_the_old_one_did_not_start_and_keeps_the_rest() -> None:
    """Finished steps are kept with their results, failed ones stay on record, pending ones are dropped.

    An id that never started made no idempotency key: a new step may take the place of the dropped one.
    """
    one = progress(
        record("done", StepStatus.COMPLETED, result=7),
        record("broken", StepStatus.FAILED),
        record("waiting", StepStatus.PENDING),
        record("again", StepStatus.PENDING),
    )
    plan(one, 1, record("next", StepStatus.PENDING, revision=2), record("again", StepStatus.PENDING, revision=2))

    assert [(record.step.id, record.status, record.revision) for record in one.records] == [
        ("done", StepStatus.COMPLETED, 1),
        ("broken", StepStatus.FAILED, 1),
        ("waiting", StepStatus.SKIPPED, 1),
        ("next", StepStatus.PENDING, 2),
        ("again", StepStatus.PENDING, 2),
    ]
    assert (one.results, one.revision) == ({"done": 7}, 1)


def test_only_finished_steps_have_results_and_count_as_effects() -> None:
    """What failed has changed nothing that the guard may count on; an id is taken once its step has started."""
    one = progress(
        *(record(status.value, status, effect=Effect.IDEMPOTENT, result=1) for status in StepStatus),
        record("looked", StepStatus.COMPLETED, effect=Effect.READ, result=2),
    )

    assert (one.results, one.effects) == ({"completed": 1, "looked": 2}, 1)
    assert one.taken == {status.value for status in StepStatus} - {"pending", "skipped"} | {"looked"}


@pytest.mark.parametrize("status", sorted(FINAL))
def test_an_ended_task_leaves_nothing_pending(status: TaskStatus) -> None:
    """What waits is skipped; what ended stays as it ended."""
    one = progress(*(record(status.value, status) for status in StepStatus))
    one.apply(TaskClosed(at=NOW, ending=Ending(status=status, reason="so")))

    assert {id for id, status in statuses(one).items() if id != status} == {"pending", "waiting"}
    assert (one.status, one.ended_at) == (status, NOW)


@pytest.mark.parametrize("wrong", [{"text": ""}, {"text": "x" * 16_001}, {"text": "x", "strategy": "guess"}])
def test_a_task_that_makes_no_sense_is_refused(wrong: dict[str, str]) -> None:
    """Before it costs anything."""
    with pytest.raises(ValidationError):
        Task.model_validate(wrong)


def test_an_outcome_says_what_was_done_with_what() -> None:
    """Resolved arguments where a step started, the planned ones where it did not; its last fault; its needs, sorted."""
    faults = [_fault("a", "First."), _fault("a", "Last.")]
    one = progress(
        record("a", StepStatus.FAILED, args={"x": 1}, kind="spare", attempts=2),
        record("b", StepStatus.PENDING, step=Step(id="b", kind="k", needs=("c", "a"), args={"y": {"$from": "a"}})),
        faults=faults,
    )
    first, second = one.outcome(NOW).steps

    assert (first.args, first.kind, first.is_fallback, first.fault) == ({"x": 1}, "spare", True, faults[1])
    assert (second.args, second.needs, second.fault) == ({"y": {"$from": "a"}}, ("a", "c"), None)


def _fault(step_id: str, reason: str) -> FaultRecord:
    return FaultRecord.of_call(Fault.of(Code.NOT_FOUND, reason), step_id, 1, "replan", at=NOW)


def test_seconds_run_until_the_end() -> None:
    """And until now while there is none; asked later, the outcome of an ended task says the same."""
    one = progress()
    one.budget.spent = Spent(tool_calls=3)
    running = one.outcome(NOW + timedelta(seconds=90))
    ending = Ending(status=TaskStatus.FAILED, reason="no", code="gave_up")
    one.apply(TaskClosed(at=NOW + timedelta(seconds=5), ending=ending))

    assert (running.status, running.reason, running.ended_at) == (TaskStatus.RUNNING, "", None)
    assert running.spent == Spent(tool_calls=3, seconds=90)
    assert one.outcome(NOW + timedelta(days=1)).spent.seconds == 5


@pytest.mark.parametrize("letter", ["x", "é", "語", "🦊"])
def test_the_largest_results_are_left_out_of_an_outcome_that_would_be_too_large(letter: str) -> None:
    """The server refuses a result of 2 MB: what goes is said, what is small stays, bytes count and not characters."""
    large = letter * (MAX_OUTCOME // 2 // len(letter.encode()))
    outcome = progress(
        record("small", StepStatus.COMPLETED, result="small"),
        record("large", StepStatus.COMPLETED, result=large),
        record("larger", StepStatus.COMPLETED, result=large + "more"),
    ).outcome(NOW)

    assert [(one.id, one.result_omitted, one.result is None) for one in outcome.steps] == [
        ("small", False, False),
        ("large", False, False),
        ("larger", True, True),
    ]
    assert len(outcome.model_dump_json().encode()) < MAX_OUTCOME + 10_000


def test_a_result_of_nothing_is_not_called_omitted() -> None:
    """An empty answer is an answer."""
    results: list[JsonValue] = [None, 0, "", [], {}]
    records = [record("a", StepStatus.COMPLETED, result=result) for result in results]

    assert not any(progress(one).outcome(NOW).steps[0].result_omitted for one in records)


def test_progress_survives_the_border() -> None:
    """It is the answer of a query and what a continued run starts from; programs read an outcome: it is plain JSON."""
    one = progress(record("a", StepStatus.COMPLETED, result={"x": [1, None]}))
    one.apply(Attempted(number=1, at=NOW, step="a", fault=_fault("a", "Why.")))
    one.guard.remember("k", {"x": 1}, 0)
    one.apply(TaskClosed(number=2, at=NOW, ending=Ending(status=TaskStatus.COMPLETED, result=[1])))
    read = Progress.model_validate_json(one.model_dump_json())
    shown = json.loads(one.outcome(NOW).model_dump_json())

    assert (shown["status"], shown["started_at"], shown["steps"][0]["effect"]) == (
        "completed",
        "2026-01-02T00:00:00Z",
        "read",
    )
    assert (read.model_dump(), read.faults) == (one.model_dump(), one.faults)
    assert Outcome.model_validate_json(one.outcome(NOW).model_dump_json()) == one.outcome(NOW)
