"""The JSON document: programs read it, so its keys are a promise."""

import json

import pytest

from client import document
from client.problem import Problem
from client.remedy import as_command
from client.task_document import task_fields
from console.exits import Exit, exit_code
from tests.console.outcomes import RECEIPT as NOTHING, outcome
from workflows.account.task import TaskStatus

TASK = """
schema task_id run_id task status reason code result question planner strategy revisions replans steps faults omitted
undo compactions failovers rejections requests is_tainted spent started_at ended_at ui_url receipt
"""
RECEIPT = ["wasted", "helped", "not_helped", "replayed", "reconciled", "not_made", "paid"]


def test_the_keys_of_a_task_are_a_promise() -> None:
    """A key may be added at the end of its group, none may go: programs of others read them."""
    told = json.loads(document.of_anything(task_fields(outcome(), NOTHING, "a-run", "http://localhost:8233/x")))

    assert [list(told), list(told["receipt"])] == [TASK.split(), RECEIPT]
    assert list(told["receipt"]["wasted"]) == ["number", "events"]
    assert list(told["receipt"]["paid"]["planning"]) == ["tokens", "usd", "events"]


def test_a_problem_and_a_detached_task_have_documents_of_their_own() -> None:
    """The first has one shape for every command; the other has what a program needs to come back to the task."""
    problem = Problem("unknown_id", "There is no task 'x' here", "check the id")
    error = {"code": "unknown_id", "reason": "There is no task 'x' here", "remedy": "check the id"}
    begun = {"schema": 1, "task_id": "an-id", "run_id": "a-run", "status": "running", "ui_url": None}

    assert json.loads(document.of_problem(problem, as_command)) == {"schema": 1, "error": error}
    assert json.loads(document.of_start("an-id", "a-run", None)) == begun


@pytest.mark.parametrize("char", ["\u202e", "\x9b", "\x7f", "\u200f", "\u2028", "\U000e0001", "\ud800"], ids=ascii)
def test_what_draws_is_escaped(char: str) -> None:
    """Nothing reaches a terminal that moves or turns, and programs read the same value."""
    text = document.of_anything({f"a{char}": [f"{char}ü"]})

    assert char not in text and "ü" in text
    assert json.loads(text)[f"a{char}"] == [f"{char}ü"]


def test_foreign_letters_stay_readable() -> None:
    """No escapes where none are needed, and line breaks inside a string never break the document."""
    text = document.of_anything(task_fields(outcome(result="Größe 😀\n\x1b[31m"), NOTHING, None, None))

    assert "Größe 😀" in text and "\x1b" not in text


EXITS = {"running": 0, "waiting": 3, "completed": 0, "escalated": 3, "over_budget": 4, "cancelled": 5, "failed": 1}


def test_the_exit_code_says_how_a_task_stands() -> None:
    """Scripts branch on it; a plan file or a folder with a mistake is the caller's to mend."""
    refused = [exit_code(outcome(status=TaskStatus.FAILED, code=code)) for code in ("plan_refused", "task_refused")]

    assert {status: exit_code(outcome(status=status)) for status in TaskStatus if status in EXITS} == EXITS
    assert refused == [Exit.BAD_USAGE] * 2
