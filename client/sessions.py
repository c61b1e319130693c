"""The tasks of a session of the gateway, looked at and undone together: each call of an agent is a task.

A session is what `replan mcp --session NAME` names; the ids of its tasks begin with `mcp:NAME:`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from temporalio.client import Client, WorkflowExecutionStatus

from client import undo as undoing
from client.effects import EffectState, TaskEffect
from client.explain.explanation import Explanation, explain_task
from client.follow import View
from client.history.fetch import fetch_history
from client.problem import Problem
from client.remedy import Remedy, Text
from client.tasks import TASKS, Handle, newest_tasks
from client.text import cut, one_line
from client.undo import Confirm, PlannedUndo, Rollback, with_code
from client.workers import EffectList, list_effects
from workflows.account.search_attributes import is_quotable
from workflows.agent import AgentWorkflow
from workflows.text import nearest

T = TypeVar("T")

PREFIX = "mcp"
"""The ids of the tasks of all sessions begin with this word and a colon."""
MAX_TASKS = 1000
"""The most tasks of a session that are looked at together, the newest."""
AT_ONCE = 10
"""The number of tasks that are read at the same time."""
MAX_NAME = 100
STANDING = (EffectState.APPLIED, EffectState.UNKNOWN)


class SessionTasks(NamedTuple):
    name: str
    handles: Sequence[Handle]
    """The oldest task first."""
    more: bool = False
    """Whether the session has older tasks than these."""


class SessionEffect(NamedTuple):
    task_id: str
    effect: TaskEffect


class SessionEffects(NamedTuple):
    """The effects of the tasks of a session, and the places where more effects may be recorded."""

    tasks: Sequence[tuple[str, EffectList]]
    """By the id of a task, what it changed."""

    @property
    def in_order(self) -> list[SessionEffect]:
        """All effects, the oldest first."""
        found = [SessionEffect(id, effect) for id, listed in self.tasks for effect in listed.effects]
        return sorted(found, key=lambda one: (one.effect.at, one.task_id, one.effect.key))

    def document(self, session: SessionTasks) -> dict[str, Any]:
        """The effects as JSON outputs have them."""
        documents = {id: listed.document(id) for id, listed in self.tasks}
        unread = {ledger["where"]: ledger for told in documents.values() for ledger in told["unread"]}
        effects = [{"task_id": id, **effect.model_dump(mode="json")} for id, effect in self.in_order]
        deleted = [{"task_id": id, "run_id": run} for id, told in documents.items() for run in told["deleted_runs"]]
        whole = {"session": session.name, "more": session.more, "effects": effects}
        return {**whole, "unread": list(unread.values()), "deleted_runs": deleted}


class TaskUndo(NamedTuple):
    """What became of one task of a session that was to be undone."""

    task_id: str
    rollback: Rollback | None
    problem: Problem | None = None
    """Why there is no rollback."""

    @property
    def is_complete(self) -> bool:
        return self.rollback is not None and self.rollback.is_complete


class SessionUndo(NamedTuple):
    tasks: Sequence[TaskUndo]
    """The tasks with effects that stood, in the order in which they were undone."""
    running: Sequence[str]
    """The ids of the tasks that were passed over, since they run."""
    planned: PlannedUndo | None
    """The calls that were not made because a person has to confirm them; None if there are none."""

    @property
    def is_complete(self) -> bool:
        return not self.running and all(task.is_complete for task in self.tasks)


class SessionPlan(NamedTuple):
    """What `undo_session` would do."""

    tasks: Sequence[tuple[Handle, PlannedUndo]]
    """The tasks with effects that stand, the one with the newest effect first, and the calls that undo them."""
    running: Sequence[str]

    @property
    def whole(self) -> PlannedUndo:
        """The calls for all tasks; a step stands there with the id of its task before it."""
        return together([(task.id, planned) for task, planned in self.tasks])


def together(parts: Sequence[tuple[str, PlannedUndo]]) -> PlannedUndo:
    """The calls of several tasks as one rollback, whose steps are named `TASK/STEP`."""
    named = [call.model_copy(update={"step": f"{id}/{call.step}"}) for id, planned in parts for call in planned.calls]
    return PlannedUndo(calls=tuple(named))


def prefix_of(name: str) -> str:
    """What the ids of the tasks of a session begin with."""
    return f"{PREFIX}:{name}:"


def filter_of(name: str) -> str:
    """The list filter for the tasks of a session whose name can stand in one."""
    return f"{TASKS} AND WorkflowId STARTS_WITH '{prefix_of(name)}'"


async def newest_ids(client: Client, name: str, limit: int = MAX_TASKS) -> list[str]:
    """The ids of the newest tasks of a session, the newest first."""
    if not name or not is_quotable(name):
        return []
    return [task.id for task in await newest_tasks(client, filter_of(name), limit)]


async def tasks_of(client: Client, name: str) -> SessionTasks:
    """The tasks of a session.

    Raises:
        Problem: it has none.
    """
    ids = await newest_ids(client, name, MAX_TASKS + 1)
    if not ids:
        others = await newest_tasks(client, f"{TASKS} AND WorkflowId STARTS_WITH '{PREFIX}:'", MAX_TASKS)
        known = dict.fromkeys(task.id.split(":")[1] for task in others)
        reason = f"No task of a session {cut(one_line(name), MAX_NAME)!r} is here{nearest(name, known)}"
        remedy = Text(
            "write the name of `replan mcp --session NAME`, whose calls have ids `mcp:NAME:...`; ",
            Remedy("list"),
            " shows the tasks there are",
        )
        raise Problem("unknown_session", reason, remedy)
    handles = [handle_of(client, id) for id in reversed(ids[:MAX_TASKS])]
    return SessionTasks(name, handles, more=len(ids) > MAX_TASKS)


def handle_of(client: Client, id: str) -> Handle:
    return client.get_workflow_handle_for(AgentWorkflow.run, id)


async def explain_each(client: Client, tasks: Sequence[Handle]) -> list[Explanation]:
    """Why each of the tasks did what it did, in the order of `tasks`."""

    async def explained(task: Handle) -> Explanation:
        return explain_task(await fetch_history(client, task))

    return await _each(tasks, explained)


async def effects_of_each(client: Client, tasks: Sequence[Handle]) -> SessionEffects:
    """The effects of the tasks; workers read their ledgers for it.

    Raises:
        Problem: no worker answers.
    """
    found = await _each(tasks, lambda task: list_effects(client, task))
    return SessionEffects([(task.id, listed) for task, listed in zip(tasks, found, strict=True)])


async def plan_undo(client: Client, tasks: Sequence[Handle]) -> SessionPlan:
    """What would undo the effects of the tasks that stand; running tasks are passed over.

    Raises:
        Problem: no worker answers, or none can replay one of the tasks.
    """
    statuses = await _each(tasks, _status)
    running = [
        task.id for task, status in zip(tasks, statuses, strict=True) if status is WorkflowExecutionStatus.RUNNING
    ]
    closed = [task for task in tasks if task.id not in running]
    found = dict((await effects_of_each(client, closed)).tasks)
    newest = {
        id: max(effect.at for effect in listed.effects)
        for id, listed in found.items()
        if any(effect.state in STANDING and effect.undoes is None for effect in listed.effects)
    }
    chosen = sorted((task for task in closed if task.id in newest), key=lambda task: newest[task.id], reverse=True)
    planned = await _each(chosen, lambda task: undoing.plan(client, task))
    return SessionPlan(list(zip(chosen, planned, strict=True)), running)


async def undo_each(
    client: Client,
    plan: SessionPlan,
    view_of: Callable[[Handle], View],
    *,
    is_attended: bool = True,
    confirm: Confirm | None = None,
) -> SessionUndo:
    """Undo what `plan` names, task after task.

    `confirm` is asked once, about the calls of all tasks, if one of them needs an approval; without it such calls are
    not made, and the result names them. A task whose calls are others by then is not undone.

    Raises:
        Problem: `confirm` refuses.
    """
    is_confirmed = bool(plan.whole.held) and confirm is not None and await confirm(plan.whole)
    done, left = list[TaskUndo](), list[tuple[str, PlannedUndo]]()
    for task, planned in plan.tasks:
        confirmed = with_code(planned.code) if is_confirmed else None
        try:
            rollback = await undoing.undo(client, task, view_of(task), is_attended=is_attended, confirm=confirmed)
        except Problem as problem:  # the effects of the other tasks can be undone all the same
            done.append(TaskUndo(task.id, None, problem))
            continue
        done.append(TaskUndo(task.id, rollback))
        if rollback.planned is not None:
            left.append((task.id, rollback.planned))
    return SessionUndo(done, plan.running, together(left) if left else None)


async def _status(task: Handle) -> WorkflowExecutionStatus | None:
    return (await task.describe()).status


async def _each(tasks: Sequence[Handle], read: Callable[[Handle], Awaitable[T]]) -> list[T]:
    """What `read` returns for each task, in order."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(task: Handle) -> T:
        async with limit:
            return await read(task)

    return await asyncio.gather(*(one(task) for task in tasks))
