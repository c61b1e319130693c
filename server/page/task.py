"""One task: how it stands, why it did what it did, and what it changed."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response

from client import tree
from client.client import Client
from client.connection import ui_url_of
from client.explain import explanation, page as explained_page, waste
from client.explain.waste import receipt_of
from client.follow import Snapshot, fetch_standing
from client.history import fetch
from client.problem import Problem
from client.tasks import Handle
from client.text import one_line
from client.wording import spent_on_models
from client.workers import list_effects
from server.api import client_of, task_of
from server.page.cards import card_of
from server.page.rendering import render
from server.remedies import on_page
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.faults.fault import Quadrant
from workflows.json_values import canonical, text_of
from workflows.web_ui import SIGNS

router = APIRouter(include_in_schema=False)
QUADRANTS: Mapping[Quadrant, str] = {quadrant: quadrant.value.replace("_", " ") for quadrant in Quadrant}


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
    return await task_response(request, await task_of(request, id))


async def task_response(request: Request, task: Handle, wrong: str = "", status: int = 200) -> Response:
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
        return render(request, "task.html", status, **values, **fields)
    receipt = receipt_of(await fetch.fetch_story(client, task))
    doing = [one_line(activity) for activity in (snapshot.doing if snapshot else ())]
    notes = [line.strip() for line in (*tree.waiting_lines(outcome), *tree.paused_lines(outcome))]
    return render(
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
        cards=[card_of(task.id, outcome.task, human_request) for human_request in outcome.requests],
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
    return render(request, "explain.html", id=task.id, lines=lines, tab="explain")


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
    return render(request, "effects.html", id=task.id, effects=shown, unread=unread, tab="effects")
