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
FINAL = {
    TaskStatus.COMPLETED,
    TaskStatus.ESCALATED,
    TaskStatus.OVER_BUDGET,
    TaskStatus.CANCELLED,
    TaskStatus.FAILED,
}


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
    """Finished steps are kept with their results, failed ones stay on record, pending ones are dropped."""
    one = progress(
        record("done", StepStatus.COMPLETED, result=7),
        record("broken", StepStatus.FAILED),
        record("waiting", StepStatus.PENDING),
    )
    plan(one, 1, record("next", StepStatus.PENDING, revision=2))

    assert statuses(one) == {
        "done": StepStatus.COMPLETED,
        "broken": StepStatus.FAILED,
        "waiting": StepStatus.SKIPPED,
        "next": StepStatus.PENDING,
    }
    assert (one.results, one.revision) == ({"done": 7}, 1)


def test_an_id_that_never_started_may_be_proposed_again() -> None:
    """It made no idempotency key, so the new step takes the place of the dropped one."""
    one = progress(record("a", StepStatus.COMPLETED), record("b", StepStatus.PENDING))
    plan(one, 2, record("b", StepStatus.PENDING, revision=2))

    assert [(record.step.id, record.revision) for record in one.records] == [("a", 1), ("b", 2)]


def test_ids_are_taken_once_a_step_has_started() -> None:
    """Whatever became of it: its key may have been used."""
    one = progress(*(record(status.value, status) for status in StepStatus))

    assert one.taken == {status.value for status in StepStatus} - {"pending", "skipped"}


def test_only_finished_steps_have_results_and_count_as_effects() -> None:
    """A step that failed has changed nothing that the guard may count on."""
    one = progress(
        *(record(status.value, status, effect=Effect.IDEMPOTENT, result=1) for status in StepStatus),
        record("looked", StepStatus.COMPLETED, effect=Effect.READ, result=2),
    )

    assert one.results == {"completed": 1, "looked": 2}
    assert one.effects == 1


@pytest.mark.parametrize("status", sorted(FINAL))
def test_an_ended_task_leaves_nothing_pending(status: TaskStatus) -> None:
    """What waits is skipped; what ended stays as it ended."""
    one = progress(*(record(status.value, status) for status in StepStatus))
    one.apply(TaskClosed(at=NOW, ending=Ending(status=status, reason="so")))

    assert {id for id, status in statuses(one).items() if id != status} == {"pending", "waiting"}
    assert (one.status, one.ended_at) == (status, NOW)


def test_the_status_of_a_task_is_running_waiting_or_final() -> None:
    """The five endings, and the two ways to be on the way."""
    assert set(TaskStatus) - FINAL == {TaskStatus.RUNNING, TaskStatus.WAITING, TaskStatus.PAUSED}


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
    happened = Fault.of(Code.NOT_FOUND, reason).model_dump()
    return FaultRecord.model_validate({**happened, "step_id": step_id, "revision": 1, "decision": "replan", "at": NOW})


def test_a_running_task_has_an_outcome_so_far() -> None:
    """Seconds run until the end, and until now while there is none."""
    one = progress()
    one.budget.spent = Spent(tool_calls=3)
    outcome = one.outcome(NOW + timedelta(seconds=90))

    assert (outcome.status, outcome.reason, outcome.ended_at) == (TaskStatus.RUNNING, "", None)
    assert outcome.spent == Spent(tool_calls=3, seconds=90)


def test_the_time_of_an_ended_task_stands_still() -> None:
    """Asked later, an outcome says the same."""
    one = progress()
    ending = Ending(status=TaskStatus.FAILED, reason="no", code="gave_up")
    one.apply(TaskClosed(at=NOW + timedelta(seconds=5), ending=ending))

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


@pytest.mark.parametrize("result", [None, 0, "", [], {}])
def test_a_result_of_nothing_is_not_called_omitted(result: JsonValue) -> None:
    """An empty answer is an answer."""
    assert not progress(record("a", StepStatus.COMPLETED, result=result)).outcome(NOW).steps[0].result_omitted


def test_progress_survives_the_border() -> None:
    """It is the answer of a query and what a continued run starts from."""
    one = progress(record("a", StepStatus.COMPLETED, result={"x": [1, None]}))
    one.apply(Attempted(number=1, at=NOW, step="a", fault=_fault("a", "Why.")))
    one.guard.remember("k", {"x": 1}, 0)
    one.apply(TaskClosed(number=2, at=NOW, ending=Ending(status=TaskStatus.COMPLETED, result=[1])))
    read = Progress.model_validate_json(one.model_dump_json())

    assert (read.model_dump(), read.faults) == (one.model_dump(), one.faults)
    assert Outcome.model_validate_json(one.outcome(NOW).model_dump_json()) == one.outcome(NOW)


def test_an_outcome_is_plain_json() -> None:
    """Programs read it: names of statuses, ISO times, no Python."""
    shown = json.loads(progress(record("a", StepStatus.COMPLETED)).outcome(NOW).model_dump_json())

    assert (shown["status"], shown["started_at"], shown["steps"][0]["effect"]) == (
        "running",
        "2026-01-02T00:00:00Z",
        "read",
    )
