"""The lines that people read: what happened, in 80 columns, whatever the world put into it; and commands to copy."""

import shlex
from datetime import timedelta
from typing import Any

import pytest
from rich.cells import cell_len
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.converter import DataConverter

from client import snapshot, tree
from client.explain import prose
from client.lines import wrap
from client.problem import Problem
from client.snapshot import Attempt, Snapshot
from client.tree import LiveState
from console.options import Common
from console.render.closing import closing_lines
from console.render.command import starter
from console.render.views import LinesView
from tests.console.outcomes import BEGAN, all_lines, fault, outcome, step
from workflows.account.outcome import Outcome
from workflows.account.records import FaultRecord, Rejection, Revision, StepStatus, UndoRecord
from workflows.account.task import TaskStatus
from workflows.faults.fault import DEFERRED, Applied, Code
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


def test_a_step_and_a_planner_are_named_once() -> None:
    """An id that is the kind, and a title that begins with the kind or the id, repeat nothing; columns stay."""
    steps = (
        step("charge", kind="charge", title="charge ann 12.00 17"),
        step("charge-2", kind="charge", title="ben 8.00"),
        step("slot", kind="book_slot", title="Book slot: team 14:00"),
        step(kind="old_search", is_fallback=True),
    )
    whole = outcome(steps=steps, planner="")
    layout = tree.RowLayout(whole)

    assert [" ".join(tree.step_lines(whole, one, layout)[0].split()[:-4]) for one in whole.steps] == [
        "✓ charge ann 12.00 17",
        "✓ charge-2 ben 8.00",
        "✓ slot book_slot team 14:00",
        "✓ book old_search (fallback) team 14:00",
    ]
    assert "planner unknown" in tree.heading(whole, None), "one that was closed from outside waits for nobody"
    assert "waiting for a worker" in tree.heading(outcome(planner="", ended_at=None), None)


def met(*faults: FaultRecord, more: dict[str, Any] | None = None, **of_step: Any) -> Outcome:
    """A task whose step failed with these faults."""
    return outcome(steps=(step(**{"status": StepStatus.FAILED, **of_step}),), faults=faults, **(more or {}))


def unknown(decision: str, **more: Any) -> Outcome:
    """A task whose step had an unknown outcome."""
    return met(fault(Code.UNREACHABLE, decision, **more))


AGAIN = "the same call would fail again -> "
SILENT = "ended without a response (worker lost or timeout)"
PLANS = (Revision(number=1), Revision(number=2))
BUSY = [fault(Code.BUSY, "retry", waited=wait) for wait in (0.19, 0.4, 0.8)]
ASKED = {"id": "r1", "kind": "fault", "step": "book", "code": "worker_lost", "reason": "Lost.", "choices": ["provide"]}
ANSWERED = {**ASKED, "since": BEGAN, "until": BEGAN, "answer": {"choice": "provide", "by": "ann", "at": BEGAN}}
LOST = fault(Code.WORKER_LOST, "ask", applied=Applied.UNKNOWN)
BELOW: list[tuple[list[str], Outcome]] = [
    (["bug: No.", f"{AGAIN}no retry"], met(fault(Code.BUG, reason="No."))),
    (["waiting, then the same step again"], met(fault(Code.BUG, "wait"))),
    (["the retries are used up -> its fallback takes over"], met(fault(Code.BUG, "fallback"))),
    (["neither a retry nor a new plan can help -> a person has to act"], met(fault(Code.BUG, "escalate"))),
    ([f"{AGAIN}a new plan, no retry"], met(fault(), more={"revisions": PLANS})),
    ([f"{AGAIN}a new plan, no retry"], met(fault(), more={"ended_at": None})),
    ([f"{AGAIN}no retry"], met(fault(), more={"status": TaskStatus.OVER_BUDGET})),
    ([f"{AGAIN}the model's next turn, no retry"], met(fault(), more={"revisions": PLANS, "strategy": "react"})),
    ([f"2 attempts {SILENT}"], met(status=StepStatus.COMPLETED, attempts=3, silent=2)),
    (["busy once", f"1 attempt {SILENT}"], met(fault(Code.BUSY, "retry"), status="completed", attempts=3, silent=1)),
    (["worker_shutdown: x", "waiting, then the same step again"], met(fault(Code.WORKER_SHUTDOWN, "wait", reason="x"))),
    ([], met(status=StepStatus.CANCELLED)),
    (["busy once"], met(fault(Code.BUSY, "retry"), attempts=2, status="completed")),
    (["busy once, waited 0.19 s"], met(BUSY[0], attempts=2, status="completed")),
    (["busy 3 times, waited 0.19 s and 0.40 s and 0.80 s"], met(*BUSY, attempts=4, status="completed")),
    ([], met(fault(revision=1), fault(Code.GONE, "retry", revision=1), revision=2)),
    (["unknown outcome -> finding out whether it was applied"], unknown("reconcile")),
    (["it was applied -> its result was found, nothing was repeated"], unknown("reconcile", reconciled="applied")),
    (["it was not applied -> the same step again"], unknown("wait", reconciled="not_applied")),
    (["nobody knows whether it was applied -> a person has to act"], unknown("escalate", applied=Applied.UNKNOWN)),
    (["it was applied, so it is not repeated -> a person has to act"], unknown("escalate", applied=Applied.APPLIED)),
    (["the retries are used up -> a person has to act"], unknown("escalate")),
    (["nobody knows whether it was applied -> ann answered provide"], met(LOST, more={"requests": (ANSWERED,)})),
]
"""What stands below a step in the end, by what it met; a single line may have the reason of a fault above it."""


