"""What to do about a problem, as the API says it (`as_request`) and as the page says it (`on_page`)."""

import json
from collections.abc import Mapping
from urllib.parse import quote

from client.remedy import Action, Argument, Remedy, as_command, in_python
from workflows.limits.budget import LIMITS
from workflows.people.requests import CHOICES
from workflows.text import capitalised

PLACES: Mapping[Action, tuple[str, str]] = {
    "answer": ("GET /tasks/{id}", "the page of the task"),
    "cancel": ("POST /tasks/{id}/cancel", "the form below"),
    "effects": ("GET /tasks/{id}/effects", "the page of its effects"),
    "explain": ("GET /tasks/{id}/explain", "the page that explains it"),
    "incidents": ("GET /incidents", "the list of incidents"),
    "list": ("GET /tasks", "the list of tasks"),
    "show": ("GET /tasks/{id}", "the page of the task"),
    "start": ("POST /tasks", "the form for a new task"),
    "undo": ("POST /tasks/{id}/undo", "the form below"),
}
"""By remedy, the request of the API, and the place on the page; all others are for an operator."""
FIELDS: Mapping[str, str] = {
    **{option.name: capitalised(option.label) for row in CHOICES.values() for option in row.options},
    **{name: limit.title for name, limit in LIMITS.items()},
}
"""What the page calls the fields that it sends."""


def as_request(part: Remedy | Argument) -> str:
    """`GET /tasks/order-1` in backticks, or the command of what only an operator can do; the name of a field."""
    if isinstance(part, Argument):
        return in_python(part)
    if part.action not in PLACES:
        return f"an operator's {as_command(part)}"
    request = PLACES[part.action][0].format(id=quote(part.task, safe=""))
    body = f" {json.dumps(part.arguments)}" if part.arguments and request.startswith("POST") else ""
    return f"`{request}{body}`"


def on_page(part: Remedy | Argument) -> str:
    """The place where a person finds it, or the command of what only an operator can do; the label of a field."""
    if isinstance(part, Argument):
        return FIELDS.get(part.name, part.name)
    return PLACES[part.action][1] if part.action in PLACES else f"an operator's {as_command(part)}"
