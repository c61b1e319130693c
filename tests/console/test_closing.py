"""The last lines of a task: how it ended, what it cost, the result, and where to read why."""

from typing import Any

import pytest

from console.render.closing import closing_lines
from tests.console.outcomes import fault, outcome
from workflows.account.records import Rejection
from workflows.account.task import TaskStatus
from workflows.limits.budget import Spent


@pytest.mark.parametrize(
    ("more", "first"),
    [
        (
            {"replans": 0, "spent": Spent(tool_calls=1, seconds=0)},
            "Completed in 0.0 s: 0 replans, 0 retries, 1 tool call",
        ),
        ({"status": TaskStatus.OVER_BUDGET}, "Over budget in 2.3 s: 0 replans, 0 retries, 1 tool call"),
        ({"status": TaskStatus.RUNNING, "ended_at": None}, "Running for 2.3 s: 0 replans, 0 retries, 1 tool call"),
    ],
)
def test_the_closing_line_counts(more: dict[str, Any], first: str) -> None:
    """Status, time, replans, retries and tool calls, with singular and plural."""
    assert closing_lines(outcome(**more))[0] == first


@pytest.mark.parametrize(
    ("retries", "helped", "wasted", "said"),
    [
        (1, 1, 0, "1 retry (it helped), 0 wasted"),
        (1, 0, 0, "1 retry (it did not help), 0 wasted"),
        (2, 2, 0, "2 retries (both helped), 0 wasted"),
        (3, 3, 0, "3 retries (all helped), 0 wasted"),
        (2, 1, 0, "2 retries (1 of 2 helped), 0 wasted"),
        (2, 0, 1, "2 retries (none helped), 1 wasted"),
    ],
)
def test_the_closing_line_says_what_retries_were_good_for(retries: int, helped: int, wasted: int, said: str) -> None:
    """As the task counted them, over all tools and codes."""
    numbers = {"retries": retries, "helped_retries": helped, "wasted_attempts": wasted}
    counts = {name: {"book_slot/busy": 1, "get_price/timeout": some - 1} for name, some in numbers.items() if some}

    assert said in closing_lines(outcome(counts=counts))[0]


def test_a_task_that_was_closed_from_outside_counts_nothing() -> None:
    """It left no account: `0 tool calls` would be made up."""
    assert closing_lines(outcome(status=TaskStatus.FAILED, code="closed"))[0] == "Failed in 2.3 s"


@pytest.mark.parametrize(
    ("faults", "last"), [((fault(),), "Why: python starter.py explain book-a-slot-7f3a"), ((), "x")]
)
def test_the_last_line_says_where_to_read_why(faults: tuple[Any, ...], last: str) -> None:
    """Only where there is something to explain."""
    assert closing_lines(outcome(result="x", faults=faults))[-1] == last


@pytest.mark.parametrize(
    ("status", "is_said"),
    [
        (TaskStatus.ESCALATED, True),
        (TaskStatus.OVER_BUDGET, True),
        (TaskStatus.COMPLETED, False),
        (TaskStatus.CANCELLED, False),
    ],
)
def test_an_end_without_a_fault_of_a_step_is_explained_too(status: TaskStatus, *, is_said: bool) -> None:
    """A planner that could not be asked is no fault of a step, and its attempts stand in `explain` alone."""
    last = closing_lines(outcome(status=status, reason="No answer."))[-1]

    assert (last == "Why: python starter.py explain book-a-slot-7f3a") is is_said


def test_a_task_of_which_something_was_withheld_says_where_to_read_why() -> None:
    """A model may claim in its answer that it did what nobody let it do."""
    whole = outcome(result="Bought.", rejections=(Rejection(turn=2, reasons=("No.",)),))

    assert closing_lines(whole)[1:] == ["Bought.", "Why: python starter.py explain book-a-slot-7f3a"]


def test_a_huge_result_is_cut_and_says_where_the_whole_is() -> None:
    """A terminal shows its beginning, --json has all of it."""
    lines = closing_lines(outcome(result="word " * 20_000))

    assert sum(map(len, lines)) < 5000
    assert lines[-1] == "... cut here; all 100,000 characters: python starter.py show book-a-slot-7f3a --json"


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("two\nlines", ["two", "lines"]),
        ({"b": 1, "a": "ü"}, ['{"a":"ü","b":1}']),
        (0, ["0"]),
        (False, ["false"]),
        (None, []),
    ],
)
def test_the_result_comes_last(result: Any, shown: list[str]) -> None:
    """Text as it is, everything else as JSON; nothing where there is none."""
    assert "\n".join(closing_lines(outcome(result=result))[1:]).splitlines() == shown