@pytest.mark.parametrize(("lines", "whole"), BELOW, ids=lambda given: str(given) if isinstance(given, list) else "")
def test_what_a_step_met_and_what_followed_stand_below_it(lines: list[str], whole: Outcome) -> None:
    """Code and reason, then the decision in words: a step of an earlier plan has its faults there."""
    said = [line.strip() for line in tree.step_lines(whole, whole.steps[0])[1:]]

    assert said[len(said) - len(lines) :] == lines and len(said) <= 2 * len(lines)


DUE = BEGAN + timedelta(seconds=2.1)
LIVE: list[tuple[StepStatus, Attempt | None, str, list[str]]] = [
    (StepStatus.PENDING, None, "○ {:>64}", []),
    (StepStatus.RUNNING, None, "● {:>64}     1.5 s", []),
    (StepStatus.WAITING, None, "◷ {:>64}     1.5 s", []),
    (StepStatus.RUNNING, Attempt(2, 4), "● {:>64}     1.5 s", []),
    (StepStatus.RUNNING, Attempt(2, None), "● {:>64}     1.5 s", []),
    (StepStatus.RUNNING, Attempt(2, 4, "busy"), "● {:>64}     1.5 s", ["    after busy"]),
    (StepStatus.RUNNING, Attempt(3, 4, "busy", DUE), "● {:>64}     1.5 s", ["    busy, again in 0.6 s"]),
]


@pytest.mark.parametrize(("status", "attempt", "form", "below"), LIVE, ids=str)
def test_a_step_that_has_not_ended_says_how_it_stands(
    status: StepStatus, attempt: Attempt | None, form: str, below: list[str]
) -> None:
    """Its state in the place of the attempts, the time since it began, what the attempt before met, and the next."""
    begun = None if status is StepStatus.PENDING else BEGAN
    whole = outcome(steps=(step(status=status, attempts=0, started=begun, ended=None),), ended_at=None)
    attempts = {"book": attempt} if attempt else {}
    row, *rest = tree.body(whole, None, live=LiveState(BEGAN + timedelta(seconds=1.5), attempts))[2:]
    name, state = "book book_slot team 14:00", attempt.label if attempt else status

    assert row == "  " + form.format(f"{name}{state:>{64 - len(name)}}")
    assert rest == below and cell_len(row) <= 80


@pytest.mark.parametrize("width", [40, 80, 200])
def test_rows_use_the_width_of_the_terminal(width: int) -> None:
    """Nothing is wider; a wide terminal shows a long title whole; wide letters count twice."""
    titles = ("会議室を予約する" * 4, "t" * 90, "short")
    whole = outcome(steps=tuple(step(f"s{at}", title=title) for at, title in enumerate(titles)))
    lines = tree.body(whole, None, width)[2:]

    assert max(map(cell_len, lines)) <= width and len({cell_len(line) for line in lines}) == 1
    assert (titles[1] in lines[1]) is (width == 200)


