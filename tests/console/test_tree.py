"""The lines that people read: what happened, in 80 columns, whatever the world put into it."""

from datetime import timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from client import tree
from client.lines import wrap
from client.snapshot import Attempt
from client.tree import LiveState
from console.render.closing import closing_lines
from tests.console.outcomes import BEGAN, all_lines, fault, outcome, step
from workflows.account.outcome import Outcome
from workflows.account.records import Revision, StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code
from workflows.limits.budget import Spent

EVIL = "a\x1b[31m\x07\r\nb\x9b2J\u202ec\tdone"
"""A colour, a bell, line breaks, a C1 sequence that clears the screen, and one that turns the text round."""

TAKEN = fault(reason="14:00 is taken.", observed={"free": ["14:30"]})
REPLANNED = outcome(
    steps=(
        step("book", status=StepStatus.FAILED, fault=TAKEN),
        step("price", kind="get_price", title="A-17", attempts=3, ended=BEGAN + timedelta(seconds=0.66)),
        step("book-2", title="team 14:30", revision=2),
    ),
    faults=(
        TAKEN,
        fault(Code.SERVER_ERROR, "retry", step_id="price", waited=0.19),
        fault(Code.SERVER_ERROR, "retry", step_id="price", waited=0.42),
    ),
    revisions=(
        Revision(number=1),
        Revision(number=2, because="14:30 is free", refused=("book",), kept=("price",), looked=("list_slots",)),
    ),
    replans=1,
    counts={"retries": {"get_price/server_error": 2}, "helped_retries": {"get_price/server_error": 2}},
    spent=Spent(tool_calls=7, seconds=2.34),
    result="Booked for the team at 14:30.",
)


def test_a_task_with_a_retry_and_a_replan_reads_like_a_story() -> None:
    """Plans, steps, what went wrong, what followed, what it cost, and the result."""
    assert all_lines(REPLANNED, "http://localhost:8233/x") == [
        "book-a-slot-7f3a  offline planner  http://localhost:8233/x",
        "Plan 1",
        "  ✗ book  book_slot team 14:00                             1 attempt    0.02 s",
        "    conflict: 14:00 is taken.",
        "    the same call would fail again -> a new plan, no retry",
        "  ✓ price get_price A-17                                  3 attempts    0.66 s",
        "    server_error twice, waited 0.19 s and 0.42 s",
        "Plan 2  because book was rejected; price kept; observed with list_slots",
        "    14:30 is free",
        "  ✓ book-2 book_slot team 14:30                            1 attempt    0.02 s",
        "Completed in 2.3 s: 1 replan, 2 retries (both helped), 0 wasted, 7 tool calls",
        "Booked for the team at 14:30.",
        "Why: python starter.py explain book-a-slot-7f3a",
    ]


def test_a_step_is_named_once() -> None:
    """An id that is the kind, and a title that begins with the kind or the id, repeat nothing; columns stay."""
    whole = outcome(
        steps=(
            step("charge", kind="charge", title="charge ann 12.00 17"),
            step("charge-2", kind="charge", title="ben 8.00"),
            step("slot", kind="book_slot", title="Book slot: team 14:00"),
        )
    )
    layout = tree.RowLayout(whole)

    assert [" ".join(tree.step_lines(whole, one, layout)[0].split()[:-4]) for one in whole.steps] == [
        "✓ charge ann 12.00 17",
        "✓ charge-2 ben 8.00",
        "✓ slot book_slot team 14:00",
    ]


@pytest.mark.parametrize(
    ("decision", "follows"),
    [
        ("replan", "the same call would fail again -> no retry"),
        ("wait", "waiting, then the same step again"),
        ("fallback", "the retries are used up -> its fallback takes over"),
        ("escalate", "neither a retry nor a new plan can help -> a person has to act"),
    ],
)
def test_what_followed_a_fault_stands_below_it(decision: str, follows: str) -> None:
    """Code and reason, then the decision in words."""
    whole = outcome(steps=(step(status=StepStatus.FAILED),), faults=(fault(Code.BUG, decision, reason="No."),))

    assert tree.step_lines(whole, whole.steps[0])[1:] == ["    bug: No.", f"    {follows}"]


