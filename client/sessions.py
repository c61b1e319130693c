"""Explains and undoes together all tasks of a session of the gateway, in which each call of an agent is a task.

Runs for commands with `--session`, and when an agent calls a tool of the gateway's own, such as its undo.

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
from client.vouching import Voucher
from client.workers import EffectList, list_effects
from workflows.account.search_attributes import is_quotable
from workflows.agent import AgentWorkflow
from workflows.text import nearest

T = TypeVar("T")

PREFIX = "mcp"
"""The ids of the tasks of all sessions begin with this word and a colon."""
MAX_TASKS = 1000
"""The maximum number of tasks of a session that are read; of more tasks, the newest are taken."""
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
    """Pairs of the id of a task and the effects of that task."""

    @property
    def in_order(self) -> list[SessionEffect]:
        found = [SessionEffect(id, effect) for id, listed in self.tasks for effect in listed.effects]
        return sorted(found, key=lambda one: (one.effect.at, one.task_id, one.effect.key))

    def document(self, session: SessionTasks) -> dict[str, Any]:
        """The effects of `session` in the form that JSON outputs have."""
        documents = {id: listed.document(id) for id, listed in self.tasks}
        unread = {ledger["where"]: ledger for fields in documents.values() for ledger in fields["unread"]}
        effects = [{"task_id": id, **effect.model_dump(mode="json")} for id, effect in self.in_order]
        deleted = [{"task_id": id, "run_id": run} for id, fields in documents.items() for run in fields["deleted_runs"]]
        whole = {"session": session.name, "more": session.more, "effects": effects}
        return {**whole, "unread": list(unread.values()), "deleted_runs": deleted}


class TaskUndo(NamedTuple):
    """The result of undoing one task of a session."""

    task_id: str
    rollback: Rollback | None
    problem: Problem | None = None
    """Why `rollback` is None; None if there is a rollback."""

    @property
    def is_complete(self) -> bool:
        return self.rollback is not None and self.rollback.is_complete


class SessionUndo(NamedTuple):
    tasks: Sequence[TaskUndo]
    """The tasks that had effects to undo, in the order in which they were undone."""
    running: Sequence[str]
    """The ids of the tasks that were not undone because they are running."""
    planned: PlannedUndo | None
    """The calls that were not made, if a person has to confirm some of them; else None."""

    @property
    def is_complete(self) -> bool:
        """Whether all effects of all tasks were undone, and no task was left out because it is running."""
        return not self.running and all(task.is_complete for task in self.tasks)


class SessionPlan(NamedTuple):
    """What `undo_each` would do."""

    tasks: Sequence[tuple[Handle, PlannedUndo]]
    """Each task with effects to undo, and the calls that undo them; the task with the newest effect comes first."""
    running: Sequence[str]

    @property
    def whole(self) -> PlannedUndo:
        """The calls for all tasks as one rollback, whose steps are named `TASK/STEP`."""
        return together([(task.id, planned) for task, planned in self.tasks])


def together(parts: Sequence[tuple[str, PlannedUndo]]) -> PlannedUndo:
    """The calls of several tasks as one rollback, whose steps are named `TASK/STEP`."""
    named = [call.model_copy(update={"step": f"{id}/{call.step}"}) for id, planned in parts for call in planned.calls]
    return PlannedUndo(calls=tuple(named))


def prefix_of(name: str) -> str:
    """The prefix that the ids of all tasks of the session `name` have."""
    return f"{PREFIX}:{name}:"


def filter_of(name: str) -> str:
    """The list filter for the tasks of the session `name`, which must be quotable (see `is_quotable`)."""
    return f"{TASKS} AND WorkflowId STARTS_WITH '{prefix_of(name)}'"


async def newest_ids(client: Client, name: str, limit: int = MAX_TASKS) -> list[str]:
    """The ids of the newest tasks of a session, the newest first; empty if a list filter cannot contain `name`."""
    if not name or not is_quotable(name):
        return []
    return [task.id for task in await newest_tasks(client, filter_of(name), limit)]


async def tasks_of(client: Client, name: str) -> SessionTasks:
    """The tasks of a session, at most the MAX_TASKS newest. Raises Problem if the session has none."""
    ids = await newest_ids(client, name, MAX_TASKS + 1)
    if not ids:
        others = await newest_tasks(client, f"{TASKS} AND WorkflowId STARTS_WITH '{PREFIX}:'", MAX_TASKS)
        known = dict.fromkeys(task.id.split(":")[1] for task in others)
        reason = f"No task of a session {cut(one_line(name), MAX_NAME)!r} is here{nearest(name, known)}"
        named = "write the name of `replan mcp --session NAME`, whose calls have ids `mcp:NAME:...`; "
        remedy = Text(named, Remedy("list"), " shows the tasks there are")
        raise Problem("unknown_session", reason, remedy)
    handles = [handle_of(client, id) for id in reversed(ids[:MAX_TASKS])]
    return SessionTasks(name, handles, more=len(ids) > MAX_TASKS)


def handle_of(client: Client, id: str) -> Handle:
    return client.get_workflow_handle_for(AgentWorkflow.run, id)


async def explain_each(client: Client, tasks: Sequence[Handle]) -> list[Explanation]:
    """Explain each task from its history; the explanations are in the order of `tasks`."""

    async def explained(task: Handle) -> Explanation:
        return explain_task(await fetch_history(client, task, journal=True))

    return await _each(tasks, explained)


async def effects_of_each(client: Client, tasks: Sequence[Handle]) -> SessionEffects:
    """The effects of each task, from its histories and workers' ledgers. Raises Problem if no worker answers."""
    found = await _each(tasks, lambda task: list_effects(client, task))
    return SessionEffects([(task.id, listed) for task, listed in zip(tasks, found, strict=True)])


