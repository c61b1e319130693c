"""What to do about a problem, as the API says it (`as_request`) and as the page says it (`on_page`)."""

import json
from collections.abc import Mapping
from urllib.parse import quote

from client.remedy import Action, Argument, Remedy, as_command, in_python
from workflows.account.task import Task
from workflows.limits.budget import LIMITS, Amounts
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
"""By action, the request of the API, and the place on the page; all other actions are for an operator."""
FIELDS: Mapping[str, str] = {
    **{option.name: capitalised(option.label) for row in CHOICES.values() for option in row.options},
    **{name: LIMITS[name].title for name in Amounts.model_fields},
}
"""The labels on the page of the fields that its forms send."""
OF_CONSOLE = frozenset({"keys", *LIMITS, *Task.model_fields}) - FIELDS.keys()
"""Arguments that no form of the page sends: of a task, and of the server itself."""


def as_request(part: Remedy | Argument) -> str:
    """A remedy as a request such as `GET /tasks/order-1`, or as an operator's command; an argument by its name."""
    if isinstance(part, Argument):
        return as_command(part) if part.name == "keys" else in_python(part)
    if part.action not in PLACES:
        return f"an operator's {as_command(part)}"
    request = PLACES[part.action][0].format(id=quote(part.task, safe=""))
    body = f" {json.dumps(part.arguments)}" if part.arguments and request.startswith("POST") else ""
    return f"`{request}{body}`"


def on_page(part: Remedy | Argument) -> str:
    """A remedy as a place on the page, or as an operator's command; an argument by the label of its field."""
    if isinstance(part, Argument):
        return as_command(part) if part.name in OF_CONSOLE else FIELDS.get(part.name, part.name)
    return PLACES[part.action][1] if part.action in PLACES else f"an operator's {as_command(part)}"
