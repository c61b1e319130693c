"""Folding: the state of a long task stays small, and what decides is kept."""

from datetime import UTC, datetime

import pytest
from pydantic import JsonValue

from workflows.account.entries_of_steps import MAX_FAULTS, Attempted
from workflows.account.journal import MAX_REVISIONS, PlanInForce
from workflows.account.progress import (
    MAX_PROGRESS,
    MAX_RECORDS,
    Progress,
    fits_continue_as_new,
    fold,
)
from workflows.account.records import FaultRecord, Revision, StepRecord, StepStatus
from workflows.account.task import Task
from workflows.faults.fault import Code, Fault
from workflows.plans.catalogue import Effect
from workflows.plans.graph import check_graph
from workflows.plans.proposal import Step

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def progress(plans: int, steps: int, result: JsonValue = None, effect: Effect = Effect.READ) -> Progress:
    """A task that finished so many plans of so many steps."""
    made = Progress(task=Task(text="long"), task_id="long", started_at=NOW)
    for plan in range(1, plans + 1):
        records = [
            StepRecord(
                step=Step(id=f"p{plan}s{number}", kind="echo"),
                revision=plan,
                effect=effect,
                kind="echo",
                status=StepStatus.COMPLETED,
                started=NOW,
                ended=NOW,
                result=result,
            )
            for number in range(steps)
        ]
        made.apply(PlanInForce(number=made.number + 1, revision=Revision(number=plan), records=tuple(records)))
        fold(made)
    return made


def test_a_long_task_keeps_its_last_steps() -> None:
    """The oldest are folded; their ids stay taken, their number and their effects are known. A short one is whole."""
    short, kept = progress(6, 50), progress(100, 50, result={"text": "x" * 1000}, effect=Effect.TRANSACTIONAL)

    assert (len(short.records), short.folded.ids) == (MAX_RECORDS, [])
    assert [len(kept.records), len(kept.folded.ids)] == [MAX_RECORDS, 5000 - MAX_RECORDS]
    assert (kept.records[0].step.id, "p1s0" in kept.taken) == ("p95s0", True)
    assert (kept.outcome(NOW).omitted, kept.effects) == (5000 - MAX_RECORDS, 5000)
    # with results of a kilobyte it fits what the server takes; a plan more adds its ids only
    assert len(kept.model_dump_json()) < MAX_PROGRESS + 100_000


def test_large_results_are_folded_early() -> None:
    """Few steps may be too much as well; those of the plan in force stay."""
    kept = progress(4, 10, result="x" * 40_000)

    assert [one.step.id for one in kept.records if one.revision == 4] == [f"p4s{number}" for number in range(10)]
    assert len(kept.records) < 25


@pytest.mark.parametrize("plans", [3, MAX_REVISIONS + 7])
def test_the_number_of_the_plan_goes_on(plans: int) -> None:
    """Whether or not the oldest plans are still there."""
    kept = progress(plans, 1)

    assert kept.revision == plans
    assert (len(kept.revisions), kept.revisions[-1].number) == (min(plans, MAX_REVISIONS), plans)


def test_a_reference_to_a_folded_step_is_refused_with_the_reason() -> None:
    """Its result is not kept: the planner is told so, before anything is scheduled."""
    kept = progress(20, 50)
    step = Step(id="new", kind="echo", args={"word": {"$from": "p1s0", "path": "said"}})

    assert [one.text for one in check_graph([step], kept.results, kept.taken)] == [
        "step 'new' needs 'p1s0', which failed, or whose result is not kept any more"
    ]


def test_faults_are_kept_up_to_a_number() -> None:
    """The oldest go first and are counted."""
    kept = progress(1, 1)
    fault = FaultRecord.of_call(Fault.of(Code.CONFLICT, "It is taken.", source="echo"), "p1s0", 1, "replan", at=NOW)
    for number in range(MAX_FAULTS + 5):
        kept.apply(Attempted(number=number + 2, step="p1s0", fault=fault))
    fold(kept)

    assert (len(kept.faults), kept.folded.faults) == (MAX_FAULTS, 5)


@pytest.mark.parametrize(("size", "can"), [(1_000, True), (60_000, False)])
def test_a_plan_in_force_with_too_large_results_is_not_carried_over(size: int, can: bool) -> None:
    """A new run that the server refuses would hold up the task for ever; the old one goes on instead."""
    assert fits_continue_as_new(progress(1, 20, result="x" * size)) is can


def earlier(id: str, status: StepStatus = StepStatus.COMPLETED) -> StepRecord:
    """An effect of an earlier run, as a reset tells of it."""
    step = Step(id=id, kind="pay")
    return StepRecord(step=step, revision=0, effect=Effect.KEYED, kind="pay", status=status, started=NOW, ended=NOW)


def test_effects_of_earlier_runs_stay_until_the_planner_was_told() -> None:
    """A reset to late in a long task: were they folded away, they would be planned once more."""
    long = progress(plans=31, steps=10)
    long.add_earlier([earlier("paid")])
    fold(long)

    assert [one.step.id for one in long.records if not one.revision] == ["paid"]


def test_a_planned_step_that_an_earlier_run_may_have_done_is_called_with_its_key() -> None:
    """That finds out whether it was done; counted as done, the task could end well without it."""
    planned = Progress(task=Task(text="x"), task_id="t", started_at=NOW)
    planned.add_earlier([earlier("known"), earlier("unknown", StepStatus.CANCELLED)])
    steps = [earlier(id, StepStatus.PENDING) for id in ("known", "unknown")]
    planned.add_plan(planned.with_earlier_outcomes(one.model_copy(update={"revision": 1}) for one in steps))
    planned.add_earlier([earlier("unknown", StepStatus.CANCELLED)])

    assert {one.step.id: one.status for one in planned.records} == {
        "known": StepStatus.COMPLETED,
        "unknown": StepStatus.PENDING,
    }


def test_what_a_reset_told_of_is_newer_than_what_the_run_did() -> None:
    """A rollback begins with it: it was done after the point to which the task went back."""
    run = progress(plans=1, steps=1)
    run.records[0].place = 1
    run.add_earlier([earlier("first"), earlier("second")])

    assert {one.step.id: one.place for one in run.records} == {"p1s0": 1, "first": 2, "second": 3}
