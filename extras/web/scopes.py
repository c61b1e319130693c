"""What a person or a program may ask of the server: each route needs one scope.

Read at each request; the operator, and a person unless the people file says less, may ask everything.
"""

from collections.abc import Mapping
from re import Pattern

from starlette.routing import compile_path

from console.serving.access import Denied, Visitor
from runtime.people_file import SCOPES as ALL, Scope
from workflows.people.requests import Choice
from workflows.text import shorten

MAX_PATH = 80
"""Characters of a path that an answer names."""
SCOPES: Mapping[tuple[str, str], Scope] = {
    # The API
    ("POST", "/tasks"): "start",
    ("GET", "/tasks"): "read",
    ("GET", "/tasks/{id}"): "read",
    ("GET", "/tasks/{id}/explain"): "read",
    ("GET", "/tasks/{id}/effects"): "read",
    ("GET", "/tasks/{id}/events"): "read",
    ("POST", "/tasks/{id}/answers"): "answer",
    ("POST", "/tasks/{id}/extend"): "operate",
    ("POST", "/tasks/{id}/cancel"): "operate",
    ("POST", "/tasks/{id}/undo"): "operate",
    ("GET", "/incidents"): "read",
    ("POST", "/incidents/{cause:path}/resolve"): "operate",
    ("GET", "/openapi.json"): "read",
    ("POST", "/codec/decode"): "read",
    # The page
    ("GET", "/"): "read",
    ("GET", "/ui/inbox"): "read",
    ("GET", "/ui/tasks"): "read",
    ("GET", "/ui/tasks/{id}"): "read",
    ("GET", "/ui/tasks/{id}/effects"): "read",
    ("GET", "/ui/tasks/{id}/explain"): "read",
    ("GET", "/ui/tasks/{id}/transcript"): "read",
    ("GET", "/ui/tasks/{id}/{what}"): "operate",
    ("POST", "/ui/tasks/{id}/{what}"): "operate",
    ("GET", "/ui/tasks/{id}/requests/{number}/{choice}"): "read",
    ("POST", "/ui/tasks/{id}/requests/{number}/{choice}"): "answer",
    ("GET", "/ui/new"): "start",
    ("POST", "/ui/new"): "start",
    ("GET", "/ui/incidents"): "read",
    ("GET", "/ui/incidents/{cause:path}/resolve"): "read",
    ("POST", "/ui/incidents/{cause:path}/resolve"): "operate",
}
"""By method and path of a route, the scope that it needs; a path without a name goes before those that match it, too. A
program may not ask what is not here."""


def check_answer(visitor: Visitor | None, choice: Choice, *, undo: bool) -> None:
    """Raise Denied if somebody who may answer gives an answer that operates the task: more limits, or an undo."""
    if visitor is not None and "operate" not in visitor.scopes and (undo or choice is Choice.EXTEND):
        what = "abort with undo" if undo else choice.value
        raise Denied(403, "no_scope", f"{what} needs the scope operate, and {visitor.name} has not", "ask who has it")


_PATTERNS: Mapping[tuple[str, str], Pattern[str]] = {one: compile_path(one[1])[0] for one in SCOPES}


def check_scope(visitor: Visitor, method: str, path: str) -> None:
    """Raise Denied if somebody sends a request for which they have no scope; `path` is as it was sent."""
    if visitor.scopes == ALL:
        return
    found = next((one for one, pattern in _PATTERNS.items() if one[0] == method and pattern.match(path)), None)
    if found is None:
        reason = f"{method} {shorten(path, MAX_PATH)} is nothing for who has not all scopes"
        raise Denied(404, "http", reason, "see /openapi.json")
    if (scope := SCOPES[found]) not in visitor.scopes:
        has = ", ".join(visitor.scopes) or "none"
        reason = f"{method} {found[1]} needs the scope {scope}, and {visitor.name} has {has}"
        raise Denied(403, "no_scope", reason, "use a token that has it")
