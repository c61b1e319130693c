"""`undo`: undo the effects of a closed task, and show what became of each."""

import asyncio
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated

import typer
from temporalio.client import Client

from client import document, undo as undoing
from client.connection import ui_url_of
from client.explain.words import moment
from client.follow import Snapshot
from client.tasks import Handle
from client.text import cut, one_line, printable
from client.undo import Confirm, PlannedUndo, Rollback
from client.wording import MAX_REASON, count
from console.commands import show
from console.confirm import Yes, find_task, undo_confirmed
from console.exits import Exit
from console.options import Common, TaskId
from console.render.command import starter
from console.render.requests import undo_lines
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
    yes: Yes = False,
    common: Common,
) -> int:
    client = await common.connected()
    handle = await find_task(client, id, common, command="undo", yes=yes)
    return await undo(client, handle, common, undo_confirmed(common, confirm))


class RollbackView(StderrView):
    """Prints for each effect, as soon as it is known, whether the effect was undone or stays."""

    def __init__(self, common: Common, task_id: str) -> None:
        super().__init__(common)
        self._task_id = task_id
        self._is_quiet = common.json  # stdout then gets one document only
        self._printed = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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


async def undo(client: Client, handle: Handle, common: Common, confirm: Confirm | None = None) -> int:
    """Undo the effects of a closed task, or follow a rollback that runs already. Returns 3 if effects stay."""
    view = RollbackView(await common.at(handle), handle.id)
    is_attended = show.is_attended(common)
    rollback = await undoing.undo(client, handle, view, is_attended=is_attended, confirm=confirm)
    if common.json:
        records, is_complete = rollback.outcome.undo, rollback.is_complete
        fields = {"task_id": handle.id, "undo_id": rollback.handle.id, "undone": is_complete, "undo": records}
        fields |= rollback.held_fields
        place = ui_url_of(client, rollback.handle.id)
        print(document.of_anything({**fields, "already": rollback.ended_before is not None, "ui_url": place}))
    else:
        print_lines(_closing(handle.id, rollback))
    return Exit.COMPLETED if rollback.is_complete else Exit.NEEDS_PERSON


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
    return [line, *_held(id, rollback.planned), f"See what is known: {starter('effects', id)}"]


def _held(id: str, planned: PlannedUndo | None) -> list[str]:
    if planned is None:
        return []
    hint = f"At a terminal `{starter('undo', id)}` asks; to make exactly these calls:"
    confirming = starter("undo", id, "--confirm", planned.code)
    return ["A person has to approve these calls:", *undo_lines(planned), hint, f"    {confirming}"]
