"""The JSON document: programs read it, so its keys are a promise."""

import json
from typing import Any

import pytest

from client import document
from client.problem import Problem
from client.remedy import as_command
from client.task_document import task_fields
from console.exits import Exit, exit_code
from tests.console.outcomes import RECEIPT as NOTHING, fault, outcome, step
from workflows.account.records import Compaction, Failover, Rejection, Revision, UndoRecord
from workflows.account.task import TaskStatus

TASK = [
    *("schema", "task_id", "run_id", "task", "status", "reason", "code", "result", "question", "planner", "strategy"),
    *(
        "revisions",
        "replans",
        "steps",
        "faults",
        "omitted",
        "undo",
        "compactions",
        "failovers",
        "rejections",
        "requests",
    ),
    *("is_tainted", "spent", "started_at", "ended_at", "ui_url", "receipt"),
]
STEP = [
    *("id", "title", "kind", "args", "revision", "needs", "status", "attempts", "effect", "is_fallback", "replayed"),
    *("started", "ended", "result", "result_omitted", "result_bytes", "fault"),
]
FAULT = [
    *(
        "quadrant",
        "code",
        "reason",
        "observed",
        "retry_after",
        "applied",
        "source",
        "attempt",
        "waited",
        "unsent",
        "lost",
        "uncounted",
        "by_id",
        "still_running",
        "model_use",
        "lost_model",
        "unreadable",
    ),
    *("step_id", "revision", "decision", "reconciled", "at"),
]
REVISION = ["number", "because", "refused", "kept", "looked", "planner", "turn", "at"]
COMPACTION = ["turn", "turns", "planner", "tokens"]
FAILOVER = ["planner", "code", "reason", "turn"]
REJECTION = ["turn", "reasons"]
UNDO = ["step_id", "kind", "done", "reason"]
RECEIPT = ["wasted", "helped", "not_helped", "replayed", "reconciled", "not_made", "paid"]
TALLY, PAID = ["number", "events"], ["tokens", "usd", "events"]
SPENT = ["tool_calls", "model_calls", "tokens", "usd", "seconds", "estimated", "unpriced"]


@pytest.fixture
def told() -> dict[str, Any]:
    """The document of a task with one of everything."""
    refused, undo = fault(), UndoRecord(step_id="book", kind="cancel_booking", done=True)
    compaction = Compaction(turn=2, turns=1, planner="openai:x", tokens=9)
    failover = Failover(planner="openai:x", code="unauthorized", reason="No.", turn=1)
    more: dict[str, Any] = {"revisions": (Revision(number=1),), "compactions": (compaction,), "failovers": (failover,)}
    more |= {"rejections": (Rejection(turn=2, reasons=("No.",)),)}
    whole = outcome(steps=(step(fault=refused),), faults=(refused,), undo=(undo,), **more)
    read: dict[str, Any] = json.loads(
        document.of_anything(task_fields(whole, NOTHING, "a-run", "http://localhost:8233/x"))
    )
    return read


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ((), TASK),
        (("steps", 0), STEP),
        (("steps", 0, "fault"), FAULT),
        (("faults", 0), FAULT),
        (("revisions", 0), REVISION),
        (("undo", 0), UNDO),
        (("compactions", 0), COMPACTION),
        (("failovers", 0), FAILOVER),
        (("rejections", 0), REJECTION),
        (("spent",), SPENT),
        (("receipt",), RECEIPT),
        (("receipt", "wasted"), TALLY),
        (("receipt", "paid", "planning"), PAID),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_the_keys_of_a_task_are_a_promise(told: dict[str, Any], path: tuple[str | int, ...], keys: list[str]) -> None:
    """A key may be added at the end of its group, none may go: programs of others read them."""
    part: Any = told
    for key in path:
        part = part[key]

    assert list(part) == keys


def test_the_document_of_a_problem_says_what_and_what_to_do() -> None:
    """The same shape for every command that cannot do what was asked."""
    problem = Problem("unknown_id", "There is no task 'x' here", "check the id and the namespace")

    assert json.loads(document.of_problem(problem, as_command)) == {
        "schema": 1,
        "error": {
            "code": "unknown_id",
            "reason": "There is no task 'x' here",
            "remedy": "check the id and the namespace",
        },
    }


def test_the_document_of_a_detached_task_says_where_it_is() -> None:
    """What a program needs to come back to it."""
    assert json.loads(document.of_start("an-id", "a-run", None)) == {
        "schema": 1,
        "task_id": "an-id",
        "run_id": "a-run",
        "status": "running",
        "ui_url": None,
    }


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


@pytest.mark.parametrize(
    ("status", "exit"),
    [
        (TaskStatus.RUNNING, 0),
        (TaskStatus.WAITING, 3),
        (TaskStatus.COMPLETED, 0),
        (TaskStatus.ESCALATED, 3),
        (TaskStatus.OVER_BUDGET, 4),
        (TaskStatus.CANCELLED, 5),
        (TaskStatus.FAILED, 1),
    ],
)
def test_the_exit_code_says_how_a_task_stands(status: TaskStatus, exit: int) -> None:
    """Scripts branch on it."""
    assert exit_code(outcome(status=status)) == exit


def test_every_status_has_an_exit_code() -> None:
    """A new one cannot be forgotten."""
    assert {exit_code(outcome(status=status)) for status in TaskStatus} <= set(Exit)


@pytest.mark.parametrize("code", ["plan_refused", "task_refused"])
def test_a_task_that_nobody_could_run_is_bad_usage(code: str) -> None:
    """A plan file with a mistake, or a folder that the worker does not have, is the caller's to mend."""
    assert exit_code(outcome(status=TaskStatus.FAILED, code=code)) is Exit.BAD_USAGE


def test_a_problem_is_one_sentence() -> None:
    """Reason and remedy, as people read them."""
    assert str(Problem("x", "There is nothing to do", "give --task")) == "There is nothing to do: give --task."
