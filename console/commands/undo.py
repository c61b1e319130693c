"""`undo`: take back what a closed task did, by a workflow of its own that is followed to its end."""

import asyncio
import sys
from collections.abc import Collection, Sequence
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from client import effects
from client.connection import ui_url
from client.effects import Known, KnownEffect
from client.follow import Follower, Sight
from client.history.fetch import fetch_history
from client.history.records import LONG_AGO, Call
from client.history.story import Story
from client.problem import Exit, Problem
from client.tasks import Handle, query_progress
from console.commands import show, tools
from console.commands.effects import known_effects
from console.options import Common
from console.render import document
from console.render.terminal import COVERS_ALL_RUNS, ROLLBACK_OF, cut, one_line, printable, starter
from console.render.tree import MAX_REASON
from console.render.views import Aside
from workflows.agent import AgentWorkflow
from workflows.catalogue import Effect
from workflows.details import SIGNS, summary
from workflows.ids import reset_rollback_id, rollback_id
from workflows.inspect import EffectsInquiry, Place
from workflows.outcome import Outcome
from workflows.plan import Step
from workflows.progress import Progress
from workflows.record import StepRecord, StepStatus, UndoRecord
from workflows.undoing import Undo, UndoWorkflow

STANDS = (StepStatus.COMPLETED, StepStatus.UNDONE)
"""Steps of the newest run that this run alone can tell of."""
MAX_SENT = 1024 * 1024
"""Bytes of an account that a rollback is started with; the server takes 2 MB."""


class Rollback(Aside):
    """Says of each effect what became of it, as soon as that is known."""

    def __init__(self, common: Common) -> None:
        """Say nothing but who is silent where one JSON document is wanted."""
        super().__init__(common)
        self._is_quiet = common.json
        self._told = 0

    def see(self, sight: Sight) -> None:
        """Tell what is new."""
        self._tell(sight.outcome)

    def end(self, outcome: Outcome) -> None:
        """Tell the rest."""
        self._tell(outcome)

    def _tell(self, outcome: Outcome) -> None:
        for one in outcome.undo[self._told :]:
            self._told += 1
            if not self._is_quiet:
                show.say(_line(outcome, one))


async def undo(client: Client, handle: Handle, common: Common) -> int:
    """Undo what a closed task did; where that is being done already, follow it.

    Raises:
        Problem: the task runs, no worker answers for it or can replay it, or the rollback ended without a word.
    """
    seen = await handle.describe()
    require_closed(seen, starter("cancel", handle.id, "--undo"))
    common = await common.at(handle)
    running = await _started(client, seen, await _progress(client, handle, common), rollback_id(handle.id))
    outcome = await _followed(client, running, handle.id, common)
    if common.json:
        print(_document(client, running, handle.id, outcome))
    else:
        for line in _closing(handle.id, outcome.undo):
            show.say(line)
    return Exit.COMPLETED if _is_all(outcome.undo) else Exit.NEEDS_PERSON


async def of_effects(client: Client, handle: Handle, common: Common, steps: Collection[str]) -> Sequence[UndoRecord]:
    """Undo what these steps of a closed task did, and return what became of each.

    Raises:
        Problem: no worker answers for it, such a rollback runs already, or it ended without a word.
    """
    common = await common.at(handle)
    whole = await _progress(client, handle, common)
    records = [record for record in whole.records if record.step.id in steps]
    folded = whole.folded.model_copy(update={"effects": 0})
    left = [one for one in whole.undo if one.step_id in steps]
    wanted = whole.model_copy(update={"records": records, "undo": left, "folded": folded})
    id = reset_rollback_id(handle.id)
    try:
        running = await _started(client, await handle.describe(), wanted, id, WorkflowIDConflictPolicy.FAIL)
    except WorkflowAlreadyStartedError:
        reason = f"Effects of task {handle.id!r} are being undone already, for another reset (workflow {id})"
        raise Problem("still_running", reason, "wait until that has ended, then try again", Exit.FAILED) from None
    return (await _followed(client, running, handle.id, common)).undo


