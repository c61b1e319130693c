"""The account of a trial: a harness that cannot see a duplicate or a loss proves nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent

from evals.chaos.account import Account, Verdict, verdicts
from evals.chaos.tasks import Steps, jobs, ran_again
from evals.chaos.trial import Action, amounts, schedule
from evals.chaos.world import Effects, Note, back_of
from tests.console.outcomes import outcome, step
from workflows.account.outcome import Outcome
from workflows.account.records import FaultRecord, StepStatus
from workflows.faults.fault import Applied, Code, Fault

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def ended(status: StepStatus, effect: str | None = None) -> Outcome:
    """A task with one transfer that ended so."""
    fault = None
    if effect is not None:
        plain = Fault.of(Code.WORKER_LOST, "gone", applied=Applied(effect)).model_dump()
        fault = FaultRecord(**plain, step_id="s1", revision=1, decision="escalate", at=NOW)
    made = step("s1", kind="transfer", args={"reference": "r"}, status=status, fault=fault)
    return outcome(task_id="t", steps=(made,))


def world(count: int, back: int = 0) -> Effects:
    happened = {"r": count, back_of("r"): back}
    return Effects({name: times for name, times in happened.items() if times}, {}, {}, {}, 2_000_000, [])


@pytest.mark.parametrize(
    ("status", "said", "count", "verdict"),
    [
        (StepStatus.COMPLETED, None, 1, Verdict.RIGHT),
        (StepStatus.COMPLETED, None, 0, Verdict.LOST),
        (StepStatus.COMPLETED, None, 2, Verdict.DUPLICATE),
        (StepStatus.FAILED, "none", 0, Verdict.RIGHT),
        (StepStatus.FAILED, "none", 1, Verdict.DENIED),
        (StepStatus.FAILED, "applied", 0, Verdict.LOST),
        (StepStatus.FAILED, "unknown", 1, Verdict.UNKNOWN_DONE),
        (StepStatus.FAILED, "unknown", 0, Verdict.UNKNOWN_NOT),
        (StepStatus.FAILED, "unknown", 2, Verdict.DUPLICATE),
        (StepStatus.SKIPPED, None, 1, Verdict.DENIED),
    ],
)
def test_every_effect_is_judged(status: StepStatus, said: str | None, count: int, verdict: Verdict) -> None:
    [finding] = verdicts(ended(status, said), world(count), was_reset=False)

    assert finding.verdict is verdict


def test_a_task_that_was_reset_forgets_what_it_did() -> None:
    """A step that it did not come to again may have happened before, once.

    Of a step that was done, and only done, it is not to be said that it failed without effect.
    """
    skipped = [verdicts(ended(StepStatus.SKIPPED), world(count), was_reset=True) for count in range(3)]
    denied = [verdicts(ended(StepStatus.FAILED, "none"), world(1, back=back), was_reset=True) for back in (0, 1)]

    assert [[one.verdict for one in found] for found in skipped] == [
        [Verdict.RIGHT],
        [Verdict.RIGHT],
        [Verdict.DUPLICATE],
    ]
    assert [found[0].verdict for found in map(list, denied)] == [Verdict.DENIED, Verdict.RIGHT]


def test_what_is_taken_back_without_a_word_is_seen() -> None:
    """A rollback that the task says nothing of is as wrong as an effect that it says nothing of."""
    found = verdicts(ended(StepStatus.COMPLETED), world(1, back=1), was_reset=False)

    assert [finding.verdict for finding in found] == [Verdict.RIGHT, Verdict.DENIED]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tasks": {"completed": 9, "unfinished": 1}}, "unfinished: 1 tasks"),
        ({"ran_again": ["t s1"]}, "ran again: t s1"),
        ({"total_after": 99}, "total 100 -> 99"),
        ({"unbalanced": [3]}, "accounts [3] are off"),
        (
            {"findings": [(Verdict.DUPLICATE, "t.s1", "pay", "applied", 2)]},
            "duplicate: pay t.s1, said applied, 2 times",
        ),
    ],
)
def test_every_broken_promise_is_named(change: dict[str, Any], words: str) -> None:
    empty = ("codes", "verdicts", "applied", "reconciled", "attempts", "troubles")
    kept: dict[str, Any] = {
        **{name: {} for name in empty},
        **{name: [] for name in ("findings", "ran_again", "unbalanced")},
        **{"tasks": {"completed": 10}, "undone": 0, "replayed": 0, "total_before": 100, "total_after": 100},
    }

    assert Account(**kept).broken == []
    assert words in Account(**{**kept, **change}).broken[0]


def note(scheduled: datetime, attempt: int) -> Note:
    return Note(task="t", run="r", step="s1", kind="pay", attempt=attempt, scheduled=scheduled, worker=1)


def test_a_finished_step_that_is_called_or_scheduled_again_is_seen() -> None:
    """An attempt that was scheduled when the step was finished; one that was frozen since before is none."""
    calls = [note(NOW - timedelta(seconds=9), 1), note(NOW + timedelta(seconds=1), 2)]
    events = [HistoryEvent(event_id=number) for number in (1, 2, 3)]
    for event in (events[0], events[2]):
        event.activity_task_scheduled_event_attributes.activity_id = "s1"
    events[1].activity_task_completed_event_attributes.scheduled_event_id = 1

    assert list(ran_again({"t": Steps(completed={"s1": NOW})}, calls)) == ["t s1, attempt 2"]
    assert list(ran_again({"t": Steps.of(events)}, [])) == ["t s1"]


def test_a_seed_decides_everything() -> None:
    wanted = amounts(60, 5, 5, has_database=True)
    one, same, other = (
        ([(job.id, job.steps, job.troubles) for job in jobs(40, seed)], schedule(wanted, seed)) for seed in (7, 7, 8)
    )

    assert one == same
    assert one != other


def test_the_schedule_has_what_was_asked_for() -> None:
    blows = schedule(amounts(60, 5, 4, has_database=False), 7)
    count = {what: sum(blow.action is what for blow in blows) for what in Action}

    assert [count[what] for what in (Action.KILL, Action.RESTART_SERVER, Action.DROP, Action.RESTART_DATABASE)] == [
        60,
        5,
        4,
        0,
    ]
    assert sorted(blow.at for blow in blows) == [blow.at for blow in blows] and 0 < blows[0].at < blows[-1].at < 1
