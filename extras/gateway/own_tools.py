"""The tools with which an agent asks for what its tasks did: `replan_outcome` and others.

No agent answers for a person: approvals and decisions about faults are given on the page or in a terminal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue
from temporalio.service import RPCError

from client import sessions
from client.client import TaskHandle
from client.follow import View
from client.problem import Problem
from client.sessions import TaskUndo
from client.tasks import Handle
from extras.gateway import effect_tools, results, tasks
from extras.gateway.effect_tools import AskedOfStore, StoreTool
from extras.gateway.offers import OF_TASKS, OfCall, Offer, OfSession, ReplyArgs, TaskArgs, Undone
from extras.gateway.results import Do
from extras.gateway.sessions import DoubtPolicy
from extras.gateway.task_calls import STARTED, StartCall
from extras.gateway.tasks import ServerAway, Tasks
from workflows.faults.fault import Code
from workflows.people.requests import Choice, RequestKind
from workflows.plans.catalogue import Effect

MAX_TASKS = 200
"""The most calls of a session that are listed and undone together, the newest."""
LATER_PATIENCE = 2.0
"""Seconds for which the result of an earlier call is waited for."""
_START = Offer(STARTED.spec.kind, STARTED.spec.kind, Effect.UNKEYED, {})


@dataclass(frozen=True)
class Asked(AskedOfStore):
    """A call of one of the gateway's own tools."""

    tasks: Tasks

    async def handle(self, task_id: str) -> TaskHandle:
        """A task of the session. Raises Problem for any other id, whether a task has it or not."""
        if not task_id.startswith(self.request.session.prefix):
            reason = f"This session has no call {task_id[:100]!r}"
            raise Problem("unknown_id", reason, "take the id that an answer named")
        return TaskHandle((await self.tasks.client()).temporal, task_id)


async def _outcome(asked: Asked, args: OfCall) -> dict[str, Any]:
    if not args.id.startswith(f"{sessions.PREFIX}:"):
        return await effect_tools.outcome(asked, args)
    handle = await asked.handle(args.id)
    ending = asyncio.ensure_future(tasks.outcome_of(handle))
    await asyncio.wait([ending], timeout=LATER_PATIENCE)
    if ending.done():
        return results.of_outcome(ending.result(), is_structured=False)
    ending.cancel()
    requests = [request for request in await handle.requests() if request.is_open]
    if requests:
        return asked.tasks.pending(args.id, requests[0], is_structured=False)
    return asked.tasks.under_way(args.id, is_structured=False)


async def _start(asked: Asked, args: TaskArgs) -> dict[str, Any]:
    session = replace(asked.request.session, doubt=DoubtPolicy.REPLAY)
    request = replace(asked.request, session=session)
    make = StartCall.of(asked.tasks)
    return await asked.calls.call(_START, {"task": args.task}, request, kind=STARTED, make=make)


async def _status(asked: Asked, args: OfCall) -> dict[str, Any]:
    outcome = await (await asked.handle(args.id)).outcome()
    fields: dict[str, JsonValue] = {
        "id": args.id,
        "status": outcome.status.value,
        "result": outcome.result,
        "waits_for": [request.reason for request in outcome.requests if request.is_open],
        "reason": outcome.reason,
    }
    return results.success(fields, is_structured=True)


async def _explain(asked: Asked, args: OfCall) -> dict[str, Any]:
    explanation = await (await asked.handle(args.id)).explain()
    return results.success(explanation.document(), is_structured=True)


async def _effects(asked: Asked, args: OfSession) -> dict[str, Any]:
    found = await sessions.effects_of_each((await asked.tasks.client()).temporal, await _handles(asked))
    shown = {"kind", "state", "at", "result", "key"}
    fields: list[JsonValue] = [
        {"id": id, **effect.model_dump(mode="json", include=shown)} for id, effect in found.in_order
    ]
    return results.success({"effects": fields}, is_structured=True)


async def _undo(asked: Asked, args: Undone) -> dict[str, Any]:
    client = (await asked.tasks.client()).temporal
    chosen = [sessions.handle_of(client, (await asked.handle(args.id)).id)] if args.id else await _handles(asked)
    plan = await sessions.plan_undo(client, chosen)
    undone = await sessions.undo_each(client, plan, lambda _: View(), is_attended=False)
    fields: list[JsonValue] = [_undo_fields(task) for task in undone.tasks]
    fields += [{"id": id, "undone": False, "asks": [], "why": ["It runs."]} for id in undone.running]
    note = {"note": "Calls under `asks` need a person, who makes them with `undo ID`."} if undone.planned else {}
    return results.success({"undone": fields, **note}, is_structured=True)


def _undo_fields(task: TaskUndo) -> dict[str, JsonValue]:
    rollback = task.rollback
    if rollback is None:
        return {"id": task.task_id, "undone": False, "asks": [], "why": [str(task.problem)]}
    to_confirm = [call.kind for call in rollback.planned.calls] if rollback.planned else []
    why = [record.reason for record in rollback.outcome.undo if not record.done]
    return {"id": task.task_id, "undone": rollback.is_complete and not to_confirm, "asks": [*to_confirm], "why": [*why]}


async def _answer(asked: Asked, args: ReplyArgs) -> dict[str, Any]:
    handle = await asked.handle(args.id)
    questions = [request for request in await handle.requests() if request.kind is RequestKind.QUESTION]
    if not questions:
        reason = "The task asks no question that an agent may answer: approvals and faults are for a person"
        return results.fault(Do.PERSON, code="forbidden", reason=reason, is_structured=False)
    await handle.answer(Choice.REPLY, request=questions[0], by=tasks.starter(asked.request), text=args.text)
    return results.success({"id": args.id, "answered": True}, is_structured=True)


async def _handles(asked: Asked) -> list[Handle]:
    """The newest tasks of the session, the oldest of them first."""
    client = (await asked.tasks.client()).temporal
    ids = await sessions.newest_ids(client, asked.request.session.name, MAX_TASKS)
    return [sessions.handle_of(client, id) for id in reversed(ids)]


def _safe(answer: Callable[[Asked, Any], Awaitable[dict[str, Any]]]) -> Callable[[Any, Any], Awaitable[dict[str, Any]]]:
    """The tool's function, whose problems are faults."""

    async def tried(asked: Asked, args: Any) -> dict[str, Any]:
        try:
            return await answer(asked, args)
        except Problem as problem:
            reason = f"{problem.reason}: {problem.remedy}"
            return results.fault(Do.CHANGE, code=problem.code, reason=reason, is_structured=False)
        except (ServerAway, RPCError) as error:
            code, wait = Code.UNREACHABLE.value, results.WAIT_SECONDS
            return results.fault(Do.WAIT, code=code, reason=str(error), wait=wait, is_structured=False)

    return tried


_ANSWERS: Mapping[str, Callable[[Asked, Any], Awaitable[dict[str, Any]]]] = {
    "replan_outcome": _outcome,
    "replan_effects": _effects,
    "replan_undo": _undo,
    "replan_explain": _explain,
    "replan_start_task": _start,
    "replan_task_status": _status,
    "replan_answer": _answer,
}
BY_NAME: Mapping[str, StoreTool] = {
    name: StoreTool(entry.args, entry.about, _safe(_ANSWERS[name]), entry.is_read) for name, entry in OF_TASKS.items()
}