async def plan_undo(client: Client, tasks: Sequence[Handle]) -> SessionPlan:
    """The calls that would undo the effects of the closed tasks. Raises Problem if no worker answers for one."""
    described = await _each(tasks, lambda task: task.describe())
    running = [task.id for task in described if task.status is WorkflowExecutionStatus.RUNNING]
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
    voucher: Voucher | None = None,
) -> SessionUndo:
    """Undo the effects of the tasks in `plan`, one task after the other.

    If a call needs an approval, `confirm` is asked once about the calls of all tasks. Without `confirm`, or if it
    returns False, calls that need an approval are not made, and the result has them. A task whose calls have changed
    since the confirmation is not undone. `view_of` returns the view that shows the rollback of a task. A `voucher`
    signs who undoes them.

    Raises:
        Problem: `confirm` raises it.
    """
    is_confirmed = bool(plan.whole.to_approve) and confirm is not None and await confirm(plan.whole)
    done, left = list[TaskUndo](), list[tuple[str, PlannedUndo]]()
    for task, planned in plan.tasks:
        confirmed = with_code(planned.code) if is_confirmed else None
        try:
            rollback = await undoing.undo(
                client, task, view_of(task), is_attended=is_attended, confirm=confirmed, voucher=voucher
            )
        except Problem as problem:  # the effects of the other tasks can be undone all the same
            done.append(TaskUndo(task.id, None, problem))
            continue
        done.append(TaskUndo(task.id, rollback))
        if rollback.planned is not None:
            left.append((task.id, rollback.planned))
    return SessionUndo(done, plan.running, together(left) if left else None)


async def _each(tasks: Sequence[Handle], read: Callable[[Handle], Awaitable[T]]) -> list[T]:
    """The results of `read` for the tasks, in the order of `tasks`; AT_ONCE tasks are read at the same time."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(task: Handle) -> T:
        async with limit:
            return await read(task)

    return await asyncio.gather(*(one(task) for task in tasks))
