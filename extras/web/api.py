"""The API for programs: JSON in and out, on top of `client`, with the documents that `--json` prints."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Query, Request
from fastapi.responses import Response
from fastapi.security import HTTPBearer
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model

from client import document, incidents, people, tasks
from client.client import Client, TaskHandle
from client.connection import ui_url_of
from client.explain import explanation
from client.follow import View, fetch_standing
from client.history import fetch
from client.listing import list_tasks, status_named
from client.problem import Problem
from client.task_document import task_document
from client.tasks import Handle
from client.undo import Rollback, undo, with_code
from client.vouching import Voucher
from client.workers import list_effects
from console.serving.access import Access, Denied, Visitor
from console.serving.problems import MEDIA_TYPE, PROBLEM_SCHEMA
from extras.web.bodies import JsonRoute
from extras.web.remedies import as_request
from extras.web.scopes import check_answer
from extras.web.streams import END, Streams
from runtime.validation import first_mistake
from workflows.account.task import MAX_ALLOWED, MAX_INPUT, MAX_REPLY, MIN_REPLY, Effort, Task
from workflows.faults import retries
from workflows.limits.budget import MAX_TASK_TEXT, Limits
from workflows.people.incidents import Fate, Resolved
from workflows.people.requests import CHOICES, MAX_NAME, MAX_WORDS, Choice, GivenExtend
from workflows.plans.contract import AllowedEffect
from workflows.plans.demonstration import MAX_DEMONSTRATIONS, Demonstration
from workflows.plans.proposal import Proposal, Step

WAIT_SECONDS = 20.0
"""How long a response waits for a rollback or a resolution; both go on without it."""
MAX_LISTED = 500
MAX_KEY = 200
"""The most characters of an idempotency key."""

Reference = Annotated[
    str, Path(description="The whole id of a task; a slash in it as %2F.", examples=["book-a-slot-7f3a"])
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY,
        description="The same for a repetition of the request, which then changes nothing more.",
    ),
]
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"content": {MEDIA_TYPE: {"schema": {"$ref": PROBLEM_SCHEMA}}}, "description": text}
    for status, text in {
        401: "No token, or a wrong one.",
        404: "There is no such task.",
        409: "The task or the request has ended, or was asked something else.",
        413: "The body is too large.",
        422: "A value cannot be used.",
        503: "No worker, or no Temporal server, answers.",
    }.items()
}

router = APIRouter(
    route_class=JsonRoute, responses=PROBLEMS, dependencies=[Depends(HTTPBearer(auto_error=False))], tags=["tasks"]
)


class NewLimits(Limits, frozen=True, extra="forbid"):
    """What a task may spend; `null` is no limit, and a limit that is left out has its default."""


class NewTask(BaseModel):
    """A task to start: the fields of `Client.start`, with `text` for the task. A field that is left out has the default
    of `Client.start`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"text": "book a slot for the team at 14:00", "on_escalation": "wait"},
                {"text": "charge 840 EUR", "id": "order-1042", "limits": {"tool_calls": 20, "usd": 0.5}},
            ]
        },
    )

    # Read when the task is started
    text: str = Field(min_length=1, max_length=MAX_TASK_TEXT)
    id: str | None = None
    again: bool = False
    """Whether the id may be that of a task that has ended."""
    continues: str | None = None
    """The id of an ended task whose conversation this one continues."""
    by: str = Field(default="", max_length=MAX_NAME)
    """Who starts the task; for a visitor with a known name, that name counts instead."""

    # Read before the planner is asked
    plan: tuple[Step, ...] | None = None
    revisions: tuple[Proposal, ...] = ()
    plan_only: bool = False

    # Read when the planner is asked
    strategy: Literal["plan", "react"] = "plan"
    planner: str | None = None
    effort: Effort | None = None
    calls: Literal["native", "text"] | None = None
    demonstrations: list[Demonstration] = Field(default=[], max_length=MAX_DEMONSTRATIONS)
    reply_tokens: int | None = Field(default=None, ge=MIN_REPLY, le=MAX_REPLY)
    documents: str | None = None
    untrusted_input: str = Field(default="", max_length=MAX_INPUT)
    """A text that the task is about and that the user did not write, such as a mail."""

    # Read when a proposal is checked
    contract: tuple[AllowedEffect, ...] = Field(default=(), max_length=MAX_ALLOWED)
    """Effects that the task may have even after it has read untrusted content."""

    # Read while a plan is executed
    limits: NewLimits = NewLimits()
    on_escalation: Literal["wait", "end", "undo"] = "end"
    approve: Literal["declared", "effects", "all"] = "declared"
    answer_within: float | None = Field(default=None, gt=0, le=retries.LONGEST_TIMER.total_seconds())

    # Read when the planner answers
    result_schema: dict[str, JsonValue] | None = None

    # Read before each call
    effect_key: str | None = None
    """What the idempotency keys of the task's calls begin with: equal keys have one effect, even in another task."""