@pytest.mark.parametrize(
    ("more", "follows"),
    [
        (
            {"revisions": (Revision(number=1), Revision(number=2))},
            "the same call would fail again -> a new plan, no retry",
        ),
        ({"ended_at": None}, "the same call would fail again -> a new plan, no retry"),
        ({"status": TaskStatus.OVER_BUDGET}, "the same call would fail again -> no retry"),
    ],
    ids=["planned anew", "still running", "no replan allowed"],
)
def test_a_new_plan_is_named_only_where_one_can_follow(more: dict[str, Any], follows: str) -> None:
    """A `call`, and a task whose replans are used up, never get one."""
    whole = outcome(**{"steps": (step(status=StepStatus.FAILED),), "faults": (fault(),), **more})

    assert tree.step_lines(whole, whole.steps[0])[-1] == f"    {follows}"


@pytest.mark.parametrize(
    ("more", "faults", "below"),
    [
        ({"attempts": 3, "silent": 2}, [], ["    2 attempts ended without a response (worker lost or timeout)"]),
        (
            {"attempts": 3, "silent": 1},
            [fault(Code.BUSY, "retry")],
            ["    busy once", "    1 attempt ended without a response (worker lost or timeout)"],
        ),
        ({"attempts": 2}, [fault(Code.BUSY, "retry")], ["    busy once"]),
        (
            {"attempts": 1},
            [fault(Code.WORKER_SHUTDOWN, "wait", reason="x")],
            ["    worker_shutdown: x.", "    waiting"],
        ),
        ({"attempts": 1, "status": StepStatus.CANCELLED}, [], []),
    ],
    ids=["both killed", "one killed", "none killed", "shut down", "cancelled"],
)
def test_attempts_that_left_no_word_are_told(more: dict[str, Any], faults: list[Any], below: list[str]) -> None:
    """A killed worker records no fault: the task counts such attempts."""
    whole = outcome(steps=(step(**more),), faults=tuple(faults))
    said = tree.step_lines(whole, whole.steps[0])[1:]

    assert [line.partition(", then")[0] for line in said] == [line.replace("x.", "x") for line in below]


@pytest.mark.parametrize(
    ("ended", "who"), [(None, "waiting for a worker"), (BEGAN, "planner unknown")], ids=["running", "ended"]
)
def test_a_task_that_names_no_planner_says_why(ended: Any, who: str) -> None:
    """One that was closed from outside waits for nobody."""
    assert who in tree.heading(outcome(planner="", ended_at=ended), None)


def test_a_fallback_is_marked() -> None:
    """Another kind than the planned one did it: never silently."""
    whole = outcome(steps=(step(kind="old_search", is_fallback=True),))

    assert "old_search (fallback)" in tree.step_lines(whole, whole.steps[0])[0]


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        ([0.19], "busy once, waited 0.19 s"),
        ([0.19, 0.4, 0.8], "busy 3 times, waited 0.19 s and 0.40 s and 0.80 s"),
        ([None], "busy once"),
    ],
)
def test_retries_are_counted_with_their_waits(waits: list[float | None], said: str) -> None:
    """What time cured, and what it took."""
    faults = tuple(fault(Code.BUSY, "retry", waited=wait) for wait in waits)
    whole = outcome(steps=(step(attempts=len(waits) + 1),), faults=faults)

    assert tree.step_lines(whole, whole.steps[0])[1:] == [f"    {said}"]


def test_a_fault_of_another_plan_is_told_there() -> None:
    """A step whose id came back is told with the faults of its own plan."""
    whole = outcome(steps=(step(revision=2),), faults=(fault(revision=1), fault(Code.GONE, revision=2)))

    assert [line for line in tree.step_lines(whole, whole.steps[0]) if "conflict" in line] == []


@pytest.mark.parametrize(
    ("status", "sign", "time"),
    [(StepStatus.PENDING, "○", ""), (StepStatus.RUNNING, "●", "1.5 s"), (StepStatus.WAITING, "◷", "1.5 s")],
)
def test_a_step_that_has_not_ended_says_how_it_stands(status: StepStatus, sign: str, time: str) -> None:
    """`show` without --follow: its state in the place of the attempts, and the time since it began."""
    begun = None if status is StepStatus.PENDING else BEGAN
    whole = outcome(steps=(step(status=status, attempts=0, started=begun, ended=None),), ended_at=None)

    row = f"  {sign} {'book book_slot team 14:00':<52} {status:>11} {time:>9}"
    assert tree.body(whole, None, live=LiveState(BEGAN + timedelta(seconds=1.5)))[2] == row.rstrip()


