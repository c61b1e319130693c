"""A task that a model does turn by turn, in the views: turns for plans, who took over, what was summarised."""

from datetime import timedelta
from typing import Any

import pytest

from client import tree
from client.lines import wrap
from client.snapshot import Snapshot
from client.tree import RowLayout
from console.options import Common
from console.render.closing import closing_lines
from console.render.live import fit_groups
from console.render.terminal import painted
from console.render.views import LinesView
from tests.console.outcomes import BEGAN, all_lines, outcome, step
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import Compaction, Failover, Rejection, Revision, StepStatus
from workflows.account.task import TaskStatus


def call(turn: int, revision: int | None = None, **more: Any) -> OutcomeStep:
    """The one call of a turn."""
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


def test_a_hand_written_plan_that_was_refused_is_told_once() -> None:
    """The end of the task says why, in full."""
    more: dict[str, Any] = {"status": TaskStatus.FAILED, "code": "plan_refused", "reason": "The plan was rejected: x."}
    whole = outcome(revisions=(), rejections=(Rejection(turn=1, reasons=("x",)),), **more)

    assert tree.body(whole, None)[1:] + closing_lines(whole)[1:] == ["The plan was rejected: x."]


def test_the_lines_tell_each_thing_once() -> None:
    """However often a task is looked at."""
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


def test_the_last_answer_of_a_task_over_budget_is_shown_as_such() -> None:
    """It is not what was asked for, but what could be said from what was there."""
    whole = reacting(1, status=TaskStatus.OVER_BUDGET, reason="All is used up.", result="So far 441.")

    told = ["All is used up.", "The answer from what was finished by then:", "So far 441."]
    assert closing_lines(whole)[1:-1] == told


def test_turns_and_summaries_are_coloured() -> None:
    """The sign and the number alone, by their colour; not a row of a reason that begins like a heading."""
    revision = Revision(number=1, because="  Plan 3 is old.\n  ✓ done")
    short = Compaction(turn=1, turns=1, planner="openai:x", tokens=9)
    whole = reacting(1, compactions=(short,), revisions=(revision,), reason="  ✗ no")
    shown = [painted(row) for line in all_lines(whole, None) for row in wrap(line, 40)]

    assert "  \x1b[33m≡\x1b[0m the oldest turn summarised at turn" in shown
    assert "\x1b[1mTurn 1\x1b[0m  Plan 3 is old. ✓ done" in shown
    assert sum("\x1b" in row for row in shown) == 4
