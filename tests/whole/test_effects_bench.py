"""The benchmark of effects: what its model does after an error, what its judge counts, and which trials are drawn."""

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from evals.effects_bench.__main__ import note, read, tasks_of, trials_of
from evals.effects_bench.environments import ARMS, HERE
from evals.effects_bench.judge import Verdict, judge
from evals.effects_bench.model import Conversation, TruthModel
from evals.effects_bench.report import pages
from evals.effects_bench.trial import FAULTS, TASKS
from evals.fakes.script import ModelCall, ModelReply

READ, PAY, MAIL = ModelCall("read", {"id": 1}), ModelCall("pay", {"amount": 5}), ModelCall("mail", {"to": "ann"})
OK = '{"ok": true, "result": 1}'


def said(*results: str) -> list[str]:
    """The calls of a model that gets these results, one after the other."""
    talk, made = Conversation([READ, PAY, MAIL], [0]), list[str]()
    for result in [*results, *[OK] * 5]:
        if (call := talk.wanted) is None:
            break
        made.append(call.name)
        talk.see(call.name, json.loads(call.written), result)
    return made


@pytest.mark.parametrize(
    ("results", "made"),
    [
        ((), ["read", "pay", "mail"]),
        ((OK, "The call timed out. Try again."), ["read", "pay", "pay", "mail"]),
        ((OK, "Try again.", "Try again."), ["read", "pay", "pay", "mail"]),
        ((OK, "The order is cancelled."), ["read", "pay", "mail"]),
        ((OK, "Somebody has changed it. Read it again first."), ["read", "pay", "read", "pay", "mail"]),
        ((OK, "Try again: no, a person is asked."), ["read", "pay", "mail"]),
    ],
)
def test_the_model_does_what_an_error_suggests_once(results: tuple[str, ...], made: list[str]) -> None:
    assert said(*results) == made


def journal(folder: Path, *calls: tuple[str, dict[str, Any], str, bool]) -> Path:
    """A journal with these calls: tool, arguments, fault, and whether the world changed."""
    with sqlite3.connect(folder / "journal.db") as book:
        book.execute("CREATE TABLE calls (number INTEGER PRIMARY KEY, tool, args, fault, outcome, changed, seconds)")
        rows = [
            (tool, json.dumps(args), fault, _outcome(fault, changed), changed, 0.1)
            for tool, args, fault, changed in calls
        ]
        book.executemany(
            "INSERT INTO calls (tool, args, fault, outcome, changed, seconds) VALUES (?, ?, ?, ?, ?, ?)", rows
        )
    return folder / "journal.db"


def _outcome(fault: str, changed: bool) -> str:
    return "done" if changed else "not done" if fault else "There is no such order."


def judged(
    folder: Path,
    *calls: tuple[str, dict[str, Any], str, bool],
    said: str = "Done.",
    fault: str = "none",
    turns: int = 0,
) -> Verdict:
    """The verdict about a task that pays and mails."""
    told = {
        "calls": [{"tool": call.name, "args": json.loads(call.written)} for call in (READ, PAY, MAIL)],
        "changing": [1, 2],
        "is_right": False,
    }
    verdict = Verdict("arm", "suite", "task", fault, 1, turns=turns)
    judge(verdict, journal(folder, *calls), told, said, is_failed=False)
    return verdict


def test_the_judge_counts_what_the_world_wrote_down(tmp_path: Path) -> None:
    """An attempt that changed nothing is no effect."""
    pay, mail = ("pay", {"amount": 5}), ("mail", {"to": "ann"})
    found = judged(
        tmp_path, (*pay, "unanswered", True), (*pay, "", True), (*mail, "unsent", False), ("x", {}, "", True)
    )

    assert (found.twice, found.lost, found.named, found.wrong) == (1, 1, 0, 1)


def test_what_is_missing_is_lost_unless_somebody_is_told(tmp_path: Path) -> None:
    refused = [("pay", {"amount": 5}, "unauthorized", False)] * 3
    found = judged(tmp_path, *refused, ("mail", {"to": "ann"}, "", True), said="Not done: pay")

    assert (found.twice, found.lost, found.named, found.futile) == (0, 0, 1, 2)


