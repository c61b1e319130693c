"""What to do about a problem, as the API says it (`as_request`) and as the page says it (`on_page`)."""

import json
from collections.abc import Mapping
from urllib.parse import quote

from client.remedy import Action, Argument, Remedy, as_command
from workflows.limits.budget import LIMITS
from workflows.people.requests import CHOICES
from workflows.text import capitalised

REQUESTS: Mapping[Action, str] = {
    "answer": "GET /tasks/{id}",
    "cancel": "POST /tasks/{id}/cancel",
    "effects": "GET /tasks/{id}/effects",
    "explain": "GET /tasks/{id}/explain",
    "incidents": "GET /incidents",
    "list": "GET /tasks",
    "show": "GET /tasks/{id}",
    "start": "POST /tasks",
    "undo": "POST /tasks/{id}/undo",
}
PLACES: Mapping[Action, str] = {
    "answer": "the page of the task",
    "cancel": "Cancel",
    "effects": "the page of its effects",
    "explain": "the page Explain",
    "incidents": "the list of incidents",
    "list": "the list of tasks",
    "show": "the page of the task",
    "start": "the form for a new task",
    "undo": "Undo",
}
FIELDS: Mapping[str, str] = {
    **{option.name: capitalised(option.label) for row in CHOICES.values() for option in row.options},
    **{name: limit.title for name, limit in LIMITS.items()},
}
"""What the page calls the fields that it sends."""


def as_request(part: Remedy | Argument) -> str:
    """`GET /tasks/order-1` in backticks, or the command of what only an operator can do; the name of a field."""
    if isinstance(part, Argument):
        return part.name if part.value is None else f'"{part.name}": {json.dumps(part.value)}'
    request = REQUESTS.get(part.action)
    if request is None:
        return _of_operator(part)
    body = f" with {json.dumps(dict(part.arguments))}" if request.startswith("POST") and part.arguments else ""
    return f"`{request.format(id=quote(part.task, safe=''))}{body}`"


def on_page(part: Remedy | Argument) -> str:
    """The place where a person finds it, or the command of what only an operator can do; the label of a field."""
    if isinstance(part, Argument):
        return FIELDS.get(part.name, part.name)
    return PLACES.get(part.action) or _of_operator(part)


def _of_operator(part: Remedy) -> str:
    return f"an operator's {as_command(part)}"
