"""The tools with which an agent asks for what its calls did: `replan_outcome` and others.

No agent answers for a person: approvals and decisions about faults are given on the page or in a terminal.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, JsonValue, ValidationError

from client import sessions
from client.client import Client, TaskHandle
from client.follow import View
from client.problem import Problem
from client.sessions import TaskUndo
from client.tasks import Handle
from server.gateway import results
from server.gateway.calls import Calls
from server.gateway.offers import OfCall, OfSession, OwnArgs, Undone
from server.gateway.proxy import refused
from server.gateway.request import Request
from server.gateway.results import Do
from workflows.account.task import MAX_TEXT
from workflows.people.requests import Choice, RequestKind

MAX_TASKS = 200
"""The most calls of a session that are listed and undone together, the newest."""


@dataclass(frozen=True)
class Asked:
    """A call of one of the gateway's own tools."""

    client: Client
    calls: Calls
    request: Request
    args: dict[str, JsonValue]


class TaskArgs(OwnArgs):
    task: str = Field(description="What is to be done, in plain words.", min_length=1, max_length=MAX_TEXT)


class Reply(OwnArgs):
    id: str = Field(description="The id of the task that asks.", max_length=200)
    text: str = Field(description="The answer to its question.", min_length=1, max_length=4000)


@dataclass(frozen=True)
class OwnTool:
    """A tool of the gateway itself; `answer` gets a call and the checked arguments, and returns a CallToolResult."""

    args: type[OwnArgs]
    words: str
    answer: Callable[[Asked, Any], Awaitable[dict[str, Any]]]
    is_read: bool = True

    async def __call__(self, asked: Asked) -> dict[str, Any]:
        try:
            args = self.args.model_validate(asked.args)
        except ValidationError as error:
            return results.fault(Do.CHANGE, code="invalid_input", reason=refused(error), is_structured=False)
        try:
            return await self.answer(asked, args)
        except Problem as problem:
            reason = f"{problem.reason}: {problem.remedy}"
            return results.fault(Do.CHANGE, code=problem.code, reason=reason, is_structured=False)


async def _outcome(asked: Asked, args: OfCall) -> dict[str, Any]:
    return await asked.calls.outcome_of(asked.client, args.id, asked.request)


async def _start(asked: Asked, args: TaskArgs) -> dict[str, Any]:
    return await asked.calls.start_task(asked.client, args.task, asked.request)


async def _status(asked: Asked, args: OfCall) -> dict[str, Any]:
    outcome = await _of_session(asked, args.id).outcome()
    told: dict[str, JsonValue] = {
        "id": args.id,
        "status": outcome.status.value,
        "result": outcome.result,
        "waits_for": [request.reason for request in outcome.requests if request.is_open],
        "reason": outcome.reason,
    }
    return results.success(told, is_structured=True)


async def _explain(asked: Asked, args: OfCall) -> dict[str, Any]:
    explanation = await _of_session(asked, args.id).explain()
    return results.success(explanation.document(), is_structured=True)


async def _effects(asked: Asked, args: OfSession) -> dict[str, Any]:
    found = await sessions.effects_of_each(asked.client.temporal, await _tasks(asked))
    shown = {"kind", "state", "at", "result", "key"}
    told: list[JsonValue] = [
        {"id": id, **effect.model_dump(mode="json", include=shown)} for id, effect in found.in_order
    ]
    return results.success({"effects": told}, is_structured=True)


async def _undo(asked: Asked, args: Undone) -> dict[str, Any]:
    client = asked.client.temporal
    chosen = [sessions.handle_of(client, _of_session(asked, args.id).id)] if args.id else await _tasks(asked)
    plan = await sessions.plan_undo(client, chosen)
    undone = await sessions.undo_each(client, plan, lambda _: View(), is_attended=False)
    told: list[JsonValue] = [_undo_fields(task) for task in undone.tasks]
    told += [{"id": id, "undone": False, "asks": [], "why": ["It runs."]} for id in undone.running]
    note = {"note": "Calls under `asks` need a person, who makes them with `undo ID`."} if undone.planned else {}
    return results.success({"undone": told, **note}, is_structured=True)


def _undo_fields(task: TaskUndo) -> dict[str, JsonValue]:
    rollback = task.rollback
    if rollback is None:
        return {"id": task.task_id, "undone": False, "asks": [], "why": [str(task.problem)]}
    held = [call.kind for call in rollback.planned.calls] if rollback.planned else []
    why = [record.reason for record in rollback.outcome.undo if not record.done]
    return {"id": task.task_id, "undone": rollback.is_complete and not held, "asks": [*held], "why": [*why]}


async def _answer(asked: Asked, args: Reply) -> dict[str, Any]:
    handle = _of_session(asked, args.id)
    questions = [request for request in await handle.requests() if request.kind is RequestKind.QUESTION]
    if not questions:
        reason = "The task asks no question that an agent may answer: approvals and faults are for a person"
        return results.fault(Do.PERSON, code="forbidden", reason=reason, is_structured=False)
    await handle.answer(Choice.REPLY, request=questions[0], by=f"agent of {asked.request.session.name}", text=args.text)
    return results.success({"id": args.id, "answered": True}, is_structured=True)


def _of_session(asked: Asked, task_id: str) -> TaskHandle:
    """A task of the session. Raises Problem for any other id, whether a task has it or not."""
    if not task_id.startswith(asked.request.session.prefix):
        raise Problem("unknown_id", f"This session has no call {task_id[:100]!r}", "take the id that an answer named")
    return TaskHandle(asked.client.temporal, task_id)


async def _tasks(asked: Asked) -> list[Handle]:
    """The newest tasks of the session, the oldest of them first."""
    ids = await sessions.newest_ids(asked.client.temporal, asked.request.session.name, MAX_TASKS)
    return [sessions.handle_of(asked.client.temporal, id) for id in reversed(ids)]


BY_NAME: Mapping[str, OwnTool] = {
    "replan_outcome": OwnTool(OfCall, "The result of an earlier call that waits for a person, or was lost.", _outcome),
    "replan_effects": OwnTool(OfSession, "What the calls of this session changed.", _effects),
    "replan_undo": OwnTool(Undone, "Undo what calls of this session changed, where it can be undone.", _undo, False),
    "replan_explain": OwnTool(OfCall, "Why a call or a task did what it did.", _explain),
    "replan_start_task": OwnTool(TaskArgs, "Let Replan plan and do a task of several steps.", _start, False),
    "replan_task_status": OwnTool(OfCall, "How a task stands, and what it asks.", _status),
    "replan_answer": OwnTool(Reply, "Answer a question of a task that this session started.", _answer, False),
}