def test_what_the_world_refused_because_of_an_own_call_is_no_conflict(tmp_path: Path) -> None:
    pay, mail = ("pay", {"amount": 5}), ("mail", {"to": "ann"})
    found = judged(tmp_path, (*mail, "", False), (*pay, "unanswered", True), (*pay, "", False), (*mail, "", True))

    assert (found.twice, found.phantom, found.futile) == (0, 1, 0)


@pytest.mark.parametrize(("fault", "is_needless"), [("limited", True), ("unanswered", False), ("unsent", False)])
def test_a_person_is_asked_needlessly_if_nothing_was_changed(tmp_path: Path, fault: str, is_needless: bool) -> None:
    verdict = judged(tmp_path, ("pay", {"amount": 5}, fault, False), said="a person is told", fault=fault, turns=6)

    assert (verdict.asked, verdict.needless, verdict.named, verdict.replans) == (True, is_needless, 2, 2)


def test_who_has_keys_need_ask_nobody(tmp_path: Path) -> None:
    verdict, told = Verdict("arm", "suite", "task", "unsent", 1), {"calls": [], "changing": [], "is_right": True}
    judge(verdict, journal(tmp_path), told, "Done.", is_failed=False, has_keys=True, handed=1)

    assert verdict.asked and verdict.needless and not verdict.named


async def test_a_model_that_is_not_shown_a_tool_looks_for_it() -> None:
    model = TruthModel([])
    model.solutions["t"] = {"calls": [{"tool": "pay_bill", "args": {}}], "reads": []}
    shown = [{"function": {"name": name}} for name in ("find_tools", "world_read")]
    asked = {"model": "t", "messages": [{"role": "user", "content": "Pay."}], "tools": shown}
    (first,) = cast("ModelReply", model.answer("", {}, asked)).calls
    shown.append({"function": {"name": "world_pay_bill"}})
    (second,) = cast("ModelReply", model.answer("", {}, asked)).calls

    assert (first.name, first.args) == ("find_tools", {"query": "pay bill"}) and second.name == "world_pay_bill"
    assert model.asked["t"]["turns"] == 2


def test_trials_are_the_same_for_every_arm_and_meet_each_fault() -> None:
    tasks = tasks_of(18)
    trials = list(trials_of(tasks, 3))
    counts = Counter(fault for _, _, fault, _, _ in trials)

    assert trials == list(trials_of(tasks_of(18), 3))
    assert {suite for suite, *_ in trials} == set(TASKS) and counts.keys() == {*FAULTS}
    assert all(1 <= at <= TASKS[suite]["tasks"][task]["changes"] for suite, task, _, _, at in trials)
    looked = [
        at in TASKS[suite]["tasks"][task]["looked"] for suite, task, fault, _, at in trials if fault == "conflict"
    ]
    assert looked and all(looked)


def test_a_row_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    rows, first, second = tmp_path / "rows", Verdict("a", "s", "t", "none", 1), Verdict("a", "s", "t", "none", 2)
    note(first, rows)
    with rows.open("a") as file:
        file.write('\n{"arm": "a", "sui')
    note(second, rows)

    assert read(rows) == [first, second] and read(tmp_path / "none") == []


def test_each_arm_has_a_program_and_a_row() -> None:
    assert {path.stem.removesuffix("_arm") for path in HERE.glob("*_arm.py")} == set(ARMS)
    for arm in ARMS.values():
        assert not arm.environment or (HERE / f"{arm.environment}-requirements.txt").exists()


def test_the_tables_mark_the_best_value_whosever_it_is() -> None:
    good = Verdict("a", "s", "t", "slow", 1, is_right=True, seconds=1.0)
    bad = Verdict("b", "s", "t", "slow", 1, twice=2, seconds=2.0)
    first, second, shares = pages([good, bad])

    assert "| a | **0** |" in first and "| b | 2 |" in first and "**1 of 1**" in first
    assert "1 twice of 1" in second and "| a | 0% [0%, 0%] |" in shares


def test_two_arms_are_compared_in_the_same_trials() -> None:
    def played(arm: str, *twice: int) -> list[Verdict]:
        return [Verdict(arm, "s", f"t{number % 2}", "killed", number, one) for number, one in enumerate(twice)]

    *_, pairs = pages([*played("temporal", 1, 2, 0, 1), *played("temporal_faults", 0, 0, 0)])

    assert "| temporal_faults less temporal | -67% [-100%, " in pairs  # the fourth trial is left out