@pytest.mark.parametrize(
    ("attempt", "tail", "below"),
    [
        (Attempt(2, 4), " attempt 2 of 4     1.5 s", []),
        (Attempt(2, None), "attempt 2     1.5 s", []),
        (Attempt(2, 4, "busy"), " attempt 2 of 4     1.5 s", ["    after busy"]),
        (
            Attempt(3, 4, "busy", BEGAN + timedelta(seconds=2.1)),
            " attempt 3 of 4     1.5 s",
            ["    busy, again in 0.6 s"],
        ),
    ],
)
def test_a_running_step_names_its_attempt(attempt: Attempt, tail: str, below: list[str]) -> None:
    """Which of how many, what the one before met, and when the next begins."""
    whole = outcome(steps=(step(status=StepStatus.RUNNING, attempts=0, ended=None),), ended_at=None)
    row, *rest = tree.body(whole, None, live=LiveState(BEGAN + timedelta(seconds=1.5), {"book": attempt}))[2:]

    assert row.endswith(tail) and cell_len(row) <= 80
    assert rest == below


@pytest.mark.parametrize("width", [40, 80, 200])
def test_rows_use_the_width_of_the_terminal(width: int) -> None:
    """Nothing is wider; a wide terminal shows a long title whole; wide letters count twice."""
    titles = ("会議室を予約する" * 4, "t" * 90, "short")
    whole = outcome(steps=tuple(step(f"s{at}", title=title) for at, title in enumerate(titles)))
    lines = tree.body(whole, None, width)[2:]

    assert max(map(cell_len, lines)) <= width and len({cell_len(line) for line in lines}) == 1
    assert (titles[1] in lines[1]) is (width == 200)


def evil() -> Outcome:
    """A task in which every word that can come from the world is hostile."""
    refused = fault(reason=EVIL, step_id="book")
    return outcome(
        task_id=f"id{EVIL}",
        planner=EVIL,
        reason=EVIL,
        result=EVIL,
        steps=(step(title=EVIL, kind=EVIL, status=StepStatus.FAILED, fault=refused),),
        faults=(refused,),
        revisions=(Revision(number=1, because=EVIL, refused=(EVIL,), kept=(EVIL,), looked=(EVIL,)),),
    )


@pytest.mark.parametrize("result", [EVIL, {"text": EVIL, EVIL: [EVIL]}], ids=["text", "JSON"])
def test_nothing_from_the_world_can_draw_on_the_terminal(result: Any) -> None:
    """Escapes, bells, control characters and reversed text are gone from every line; line breaks of a result stay."""
    text = "\n".join(all_lines(evil().model_copy(update={"result": result}), "http://x"))

    assert [char for char in text if not char.isprintable() and char != "\n"] == []
    assert "done" in text


def test_a_hostile_word_adds_no_line() -> None:
    """A reason with line breaks cannot pretend to be a plan of its own."""
    lines = all_lines(evil().model_copy(update={"result": None}), None)

    assert all("\n" not in line for line in lines)
    assert sum(line.startswith("Plan ") for line in lines) == 1


def test_ordinary_lines_fit_a_terminal() -> None:
    """80 columns for what people usually do; the address of the web UI may be longer."""
    steps = (
        step("book-the-meeting-room-2", kind="book_meeting_room", title="the whole team and guests at 14:30 in Ulm"),
        step("x" * 64, kind="k" * 60, title="t" * 200, attempts=12, ended=BEGAN + timedelta(seconds=99999.99)),
    )
    whole = outcome(steps=steps)
    lines = [line for one in steps for line in tree.step_lines(whole, one)] + closing_lines(whole)

    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("short", ["short"]),
        ("    one two three four", ["    one two", "    three four"]),
        ("http://localhost:8233/namespaces/default", ["http://localhost:8233/namespaces/default"]),
        ("", [""]),
        ("Plan 2  as a b c", ["Plan 2  as a b", "        c"]),
        ("    会議室を予約する", ["    会議室を予", "    約する"]),
    ],
)
def test_a_long_line_goes_on_below_its_beginning(line: str, rows: list[str]) -> None:
    """Rows are cut between words, keep the indent, and never break an address."""
    assert wrap(line, 14) == rows