GIVEN = tuple(dict.fromkeys(row.given for choice, row in CHOICES.items() if choice is not Choice.EXTEND))


class NewAnswer(create_model("Given", __base__=GIVEN)):  # type: ignore[misc]  # its fields are those of the table
    """An answer to a request; which fields go with which choice is in docs/people.md."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"choice": "approve", "request": "r1", "call": "3f9c", "by": "ann"},
                {"choice": "edit", "request": "r1", "call": "3f9c", "args": {"amount": 400}},
                {"choice": "reject", "request": "r1", "reason": "Too dear."},
            ]
        },
    )

    choice: Choice


class Extension(GivenExtend):
    """What a task gets beyond its limits."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tool_calls": 10}, {"usd": 1.5, "by": "ann"}]})


class Cancellation(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"undo": True}]})

    undo: bool = False
    """Whether finished steps are undone before the task ends."""


class Undoing(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"confirm": "5c2a91d04e7b"}]})

    confirm: str | None = Field(default=None, max_length=MAX_NAME)
    """The code of calls that a person has seen and that need an approval; without the code they are not made."""


class Repair(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"note": "new key"}]})

    note: str = Field(default="", max_length=MAX_WORDS)
    by: str = Field(default="", max_length=MAX_NAME)
    queue: str | None = None
    """The task queue; None for that of the server."""


def json_response(fields: dict[str, Any], status: int = 200, **headers: str) -> Response:
    """A response with a JSON document, safe on a terminal."""
    return Response(document.of_anything(fields), status, headers, "application/json")


def client_of(request: Request) -> Client:
    """The client of the server, which signs for the visitor if the server can vouch for them."""
    found: Client = request.app.state.client
    return found.signing(voucher_of(request))


def visitor_of(request: Request) -> Visitor:
    found: Visitor = request.state.visitor
    return found


def voucher_of(request: Request) -> Voucher | None:
    """What signs that the visitor did something; None if the server cannot vouch for them."""
    access: Access = request.app.state.access
    return access.voucher(request.state.visitor)


async def task_of(request: Request, id: str) -> Handle:
    """The task with this percent-encoded id. Raises Problem if there is none: the beginning of an id is not enough."""
    named = unquote(id)
    found = await tasks.find_task(client_of(request).temporal, named)
    if found.id != named:
        raise Problem("unknown_id", f"There is no task {named!r} here", "give the whole id")
    return found


@router.post("/tasks", status_code=201, summary="Start a task")
async def start_task(request: Request, new: NewTask, key: Key = None) -> Response:
    """Start a task. With an `Idempotency-Key`, a repetition returns the same task, also after its end."""
    if not new.text.strip():
        raise Problem("no_task", "There is nothing to do", "write it into `text`")
    fields = new.model_dump(exclude_unset=True, exclude={"id", "again", "continues"})
    fields["by"] = visitor_of(request).answers_as(new.by)
    try:
        # An option that is null is left out; a limit that is null is taken away.
        task = Task.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise Problem("usage", first_mistake(error), "see /openapi.json") from error
    client = client_of(request)
    started = await client.start(task, id=new.id, key=key, again=new.again, continues=new.continues)
    ui_url = ui_url_of(client.temporal, started.id)
    path = request.app.url_path_for("get_task", id=quote(started.id, safe=""))
    return json_response({"task_id": started.id, "ui_url": ui_url}, 201, location=str(path))


