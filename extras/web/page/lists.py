"""All tasks, a new task, and the incidents."""

import asyncio
from collections.abc import Sequence
from urllib.parse import quote, unquote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from client.client import Client
from client.listing import Listed, list_tasks, status_named
from client.problem import Problem
from client.wording import breaker_state, count
from client.workers import list_breakers
from extras.web.api import client_of, resolve_incident
from extras.web.page.inputs import Mistakes, RejectedForm
from extras.web.page.reaching import PageRoute
from extras.web.page.rendering import ASK_SECONDS, name_of_visitor, read_form, render
from extras.web.remedies import on_page
from runtime.validation import expected
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import MAX_TASK_TEXT
from workflows.people.incidents import Fate

router = APIRouter(include_in_schema=False, route_class=PageRoute)
LISTED = 50


@router.get("/ui/tasks")
async def tasks_page(request: Request, status: str = "", query: str = "") -> Response:
    wrong, note, listed = "", "", list[Listed]()
    try:
        task_status = status_named(status or None)
        client = client_of(request).temporal
        listed, note = await list_tasks(client, status=task_status, query=query or None, limit=LISTED)
    except Problem as problem:
        wrong = problem.sentence(on_page)
    values = {"listed": listed, "note": note, "status": status, "query": query, "wrong": wrong}
    return render(request, "tasks.html", 422 if wrong else 200, statuses=list(TaskStatus), limit=LISTED, **values)


@router.get("/ui/new")
async def new_page(request: Request) -> Response:
    return render(request, "new.html", wrong="", refused=None)


@router.post("/ui/new")
async def new(request: Request) -> Response:
    """Start the task in the form, and redirect to its page; a form that is not accepted is shown again."""
    form = await read_form(request)
    text, approve = form.get("text", "").strip(), form.get("approve", "declared")
    try:
        if not text:
            raise Mistakes({"text": f"Write what is to be done, in at most {MAX_TASK_TEXT:,} characters."})
        fields = {"text": text, "on_escalation": "wait", "approve": approve, "by": name_of_visitor(request)}
        # The key of the page: a form that is sent twice starts one task.
        started = await client_of(request).start(Task.model_validate(fields), key=form.get("key") or None)
    except (Problem, ValidationError) as error:
        problem = (
            error if isinstance(error, Problem) else Mistakes({"text": f"The text {expected(error.errors()[0])}."})
        )
        refused = RejectedForm.of(problem, "", "new", form)
        return render(request, "new.html", 422, wrong=problem.sentence(on_page), refused=refused)
    return RedirectResponse(f"/ui/tasks/{quote(started.id, safe='')}", 303)


@router.get("/ui/incidents")
async def incidents_page(request: Request) -> Response:
    return await _incidents(request)


async def _incidents(
    request: Request, message: str = "", status: int = 200, refused: RejectedForm | None = None
) -> Response:
    incidents, services = await asyncio.gather(client_of(request).incidents(), _services(client_of(request)))
    return render(
        request, "incidents.html", status, incidents=incidents, services=services, message=message, refused=refused
    )


async def _services(client: Client) -> Sequence[tuple[str, str]] | None:
    """The services with a circuit breaker that is not closed, or with waiting calls; None if no worker answers."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            cards = (await list_breakers(client.temporal, client.queue)).breakers or ()
    except (Problem, TimeoutError):
        return None
    return [(card.kind, breaker_state(card)) for card in cards if card.state != "closed" or card.waiting]


@router.post("/ui/incidents/{cause:path}/resolve")
async def resolve(request: Request, cause: str) -> Response:
    form, named = await read_form(request), unquote(cause)

    async def refuse(message: str) -> Response:
        where = form.get("queue") or client_of(request).queue
        return await _incidents(request, message, 409, RejectedForm(named, where, form, {}))

    try:
        how = {"by": name_of_visitor(request), "note": form.get("note", "")[:4000]}
        done, is_ended = await resolve_incident(request, named, **how, queue=form.get("queue") or None)
    except Problem as problem:
        return await refuse(problem.sentence(on_page))
    if done.fate is Fate.FAILED_AGAIN:
        return await refuse(f"{done.canary} failed again, so no other task was told: {done.reason}")
    if not is_ended:
        return await _incidents(request, f"{named}: the tasks are being told; reload to see how many still wait.")
    if done.fate is not Fate.WENT_ON:
        return await refuse(f"No task was told. {done.reason}")
    return await _incidents(request, f"{named}: {count(done.went_on, 'task')} went on.")


@router.get("/ui/incidents/{cause:path}/resolve")
async def resolved_before(cause: str) -> Response:
    """Redirect from the address of a repair that was sent to the incidents."""
    return RedirectResponse("/ui/incidents", 303)
