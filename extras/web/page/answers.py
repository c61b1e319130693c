"""What people do to a task on the page: answer its requests, stop it, extend its limits, undo its effects."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from client import people, tree
from client.client import TaskHandle
from client.follow import View, fetch_standing
from client.history import fetch
from client.problem import Problem, ProblemKind
from client.tasks import Handle
from client.undo import PlannedUndo, PlannedUndoCall, plan as plan_undo, undo, with_code
from console.serving.problems import status_of
from extras.web.api import client_of, rollback_fields, task_of, voucher_of, within
from extras.web.page.cards import with_all_arguments
from extras.web.page.effects import effect_rows
from extras.web.page.inputs import Mistakes, RejectedForm, argument_fields, arguments, json_value, misfits, value_text
from extras.web.page.reaching import PageRoute
from extras.web.page.rendering import name_of_visitor, read_form, render
from extras.web.page.task import task_response
from extras.web.remedies import FIELDS, on_page
from extras.web.scopes import check_answer
from workflows.account.records import StepStatus
from workflows.people.card import call_text
from workflows.people.requests import CHOICES, Choice

PLAN_SECONDS = 8.0
"""How long the page before an undo waits for a worker to list the calls."""
STOPS: Mapping[StepStatus, str] = {
    StepStatus.RUNNING: "runs: its call is cancelled, or ends first",
    StepStatus.WAITING: "waits: it is given up",
    StepStatus.PAUSED: "is paused: it is given up",
    StepStatus.PENDING: "is not begun",
}
"""By the status of a step, what happens to the step when its task is stopped."""

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.post("/ui/tasks/{id}/requests/{number}/{choice}")
async def answer(request: Request, id: str, number: str, choice: Choice) -> Response:
    task, form = await task_of(request, id), await read_form(request)
    try:
        values = _form_values(choice, form)
        check_answer(request.state.visitor, choice, undo=bool(values.get("undo")))
        if choice is Choice.EDIT and form.get("confirmed") != "yes":
            return await _confirm(request, task, number, values, form)
        if CHOICES[choice].ends_task and form.get("confirmed") != "yes":
            action = f"requests/{quote(number, safe='')}/{choice}"
            return await _ask_to_stop(request, task, action, CHOICES[choice].button, form)
        values |= {"request": number, "by": name_of_visitor(request)}
        if CHOICES[choice].needs_code:
            values["call"] = form.get("call", "")
        if choice is Choice.APPROVE_ALL:
            values["others"] = form.get("others", "").split()
        said = await people.answer(task, choice, voucher=voucher_of(request), **values)
    except Problem as problem:
        return await _refused_response(request, task, problem, RejectedForm.of(problem, number, choice, form))
    if form.get("from") == "inbox":
        answered = quote(f"{task.id} {number}", safe="")
        left = f"&left={people.still_needed(said)}" if people.still_needed(said) else ""
        return RedirectResponse(f"/ui/inbox?answered={answered}&choice={choice.value}{left}", 303)
    return RedirectResponse(f"/ui/tasks/{quote(task.id, safe='')}#{quote(number)}", 303)


@router.get("/ui/tasks/{id}/requests/{number}/{choice}")
async def answer_again(id: str, number: str, choice: str) -> Response:
    """Redirect a GET of the address to which an answer was posted: to the request, on the page of its task."""
    return RedirectResponse(f"/ui/tasks/{id}#{number}", 303)


def _form_values(choice: Choice, form: Mapping[str, str]) -> dict[str, Any]:
    """The values of an answer in a form, by option. Raises Mistakes for what cannot be read, or is missing."""
    values, options = dict[str, Any](), CHOICES[choice].options
    for option in options:
        text = form.get(option.name, "")
        if option.type == "object":
            values[option.name] = arguments(form)
        elif option.type == "value" and text.strip():
            values[option.name] = json_value(option.name, FIELDS[option.name], text)
        elif option.type == "switch":
            values |= {option.name: True} if text else {}
        elif text.strip() or form.get("option"):  # what was written is meant, also where an option is chosen
            values[option.name] = text if text.strip() else form["option"]
    if CHOICES[choice].needs_option and not values:
        first = next((option for option in options if option.name in form), options[0])
        raise Mistakes({first.name: f"Write {first.label}{f', e.g. {first.example}' * (first.type == 'number')}."})
    return values


async def _confirm(
    request: Request, task: Handle, number: str, values: Mapping[str, Any], form: Mapping[str, str]
) -> Response:
    """The page that shows what an edit changes before it is sent; `form` has the code of the call that the person saw.

    Raises:
        Problem: the call is another call by now, or no argument was changed.
        Mistakes: a changed value does not fit the schema of the tool.
    """
    shown = await people.request_to_approve(task, number)
    if shown.call is None or shown.call.code != form.get("call", ""):
        reason = "The call is another one than the page showed"
        raise Problem("not_accepted", reason, "look at it again", ProblemKind.FAILED)
    whole, schema = await with_all_arguments(request, (await task.describe()).task_queue, shown)
    before = whole.call.whole_args if whole.call else {}
    changed = {name: value for name, value in values["args"].items() if name not in before or before[name] != value}
    if not changed:
        raise Problem("usage", "No argument was changed", "change one, or approve the call as it is")
    fields = {name: field for field, name in argument_fields(form).items() if name in changed}
    if wrong := misfits(changed, schema):
        raise Mistakes({fields[name]: wrong_text for name, wrong_text in wrong.items()})
    texts = {name: value_text(value) for name, value in before.items()}
    rows = [(name, texts.get(name, ""), value_text(value)) for name, value in changed.items()]
    others = [(name, text) for name, text in texts.items() if name not in changed]
    hidden = {field: form[field] for field in (*fields.values(), "call", *(["from"] if form.get("from") else []))}
    return render(request, "edit.html", id=task.id, request=shown, rows=rows, others=others, hidden=hidden)


async def _refused_response(request: Request, task: Handle, problem: Problem, refused: RejectedForm) -> Response:
    return await task_response(request, task, problem.sentence(on_page), status_of(problem), refused)


@router.get("/ui/tasks/{id}/{what}")
async def before_act(request: Request, id: str, what: str) -> Response:
    """The page that shows what an action (`what`) will do before it is done."""
    task = await task_of(request, id)
    match what:
        case "cancel":
            return await _ask_to_stop(request, task, "cancel", "Cancel the task", {})
        case "undo":
            return await _ask_to_undo(request, task)
        case "extend":
            return RedirectResponse(f"/ui/tasks/{quote(task.id, safe='')}", 303)
        case _:
            raise Problem("unknown_id", "There is no such page", "go back to the task")


async def _ask_to_stop(request: Request, task: Handle, action: str, button: str, form: Mapping[str, str]) -> Response:
    """The page that shows what stops, and what the task has changed, before the task is stopped."""
    client = client_of(request).temporal
    outcome, _ = await fetch_standing(client, task)
    if outcome.ended_at:
        return RedirectResponse(f"/ui/tasks/{quote(task.id, safe='')}", 303)
    running = [step for step in outcome.steps if step.status in STOPS]
    stops = [(step, *tree.kind_and_title(step), STOPS[step.status]) for step in running]
    effects = await effect_rows(client, await fetch.fetch_story(client, task))
    hidden = {name: text for name, text in form.items() if name != "undo"} | {"confirmed": "yes"}
    return render(
        request,
        "stop.html",
        id=task.id,
        tab="",
        text=outcome.task,
        action=f"/ui/tasks/{quote(task.id, safe='')}/{action}",
        button=button,
        stops=stops,
        effects=[row for row in effects if not row.is_undone],
        hidden=hidden,
        undo=bool(form.get("undo")),
    )


async def _ask_to_undo(request: Request, task: Handle) -> Response:
    """The page that shows the calls of a rollback before they are made."""
    client, wrong, planned = client_of(request).temporal, "", PlannedUndo()
    try:
        async with asyncio.timeout(PLAN_SECONDS):
            planned = await plan_undo(client, task)
    except Problem as problem:
        if problem.code == "still_running":
            raise
        wrong = problem.sentence(on_page)
    except TimeoutError:
        wrong = "No worker has told which calls that makes."
    undoes = {call.step for call in planned.calls}
    effects = await effect_rows(client, await fetch.fetch_story(client, task))
    return render(
        request,
        "undo.html",
        id=task.id,
        tab="",
        wrong=wrong,
        calls=_call_rows(planned),
        stays=[row for row in effects if not row.is_undone and row.step not in undoes],
        confirm=planned.code if planned.to_approve else "",
    )


def _call_rows(planned: PlannedUndo) -> list[tuple[PlannedUndoCall, str, list[tuple[str, str]]]]:
    """The calls of a rollback, each with the words of the call that it undoes, and with its own arguments."""
    texts = [[(name, value_text(value)) for name, value in call.args.items()] for call in planned.calls]
    lines = [call_text(call.undoes_kind, call.undoes_args) for call in planned.calls]
    return list(zip(planned.calls, lines, texts, strict=True))


@router.post("/ui/tasks/{id}/{what}")
async def act(request: Request, id: str, what: str) -> Response:
    task, form = await task_of(request, id), await read_form(request)
    client, voucher = client_of(request).temporal, voucher_of(request)
    try:
        match what:
            case "cancel":
                await TaskHandle(client, task.id).cancel(undo=bool(form.get("undo")))
            case "extend":
                values = _form_values(Choice.EXTEND, form)
                values |= {"by": name_of_visitor(request)}
                await people.answer(task, Choice.EXTEND, form.get("key") or None, voucher=voucher, **values)
            case "undo":
                confirm = with_code(form.get("confirm") or None)
                undoing = undo(client, task, View(), is_attended=False, confirm=confirm, voucher=voucher)
                found = await within(undoing)
                rows = _call_rows(found.planned) if found and found.planned else []
                return render(request, "undone.html", id=task.id, tab="", **{**rollback_fields(found), "rows": rows})
            case _:
                raise Problem("unknown_id", "There is no such page", "go back to the task")
    except Problem as problem:
        return await _refused_response(request, task, problem, RejectedForm.of(problem, "", what, form))
    return RedirectResponse(f"/ui/tasks/{quote(task.id, safe='')}", 303)