@pytest.mark.parametrize("result", [EVIL, {"text": EVIL, EVIL: [EVIL]}, None], ids=["text", "JSON", "none"])
def test_nothing_from_the_world_can_draw_on_the_terminal(result: Any) -> None:
    """Escapes, bells and reversed text are gone; a line break of it pretends to be no plan."""
    refused = fault(reason=EVIL, step_id="book")
    failed = step(title=EVIL, kind=EVIL, status=StepStatus.FAILED, fault=refused)
    evil = Revision(number=1, because=EVIL, refused=(EVIL,), kept=(EVIL,), looked=(EVIL,))
    words: dict[str, Any] = {"task_id": f"id{EVIL}", "planner": EVIL, "reason": EVIL, "result": result}
    lines = all_lines(outcome(steps=(failed,), faults=(refused,), revisions=(evil,), **words), "http://x")
    text = "\n".join(lines)

    assert [char for char in text if not char.isprintable() and char != "\n"] == [] and "done" in text
    assert sum(line.startswith("Plan ") for line in lines) == 1
    assert not any("\n" in line for line in lines)


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


def rolled_back() -> Outcome:
    """A step that was undone, one whose undo failed, and one that has none."""
    steps = (
        step("book", status=StepStatus.UNDONE),
        step("pay"),
        step("tell"),
        step("undo:pay", kind="refund", status=StepStatus.FAILED, title="undo pay"),
        step("undo:book", kind="cancel_booking", title="undo book"),
    )
    undo = (
        UndoRecord(step_id="tell", reason="tell has\nno undo"),
        UndoRecord(step_id="pay", kind="refund", reason="The bank is closed."),
        UndoRecord(step_id="book", kind="cancel_booking", done=True),
    )
    return outcome(steps=steps, undo=undo)


def test_a_rollback_has_a_heading_of_its_own_below_the_plans() -> None:
    """With what stays and no call could take back, and the calls that were made; none of them is a step of the plan.
    The plain view says the heading before the first of it, and each line once however often it looks."""
    lines = [" ".join(line.split()[:3]) for line in tree.body(rolled_back(), None)[1:]]
    said = list[str]()
    view = LinesView(Common(), None, said.append)
    for _ in range(2):
        view.see(Snapshot(rolled_back()))
    view.end(rolled_back())

    assert lines == [
        *("Plan 1", "↶ book book_slot", "✓ pay book_slot", "✓ tell book_slot"),
        *("Undo the newest", "tell stays: tell", "✗ undo:pay refund", "✓ undo:book cancel_booking"),
    ]
    assert (said.count(tree.UNDO_HEADING), sum("undo:" in line for line in said)) == (1, 2)
    assert [line for line in said if "stays:" in line] == ["    tell stays: tell has no undo"]


def test_what_costs_no_attempt_is_explained() -> None:
    """Each has a sentence of its own."""
    assert set(prose.WAIT_BECAUSE) >= DEFERRED


ONE_CALL = ": 0 replans, 0 retries, 1 tool call"
CLOSING: list[tuple[dict[str, Any], str]] = [
    ({"replans": 0, "spent": Spent(tool_calls=1, seconds=0)}, f"Completed in 0.0 s{ONE_CALL}"),
    ({"status": TaskStatus.OVER_BUDGET}, f"Over budget in 2.3 s{ONE_CALL}"),
    ({"status": TaskStatus.RUNNING, "ended_at": None}, f"Running for 2.3 s{ONE_CALL}"),
    ({"status": TaskStatus.FAILED, "code": "closed"}, "Failed in 2.3 s"),  # it left no account
    ({"spent": Spent(tool_calls=1, model_calls=2, tokens=48_120)}, ", 1 tool call, 2 model calls, 48,120 tokens"),
    ({"spent": Spent(model_calls=1, tokens=9, unpriced=1)}, ", 1 model call, 9 tokens, price unknown"),
    ({"spent": Spent(model_calls=2, tokens=90, estimated=1)}, ", 2 model calls, about 90 tokens"),
]


@pytest.mark.parametrize(("more", "first"), CLOSING, ids=str)
def test_the_closing_line_counts(more: dict[str, Any], first: str) -> None:
    """Status, time, replans, retries, calls and what models used, with singular and plural; no unknown price is 0."""
    said = closing_lines(outcome(**more))[0]

    assert said == first or (first.startswith(", ") and said.endswith(first))


RETRIES = [
    (1, 1, 0, "1 retry (it helped), 0 wasted"),
    (1, 0, 0, "1 retry (it did not help), 0 wasted"),
    (2, 2, 0, "2 retries (both helped), 0 wasted"),
    (3, 3, 0, "3 retries (all helped), 0 wasted"),
    (2, 1, 0, "2 retries (1 of 2 helped), 0 wasted"),
    (2, 0, 1, "2 retries (none helped), 1 wasted"),
]