async def _followed(client: Client, running: Handle, id: str, common: Common) -> Outcome:
    """Follow a rollback to its end, and return what it came to."""
    try:
        with Rollback(common) as view:
            await Follower(client, running, view, is_attended=show.is_attended(common)).to_the_end()
    except asyncio.CancelledError:
        print(f"\ndetached; it goes on. Follow: {starter('undo', id)}", file=sys.stderr)
        raise
    return await _ended(running, id)


def require_closed(seen: WorkflowExecutionDescription, stop: str) -> None:
    """Refuse to undo what a task does that runs; `stop` is the command that ends it.

    Raises:
        Problem: it runs.
    """
    if seen.status is WorkflowExecutionStatus.RUNNING:
        undoes = " and takes back what it has done" if stop.endswith("--undo") else ""
        remedy = f"`{stop}` stops it{undoes}"
        raise Problem("still_running", f"Task {seen.id!r} is running", remedy, Exit.FAILED)


async def _progress(client: Client, handle: Handle, common: Common) -> Progress:
    """What the task did in all its runs, with the run that its keys begin with.

    A worker makes the account of the newest run out of its history; what earlier runs did that it does not know of, or
    no longer keeps, is added from their histories and from the ledgers.
    """
    newest = await _account(handle, common)
    story = Story(await fetch_history(client, handle))
    whole = newest.model_copy(update={"origin": story.history.first_run, "undo": []})
    if not story.history.earlier and not story.history.deleted and not whole.folded.effects:
        return whole
    answer = await tools.ask(client, common, EffectsInquiry(task_id=handle.id))
    found = await known_effects(client, story, answer.effects or ())
    return over_all_runs(whole, story, found, answer.unread)


async def _account(handle: Handle, common: Common) -> Progress:
    try:
        told = await query_progress(handle)
    except WorkflowQueryFailedError as error:
        said = cut(one_line(error.message), MAX_REASON).rstrip(".")
        reason = f"The worker that answers cannot replay task {handle.id!r} ({said})"
        remedy = "run workers with the code that the task ran on, or with code that is mended, and try again"
        raise Problem("workflow_task_fails", reason, remedy, Exit.NEEDS_PERSON) from error
    if told is None:
        reason = f"No worker tells what task {handle.id!r} did"
        remedy = f"start one with `python worker.py{common.at_queue}`, with the tools of the task, and try again"
        raise Problem("no_worker", reason, remedy, Exit.UNREACHABLE)
    return told


def over_all_runs(
    newest: Progress, story: Story, found: Sequence[KnownEffect], unread: Sequence[Place] = ()
) -> Progress:
    """The account of the newest run with the effects that only earlier runs know of, and what cannot be looked at."""
    own, records = effects.own_effects(story), {record.step.id: record for record in newest.records}
    undo = _not_looked_at(story, unread)
    for one in found:
        mine, call = records.get(one.step), effects.call(story, one.key)
        counts = mine is not None and (mine.status in STANDS or effects.key_of(story, mine.step.id, mine.kind) in own)
        is_mine = mine is not None and mine.call_id == one.key.partition("/")[2]
        is_gone = one.known is Known.UNDONE and call is None
        if one.undoes is not None or (counts and is_mine) or is_gone:
            continue
        if counts:
            reason = f"an earlier run did it as {one.kind}, too: see `{starter('effects', newest.task_id)}`"
            undo.append(UndoRecord(step_id=one.step, kind=one.kind, reason=reason))
        else:
            records[one.step] = record(one, call, outlived=effects.outlived(story, one.key))
    left = newest.folded.effects if story.history.deleted else 0
    folded = newest.folded.model_copy(update={"effects": left})
    ended = sorted((one for one in records.values() if one.ended), key=lambda one: one.ended or LONG_AGO)
    for place, one_record in enumerate(ended, 1):
        one_record.place = place  # the newest effect is undone first, whichever run did it
    whole = newest.model_copy(update={"records": [*records.values()], "undo": undo, "folded": folded})
    specs = story.history.catalogue.specs if story.history.catalogue else {}
    return whole if len(whole.model_dump_json()) <= MAX_SENT else whole.slim(specs)


