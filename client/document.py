"""The JSON documents of Replan: of a task, of a problem, or of other fields."""

import json
from typing import TYPE_CHECKING, Any

from client.problem import Problem
from workflows.text import visible

if TYPE_CHECKING:  # it imports the SDK, half a second that a usage mistake does not need
    from client.explain.waste import Receipt
    from workflows.outcome import Outcome

SCHEMA = 1


def written(value: Any, indent: int | None = 2) -> str:
    """JSON that is safe on a terminal: letters of all languages stay, what is invisible is escaped."""
    return visible(json.dumps(value, ensure_ascii=False, indent=indent), kept="\n")


def of_task(outcome: "Outcome", receipt: "Receipt", run_id: str | None, ui_url: str | None) -> str:
    return of_anything(task_fields(outcome, receipt, run_id, ui_url))


def task_fields(outcome: "Outcome", receipt: "Receipt", run_id: str | None, ui_url: str | None) -> dict[str, Any]:
    """The document of a task, without the number of its schema."""
    fields = outcome.model_dump(mode="json")
    place = {"ui_url": ui_url, "receipt": receipt.document()}
    return {"task_id": fields.pop("task_id"), "run_id": run_id, **fields, **place}


def of_start(task_id: str, run_id: str | None, ui_url: str | None) -> str:
    return of_anything({"task_id": task_id, "run_id": run_id, "status": "running", "ui_url": ui_url})


def of_anything(fields: dict[str, Any]) -> str:
    return written({"schema": SCHEMA, **fields})


def of_problem(problem: Problem) -> str:
    return of_anything({"error": {"code": problem.code, "reason": problem.reason, "remedy": problem.remedy}})
