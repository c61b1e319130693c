"""Finds the next calls of open tasks, and which of these calls the tools of a new version do not accept.

Runs before a deploy, for `worker.py --check`, and for the command `doctor`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue
from temporalio.client import Client, WorkflowExecution, WorkflowQueryFailedError
from temporalio.service import RPCError

from client.history.account import gathered, replayed_progress
from client.tasks import TASKS, converter_of, existing, query_progress
from client.text import printable
from client.workers import ask, serving
from runtime.client import NotConnected, connect
from workflows.account.progress import Progress
from workflows.account.records import StepStatus
from workflows.inquiries import CallsInquiry, Misfit, NextCall
from workflows.json_values import canonical
from workflows.plans.catalogue import Effect
from workflows.plans.references import Unresolved, is_reference, pick, pruned, references
from workflows.rollback import NoUndo, undo_call
from workflows.text import few

MAX_TASKS = 500
"""The maximum number of open tasks that are read; of more open tasks, the newest are read."""
AT_ONCE = 20
MAX_UNANSWERED = 3
"""After this number of queries without an answer, the other tasks are replayed here, without a query."""
MAX_INQUIRY = 256 * 1024
"""The most bytes of the calls in one inquiry; the server accepts 2 MB."""
MAX_LINES = 100
MAX_NAMED = 5
OPEN = (StepStatus.PENDING, StepStatus.RUNNING, StepStatus.WAITING)
"""The statuses of a step whose call is still to be made, or may be made again."""
REMEDY = (
    "Finish or answer these tasks before the deploy, or keep their calls valid: give a new field a default, and leave"
    " an old one in place, in arguments and results, and keep the tool of an undo=. Otherwise each asks a person when"
    " it comes to the call; one that may not ask ends as escalated, and can be reset."
)

Judge = Callable[[Sequence[NextCall]], Sequence[Misfit]]
"""Returns a Misfit for each call that the tools do not accept."""


@dataclass
class OpenTasks:
    """The open tasks of a queue: how many were read, their next calls, and which could not be read."""

    running: int
    """The number of all open tasks, as far as the server has counted them."""
    looked_at: int
    calls: list[NextCall]
    untold: list[str]
    """The ids of the tasks that could not be read: no worker answered, and they could not be replayed here."""

    @property
    def counted(self) -> str:
        """How many tasks were read: `12 of 40 looked at; 1 could not be read (order-1)`."""
        left = f" of {self.running}" if self.running > self.looked_at else ""
        named = few(list(map(printable, self.untold)), MAX_NAMED)
        untold = f"; {len(self.untold)} could not be read ({named})" if self.untold else ""
        return f"{self.looked_at}{left} looked at{untold}"


async def open_tasks(
    client: Client,
    queue: str,
    *,
    limit: int = MAX_TASKS,
    seconds: float | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> OpenTasks:
    """The next calls of the open tasks of a queue; at most the `limit` newest tasks are looked at.

    After `seconds`, no further task is looked at; None for no time limit. `on_progress` is called with the number of
    tasks that were looked at so far, and the number that will be.

    Raises:
        RPCError: the server does not answer.
    """
    query = f"{TASKS} AND TaskQueue = '{queue}' AND CloseTime IS NULL"
    rows = [row async for row in client.list_workflows(query, limit=limit, page_size=min(limit, 1000))]
    running = max(len(rows), (await client.count_workflows(query)).count)
    found, reader = OpenTasks(running, 0, [], []), _Reader(client, is_served=await serving(client, queue) > 0)
    until = None if seconds is None else asyncio.get_running_loop().time() + seconds
    left = iter(rows)

    async def look() -> None:
        for row in left:
            if until is not None and asyncio.get_running_loop().time() > until:
                return
            progress = await reader.progress(row)
            found.looked_at += 1
            if progress is None:
                found.untold.append(row.id)
            else:
                found.calls += next_calls(progress)
            if on_progress:
                on_progress(found.looked_at, len(rows))

    await gathered(*(look() for _ in range(AT_ONCE)))
    return found


def next_calls(progress: Progress) -> Iterator[NextCall]:
    """The calls that a task will make, or may make again, with resolved arguments, or as planned before they start.

    Also the calls that would undo the finished ones.
    """
    finished = progress.with_status(StepStatus.COMPLETED)
    results = {record.step.id: record.result for record in finished if not record.left_out}
    kinds = {record.step.id: record.kind for record in progress.with_status(*OPEN)}
    for record in progress.with_status(*OPEN):
        args = record.step.args if record.args is None else record.args
        yield NextCall(
            task=progress.task_id,
            step=record.step.id,
            kind=record.kind,
            effect=record.effect,
            args={name: _filled(value, results) for name, value in args.items()},
            sources={step: kinds[step] for step in references(args) if step in kinds},
            tool=progress.tools.get(record.kind),
        )
    undone = {record.step_id for record in progress.undo if record.done}
    for record in finished:
        if record.effect is Effect.READ or record.undoes or record.step.id in undone:
            continue
        with suppress(NoUndo):
            call = undo_call(record, progress.tools)
            yield NextCall(
                task=progress.task_id,
                step=record.step.id,
                kind=call.kind,
                effect=progress.tools[call.kind].effect if call.kind in progress.tools else Effect.UNKEYED,
                args=call.args,
                undoes=record.kind,
            )


def _filled(value: JsonValue, results: Mapping[str, JsonValue]) -> JsonValue:
    """A part of arguments, with the results of finished steps in place of the references that lead to them."""
    if is_reference(value):
        step = str(value["$from"])
        with suppress(Unresolved, KeyError):
            found = pick(results[step], str(value.get("path", "")), step)
            return value if pruned(found) else found
    elif isinstance(value, dict):
        return {name: _filled(item, results) for name, item in value.items()}
    elif isinstance(value, list):
        return [_filled(item, results) for item in value]
    return value


@dataclass
class _Reader:
    """Reads how tasks stand: from a worker or, if none answers, from their histories."""

    client: Client
    is_served: bool
    unanswered: int = 0

    async def progress(self, row: WorkflowExecution) -> Progress | None:
        """The state of a task; None if no worker answers and the task cannot be replayed here."""
        handle = self.client.get_workflow_handle(row.id, run_id=row.run_id)
        if self.is_served and self.unanswered < MAX_UNANSWERED:
            try:
                if progress := await query_progress(handle):
                    return progress
                self.unanswered += 1  # a paused task, too
            except WorkflowQueryFailedError:  # its worker cannot replay it
                pass
        history = await existing(handle.fetch_history())
        if history is None:  # deleted since the list was made
            return None
        return await replayed_progress(row.id, history.events, converter_of(self.client, row.id))


async def misfits_of_worker(client: Client, queue: str, calls: Sequence[NextCall]) -> list[Misfit]:
    """The calls that the tools of a worker of the queue do not accept. Raises Problem if no worker answers."""
    found = list[Misfit]()
    for part in _split_by_size(calls):
        found += (await ask(client, queue, CallsInquiry(calls=tuple(part)))).misfits
    return found


def _split_by_size(calls: Iterable[NextCall]) -> Iterator[list[NextCall]]:
    part, size = list[NextCall](), 0
    for call in calls:
        bytes = len(canonical(call.model_dump(mode="json")).encode())
        if part and size + bytes > MAX_INQUIRY:
            yield part
            part, size = [], 0
        part.append(call)
        size += bytes
    if part:
        yield part


def named(misfit: Misfit) -> str:
    """The text, on one line, about a call that the tools do not accept, with the reason."""
    return printable(f"{misfit.task}, step {misfit.step}: {misfit.kind}: {misfit.difference}")


class OpenTasksReport(NamedTuple):
    """What `worker.py --check` says of open tasks."""

    text: str
    fits: bool | None
    """Whether the tools take the next calls of all open tasks that were looked at; None if that is not known: the
    server does not answer, or a task could not be read."""


async def report(
    queue: str, state: Path, judge: Judge, on_progress: Callable[[int, int], None] | None = None
) -> OpenTasksReport:
    """The lines of `worker.py --check` about open tasks; `state` is the folder of the default (development) server."""
    try:
        found = await open_tasks(await connect(state=state), queue, on_progress=on_progress)
    except NotConnected as error:
        return OpenTasksReport(f"Open tasks were not looked at: {error}", None)
    except RPCError as error:
        status = error.status.name.lower()
        return OpenTasksReport(f"Open tasks were not looked at: the server did not answer ({status}); try again.", None)
    misfits = judge(found.calls)
    if not misfits:
        text = f"Open tasks on queue {queue}: {found.counted}, and the tools take all their next calls."
        return OpenTasksReport(text, None if found.untold else True)
    lines = [f"  {named(misfit)}" for misfit in misfits[:MAX_LINES]]
    lines += [f"  and {len(misfits) - MAX_LINES} more"] if len(misfits) > MAX_LINES else []
    head = f"Open tasks on queue {queue}: {found.counted}. These next calls do not fit the tools:"
    return OpenTasksReport("\n".join([head, *lines, REMEDY]), False)
