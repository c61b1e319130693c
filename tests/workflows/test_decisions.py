"""The table of decisions: each has its words once, and all screens take them from there."""

import json
import re
import subprocess
import sys
from itertools import product
from typing import get_args

import pytest
from pydantic import ValidationError

from tests.console.outcomes import fault
from tests.processes import ROOT
from workflows.faults.decision import DECISIONS, Ask, Decision, what_follows
from workflows.faults.fault import Applied, Code

SCREENS = """
import json
import sys
from datetime import timedelta

from client.explain.explanation import explain_task
from client.history.records import Event, RunEnd
from client.report.row import row_of
from client.explain import page
from client import tree
from console.render import report_page
from console.render.report import printed
from tests.console import made
from tests.console.outcomes import BEGAN, fault, outcome, step
from workflows.limits.budget import TaskBudget
from workflows.faults.decision import DECISIONS, DecisionTexts
from workflows.web_ui import details
from workflows.faults.fault import Code, Fault
from workflows.account.progress import Progress
from workflows.account.records import Revision
from workflows.account.task import Task

if "new" in sys.argv:
    texts = {"busy": ("the shop takes stock", "the call is held"), "": ("", "held")}
    DECISIONS["hold"] = DecisionTexts(("held call",), texts, column="on hold")

met = fault(Code.BUSY, "hold", step_id="a")
ended = outcome(steps=(step("a"),), faults=(met,))
running = Progress(task_id="t", started_at=BEGAN, task=Task(text="x"), revisions=[Revision(number=1)], faults=[met])
history = made.story(made.call(1, "a", "read", Fault.of(Code.BUSY, "Later."))).history
history.end, history.replayed = RunEnd("completed", Event(1, 90), BEGAN, outcome=ended), None
explained = explain_task(history)
row = row_of(history)
report = made.report_on([row])
screens = {
    "web UI": details(running),
    "tree": "\\n".join(tree.body(ended, None)),
    "explain": "\\n".join(page.page_lines(explained, None)),
    "explain --json": explained.document()["items"],
    "report": printed(report, 120),
    "report --html": report_page.page(report),
    "report --json": report.model_dump(mode="json")["faults"],
}
print(json.dumps(screens))
"""
"""Prints the screens of a task that decided `hold`; with the argument `new` the table has a row for it."""


def screens(*words: str) -> dict[str, str]:
    """What a process that knows the decision, or does not, shows of it."""
    command = [sys.executable, "-c", SCREENS, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return {name: one if isinstance(one, str) else json.dumps(one) for name, one in json.loads(done.stdout).items()}


def test_a_new_row_is_seen_on_every_screen() -> None:
    """The table is the only place that has the words of a decision. An older console shows its name."""
    shown, older = screens("new"), screens()

    assert "14:00 is taken. → the shop takes stock: the call is held" in shown["web UI"]
    assert "    the shop takes stock -> the call is held\n" in shown["tree"] + "\n"
    assert "The shop takes stock: the call is held." in shown["explain"]
    assert "Not as planned: 1 held call." in shown["explain"]
    assert '"decision": "hold"' in shown["explain --json"] and "The shop takes stock" in shown["explain --json"]
    assert re.search(r"faults +on hold +recovered", shown["report"])
    assert "on hold" in shown["report --html"]
    assert '"followed": {"hold": 1}' in shown["report --json"]

    assert "a newer version of Replan decided: hold" in older["web UI"]
    assert "a newer version of Replan decided -> hold" in older["tree"]
    assert "A newer version of Replan decided: hold." in older["explain"]
    assert re.search(r"faults +hold +recovered", older["report"])


@pytest.mark.parametrize("name", ["", "Hold", "a b", "x\x1b[2J", "<b>", "x" * 41])
def test_what_is_no_name_is_refused(name: str) -> None:
    """A name is shown as it is, so it is letters and underscores."""
    with pytest.raises(ValidationError, match="decision"):
        fault(Code.BUSY, name)


def test_every_decision_has_a_row() -> None:
    """Those of `decide`, the request to a person, and the retry of Temporal."""
    made = {one.model_fields["action"].default for one in (*get_args(Decision), Ask)}

    assert {name for name, words in DECISIONS.items() if words.is_recorded} == {*made, "retry"}


FOLLOW = [name for name in DECISIONS if name not in ("send_back", "failover")]
CASES = list(product(FOLLOW, Code, Applied, [None, "applied", "not_applied", "cannot_tell"]))


def test_whatever_is_known_of_a_fault_has_words() -> None:
    """Of each decision, in plans and in turns, before and after the end of the task."""
    empty = [
        (decision, code, applied, verdict)
        for decision, code, applied, verdict in CASES
        for flags in ({}, {"in_turns": True}, {"is_over": True})
        if not any(what_follows(decision, fault(code, applied=applied), verdict, **flags))
    ]

    assert empty == []


WHY: list[tuple[Code, dict[str, object], str]] = [
    (Code.SERVER_ERROR, {}, "the retries are used up"),
    (Code.UNAUTHORIZED, {}, "neither a retry nor a new plan can help"),
    (Code.NEEDS_APPROVAL, {}, "the call needs an approval"),
    (Code.MISSING_TOOL, {}, "no worker knew the kind in time"),
    (Code.WORKER_LOST, {"uncounted": True}, "more than 5 workers died or froze during the call"),
    (Code.WORKER_LOST, {"uncounted": True, "applied": "unknown"}, "nobody knows whether it was applied"),
    (Code.UNEXPECTED_RESULT, {"applied": "applied"}, "it was applied, so it is not repeated"),
]


@pytest.mark.parametrize("decision", ["escalate", "ask"])
def test_a_person_is_told_why(decision: str) -> None:
    """The effect of the call first, then what makes retries and plans useless."""
    told = [what_follows(decision, fault(code, decision, **more))[0] for code, more, _ in WHY]

    assert told == [why for _, _, why in WHY]


def test_what_was_found_out_is_told_with_what_it_leads_to() -> None:
    """Also if the fault, as the history has it, says only that the outcome was unknown."""
    lost = fault(Code.WORKER_LOST, applied="unknown")

    assert what_follows("ask", lost, "not_applied") == (
        "it was not applied, and the retries are used up",
        "a person is asked",
    )
    assert what_follows("wait", lost, "not_applied") == ("it was not applied", "the same step again")
    assert what_follows("escalate", lost, "cannot_tell")[0] == "nobody knows whether it was applied"
