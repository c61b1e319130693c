"""The page for people: the inbox, one task, the list of tasks, the incidents. Plain forms, which need no script.

Every text of the world is escaped by Jinja, loses its control and format characters, and is never a link.
"""

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import JsonValue, ValidationError

from client import document, people, tasks, tree
from client.client import Client, TaskHandle
from client.connection import ui_url_of
from client.explain import explanation, page as explained_page, waste
from client.explain.waste import receipt_of
from client.follow import Snapshot, View, fetch_standing
from client.history import fetch
from client.listing import MAX_WAITING, Listed, list_tasks, list_waiting, status_named
from client.problem import Problem, ProblemKind
from client.tasks import Handle, query_progress
from client.text import one_line, printable
from client.undo import undo, with_code
from client.wording import answer_words, breaker_state, closing_words, spent_on_models, subject_of
from client.workers import list_breakers, list_effects
from runtime.process import version
from runtime.validation import expected
from server.access import COOKIE, SESSION_SECONDS, Access, Visitor, name_of
from server.api import client_of, resolve_incident, rollback_fields, task_of, within
from server.problems import status_of
from server.remedies import FIELDS, on_page
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.task import MAX_TEXT, Task, TaskStatus
from workflows.faults.fault import Quadrant
from workflows.json_values import canonical, text_of
from workflows.limits.budget import LIMITS
from workflows.people.card import Asker, Fact, facts
from workflows.people.incidents import Fate
from workflows.people.requests import (
    CHOICES,
    CUT,
    Choice,
    HumanRequest,
    ProposedCall,
    RequestKind,
    options_for,
)
from workflows.text import capitalised, visible
from workflows.web_ui import SIGNS

router = APIRouter(include_in_schema=False)

PAGE = 25
"""Requests on a page of the inbox; the workers of those that ask for an approval are asked for the call."""
LISTED = 50
ASK_SECONDS = 2.5
"""How long a page waits for workers to tell what only they know, e.g. the calls that are to be approved."""
MAX_FORM = 64 * 1024
MAX_FIELDS = 300
QUADRANTS: Mapping[Quadrant, str] = {quadrant: quadrant.value.replace("_", " ") for quadrant in Quadrant}


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # and not of Markup
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["age"] = lambda then: tree.age(then, datetime.now(UTC))
    made.filters["moment"] = lambda then: f"{then.astimezone(UTC):%Y-%m-%d %H:%M}Z"
    made.filters["path"] = lambda text: quote(text, safe="")
    made.filters["visible"] = visible
    made.filters["lines"] = lambda text: Markup("<br>").join(map(printable, text.splitlines()))
    made.filters["verbatim"] = escape  # with its line breaks, for a field of a form
    made.globals["version"] = version()
    made.filters["capitalised"] = capitalised
    made.globals |= {"choices": CHOICES, "limits": LIMITS, "options_for": options_for}
    made.globals["fresh_key"] = secrets.token_hex
    return made