@pytest.mark.parametrize(("retries", "helped", "wasted", "said"), RETRIES)
def test_the_closing_line_says_what_retries_were_good_for(retries: int, helped: int, wasted: int, said: str) -> None:
    """As the task counted them, over all tools and codes."""
    numbers = {"retries": retries, "helped_retries": helped, "wasted_attempts": wasted}
    counts = {name: {"book_slot/busy": 1, "get_price/timeout": some - 1} for name, some in numbers.items() if some}

    assert said in closing_lines(outcome(counts=counts))[0]


WHY = "Why: python starter.py explain book-a-slot-7f3a"
WITHHELD = {"result": "Bought.", "rejections": (Rejection(turn=2, reasons=("No.",)),)}
LAST: list[tuple[dict[str, Any], list[str]]] = [
    ({"result": "x", "faults": (fault(),)}, ["x", WHY]),
    ({"status": TaskStatus.ESCALATED, "reason": "No answer."}, ["No answer.", WHY]),  # a planner that was not reached
    ({"status": TaskStatus.OVER_BUDGET, "reason": "No answer."}, ["No answer.", WHY]),
    ({"status": TaskStatus.COMPLETED, "reason": "No answer."}, ["No answer."]),
    ({"status": TaskStatus.CANCELLED, "reason": "No answer."}, ["No answer."]),
    (WITHHELD, ["Bought.", WHY]),  # a model may claim that it did what nobody let it do
    ({"result": "two\nlines"}, ["two", "lines"]),
    ({"result": {"b": 1, "a": "ü"}}, ['{"a":"ü","b":1}']),
    ({"result": 0}, ["0"]),
    ({"result": False}, ["false"]),
    ({"result": None}, []),
]


@pytest.mark.parametrize(("more", "lines"), LAST, ids=str)
def test_the_last_lines_are_the_result_and_where_to_read_why(more: dict[str, Any], lines: list[str]) -> None:
    """Text as it is, everything else as JSON; `explain` only where there is something to explain."""
    assert "\n".join(closing_lines(outcome(**more))[1:]).splitlines() == lines


def test_a_huge_result_is_cut_and_says_where_the_whole_is() -> None:
    """A terminal shows its beginning, --json has all of it."""
    lines = closing_lines(outcome(result="word " * 20_000))

    assert sum(map(len, lines)) < 5000
    assert lines[-1] == "... cut here; all 100,000 characters: python starter.py show book-a-slot-7f3a --json"


def test_a_shown_command_means_its_id() -> None:
    """A shell reads it back as one word; no quotes where none are needed, and nothing that draws."""
    for id in ("a b", "x; rm -rf ~", "it's", "$HOME", "tä"):
        assert shlex.split(starter("show", id, "--follow")) == ["python", "starter.py", "show", id, "--follow"]
    assert starter("show", "book-a-slot") == "python starter.py show book-a-slot"
    assert "\x1b" not in starter("show", "\x1b[31m")


def test_a_problem_ends_once() -> None:
    """With one sign."""
    assert str(Problem("x", "It is not there", "did you mean this?")) == "It is not there: did you mean this?"
    for reason, remedy in (("It is not there", "look"), ("It is not there.", "look"), ("It is not there", "look.")):
        assert str(Problem("x", reason, remedy)) == "It is not there: look."


def pending(kind: str, attempt: int = 1, *, waits: bool = False) -> PendingActivityInfo:
    """An activity that goes on; before its second attempt the first had run out of its time."""
    info = PendingActivityInfo(activity_id="plan:1", attempt=attempt, maximum_attempts=4)
    info.activity_type.name = kind
    if attempt > 1:
        info.last_failure.timeout_failure_info.timeout_type = 1  # type: ignore[assignment]
    if waits:
        info.next_attempt_schedule_time.FromSeconds(1)
    return info


@pytest.mark.parametrize(
    ("strategy", "activity", "said"),
    [
        ("plan", pending("plan"), "asking the planner"),
        ("plan", pending("replan"), "asking the planner for a new plan"),
        ("react", pending("replan"), "asking the model"),
        ("react", pending("compact"), "summarising the older turns of the conversation"),
        ("react", pending("plan", 2), "asking the model: attempt 2 of 4, after timeout"),
        ("plan", pending("plan", 3, waits=True), "asking the planner: waiting for attempt 3 of 4, after timeout"),
    ],
)
async def test_a_request_says_what_is_waited_for(strategy: str, activity: PendingActivityInfo, said: str) -> None:
    """Whoever looks at a task that stands still sees that somebody is asked again, and what went wrong before."""
    assert await snapshot.asking(DataConverter.default, outcome(strategy=strategy), activity) == said
