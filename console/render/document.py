"""The one JSON document that `--json` prints, for a task or for a problem."""

import json
import re
from typing import TYPE_CHECKING, Any
from unicodedata import category

from client.problem import Problem

if TYPE_CHECKING:  # it takes half a second, which a mistake in the usage need not wait for
    from workflows.outcome import Outcome

SCHEMA = 1
NOT_ASCII = re.compile(r"[^\n -~]")
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of what draws on a terminal, turns text round or breaks lines, and of halves of letters."""


def written(value: Any, indent: int | None = 2) -> str:
    """JSON that may be shown on a terminal: all letters stay, what is no letter and no sign is escaped."""
    return NOT_ASCII.sub(_escaped, json.dumps(value, ensure_ascii=False, indent=indent))


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1].replace("\x7f", r"\u007f") if category(found[0]) in UNSEEN else found[0]


def of_task(outcome: "Outcome", run_id: str | None, ui_url: str | None) -> str:
    """The document of a task."""
    fields = outcome.model_dump(mode="json")
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "task_id": fields.pop("task_id"),
        "run_id": run_id,
        **fields,
        "ui_url": ui_url,
    }
    return written(document)


def of_start(task_id: str, run_id: str | None, ui_url: str | None) -> str:
    """The document of a task that was started and left alone."""
    started = {"schema": SCHEMA, "task_id": task_id, "run_id": run_id, "status": "running", "ui_url": ui_url}
    return written(started)


def of_anything(fields: dict[str, Any]) -> str:
    """A document with these fields."""
    return written({"schema": SCHEMA, **fields})


def of_problem(problem: Problem) -> str:
    """The document of a command that could not do what was asked."""
    error = {"code": problem.code, "reason": problem.reason, "remedy": problem.remedy}
    return written({"schema": SCHEMA, "error": error})
