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


def chain(done: int, running: int = 1, count: int = LONG) -> list[OutcomeStep]:
    """Steps in a row: the first `done` completed, the next `running` running, the rest pending."""
    steps = []
    for at in range(count):
        status = (StepStatus.COMPLETED, StepStatus.RUNNING, StepStatus.PENDING)[(at >= done) + (at >= done + running)]
        begun, ended = BEGAN if at < done + running else None, BEGAN + timedelta(seconds=at) if at < done else None
        given = {"status": status, "started": begun, "ended": ended, "revision": 1 + at // 50}
        steps.append(step(f"s{at}", title="会議室" * 30, **given))
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
    """Above and below, also what is neither a plan nor a step; nothing is left out for nothing."""
    cut, whole = window(task(chain(143)), 20), window(task(chain(3, count=6)), 30)
    failed = tuple(Failover(planner=f"openai:{name}", code="unauthorized", reason="No.", turn=1) for name in "abc")

    assert cut[:3] == ["  ... 2 plans, 100 finished above", "Plan 3", "  ... 35 finished above"]
    assert cut[-1] == "  ... 50 pending below"
    assert window(task(chain(143), failovers=failed), 8)[0] == "  ... 2 plans, 100 finished above"
    assert window(task(chain(3, count=6)[:5], failovers=failed), 6)[0] == "  ... more above"
    assert not any("... " in line for line in whole) and sum(line.startswith("  ○ s") for line in whole) == 2
    # A count takes as much room as the one step that it stands for.
    groups = tree.line_groups(task(chain(143)), RowLayout(task(chain(143))))
    assert all("... 1 finished" not in line for room in range(6, 40) for line in fit_groups(groups, room))


@pytest.mark.parametrize(("steps", "said"), [((), "1 tool call "), ((step(),), "1 of 1 step, 1 tool call ")])
def test_how_a_task_stands_counts_what_there_is(steps: tuple[OutcomeStep, ...], said: str) -> None:
    """Not 0 of 0 steps, and one of a thing is one."""
    whole = outcome(steps=steps, status=TaskStatus.RUNNING, started_at=datetime.now(UTC), ended_at=None)
    last = live.running_frame(Snapshot(whole), None, [], 80, 24)[-1]

    assert last.partition(": ")[2].startswith(said)


def test_what_runs_and_what_failed_stay_in_sight() -> None:
    """Twenty steps at once leave room for little else; a failure stays with its plan, however long ago it was."""
    refused, steps = fault(Code.CONFLICT, step_id="s7", reason="Taken."), chain(143)
    steps[7] = steps[7].model_copy(update={"status": StepStatus.FAILED})
    running, failed = window(task(chain(100, running=20)), 23), window(task(steps, faults=(refused,)), 20)

    assert [line.split()[1] for line in running if "●" in line] == [f"s{at}" for at in range(100, 120)]
    assert len(running) <= 23 and failed.index("Plan 1") < failed.index("    conflict: Taken.")


@pytest.mark.parametrize(("count", "cut"), [(100, False), (101, True)])
def test_the_last_picture_of_a_long_task_says_where_the_rest_is(count: int, cut: bool) -> None:
    """Up to a hundred steps all stay in the scrollback; of more, what matters and the command that shows all."""
    steps = [one.model_copy(update={"revision": 1}) for one in chain(count, running=0, count=count)]
    whole = outcome(steps=tuple(steps))
    lines = live.final_lines(whole, None, 80)

    assert (f"All {count} steps: python starter.py show book-a-slot-7f3a" in lines) is cut
    assert (sum("✓" in line for line in lines) == count) is not cut
