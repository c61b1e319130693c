"""`undo`: undo the effects of a closed task, and show what became of each."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from temporalio.client import Client

from client import document, sessions, undo as undoing
from client.connection import ui_url_of
from client.explain.prose import moment
from client.remedy import as_command
from client.sessions import SessionTasks, SessionUndo
from client.snapshot import Snapshot
from client.tasks import Handle
from client.text import cut, one_line, printable
from client.undo import Confirm, PlannedUndo, Rollback, planned_fields
from client.vouching import Voucher
from client.wording import MAX_REASON, count
from console.commands import show
from console.confirm import answered_yes, confirm_session, find_task, undo_confirmed
from console.exits import Exit
from console.options import Common, Identity, Session, TaskId, require_alone, voucher_of
from console.render.command import starter
from console.render.requests import undo_lines
from console.render.sessions import print_more
from console.render.terminal import print_lines
from console.render.views import StderrView
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus, UndoRecord
from workflows.web_ui import SIGNS


async def undo_command(
    *,
    id: TaskId = None,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="CODE", help="Make the calls that an earlier `undo` held back.")
    ] = None,
    session: Session = None,
    identity: Identity = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Without an ID: do it to the newest task, or the session, without a question.")
    ] = False,
    common: Common,
) -> int:
    voucher = voucher_of(identity)
    if session is not None:
        require_alone("--session", {"ID": id})
        return await undo_session(await common.connected(), session, common, confirm, voucher, yes=yes)
    client = await common.connected()
    handle = await find_task(client, id, common, command="undo", yes=yes)
    return await undo(client, handle, common, undo_confirmed(common, confirm), voucher)


class RollbackView(StderrView):
    """Prints for each effect, as soon as it is known, whether the effect was undone or stays."""

    def __init__(self, common: Common, task_id: str) -> None:
        super().__init__(common)
        self._task_id = task_id
        self._is_quiet = common.json  # stdout then gets one document only
        self._printed = 0

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """If Ctrl-C ended the `with` block, print the command with which the user can follow the rollback again."""
        super().__exit__(kind, error, trace)
        if isinstance(error, asyncio.CancelledError):
            print(f"\ndetached; it goes on. Follow: {starter('undo', self._task_id)}", file=sys.stderr)

    def see(self, snapshot: Snapshot) -> None:
        self._print(snapshot.outcome)

    def end(self, outcome: Outcome) -> None:
        self._print(outcome)

    def _print(self, outcome: Outcome) -> None:
        for record in outcome.undo[self._printed :]:  # the list only grows
            self._printed += 1
            if not self._is_quiet:
                show.say(_line(outcome, record))


async def undo(
    client: Client, handle: Handle, common: Common, confirm: Confirm | None = None, voucher: Voucher | None = None
) -> int:
    """Undo the effects of a closed task, or follow a rollback that runs already; returns exit code 3 if any stay."""
    view = RollbackView(await common.at(handle), handle.id)
    is_attended = show.is_attended(common)
    rollback = await undoing.undo(client, handle, view, is_attended=is_attended, confirm=confirm, voucher=voucher)
    if common.json:
        print(document.of_anything({**_fields(client, handle.id, rollback), **planned_fields(rollback.planned)}))
    else:
        print_lines(_closing(handle.id, rollback))
    return Exit.COMPLETED if rollback.is_complete else Exit.NEEDS_PERSON


def _fields(client: Client, id: str, rollback: Rollback) -> dict[str, Any]:
    fields = {"task_id": id, "undo_id": rollback.handle.id, "undone": rollback.is_complete}
    fields |= {"undo": rollback.outcome.undo, "already": rollback.ended_before is not None}
    return {**fields, "ui_url": ui_url_of(client, rollback.handle.id)}


async def undo_session(
    client: Client, name: str, common: Common, code: str | None, voucher: Voucher | None, *, yes: bool
) -> int:
    """Undo the effects of all closed tasks of a session, if a person, `yes` or `code` confirms; 3 if effects stay."""
    session = await sessions.tasks_of(client, name)
    plan = await sessions.plan_undo(client, session.handles)
    is_asked = bool(plan.tasks) and not yes and code is None
    if is_asked:
        await confirm_session(name, plan, common)

    def view_of(handle: Handle) -> RollbackView:
        if not common.json:
            show.say(printable(handle.id))
        return RollbackView(common, handle.id)

    how = answered_yes if is_asked else undo_confirmed(common, code)
    done = await sessions.undo_each(
        client, plan, view_of, is_attended=show.is_attended(common), confirm=how, voucher=voucher
    )
    if common.json:
        print(document.of_anything(_session_document(client, session, done)))
    else:
        print_lines(_session_closing(name, done))
        print_more(session)
    return Exit.COMPLETED if done.is_complete else Exit.NEEDS_PERSON


def _session_document(client: Client, session: SessionTasks, done: SessionUndo) -> dict[str, Any]:
    tasks = [
        {**_fields(client, task.task_id, task.rollback), "problem": None}
        if task.rollback
        else {"task_id": task.task_id, "undone": False, "problem": task.problem and task.problem.fields(as_command)}
        for task in done.tasks
    ]
    whole = {"session": session.name, "more": session.more, "undone": done.is_complete, "tasks": tasks}
    return {**whole, "running": done.running, **planned_fields(done.planned)}


def _session_closing(name: str, done: SessionUndo) -> list[str]:
    lines = [printable(f"  {task.task_id}: {task.problem.sentence(as_command)}") for task in done.tasks if task.problem]
    records = [record for task in done.tasks if task.rollback for record in task.rollback.outcome.undo]
    if done.tasks:
        number, effects = sum(record.done for record in records), count(len(records), "effect")
        lines.append(printable(f"{number} of {effects} of session {name} undone."))
    elif not done.running:
        lines.append(printable(f"There is nothing to undo: session {name} has changed nothing that still stands."))
    lines += [
        printable(f"Passed over, since it runs: {id}. To stop and undo it: {starter('cancel', id, '--undo')}")
        for id in done.running
    ]
    if not done.is_complete:
        lines += _lines_to_approve(("--session", name), done.planned)
        lines.append(f"See what is known: {starter('effects', '--session', name)}")
    return lines


def _line(outcome: Outcome, record: UndoRecord) -> str:
    kind = next((f" ({step.kind})" for step in outcome.steps if step.id == record.step_id), "")
    sign = SIGNS[StepStatus.UNDONE if record.done else StepStatus.FAILED]
    what = f"undone with {record.kind}" if record.done else f"stays: {cut(one_line(record.reason), MAX_REASON)}"
    return printable(f"  {sign} {record.step_id}{kind} {what}")


def _closing(id: str, rollback: Rollback) -> list[str]:
    undo: Sequence[UndoRecord] = rollback.outcome.undo
    done, name = sum(record.done for record in undo), printable(id)
    if not undo:
        return [f"There is nothing to undo: {name} has changed nothing that still stands."]
    if rollback.ended_before:
        effects, when = count(len(undo), "effect"), moment(rollback.ended_before)
        return [f"{name} is already undone: {effects}, at {when}. Nothing was called now."]
    line = f"{done} of {count(len(undo), 'effect')} of {name} undone."
    if rollback.is_complete:
        return [line]
    return [line, *_lines_to_approve((id,), rollback.planned), f"See what is known: {starter('effects', id)}"]


def _lines_to_approve(arguments: Sequence[str], planned: PlannedUndo | None) -> list[str]:
    if planned is None:
        return []
    hint = f"At a terminal `{starter('undo', *arguments)}` asks; to make exactly these calls:"
    confirming = starter("undo", *arguments, "--confirm", planned.code)
    return ["A person has to approve these calls:", *undo_lines(planned), hint, f"    {confirming}"]
