"""One task: how it stands, why it did what it did, what it changed, and what its model was told."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response

from client import tasks, tree
from client.client import Client
from client.connection import ui_url_of
from client.encrypted import require_key
from client.explain import explanation, page as explained_page, waste
from client.explain.waste import receipt_of
from client.follow import fetch_standing
from client.history import fetch
from client.problem import Problem
from client.remedy import render as render_remedy
from client.snapshot import Snapshot
from client.tasks import Handle
from client.text import one_line
from client.wording import count, spent_on_models
from client.workers import ask, list_effects
from extras.web.api import client_of, task_of
from extras.web.page.cards import cards_of
from extras.web.page.effects import effect_rows, undo_text
from extras.web.page.inputs import RejectedForm
from extras.web.page.reaching import PageRoute
from extras.web.page.rendering import Tab, render
from extras.web.page.timeline import timeline_of
from extras.web.remedies import on_page
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.faults.fault import Code
from workflows.inquiries import TranscriptInquiry, TurnCard
from workflows.json_values import canonical, text_of
from workflows.people.card import Asker, call_text
from workflows.people.requests import Choice, HumanRequest
from workflows.plans.contract import contract_text
from workflows.text import service_words
from workflows.web_ui import SIGNS

router = APIRouter(include_in_schema=False, route_class=PageRoute)
MAX_TURNS = 200
"""The most turns of a conversation on its page."""
NO_MODEL = "No model was asked, so it cost no tokens."
NO_PRICE = "Nobody has told the price of this model. An operator can write it into the settings, under models.prices."
TRANSCRIPT = ("transcript", "Transcript", "/transcript")


class PlanRow(NamedTuple):
    """A step in the list of a plan with notes on it, or, without a step, the heading of a plan in `notes`."""

    notes: Sequence[str]
    step: OutcomeStep | None = None
    kind: str = ""
    title: str = ""
    sign: str = ""
    state: str = ""
    time: str = ""


class FaultRow(NamedTuple):
    """A fault of a step, and what followed it."""

    step: str
    code: str
    reason: str
    words: str
    follows: str
    quadrant: str
    effect: str
    times: int


def rows_of(outcome: Outcome, snapshot: Snapshot | None) -> list[PlanRow]:
    """The rows of the plans of a task; `snapshot` has the live state of a running task, None if it has ended."""
    live = tree.LiveState.of(snapshot) if snapshot else None
    found = list[PlanRow]()
    for group in tree.line_groups(outcome, tree.RowLayout(outcome), live):
        if group.step is None:
            found.append(PlanRow([line.strip() for line in group.lines]))
        else:
            attempt = live.attempts.get(group.step.id) if live else None
            state, took = tree.state_of(group.step, attempt), tree.time_of(group.step, live)
            notes = [line.strip() for line in group.lines[1:]]
            kind, title = tree.kind_and_title(group.step)
            found.append(PlanRow(notes, group.step, kind, title, SIGNS[group.step.status], state, took))
    return found


def fault_rows(outcome: Outcome) -> list[FaultRow]:
    """The faults in their order; equal faults that follow each other are one row. Waits for approval are left out."""
    rows = list[FaultRow]()
    for fault in outcome.faults:
        if fault.code is Code.NEEDS_APPROVAL:
            continue
        quadrant = fault.quadrant.value.replace("_", " ")
        follows = tree.follows(outcome, fault).replace(" -> ", ": ")
        words, effect = service_words(fault.words), fault.applied.value
        row = FaultRow(fault.step_id, fault.code.value, fault.reason, words, follows, quadrant, effect, 1)
        if rows and rows[-1]._replace(times=1) == row:
            rows[-1] = row._replace(times=rows[-1].times + 1)
        else:
            rows.append(row)
    return rows


@router.get("/ui/tasks/{id}")
async def task_page(request: Request, id: str) -> Response:
    return await task_response(request, await task_of(request, id))


async def task_response(
    request: Request, task: Handle, wrong: str = "", status: int = 200, refused: RejectedForm | None = None
) -> Response:
    """The page of a task; `wrong` says why an action on the task was not done, `refused` is the form of the action."""
    client = client_of(request).temporal
    ui_url = ui_url_of(client, task.id)
    values: dict[str, Any] = {"id": task.id, "ui_url": ui_url, "wrong": wrong, "refused": refused, "tab": "task"}
    try:
        outcome, snapshot = await fetch_standing(client, task)
    except Problem as problem:
        # Its history tells what it did, also while no worker answers.
        sentences, tabs = await _explanation_and_tabs(client_of(request), task)
        fields = {"outcome": None, "silent": problem.sentence(on_page), "sentences": sentences, "cards": []}
        return render(request, "task.html", status, **values, **fields, tabs=tabs)
    story = await fetch.fetch_story(client, task)
    effects = await effect_rows(client, story)
    queue = (await task.describe()).task_queue
    asker = Asker(task.id, outcome.task, outcome.by)
    values["refused"] = refused and _moved_to_open_request(refused, outcome.requests)
    cards = await cards_of(request, [(asker, queue, asked) for asked in outcome.requests], outcome)
    doing = [one_line(activity) for activity in (snapshot.doing if snapshot else ())]
    notes = [line.strip() for line in (*tree.waiting_lines(outcome), *tree.paused_lines(outcome))]
    headline = str(tree.headline(outcome))
    return render(
        request,
        "task.html",
        status,
        **values,
        outcome=outcome,
        queue=queue if snapshot and snapshot.is_replayed else "",
        tabs=_more_tabs(outcome.strategy, outcome.spent.model_calls),
        headline=headline.removeprefix(outcome.status.replace("_", " ").capitalize()),
        rows=rows_of(outcome, snapshot),
        doing=doing,
        notes=notes,
        cards=cards,
        faults=fault_rows(outcome),
        timeline=timeline_of(story, datetime.now(UTC)),
        effects=effects,
        undone=undo_text(effects, story.history.rollback),
        can_undo=any(row.can_be_undone for row in effects),
        contract=contract_text(outcome.contract) if outcome.contract or outcome.is_tainted else "",
        result="" if outcome.result is None else text_of(outcome.result),
        costs=[
            *(spent_on_models(outcome.spent) or [NO_MODEL]),
            *([NO_PRICE] if outcome.spent.unpriced else []),
            *(sentence.text for sentence in waste.sentences(receipt_of(story), has_faults=False)),
        ],
        is_running=outcome.ended_at is None,
    )


def _moved_to_open_request(refused: RejectedForm, requests: Sequence[HumanRequest]) -> RejectedForm:
    """The refused form; if the tool rejected the answer and another request asks again, moved to this request."""
    answered = next((asked for asked in requests if asked.id == refused.about and asked.refused), None)
    if answered is None:
        return refused
    of = answered.step, answered.kind
    about = next((asked.id for asked in requests if asked.is_open and (asked.step, asked.kind) == of), refused.about)
    # An edit may be wrong in each of its fields, a result has only one.
    wrong = {"result": f"It was not accepted: {answered.refused}"} if refused.choice == Choice.PROVIDE else {}
    return refused._replace(about=about, mistakes=wrong or refused.mistakes)


def _more_tabs(strategy: str, model_calls: int) -> Sequence[Tab]:
    return [TRANSCRIPT] if strategy == "react" or model_calls else []


# Why


class Hanging(NamedTuple):
    """A sentence about a task, with the number or word before it."""

    lead: str
    """Such as `1.` or `Now`; empty for none."""
    is_deep: bool
    """Whether the sentence belongs to a sentence above it."""
    text: str
    cited: str
    """The events that prove the sentence, such as `[event 11]`."""


@router.get("/ui/tasks/{id}/explain")
async def explain_page(request: Request, id: str) -> Response:
    task = await task_of(request, id)
    sentences, tabs = await _explanation_and_tabs(client_of(request), task)
    ui_url = ui_url_of(client_of(request).temporal, task.id)
    return render(request, "explain.html", id=task.id, tab="explain", sentences=sentences, tabs=tabs, ui_url=ui_url)


async def _explanation_and_tabs(client: Client, task: Handle) -> tuple[list[Hanging], Sequence[Tab]]:
    """Why a task did what it did, and the tabs that its pages have besides the usual ones."""
    explained = explanation.explain_task(await fetch.fetch_history(client.temporal, task, journal=True))
    many, account = explained.story.history.runs > 1, explained.story.account
    sentences = [
        Hanging(
            lead.strip(),
            lead != "" and not lead.strip(),
            one_line(render_remedy(sentence.text, on_page)),
            explained_page.citation(sentence.events, many=many),
        )
        for lead, sentence in explained_page.page_rows(explained)
    ]
    return sentences, _more_tabs(account.strategy, account.spent.model_calls)


# What it changed


@router.get("/ui/tasks/{id}/effects")
async def effects_page(request: Request, id: str) -> Response:
    task, client = await task_of(request, id), client_of(request).temporal
    story = await fetch.fetch_story(client, task)
    tabs = _more_tabs(story.account.strategy, story.account.spent.model_calls)
    values: dict[str, Any] = {"id": task.id, "tab": "effects", "tabs": tabs}
    try:
        found = await list_effects(client, task)
    except Problem as problem:  # the history tells of them, too
        unread = [f"The ledgers were not read. {problem.sentence(on_page)}"]
        rows = await effect_rows(client, story)
        return render(request, "effects.html", **values, effects=[], rows=rows, unread=unread)
    shown = [
        (effect, call_text(effect.kind, effect.args), "" if effect.result is None else canonical(effect.result)[:400])
        for effect in found.effects
    ]
    unread = [f"The ledger {ledger.where} cannot be read ({ledger.problem})." for ledger in found.unread]
    unread += [f"The history of its run {run} was deleted." for run in found.deleted_runs]
    unread += [found.lost] if found.lost else []
    return render(request, "effects.html", **values, effects=shown, rows=[], unread=unread)


# What its model was told


@router.get("/ui/tasks/{id}/transcript")
async def transcript_page(request: Request, id: str) -> Response:
    task, client = await task_of(request, id), client_of(request).temporal
    description = await task.describe()
    await require_key(description)
    run, queue = await tasks.first_run(task), description.task_queue
    turns, has_more = list[TurnCard](), True
    while has_more and len(turns) < MAX_TURNS:
        found = await ask(client, queue, TranscriptInquiry(run=run, skip=len(turns)))
        turns += found.transcript
        has_more = found.more
    names = {call.id: call.name for turn in turns for call in turn.calls}
    totals = f"{count(len(turns), 'turn')}, {sum(turn.tokens for turn in turns):,} tokens"
    values: dict[str, Any] = {"id": task.id, "tab": "transcript", "tabs": [TRANSCRIPT]}
    return render(request, "transcript.html", **values, turns=turns, names=names, totals=totals, is_cut=has_more)