@router.get("/tasks", summary="List tasks, newest first")
async def get_tasks(
    request: Request,
    status: Annotated[str | None, Query(description="E.g. `waiting`: then the longest wait first.")] = None,
    query: Annotated[str | None, Query(description="A list filter of Temporal.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 20,
) -> Response:
    """The tasks that the server lists; no worker is asked."""
    task_status = status_named(status)
    listed, note = await list_tasks(client_of(request).temporal, status=task_status, query=query, limit=limit)
    return json_response({"tasks": listed, "note": note})


@router.get("/tasks/{id}", summary="How a task stands, or how it ended")
async def get_task(request: Request, id: Reference) -> Response:
    """Plans, steps, faults, requests, result and cost: the document that `starter.py show --json` prints."""
    task, temporal = await task_of(request, id), client_of(request).temporal
    outcome, _ = await fetch_standing(temporal, task)
    return json_response(await task_document(temporal, task, outcome))


@router.get("/tasks/{id}/explain", summary="Why a task did what it did")
async def explain(request: Request, id: Reference, step: str | None = None) -> Response:
    """The explanation comes from the history of the task alone; no worker is asked."""
    task = await task_of(request, id)
    explained = explanation.explain_task(await fetch.fetch_history(client_of(request).temporal, task, journal=True))
    return json_response((explained.step(step) if step else explained).document(as_request))


@router.get("/tasks/{id}/effects", summary="What a task changed in the world, with keys")
async def effects(request: Request, id: Reference) -> Response:
    """The effects come from the history of the task, and from a worker's ledgers."""
    task = await task_of(request, id)
    return json_response((await list_effects(client_of(request).temporal, task)).document(task.id))


CHECK_SECONDS = 1.0
"""How often a stream of events looks at most whether its listener still may listen."""


async def _is_still_known(request: Request) -> bool:
    try:
        return await request.state.find_visitor() is not None
    except Denied:
        return False


LastId = Annotated[str, Header(alias="Last-Event-ID", description="The id of the last event that was received.")]


async def _task_to_follow(request: Request, id: Reference, last_id: LastId = "") -> AsyncIterator[Handle]:
    if last_id.endswith(f"-{END}"):
        raise HTTPException(204)  # so that a browser does not connect again
    streams: Streams = request.app.state.streams
    with streams.listener_slot():
        yield await task_of(request, id)


@router.get("/tasks/{id}/events", response_class=EventSourceResponse, summary="What happens to a task, as it happens")
async def events(
    request: Request,
    handle: Annotated[Handle, Depends(_task_to_follow)],
    last_id: LastId = "",
    text: Annotated[
        bool, Query(description="Whether the stream has events `words`: the replies of models while they arrive.")
    ] = False,
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events, named as those of `--jsonl`; the last is `end`, with the document of the task.

    With `Last-Event-ID`, a stream that was cut goes on where it was. Of whoever may not listen any more, it ends at the
    next event.
    """
    streams: Streams = request.app.state.streams
    checked = time.monotonic()
    async for number, (name, fields) in streams.listen(handle, last_id, with_words=text):
        if time.monotonic() - checked > CHECK_SECONDS:
            if not await _is_still_known(request):
                return
            checked = time.monotonic()
        yield ServerSentEvent(event=name, id=number or None, raw_data=document.of_event(name, **fields))


@router.post("/tasks/{id}/answers", summary="Answer a request of a task")
async def answer(request: Request, id: Reference, new: NewAnswer) -> Response:
    """The same answer to the same request counts once, however often it is sent."""
    task = await task_of(request, id)
    values = new.model_dump(exclude_unset=True, exclude={"choice", "by"})
    by = visitor_of(request).answers_as(new.by)
    if wrong := [name for name in values if name not in CHOICES[new.choice].given.model_fields]:
        raise Problem("usage", f"{wrong[0]} does not go with {new.choice.value}", "leave it out")
    check_answer(visitor_of(request), new.choice, undo=bool(values.get("undo")))
    said = await people.answer(task, new.choice, voucher=voucher_of(request), **values, by=by)
    fields = {"task_id": task.id, "answer": new.choice.value, "by": by, "said": said}
    return json_response({**fields, "checked": said is not None})


@router.post("/tasks/{id}/extend", summary="Give a running task more than its limits")
async def extend(request: Request, id: Reference, more: Extension, key: Key = None) -> Response:
    """With an `Idempotency-Key`, a repetition adds nothing."""
    task = await task_of(request, id)
    by = visitor_of(request).answers_as(more.by)
    values = {**more.model_dump(exclude_unset=True), "by": by}
    said = await people.answer(task, Choice.EXTEND, key, voucher=voucher_of(request), **values)
    return json_response({"task_id": task.id, "by": by, "said": said, "checked": said is not None})


@router.post("/tasks/{id}/cancel", status_code=202, summary="Ask a task to stop")
async def cancel(request: Request, id: Reference, how: Cancellation | None = None) -> Response:
    """Finished steps stay, unless they are to be undone."""
    task = await task_of(request, id)
    is_undone = how is not None and how.undo
    await TaskHandle(client_of(request).temporal, task.id).cancel(undo=is_undone)
    return json_response({"task_id": task.id, "cancelling": True, "undo": is_undone}, 202)


@router.post("/tasks/{id}/undo", summary="Undo the effects of a closed task")
async def undo_task(request: Request, id: Reference, how: Undoing | None = None) -> Response:
    """No effect is undone twice. After 20 s the answer is 202, and the rollback continues; the same request asks for
    its result.

    A call that needs an approval is not made; it stands in `held`. When a person has seen these calls, a request with
    the code of `confirm` makes them.
    """
    task = await task_of(request, id)
    confirm = with_code(how.confirm if how else None)
    voucher = voucher_of(request)
    undoing = undo(client_of(request).temporal, task, View(), is_attended=False, confirm=confirm, voucher=voucher)
    found = await within(undoing)
    return json_response({"task_id": task.id, **rollback_fields(found)}, 200 if found else 202)


def rollback_fields(found: Rollback | None) -> dict[str, Any]:
    """The fields of a response about a rollback; `found` is None if the rollback still runs."""
    if found is None:
        return {"status": "running", "undo": [], "held": [], "confirm": None}
    records = [record.model_dump(mode="json") for record in found.outcome.undo]
    return {"status": "complete" if found.is_complete else "incomplete", "undo": records, **found.planned_fields}


async def within(work: Any) -> Any:
    """Await `work`, and return its result; after WAIT_SECONDS, cancel `work` and return None."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return await work
    except TimeoutError:
        return None


@router.get("/incidents", summary="The causes for which tasks wait", tags=["incidents"])
async def get_incidents(request: Request) -> Response:
    """The cause with the most waiting tasks comes first."""
    return json_response({"incidents": await client_of(request).incidents()})


@router.post("/incidents/{cause:path}/resolve", summary="Say that a cause is repaired", tags=["incidents"])
async def resolve(request: Request, cause: str, repair: Repair | None = None) -> Response:
    """One task tries the call again first; if that succeeds, all others do. After 20 s the answer is 202, and the
    resolution continues.
    """
    how = repair or Repair()
    by = visitor_of(request).answers_as(how.by)
    done, is_ended = await resolve_incident(request, unquote(cause), by=by, note=how.note, queue=how.queue)
    fields = {**done.model_dump(mode="json"), "went_on": done.went_on, "by": by}
    return json_response(fields, 409 if done.fate is Fate.FAILED_AGAIN else 200 if is_ended else 202)


async def resolve_incident(
    request: Request, cause: str, *, by: str, note: str, queue: str | None
) -> tuple[Resolved, bool]:
    """Start to resolve an incident; return how far that came within WAIT_SECONDS, and whether it has ended.

    Raises:
        Problem: no task waits because of this cause, or no worker runs.
    """
    client, voucher = client_of(request), voucher_of(request)
    running = await incidents.resolve(client.temporal, cause, queue or client.queue, by=by, note=note, voucher=voucher)
    last = Resolved(cause=cause)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            async for now in incidents.follow_resolution(client.temporal, running):
                last = now
    except TimeoutError:
        return last, False
    return last, True
