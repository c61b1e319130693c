"""The page of a store of `replan.effects`: its calls, and what a person can settle. No Temporal server is asked."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args
from urllib.parse import quote, unquote

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from activities.effects.calls import State
from activities.effects.desk import UNSAID, CallRecord, Desk, Settlement, clause_about
from activities.effects.errors import EffectRefused
from activities.effects.explanation import explain
from activities.storage.store import StoreUnavailable, spoken
from client import document
from client.problem import Problem
from console.serving.access import Access
from extras.web.app import Gate, error_response, live, static
from extras.web.page import sign_in
from extras.web.page.reaching import PageRoute
from extras.web.page.rendering import name_of_visitor, problem_page, read_form, render
from workflows.people.card import args_text
from workflows.text import shorten

LISTED = 200
"""The most calls of a list."""
MAX_RESULT = 2000
HOME = "/ui/effects"
OPEN_STATES = (State.OPEN, State.UNKNOWN, State.DOUBTFUL)
STATES: Mapping[State, tuple[str, str]] = {
    State.OPEN: ("running", "runs"),
    State.APPLIED: ("applied", "applied"),
    State.UNKNOWN: ("unknown", "outcome unknown"),
    State.VOID: ("none", "not applied"),
    State.DOUBTFUL: ("waiting", "doubtful"),
    State.SAME: ("none", "settled as same"),
    State.ANOTHER: ("none", "settled as another"),
    State.UNDONE: ("undone", "undone"),
}
"""By state, the class of the style sheet, and the words."""

router = APIRouter(include_in_schema=False, route_class=PageRoute)


class CallRow(NamedTuple):
    """A call as the page shows it."""

    call: CallRecord
    style: str
    state: str
    line: str
    """What is known of it, as a sentence."""
    args: str
    result: str
    path: str

    @property
    def is_doubtful(self) -> bool:
        return self.call.state is State.DOUBTFUL


def make_store_app(desk: Desk, access: Access) -> FastAPI:
    """Make the server of one store, for this machine; `access` has the rules of access."""
    app = FastAPI(title="Replan", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.desk, app.state.access, app.state.places = desk, access, ((HOME, "Effects", ""),)
    app.include_router(sign_in.router)
    app.include_router(router)
    app.add_api_route("/static/{name}", static, include_in_schema=False)
    app.add_api_route("/health/live", live, include_in_schema=False)
    for error in (Problem, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(error, error_response)
    app.add_exception_handler(EffectRefused, _refused)
    app.add_exception_handler(StoreUnavailable, _unavailable)
    app.add_middleware(Gate, access=access, web_ui="")
    return app


@router.get(HOME)
async def list_page(request: Request, session: str = "", show: str = "") -> Response:
    desk: Desk = request.app.state.desk
    states = OPEN_STATES if show == "open" else tuple(State)
    calls = await asyncio.to_thread(desk.calls, session or None, states=states, limit=LISTED)
    rows = [_row(call) for call in reversed(calls)]
    waiting = [row for row in rows if row.call.is_unsettled]
    others = [row for row in rows if not row.call.is_unsettled]
    if show == "open":
        others = [row for row in others if row.call.state is State.OPEN]
    store = spoken(desk.database.url)
    values: dict[str, Any] = {"waiting": waiting, "others": others, "store": store, "limit": LISTED, "show": show}
    return render(request, "store.html", session=session, is_full=len(rows) == LISTED, **values)


@router.get(f"{HOME}/{{key}}")
async def call_page(request: Request, key: str) -> Response:
    return await _call_page(request, unquote(key))


@router.post(f"{HOME}/{{key}}/settle")
async def settle(request: Request, key: str) -> Response:
    """Settle the call as the form says, and redirect to its page; a form that is not accepted is shown again."""
    form, desk, name = await read_form(request), request.app.state.desk, unquote(key)
    try:
        answer = _answer(form.get("answer", ""))
        result = _result(form.get("result", "")) if answer == "applied" else UNSAID
        await asyncio.to_thread(desk.settle, name, answer, result=result, by=name_of_visitor(request))
    except Problem as problem:
        return await _call_page(request, name, str(problem), form)
    except EffectRefused as refused:
        return await _call_page(request, name, f"{refused.reason}.", form)
    return RedirectResponse(_path(name), 303)


@router.get(f"{HOME}/{{key}}/settle")
async def settled_before(key: str) -> Response:
    """Redirect from the address of a form that was sent to the call."""
    return RedirectResponse(_path(unquote(key)), 303)


async def _call_page(request: Request, key: str, wrong: str = "", form: Mapping[str, str] | None = None) -> Response:
    desk: Desk = request.app.state.desk

    def look() -> tuple[CallRow, Any, CallRow | None]:
        call = desk.call(key)
        return _row(call), explain(desk, call), _earlier(desk, call)

    row, explained, earlier = await asyncio.to_thread(look)
    values: dict[str, Any] = {"row": row, "explained": explained, "earlier": earlier, "wrong": wrong}
    return render(request, "store_call.html", 409 if wrong else 200, form=form or {}, **values)


def _earlier(desk: Desk, call: CallRecord) -> CallRow | None:
    """The call that a doubtful one may be again; None if there is none, or it is gone."""
    try:
        return _row(desk.call(call.about)) if call.about else None
    except EffectRefused:
        return None


def _row(call: CallRecord) -> CallRow:
    style, state = STATES[call.state]
    if call.state is State.OPEN and call.is_unsettled:
        style, state = "unknown", "may still run"
    result = shorten(document.written(call.result), MAX_RESULT) if call.has_result else ""
    line = f"{call.function} {clause_about(call)}."
    return CallRow(call, style, state, line, args_text(call.arguments), result, _path(call.key))


def _path(key: str) -> str:
    return f"{HOME}/{quote(key, safe='')}"


def _answer(text: str) -> Settlement:
    answers: Sequence[Settlement] = get_args(Settlement)
    found = next((answer for answer in answers if answer == text), None)
    if found is None:
        raise Problem("usage", "The form has no answer", "choose one")
    return found


def _result(text: str) -> Any:
    if not text.strip():
        return UNSAID
    try:
        return document.parsed(text)
    except (ValueError, RecursionError) as error:
        raise Problem("bad_arguments", "The result is no JSON", 'put a text in quotes, as in "sent"') from error


async def _refused(request: Request, error: Exception) -> Response:
    code, reason, remedy = (
        (error.code, error.reason, error.remedy) if isinstance(error, EffectRefused) else ("bug", str(error), "")
    )
    status = 404 if code == "unknown_key" else 409
    return problem_page(request, status, code, reason, "start from the list of effects" if status == 404 else remedy)


async def _unavailable(request: Request, error: Exception) -> Response:
    reason, _, remedy = str(error).removesuffix(".").rpartition(": ")
    return problem_page(request, 503, "store_unavailable", reason, remedy)