def _not_looked_at(story: Story, unread: Sequence[Place]) -> list[UndoRecord]:
    reason = "its history was deleted, so what it did outside the ledgers is not known"
    undo = [UndoRecord(step_id=f"run {run}", reason=reason) for run in story.history.deleted]
    if story.history.deleted:
        undo += [
            UndoRecord(step_id=f"ledger {one.where}", reason=f"it cannot be read: {one.problem}") for one in unread
        ]
    return undo


def record(one: KnownEffect, call: Call | None, *, outlived: bool = False) -> StepRecord:
    """An effect of an earlier run, as a rollback takes it; where nobody knows whether it stands, that finds it out."""
    args = call.args if call is not None and isinstance(call.args, dict) else None
    planned = one.kind if one.key.endswith(f"/{one.step}") else "unknown"  # a fallback did it
    return StepRecord(
        step=Step(id=one.step, kind=planned, args=args or {}),
        revision=0,
        effect=one.effect or Effect.UNKEYED,
        status=StepStatus.CANCELLED if one.known is Known.MAY else StepStatus.COMPLETED,
        attempts=1,
        kind=one.kind,
        args=args,
        started=one.at,
        ended=one.at,
        result=one.result,
        outlived=outlived,
    )


async def _started(
    client: Client,
    seen: WorkflowExecutionDescription,
    progress: Progress,
    id: str,
    if_it_runs: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.USE_EXISTING,
) -> Handle:
    """The rollback that runs already, or a new one; both do nothing twice, since they use the same keys."""
    await client.start_workflow(
        UndoWorkflow.run,
        Undo(progress=progress),
        id=id,
        task_queue=seen.task_queue,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=if_it_runs,
        memo={ROLLBACK_OF: progress.origin, COVERS_ALL_RUNS: True},
        static_summary=summary(f"undo {seen.id}"),
        static_details=f"`{starter('undo', seen.id)}` shows it in a terminal, or does it once more.",
    )
    return client.get_workflow_handle_for(AgentWorkflow.run, id)  # it answers and ends as a task does


async def _ended(running: Handle, id: str) -> Outcome:
    """What a rollback that is over came to.

    Raises:
        Problem: it was closed from outside, or no worker could begin it.
    """
    try:
        return await running.result()
    except WorkflowFailureError as failure:
        cause = failure.cause
        if isinstance(cause, ApplicationError) and cause.details:
            return Outcome.model_validate(cause.details[0])
        said = cause.message if isinstance(cause, ApplicationError) else "it was stopped from outside"
        reason = f"The rollback of {id!r} ended early ({one_line(said).rstrip('.')})"
        raise Problem("not_undone", reason, f"run `{starter('undo', id)}` again", Exit.NEEDS_PERSON) from failure


def _is_all(undo: Sequence[UndoRecord]) -> bool:
    return all(one.done for one in undo)


def _line(outcome: Outcome, one: UndoRecord) -> str:
    kind = next((f" ({step.kind})" for step in outcome.steps if step.id == one.step_id), "")
    sign = SIGNS[StepStatus.UNDONE if one.done else StepStatus.FAILED]
    what = f"undone with {one.kind}" if one.done else f"stays: {cut(one_line(one.reason), MAX_REASON)}"
    return printable(f"  {sign} {one.step_id}{kind} {what}")


def _closing(id: str, undo: Sequence[UndoRecord]) -> list[str]:
    """How it ended, in a sentence, and what is left to do."""
    done, name = sum(one.done for one in undo), printable(id)
    if not undo:
        return [f"There is nothing to undo: {name} has changed nothing that still stands."]
    of = f"{len(undo)} effect{'' if len(undo) == 1 else 's'}"
    said = [f"{done} of {of} of {name} undone."]
    if not _is_all(undo):
        said.append(f"See what is known: {starter('effects', id)}")
    return said


def _document(client: Client, running: Handle, id: str, outcome: Outcome) -> str:
    fields: dict[str, Any] = {
        "task_id": id,
        "undo_id": running.id,
        "undone": _is_all(outcome.undo),
        "undo": [one.model_dump(mode="json") for one in outcome.undo],
        "ui_url": ui_url(client.service_client.config.target_host, client.namespace, running.id),
    }
    return document.of_anything(fields)
