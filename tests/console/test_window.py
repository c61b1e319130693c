"""The part of a long task that a terminal shows: what runs, what failed, what was finished last, and counts."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len

from client import tree
from client.snapshot import Snapshot
from client.tree import RowLayout
from console.render import live
from console.render.live import fit_groups
from tests.console.outcomes import BEGAN, fault, outcome, step
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import Failover, Revision, StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code

LONG = 200


def chain(done: int, running: int = 1, count: int = LONG, **more: object) -> list[OutcomeStep]:
    """Steps in a row: the first `done` completed, the next `running` running, the rest pending."""
    steps = []
    for at in range(count):
        status = (StepStatus.COMPLETED, StepStatus.RUNNING, StepStatus.PENDING)[(at >= done) + (at >= done + running)]
        ended = BEGAN + timedelta(seconds=at) if at < done else None
        begun = BEGAN if at < done + running else None
        steps.append(
            step(f"s{at}", title="会議室" * 30, status=status, started=begun, ended=ended, revision=1 + at // 50)
        )
    return steps


def task(steps: Sequence[OutcomeStep], **more: object) -> Outcome:
    """A task that runs these steps."""
    plans = tuple(Revision(number=1 + at, because="more to do") for at in range(4))
    return outcome(steps=tuple(steps), revisions=plans, status=TaskStatus.RUNNING, ended_at=None, **more)


def window(whole: Outcome, room: int) -> list[str]:
    """What is shown of a task in so many lines."""
    return fit_groups(tree.line_groups(whole, RowLayout(whole)), room)


@pytest.mark.parametrize("done", [0, 1, 49, 50, 143, 199])
@pytest.mark.parametrize(("width", "height"), [(79, 23), (199, 49), (39, 9), (79, 3)])
def test_two_hundred_steps_fit_the_terminal(done: int, width: int, height: int) -> None:
    """Never a line too many or too wide, and the step that runs is there."""
    snapshot = Snapshot(task(chain(done)), doing=("asking the planner",))
    lines = live.fit_frame(live.running_frame(snapshot, "http://localhost:8233/x", [], width, height), width, height)

    assert len(lines) <= height and max(map(cell_len, lines)) <= width
    assert height < 9 or any(f"● s{done} " in line for line in lines)


def test_what_is_left_out_is_counted() -> None:
    """Above and below; the steps before and after those that run are shown as far as there is room."""
    lines = window(task(chain(143)), 20)

    assert lines[:3] == ["  ... 2 plans, 100 finished above", "Plan 3", "  ... 35 finished above"]
    assert lines[-1] == "  ... 50 pending below"


def test_notes_that_are_left_out_are_not_counted_as_nothing() -> None:
    """Of what is neither a plan nor a step there is a word, too."""
    failed = tuple(Failover(planner=f"openai:{name}", code="unauthorized", reason="No.", turn=1) for name in "abc")

    assert window(task(chain(143), failovers=failed), 8)[0] == "  ... 2 plans, 100 finished above"
    assert window(task(chain(3, count=6)[:5], failovers=failed), 6)[0] == "  ... more above"


@pytest.mark.parametrize(
    ("steps", "said"),
    [((), "1 tool call "), ((step(),), "1 of 1 step, 1 tool call ")],
    ids=["none yet", "one"],
)
def test_how_a_task_stands_counts_what_there_is(steps: tuple[OutcomeStep, ...], said: str) -> None:
    """Not 0 of 0 steps, and one of a thing is one."""
    whole = outcome(steps=steps, status=TaskStatus.RUNNING, started_at=datetime.now(UTC), ended_at=None)
    last = live.running_frame(Snapshot(whole), None, [], 80, 24)[-1]

    assert last.partition(": ")[2].startswith(said)


def test_all_is_shown_where_there_is_room() -> None:
    """Nothing is left out for nothing."""
    lines = window(task(chain(3, count=6)), 30)

    assert sum("... " in line for line in lines) == 0
    assert sum(line.startswith("  ○ s") for line in lines) == 2


def test_everything_that_runs_is_shown_first() -> None:
    """Twenty steps at once leave room for little else."""
    lines = window(task(chain(100, running=20)), 23)

    assert [line.split()[1] for line in lines if "●" in line] == [f"s{at}" for at in range(100, 120)]
    assert len(lines) <= 23


def test_a_failed_step_stays_in_sight_with_its_plan() -> None:
    """However long ago it was, with what followed."""
    refused = fault(Code.CONFLICT, step_id="s7", reason="Taken.")
    steps = chain(143)
    steps[7] = steps[7].model_copy(update={"status": StepStatus.FAILED})
    lines = window(task(steps, faults=(refused,)), 20)

    assert "    conflict: Taken." in lines
    assert lines.index("Plan 1") < lines.index("    conflict: Taken.")


def test_a_single_line_is_not_replaced_by_a_count() -> None:
    """`... 1 finished` takes as much room as the step."""
    assert all("... 1 finished" not in line for room in range(6, 40) for line in window(task(chain(143)), room))


@pytest.mark.parametrize(("count", "cut"), [(100, False), (101, True)])
def test_the_last_picture_of_a_long_task_says_where_the_rest_is(count: int, cut: bool) -> None:
    """Up to a hundred steps all stay in the scrollback; of more, what matters and the command that shows all."""
    steps = [one.model_copy(update={"revision": 1}) for one in chain(count, running=0, count=count)]
    whole = outcome(steps=tuple(steps))
    lines = live.final_lines(whole, None, 80)

    assert (f"All {count} steps: python starter.py show book-a-slot-7f3a" in lines) is cut
    assert (sum("✓" in line for line in lines) == count) is not cut
