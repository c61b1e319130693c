"""The one JSON document that `--json` prints, for a task or for a problem."""

import json
from typing import TYPE_CHECKING, Any

from console.problem import Problem

if TYPE_CHECKING:  # it takes half a second, which a mistake in the usage need not wait for
    from workflows.task import Outcome

SCHEMA = 1


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
    return json.dumps(document, ensure_ascii=False, indent=2)


def of_start(task_id: str, run_id: str | None, ui_url: str | None) -> str:
    """The document of a task that was started and left alone."""
    started = {"schema": SCHEMA, "task_id": task_id, "run_id": run_id, "status": "running", "ui_url": ui_url}
    return json.dumps(started, ensure_ascii=False, indent=2)


def of_anything(fields: dict[str, Any]) -> str:
    """A document with these fields."""
    return json.dumps({"schema": SCHEMA, **fields}, ensure_ascii=False, indent=2)


def of_problem(problem: Problem) -> str:
    """The document of a command that could not do what was asked."""
    error = {"code": problem.code, "reason": problem.reason, "remedy": problem.remedy}
    return json.dumps({"schema": SCHEMA, "error": error}, ensure_ascii=False, indent=2)
