"""Outcomes for the tests of this room, right but for what is given."""

from datetime import UTC, datetime, timedelta
from typing import Any

from client import tree
from client.explain.waste import Paid, Receipt, Tally
from console.render.closing import closing_lines
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import FaultRecord, Revision, StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import QUADRANT, Code
from workflows.limits.budget import Spent
from workflows.plans.catalogue import Effect

RECEIPT = Receipt(
    **dict.fromkeys(("wasted", "helped", "not_helped", "replayed", "reconciled", "not_made"), Tally()),
    paid={"planning": Paid(tokens=130)},
)
"""That nothing was wasted, and a model was paid for a plan."""
BEGAN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def outcome(**more: Any) -> Outcome:
    """A task that completed with nothing to tell."""
    given: dict[str, Any] = {
        "task_id": "book-a-slot-7f3a",
        "task": "book a slot",
        "status": TaskStatus.COMPLETED,
        "reason": "",
        "code": None,
        "result": None,
        "question": None,
        "planner": "offline",
        "strategy": "plan",
        "revisions": (Revision(number=1),),
        "replans": 0,
        "steps": (),
        "faults": (),
        "spent": Spent(tool_calls=1, seconds=2.34),
        "started_at": BEGAN,
        "ended_at": BEGAN + timedelta(seconds=2.34),
    }
    made = Outcome.model_validate({**given, **more})
    plans = tuple(one if one.turn else one.model_copy(update={"turn": one.number}) for one in made.revisions)
    return made.model_copy(update={"revisions": plans})


def step(id: str = "book", **more: Any) -> OutcomeStep:
    """A step that completed at once."""
    given: dict[str, Any] = {
        "id": id,
        "title": "team 14:00",
        "kind": "book_slot",
        "args": {},
        "revision": 1,
        "needs": (),
        "status": StepStatus.COMPLETED,
        "attempts": 1,
        "effect": Effect.TRANSACTIONAL,
        "is_fallback": False,
        "started": BEGAN,
        "ended": BEGAN + timedelta(seconds=0.02),
        "result": None,
        "fault": None,
    }
    return OutcomeStep.model_validate({**given, **more})


def fault(code: Code = Code.CONFLICT, decision: str = "replan", **more: Any) -> FaultRecord:
    """A fault of the step `book`."""
    given: dict[str, Any] = {
        "quadrant": QUADRANT[code],
        "code": code,
        "reason": "14:00 is taken.",
        "step_id": "book",
        "revision": 1,
        "decision": decision,
        "at": BEGAN,
    }
    return FaultRecord.model_validate({**given, **more})


def all_lines(outcome: Outcome, ui_url: str | None) -> list[str]:
    """The tree of a task with its closing lines, as `show` prints them."""
    return [*tree.body(outcome, ui_url), *closing_lines(outcome)]