def _page(request: Request, template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    access: Access = request.app.state.access
    known = {"visitor": visitor, "has_token": access.token is not None, "path": request.scope["path"]}
    return HTMLResponse(_environment().get_template(template).render(**known, **values), status)


def problem_page(request: Request, status: int, code: str, reason: str, remedy: str) -> Response:
    """A page that says what cannot be done, and what to do."""
    return _page(request, "problem.html", status, reason=reason, remedy=remedy, code=code)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form; the last one of those with the same name."""
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


# Signing in


@router.get("/login")
async def login_page(request: Request, next: str = "/ui/inbox") -> Response:
    return _page(request, "login.html", next=_local(next), wrong="", name="")


@router.post("/login")
async def login(request: Request) -> Response:
    form, access = await _form(request), request.app.state.access
    name, back = name_of(form.get("name", "")), _local(form.get("next", ""))
    wrong = "" if name else "Write your name: the histories of what you answer have it."
    if not access.is_token(form.get("token", "")):
        await asyncio.sleep(0.5)
        wrong = "The token is wrong."
    if wrong:
        return _page(request, "login.html", 401, next=back, wrong=wrong, name=name)
    response = RedirectResponse(back, 303)
    is_secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(
        COOKIE, access.session(name), SESSION_SECONDS, httponly=True, samesite="strict", secure=is_secure
    )
    return response


@router.post("/logout")
async def logout(request: Request) -> Response:
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def _local(path: str) -> str:
    """A path of this server to go on with; the inbox for anything else."""
    is_local = path.startswith("/ui/") and "\\" not in path and path.isprintable()
    return path if is_local else "/ui/inbox"


@router.get("/")
async def home() -> Response:
    return RedirectResponse("/ui/inbox", 303)


# What waits


class Card(NamedTuple):
    """A request as a person sees it, with what its forms need."""

    task_id: str
    task: str
    request: HumanRequest
    about: str
    args: Sequence[tuple[str, str, bool, bool]]
    """By argument: its name, its value as text, whether it is a text, whether it was cut and cannot be edited."""
    facts: Sequence[Fact]
    """What a person must know of an open request; empty for one that was closed."""
    is_seen: bool
    """Whether the call that is to be approved is known."""
    answered: str
    """Who answered what; empty while it is open."""


def card_of(task: Asker, request: HumanRequest) -> Card:
    call = request.call
    known = facts(request, task) if request.is_open else []
    answered = closing_words(request) if request.closed else ""
    answered = answer_words(request.answer) if request.answer else answered
    is_seen = call is not None or request.kind is not RequestKind.APPROVAL
    args = _args(call) if call else []
    return Card(task.id, task.text, request, subject_of(request), args, known, is_seen, answered)


def _args(call: ProposedCall) -> list[tuple[str, str, bool, bool]]:
    return [
        (name, _shown(value), _is_text(value), isinstance(value, str) and value.endswith(CUT))
        for name, value in (call.args or {}).items()
    ]


def _is_text(value: JsonValue) -> bool:
    """Whether a value is shown as it is; all others are JSON, in which invisible characters are escaped."""
    return isinstance(value, str) and visible(value, kept="\n\t") == value


def _shown(value: JsonValue) -> str:
    return value if isinstance(value, str) and _is_text(value) else document.written(value, indent=None)


@router.get("/ui/inbox")
async def inbox(request: Request, page: Annotated[int, Query(ge=1)] = 1, answered: str = "") -> Response:
    client = client_of(request)
    waiting = await list_waiting(client.temporal)
    # The server's list is a moment behind what was answered just now.
    waiting = [task for task in waiting if f"{task.task_id} {task.request.id}" != answered]
    pages = max(1, -(-len(waiting) // PAGE))
    shown = waiting[(min(page, pages) - 1) * PAGE :][:PAGE]
    requests = await asyncio.gather(*(_open_requests(client, task.task_id, task.request) for task in shown))
    cards = [
        card_of(Asker(task.task_id, task.task, task.by), human_request)
        for task, found in zip(shown, requests, strict=True)
        for human_request in found
        if f"{task.task_id} {human_request.id}" != answered
    ]
    number = {"page": min(page, pages), "pages": pages, "total": len(waiting), "is_cut": len(waiting) >= MAX_WAITING}
    return _page(request, "inbox.html", cards=cards, answered=answered.rpartition(" ")[0], **number)


async def _open_requests(client: Client, id: str, request: HumanRequest) -> Sequence[HumanRequest]:
    """The open requests of a task, with their calls; only the oldest one, without its call, if no worker answers."""
    if request.kind is not RequestKind.APPROVAL:
        return [request]
    try:
        async with asyncio.timeout(ASK_SECONDS):
            progress = await query_progress(await tasks.find_task(client.temporal, id))
    except (TimeoutError, Problem):
        return [request]
    return progress.open_requests if progress else [request]


# One task


class Row(NamedTuple):
    """A step in the list of a plan, or with only `notes` the heading of a plan."""

    notes: Sequence[str]
    step: OutcomeStep | None = None
    sign: str = ""
    state: str = ""
    time: str = ""


def rows_of(outcome: Outcome, snapshot: Snapshot | None) -> list[Row]:
    live = tree.LiveState.of(snapshot) if snapshot else None
    found = list[Row]()
    for group in tree.line_groups(outcome, tree.RowLayout(outcome), live):
        if group.step is None:
            found.append(Row([line.strip() for line in group.lines]))
        else:
            attempt = live.attempts.get(group.step.id) if live else None
            state, took = tree.state_of(group.step, attempt), tree.time_of(group.step, live)
            notes = [line.strip() for line in group.lines[1:]]
            found.append(Row(notes, group.step, SIGNS[group.step.status], state, took))
    return found


@router.get("/ui/tasks/{id}")
async def task_page(request: Request, id: str) -> Response:
    return await _task(request, await task_of(request, id))


async def _task(request: Request, task: Handle, wrong: str = "", status: int = 200) -> Response:
    """The page of a task; `wrong` says why what was asked of it was not done."""
    client = client_of(request).temporal
    place = ui_url_of(client, task.id)
    values: dict[str, Any] = {"id": task.id, "ui_url": place, "wrong": wrong, "tab": "task"}
    try:
        outcome, snapshot = await fetch_standing(client, task)
    except Problem as problem:
        # Its history tells what it did, also while no worker answers.
        lines = await _explained(client_of(request), task)
        fields = {"outcome": None, "silent": problem.sentence(on_page), "lines": lines, "cards": []}
        return _page(request, "task.html", status, **values, **fields)
    receipt = receipt_of(await fetch.fetch_story(client, task))
    doing = [one_line(activity) for activity in (snapshot.doing if snapshot else ())]
    notes = [line.strip() for line in (*tree.waiting_lines(outcome), *tree.paused_lines(outcome))]
    return _page(
        request,
        "task.html",
        status,
        **values,
        outcome=outcome,
        silent="",
        headline=str(tree.headline(outcome)),
        rows=rows_of(outcome, snapshot),
        doing=doing,
        notes=notes,
        cards=[card_of(Asker(task.id, outcome.task, outcome.by), human_request) for human_request in outcome.requests],
        faults=outcome.faults,
        quadrants=QUADRANTS,
        result="" if outcome.result is None else text_of(outcome.result),
        costs=[
            *spent_on_models(outcome.spent),
            *(sentence.text for sentence in waste.sentences(receipt, has_faults=True)),
        ],
        is_running=outcome.ended_at is None,
    )


@router.get("/ui/tasks/{id}/explain")
async def explain_page(request: Request, id: str) -> Response:
    task = await task_of(request, id)
    lines = await _explained(client_of(request), task)
    return _page(request, "explain.html", id=task.id, lines=lines, tab="explain")


async def _explained(client: Client, task: Handle) -> list[str]:
    explained = explanation.explain_task(await fetch.fetch_history(client.temporal, task))
    return explained_page.page_lines(explained, None, on_page)


@router.get("/ui/tasks/{id}/effects")
async def effects_page(request: Request, id: str) -> Response:
    task = await task_of(request, id)
    found = await list_effects(client_of(request).temporal, task)
    texts = ("" if effect.result is None else canonical(effect.result)[:400] for effect in found.effects)
    shown = list(zip(found.effects, texts, strict=True))
    unread = [f"The ledger {ledger.where} cannot be read ({ledger.problem})." for ledger in found.unread]
    unread += [f"The history of its run {run} was deleted." for run in found.deleted_runs]
    return _page(request, "effects.html", id=task.id, effects=shown, unread=unread, tab="effects")


# What people do


@router.post("/ui/tasks/{id}/requests/{number}/{choice}")
async def answer(request: Request, id: str, number: str, choice: Choice) -> Response:
    task, form = await task_of(request, id), await _form(request)
    try:
        values = _form_values(choice, form)
        if choice is Choice.EDIT and form.get("confirmed") != "yes":
            return await _confirm(request, task, number, values, form.get("call", ""))
        values |= {"request": number, "by": _by(request)}
        if CHOICES[choice].needs_code:
            values["call"] = form.get("call", "")
        if choice is Choice.APPROVE_ALL:
            values["others"] = form.get("others", "").split()
        await people.answer(task, choice, **values)
    except Problem as problem:
        return await _refused(request, task, problem)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return await _refused(request, task, Problem("usage", f"{first['loc'][-1]} {expected(first)}", "correct it"))
    if form.get("from") == "inbox":
        return RedirectResponse(f"/ui/inbox?answered={quote(f'{task.id} {number}', safe='')}", 303)
    return RedirectResponse(f"/ui/tasks/{quote(task.id, safe='')}#{quote(number)}", 303)


def _by(request: Request) -> str:
    return request.state.visitor.answers_as("") if request.state.visitor else ""


def _form_values(choice: Choice, form: Mapping[str, str]) -> dict[str, Any]:
    """What a form gives with an answer."""
    values = dict[str, Any]()
    for option in CHOICES[choice].options:
        text = form.get(option.name, "")
        if option.type == "object":
            values[option.name] = _arguments(form)
        elif option.type == "value":
            values[option.name] = _json(FIELDS[option.name], text)
        elif option.type == "switch":
            values |= {option.name: True} if text else {}
        elif form.get("option") or text.strip():
            values[option.name] = form.get("option") or text
    return values


def _arguments(form: Mapping[str, str]) -> dict[str, JsonValue]:
    typed = {name.removeprefix("arg."): value for name, value in form.items() if name.startswith("arg.")}
    texts = {name.removeprefix("text."): value for name, value in form.items() if name.startswith("text.")}
    return {**texts, **{name: _json(name, value) for name, value in typed.items()}}


def _json(name: str, text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError as error:
        raise Problem(
            "usage", f"{name} is not JSON", 'write texts in quotes, as in {"id": 7, "name": "ann"}'
        ) from error
    return value


async def _confirm(request: Request, task: Handle, number: str, values: Mapping[str, Any], call: str) -> Response:
    """The page that shows what an edit changes, before it is sent; `call` is the code of the call that was seen."""
    shown = await people.request_to_approve(task, number)
    if shown.call is None or shown.call.code != call:  # the page below shows only the arguments that change
        reason = "The call is another one than the page showed"
        raise Problem("not_accepted", reason, "look at it again", ProblemKind.FAILED)
    before = shown.call.args or {}
    changed = {name: value for name, value in values["args"].items() if name not in before or before[name] != value}
    if not changed:
        raise Problem("usage", "No argument was changed", "change one, or approve the call as it is")
    rows = [
        (name, _shown(before[name]) if name in before else "", _shown(value), _is_text(value))
        for name, value in changed.items()
    ]
    return _page(request, "edit.html", id=task.id, request=shown, rows=rows)


async def _refused(request: Request, task: Handle, problem: Problem) -> Response:
    return await _task(request, task, problem.sentence(on_page), status_of(problem))


@router.post("/ui/tasks/{id}/{what}")
async def act(request: Request, id: str, what: str) -> Response:
    task, form = await task_of(request, id), await _form(request)
    client = client_of(request).temporal
    try:
        match what:
            case "cancel":
                await TaskHandle(client, task.id).cancel(undo=bool(form.get("undo")))
            case "extend":
                values = _form_values(Choice.EXTEND, form)
                if not values:
                    raise Problem("usage", "No limit was given", "write how much more, e.g. 10 tool calls")
                await people.answer(task, Choice.EXTEND, form.get("key") or None, **values, by=_by(request))
            case "undo":
                confirm = with_code(form.get("confirm") or None)
                found = await within(undo(client, task, View(), is_attended=False, confirm=confirm))
                calls = found.planned.calls if found and found.planned else ()
                held = [(call, [(name, _shown(value)) for name, value in call.args.items()]) for call in calls]
                return _page(request, "undone.html", id=task.id, tab="", **{**rollback_fields(found), "held": held})
            case _:
                raise Problem("unknown_id", "There is no such page", "go back to the task")
    except Problem as problem:
        return await _refused(request, task, problem)
    return RedirectResponse(f"/ui/tasks/{quote(task.id, safe='')}", 303)


# All tasks


@router.get("/ui/tasks")
async def tasks_page(request: Request, status: str = "", query: str = "") -> Response:
    wrong, note, listed = "", "", list[Listed]()
    try:
        task_status = status_named(status or None)
        listed, note = await list_tasks(
            client_of(request).temporal, status=task_status, query=query or None, limit=LISTED
        )
    except Problem as problem:
        wrong = problem.sentence(on_page)
    values = {"listed": listed, "note": note, "status": status, "query": query, "wrong": wrong}
    return _page(request, "tasks.html", 422 if wrong else 200, statuses=list(TaskStatus), limit=LISTED, **values)


@router.get("/ui/new")
async def new_page(request: Request) -> Response:
    return _page(request, "new.html", wrong="", form={})


@router.post("/ui/new")
async def new(request: Request) -> Response:
    form = await _form(request)
    text, approve = form.get("text", "").strip(), form.get("approve", "declared")
    try:
        if not text:
            raise Problem("usage", "There is nothing to do", f"write a text of at most {MAX_TEXT:,} characters")
        task = Task.model_validate({"text": text, "on_escalation": "wait", "approve": approve, "by": _by(request)})
        # The key of the page: a form that is sent twice starts one task.
        started = await client_of(request).start(task, key=form.get("key") or None)
    except (Problem, ValidationError) as error:
        wrong = error.sentence(on_page) if isinstance(error, Problem) else f"The text {expected(error.errors()[0])}."
        return _page(request, "new.html", 422, wrong=wrong, form=form)
    return RedirectResponse(f"/ui/tasks/{quote(started.id, safe='')}", 303)


@router.get("/ui/incidents")
async def incidents_page(request: Request) -> Response:
    return await _incidents(request)


async def _incidents(request: Request, message: str = "", status: int = 200) -> Response:
    incidents, services = await asyncio.gather(client_of(request).incidents(), _services(client_of(request)))
    return _page(request, "incidents.html", status, incidents=incidents, services=services, message=message)


async def _services(client: Client) -> Sequence[tuple[str, str]] | None:
    """The services that are left alone, or for which calls wait, with their state; None if no worker says so."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            cards = (await list_breakers(client.temporal, client.queue)).breakers or ()
    except (Problem, TimeoutError):
        return None
    return [(card.kind, breaker_state(card)) for card in cards if card.state != "closed" or card.waiting]


@router.post("/ui/incidents/{cause:path}/resolve")
async def resolve(request: Request, cause: str) -> Response:
    form, named = await _form(request), unquote(cause)
    try:
        note, queue = form.get("note", "")[:4000], form.get("queue") or None
        done, is_ended = await resolve_incident(client_of(request), named, by=_by(request), note=note, queue=queue)
    except Problem as problem:
        return await _incidents(request, problem.sentence(on_page), 409)
    if done.fate is Fate.FAILED_AGAIN:
        return await _incidents(request, f"{done.canary} failed again, so no other task was told: {done.reason}", 409)
    if not is_ended:
        return await _incidents(request, f"{named}: the tasks are being told; reload to see how many still wait.")
    if done.fate is not Fate.WENT_ON:
        return await _incidents(request, f"No task was told. {done.reason}", 409)
    went_on = f"{done.went_on} {'task' if done.went_on == 1 else 'tasks'} went on"
    return await _incidents(request, f"{named}: {went_on}.")
