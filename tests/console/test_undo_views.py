"""How a rollback, and what was found out, look in lines: pure functions of an Outcome."""

from typing import Any

import pytest

from client import tree
from client.explain import prose
from client.snapshot import Snapshot
from console.options import Common
from console.render.views import LinesView
from tests.console.outcomes import BEGAN, fault, outcome, step
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus, UndoRecord
from workflows.faults.fault import DEFERRED, Applied, Code
from workflows.people.requests import HumanRequest


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
    """With what stays and no call could take back, and the calls that were made; none of them is a step of the plan."""
    lines = [" ".join(line.split()[:3]) for line in tree.body(rolled_back(), None)[1:]]

    assert lines == [
        "Plan 1",
        "↶ book book_slot",
        "✓ pay book_slot",
        "✓ tell book_slot",
        "Undo the newest",
        "tell stays: tell",
        "✗ undo:pay refund",
        "✓ undo:book cancel_booking",
    ]


def test_a_rollback_is_told_line_by_line_once() -> None:
    """The plain view says the heading before the first of it, and each line once however often it looks."""
    said = list[str]()
    view = LinesView(Common(), None, said.append)
    for _ in range(2):
        view.see(Snapshot(rolled_back()))
    view.end(rolled_back())

    assert said.count(tree.UNDO_HEADING) == 1
    assert [line for line in said if "stays:" in line] == ["    tell stays: tell has no undo"]
    assert sum("undo:" in line for line in said) == 2


FOLLOWED = [
    ({"decision": "reconcile"}, "unknown outcome -> finding out whether it was applied"),
    (
        {"decision": "reconcile", "reconciled": "applied"},
        "it was applied -> its result was found, nothing was repeated",
    ),
    ({"decision": "wait", "reconciled": "not_applied"}, "it was not applied -> the same step again"),
    ({"decision": "escalate", "applied": Applied.UNKNOWN}, "nobody knows whether it was applied -> a person"),
    ({"decision": "escalate", "applied": Applied.APPLIED}, "it was applied, so it is not repeated -> a person"),
    ({"decision": "escalate"}, "the retries are used up -> a person has to act"),
]


@pytest.mark.parametrize(("given", "expected"), FOLLOWED, ids=lambda given: given if isinstance(given, str) else None)
def test_what_was_found_out_stands_below_the_step(given: dict[str, Any], expected: str) -> None:
    """In the place of what followed."""
    met = fault(Code.UNREACHABLE, **given)
    failed = step(status=StepStatus.FAILED)
    whole = outcome(faults=(met,), steps=(failed,))
    told = tree.step_lines(whole, failed)

    assert told[-1].strip().startswith(expected)


def test_why_a_person_was_asked_stands_beside_the_answer() -> None:
    """As it stood there before the answer."""
    met = fault(Code.WORKER_LOST, "ask", applied=Applied.UNKNOWN)
    asked: dict[str, Any] = {"id": "r1", "kind": "fault", "step": "book", "code": "worker_lost", "reason": "Lost."}
    asked |= {"since": BEGAN, "until": BEGAN, "choices": ("provide",)}
    answer = {"choice": "provide", "by": "ann", "at": BEGAN}
    request = HumanRequest.model_validate({**asked, "answer": answer})
    told = tree.step_lines(outcome(faults=(met,), requests=(request,), steps=(step(),)), step())

    assert told[-1].strip() == "nobody knows whether it was applied -> ann answered provide"


def test_what_costs_no_attempt_is_explained() -> None:
    """Each has a sentence of its own."""
    assert set(prose.WAIT_BECAUSE) >= DEFERRED
