"""What every page is made with: the templates, the page of a problem, and the fields of a form.

Every untrusted text is escaped by Jinja, loses its control and format characters, and is never a link.
"""

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from fastapi import HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from client import document, tree
from client.problem import Problem
from client.text import printable
from client.wording import ENDS
from console.serving.access import Access, Visitor
from runtime.people_file import SCOPES
from runtime.process import version
from workflows.account.task import TaskStatus
from workflows.limits.budget import LIMITS
from workflows.people.card import WARNING, WARNING_SIGN
from workflows.people.requests import CHOICES, RequestKind, options_for
from workflows.text import capitalised, visible
from workflows.web_ui import SIGNS

ASK_SECONDS = 2.5
"""How long a page waits for workers to report what only workers know, e.g. the calls that are to be approved."""
MAX_FORM = 64 * 1024
MAX_FIELDS = 300

TASK_SIGNS: Mapping[str, str] = {
    **{status.value: sign for status, sign in SIGNS.items()},
    TaskStatus.ESCALATED: "!",
    TaskStatus.OVER_BUDGET: "!",
}
"""By status of a task or a step, its sign: no state is shown by a colour alone."""
KINDS: Mapping[RequestKind, str] = {
    RequestKind.APPROVAL: "approval",
    RequestKind.FAULT: "needs repair",
    RequestKind.QUESTION: "question",
    RequestKind.BUDGET: "limit reached",
}
"""What a request asks of a person, in a word."""
SIMPLE = frozenset(choice for choice, row in CHOICES.items() if not row.options)
"""The answers that are given with a button alone."""
NEW = "/ui/new"
PLACES: Sequence[tuple[str, str, str]] = (
    ("/ui/inbox", "Inbox", ""),
    ("/ui/tasks", "Tasks", ""),
    ("/ui/incidents", "Incidents", ""),
    (NEW, "New", "task"),
)
"""The pages of `serve` that every page links to: address, name, and what follows the name where there is room."""
TASK_PAGES = "/ui/tasks/"
"""The beginning of the addresses of a task's pages."""
Tab = tuple[str, str, str]
"""The name, the title, and the end of the address of one of a task's pages."""
TABS: Sequence[Tab] = (("task", "Task", ""), ("effects", "Effects", "/effects"), ("explain", "Explain", "/explain"))


def tabs_of(id: str, more: Sequence[Tab]) -> list[tuple[str, str, str]]:
    """The tabs of a task's pages: name, title, address; `more` are further tabs than TABS."""
    return [(name, title, f"/ui/tasks/{quote(id, safe='')}{path}") for name, title, path in (*TABS, *more)]


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # and not of Markup
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["age"] = lambda then: tree.age(then, datetime.now(UTC))
    made.filters["moment"] = lambda then: _time(then, "moment", f"{then.astimezone(UTC):%Y-%m-%d %H:%M} UTC")
    made.filters["ago"] = lambda then: _time(then, "ago", f"{tree.age(then, datetime.now(UTC))} ago")
    made.filters["path"] = lambda text: quote(text, safe="")
    made.filters["visible"] = visible
    made.filters["lines"] = lambda text: Markup("<br>").join(map(printable, text.splitlines()))
    made.filters["verbatim"] = escape  # with its line breaks, for a field of a form
    made.globals |= {"version": version(), "can": SCOPES}
    made.filters["as_json"] = lambda value: document.written(value, indent=2)
    made.filters["capitalised"] = capitalised
    made.globals |= {"choices": CHOICES, "limits": LIMITS, "options_for": options_for}
    made.globals |= {"signs": TASK_SIGNS, "kinds": KINDS, "simple_choices": SIMPLE, "tabs_of": tabs_of}
    made.globals |= {"warning": WARNING, "warning_sign": WARNING_SIGN}
    made.globals |= {"meanings": ENDS, "fresh_key": secrets.token_hex}
    return made


def _time(then: datetime, how: str, text: str) -> Markup:
    """A time that a script shows in the reader's zone, in the format `how`; without a script, `text` is shown."""
    utc = then.astimezone(UTC)
    exact = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    element = Markup('<time datetime="{}" title="{}" data-as="{}">{}</time>')
    return element.format(utc.isoformat(timespec="seconds"), exact, how, text)


def render(request: Request, template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    access: Access = request.app.state.access
    known = {"visitor": visitor, "has_token": not access.is_open, "path": request.scope["path"]}
    known |= {"has_people": access.people is not None, "has_operator": access.token is not None or access.is_open}
    can = visitor.scopes if visitor else SCOPES
    places = [place for place in request.app.state.places if place[0] != NEW or "start" in can]
    known |= {"places": places, "has_provider": access.has_provider, "can": can}
    return HTMLResponse(environment().get_template(template).render(**known, **values), status)


def problem_page(
    request: Request, status: int, code: str, reason: str, remedy: str, similar: Sequence[str] = ()
) -> Response:
    """A page that says what cannot be done, and what to do; `similar` are the ids of tasks that may be meant."""
    is_again, is_missing = code == "unreachable" and status == 503, status == 404
    of_task = is_missing and request.scope["path"].startswith(TASK_PAGES)
    places = request.app.state.places
    # The first way is the one that most probably helps.
    ways = places[:1] if is_again else places[1::-1] if of_task else places[:2]
    fields = {"reason": reason, "remedy": remedy, "code": code, "again": is_again, "missing": is_missing}
    return render(request, "problem.html", status, **fields, of_task=of_task, similar=similar, ways=ways)


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form; of fields with the same name, the last one counts.

    Raises:
        HTTPException: the form has more than MAX_FORM bytes.
        Problem: the form has more than MAX_FIELDS fields.
    """
    body = b""
    async for part in request.stream():  # of somebody without a token, too: what is too large is not kept
        body += part
        if len(body) > MAX_FORM:
            raise HTTPException(413, f"send at most {MAX_FORM:,} bytes in a form")
    try:
        fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise Problem("usage", f"The form has more than {MAX_FIELDS} fields", "send fewer") from error
    # A browser sends line breaks as CRLF, whatever a text had.
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def local_path(request: Request, path: str) -> str:
    """Return `path` if it is a page of this server, else the path of its first page."""
    is_local = path.startswith("/ui/") and "\\" not in path and path.isprintable()
    return path if is_local else home_of(request)


def home_of(request: Request) -> str:
    """The path of the first page of this server."""
    return str(request.app.state.places[0][0])


def name_of_visitor(request: Request) -> str:
    return request.state.visitor.answers_as("") if request.state.visitor else ""
