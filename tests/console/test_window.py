"""What a terminal shows of long tasks, of tasks that a model does turn by turn, and of many tasks in a list."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from client import tree
from client.lines import wrap
from client.listing import Listed
from client.snapshot import Snapshot
from client.tree import RowLayout, age
from console.commands import list_tasks
from console.options import Common
from console.render import live
from console.render.closing import closing_lines
from console.render.live import fit_groups
from console.render.terminal import painted
from console.render.views import LinesView
from tests.console.outcomes import BEGAN, all_lines, fault, outcome, step
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import Compaction, Failover, Rejection, Revision, StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code
from workflows.people.requests import HumanRequest

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
    plans = tuple(Revision(number=1 + at, because="more to do") for at in range(4))
    return outcome(steps=tuple(steps), revisions=plans, status=TaskStatus.RUNNING, ended_at=None, **more)


def window(whole: Outcome, room: int) -> list[str]:
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


def call(turn: int, revision: int | None = None, **more: Any) -> OutcomeStep:
    given = {"kind": "get_price", "title": "A-17", "ended": BEGAN + timedelta(seconds=turn), **more}
    return step(f"t{turn}.c0", revision=revision or turn, **given)


def reacting(turns: int, *, revisions: tuple[Revision, ...] = (), **more: Any) -> Outcome:
    """A task of so many turns with one call each."""
    plain = tuple(Revision(number=number) for number in range(1, turns + 1))
    steps = tuple(call(one.number) for one in plain)
    return outcome(**{"strategy": "react", "steps": steps, "revisions": revisions or plain, **more})


WITHHELD = "purchase changes the world, and no plan named it: ask the user (--allow\npurchase)"
UNUSED = Rejection(turn=2, reasons=(f"step 't2.c0': {WITHHELD}", "and no"))
REFUSED = Revision(number=20, because="Try B.", refused=("t19.c0",), kept=("t1.c0",), looked=("list_prices",))
SAID = (Revision(number=1), Revision(number=2, because="The price\nis old."))
WHOSE = ("openai:b", "openai:b", "anthropic:a", "anthropic:a")
HEADS: dict[str, tuple[Outcome, list[str]]] = {
    "a turn, after a plan by hand": (
        reacting(2, revisions=SAID, steps=(step("price"), call(2))),
        ["Plan 1", "Turn 2  The price is old."],
    ),
    "the number that its steps have": (reacting(2, steps=(call(1), call(4, revision=2))), ["Turn 1", "Turn 4"]),
    "a turn that was never carried out": (reacting(1, steps=(call(1, status=StepStatus.SKIPPED),)), ["Turn 1"]),
    "where another planner took over": (
        outcome(revisions=tuple(Revision(number=number, planner=one) for number, one in enumerate(WHOSE, 1))),
        ["Plan 1", "Plan 2", "Plan 3  by anthropic:a", "Plan 4"],
    ),
    "a turn of which nothing was done": (
        reacting(2, steps=(call(1), call(3, revision=2)), rejections=(UNUSED,)),
        ["Turn 1", f"  ! Turn 2 not used: step 't2.c0': {' '.join(WITHHELD.split())}; and no", "Turn 3"],
    ),
    "of many turns the first and those that answer a refusal": (
        reacting(40, revisions=tuple(REFUSED if at == 20 else Revision(number=at) for at in range(1, 41))),
        ["Turn 1", "Turn 20  because t19.c0 was rejected; t1.c0 kept; observed with list_prices", "    Try B."],
    ),
}


@pytest.mark.parametrize(("whole", "heads"), HEADS.values(), ids=HEADS)
def test_turns_and_plans_have_headings(whole: Outcome, heads: list[str]) -> None:
    """What the model said beside its calls stands behind the name of its turn; a plan by hand stays a plan."""
    assert [line for line in tree.body(whole, None)[1:] if not line.startswith("  ✓")] == heads


def test_many_turns_fit_a_terminal() -> None:
    """The newest stay, and what is left out is counted."""
    whole = reacting(100)
    shown = fit_groups(tree.line_groups(whole, RowLayout(whole)), 10)

    assert len(shown) <= 10 and shown[0] == "Turn 1" and "t100.c0" in shown[-1]
    assert shown[1] == "  ... 92 finished above"


FAILED = Failover(planner="anthropic:a", code="unauthorized", reason="The key is\nwrong.", turn=1)


def test_a_planner_that_could_not_be_used_is_told_once() -> None:
    """With the reason, and who took over; not for each turn at which it was tried."""
    failovers = [FAILED, FAILED.model_copy(update={"turn": 2})]

    assert tree.body(reacting(1, planner="openai:b", failovers=failovers), None)[1:3] == [
        "  ! anthropic:a could not be used (unauthorized)",
        "    The key is wrong; openai:b took over",
    ]


@pytest.mark.parametrize(
    ("turn", "where"), [(2, 2), (3, 4), (9, 6)], ids=["before a turn", "before the next", "at the end"]
)
def test_a_summary_stands_where_it_was_made(turn: int, where: int) -> None:
    """As a line between the turns: how much it stands for, and how long the conversation was."""
    short = Compaction(turn=turn, turns=1, planner="openai:b", tokens=61_000)
    shown = tree.body(reacting(3, compactions=(short,)), None)[1:]

    assert shown[where] == f"  ≡ the oldest turn summarised at turn {turn}: the conversation had 61,000 tokens"


@pytest.mark.parametrize(
    ("turn", "where"), [(1, 0), (2, 2), (3, 2), (4, 4)], ids=["before all", "between", "again", "at the end"]
)
def test_a_plan_of_which_nothing_was_done_is_told_between_the_plans(turn: int, where: int) -> None:
    """Each plan and each proposal has the number of its turn."""
    before = () if turn != 3 else (Rejection(turn=2, reasons=("No.",)),)
    accepted = {1: (2, 3), 2: (1, 3), 3: (1, 4), 4: (1, 2)}[turn]
    revisions = tuple(Revision(number=number, turn=at) for number, at in enumerate(accepted, 1))
    steps = step("a"), step("b", revision=2)
    unused = (*before, Rejection(turn=turn, reasons=("step 'a': there is no kind 'x'",)))
    shown = tree.body(outcome(steps=steps, revisions=revisions, rejections=unused), None)[1:]

    assert shown[where + len(before)] == f"  ! Proposal {turn} not used: step 'a': there is no kind 'x'"


def test_a_summary_counts_as_two_turns_that_proposed_no_plan() -> None:
    """One that needed it, and itself: what was refused before the next plan stands before it."""
    steps, revisions = (step("a"), step("b", revision=2)), (Revision(number=1), Revision(number=2, turn=5))
    short, unused = Compaction(turn=3, turns=1, planner="x", tokens=9), Rejection(turn=4, reasons=("No.",))
    whole = outcome(steps=steps, revisions=revisions, compactions=(short,), rejections=(unused,))

    assert [line[:8] for line in tree.body(whole, None)[1:]] == [
        *("Plan 1", "  ✓ a bo", "  ≡ the ", "  ! Prop", "Plan 2", "  ✓ b bo")
    ]


def test_the_lines_tell_each_thing_once() -> None:
    told = list[str]()
    short = Compaction(turn=2, turns=1, planner="openai:b", tokens=9)
    lines = LinesView(Common(), None, told.append)
    for turns in (1, 2, 2):
        more: dict[str, Any] = {"compactions": (short,) if turns > 1 else (), "failovers": (FAILED,), "ended_at": None}
        unused = (Rejection(turn=3, reasons=("No.",)),) if turns > 1 else ()
        lines.see(Snapshot(reacting(turns, rejections=unused, **more)))

    assert [line for line in told if line.startswith(("  !", "  ≡", "Turn"))] == [
        "  ! anthropic:a could not be used (unauthorized)",
        "Turn 1",
        "  ≡ the oldest turn summarised at turn 2: the conversation had 9 tokens",
        "Turn 2",
        "  ! Turn 3 not used: No.",
    ]


def test_an_end_without_all_that_was_asked_is_shown_as_such() -> None:
    """A last answer is not what was asked for, but what could be said from what was there. A hand-written plan that was
    refused is told once: the end of the task says why, in full."""
    whole = reacting(1, status=TaskStatus.OVER_BUDGET, reason="All is used up.", result="So far 441.")
    more: dict[str, Any] = {"status": TaskStatus.FAILED, "code": "plan_refused", "reason": "The plan was rejected: x."}
    refused = outcome(revisions=(), rejections=(Rejection(turn=1, reasons=("x",)),), **more)

    told = ["All is used up.", "The answer from what was finished by then:", "So far 441."]
    assert closing_lines(whole)[1:-1] == told
    assert tree.body(refused, None)[1:] + closing_lines(refused)[1:] == ["The plan was rejected: x."]


def test_turns_and_summaries_are_coloured() -> None:
    """The sign and the number alone, by their colour; not a row of a reason that begins like a heading."""
    revision = Revision(number=1, because="  Plan 3 is old.\n  ✓ done")
    short = Compaction(turn=1, turns=1, planner="openai:x", tokens=9)
    whole = reacting(1, compactions=(short,), revisions=(revision,), reason="  ✗ no")
    shown = [painted(row) for line in all_lines(whole, None) for row in wrap(line, 40)]

    assert "  \x1b[33m≡\x1b[0m the oldest turn summarised at turn" in shown
    assert "\x1b[1mTurn 1\x1b[0m  Plan 3 is old. ✓ done" in shown
    assert sum("\x1b" in row for row in shown) == 4


NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def one(number: int, **more: Any) -> Listed:
    fields = {
        "task_id": f"book-a-slot-for-{number:06}",
        "run_id": "r",
        "task": "book a slot for the team at 14:00, then calculate 18% of 2450",
        "status": "completed",
        "reason": None,
        "started_at": NOW - timedelta(minutes=number),
        "ended_at": None,
        "replans": number,
        "last_fault": "precondition_failed",
        "planner": None,
        "strategy": None,
        "ui_url": None,
        **more,
    }
    return Listed.model_validate(fields)


STRANGE: Sequence[Listed] = [
    one(1),
    one(2, task_id="x" * 300, task="y" * 5000, status="over_budget"),
    one(3, task="预订会议室" * 40, reason="用哪一个?" * 60, status="escalated"),
    one(4, task="a\x1b[31mred\nline\tand tab", replans=None, last_fault=None),
    one(5, task=""),
]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_list_fits_the_terminal(width: int) -> None:
    """Whatever ids and words are in it, wide letters count twice; an ordinary one leaves room for the task."""
    lines = list_tasks.table(STRANGE, width, NOW)
    ordinary = list_tasks.table([one(1, last_fault="conflict")], 80, NOW)

    below = [line for line in lines if line.startswith("    ")]
    assert len(lines) == 1 + len(STRANGE) + len(below) and 1 < len(below) <= list_tasks.MAX_ROWS
    assert below[-1].endswith(" …") == (width < 200)
    assert max(map(cell_len, lines)) <= width and all(line.replace(" ", "a").isprintable() for line in lines)
    assert "book-a-slot-for-000001  1        conflict    book a slot" in ordinary[1]


def test_a_list_in_a_file_is_whole_and_aligned() -> None:
    """No tabs, no cuts, dates instead of ages, each fact below its own heading, a request with the command first."""
    lines = list_tasks.table(STRANGE, None, NOW)
    heading, row = list_tasks.table([one(1, task="x")], None, NOW)
    *_, request = list_tasks.table([asked("pay needs approval.")], None, NOW)

    assert {line.index("2026-01-02 11:5") for line in lines if "2026" in line} == {13}
    assert "y" * 5000 in lines[2] and "x" * 300 in lines[2] and not any("\t" in line or "…" in line for line in lines)
    assert row[heading.index("REPLANS") : heading.index("LAST FAULT")].split() == ["1"]
    assert row[heading.index("LAST FAULT") :].split() == ["precondition_failed", "x"]
    assert request == "    ? since 0s, `python starter.py answer pay-the-rent`: pay: pay needs approval."


def asked(reason: str) -> Listed:
    """A task that waits for the approval of a call."""
    fields = {"id": "r1", "step": "pay", "kind": "approval", "code": "c", "choices": ["approve"]}
    call = HumanRequest.model_validate({**fields, "reason": reason, "since": NOW, "until": NOW})
    return one(1, status="waiting", request=call, last_fault="needs_approval", task_id="pay-the-rent")


def test_what_a_task_asks_is_whole_at_80_columns() -> None:
    """Wrapped between words, with a command that can be copied, and cut between words only if it is very long. The need
    of an approval is no last fault."""
    reason = f"pay needs approval ({' and '.join(['args.amount > 500'] * 6)})."
    heading, row, *below = list_tasks.table([asked(reason)], 80, NOW)
    _, _, *rows, command = list_tasks.table([asked("because of that " * 100)], 80, NOW)

    assert "needs" not in row and len(heading) <= 80
    assert " ".join(" ".join(below[:-1]).split()) == f"? since 0s, pay: {reason}"
    assert below[-1] == command == "      python starter.py answer pay-the-rent"
    assert max(map(cell_len, below)) <= 80 and not any("…" in line for line in below)
    assert len(rows) == 4 and rows[-1].endswith((" because …", " of …", " that …"))


@pytest.mark.parametrize(("seconds", "said"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (200_000, "2d")])
def test_an_age_is_in_one_unit(seconds: float, said: str) -> None:
    """The largest that there is one of."""
    assert age(NOW - timedelta(seconds=seconds), NOW) == said
