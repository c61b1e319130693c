"""Writes the JSON documents of Replan."""

import json
from typing import Any

from client.problem import Problem
from client.remedy import Door
from workflows.text import visible

SCHEMA = 1


def written(value: Any, indent: int | None = 2) -> str:
    """JSON that is safe on a terminal: letters of all languages stay, what is invisible is escaped."""
    return visible(json.dumps(value, ensure_ascii=False, indent=indent), kept="\n")


def of_start(task_id: str, run_id: str | None, ui_url: str | None) -> str:
    return of_anything({"task_id": task_id, "run_id": run_id, "status": "running", "ui_url": ui_url})


def of_anything(fields: dict[str, Any]) -> str:
    return written({"schema": SCHEMA, **fields})


def of_problem(problem: Problem, door: Door) -> str:
    return of_anything({"error": problem.fields(door)})
