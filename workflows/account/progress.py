"""The state of a task with its journal; a long task keeps only its last steps and entries, so that both stay small.

Made when a task begins, and brought up to date with each entry; read by queries, and by the run that follows when a
task continues as new.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import not_
from typing import Any

from pydantic import BaseModel, Field, PrivateAttr
from temporalio import workflow

from workflows.account import metrics
from workflows.account.entries_of_steps import Attempted
from workflows.account.entry import LONG_AGO, JournalEntry, Standing
from workflows.account.journal import (
    KEPT,
    MAX_OF_KIND,
    MAX_PLANNED,
    AnyEntry,
    JournalPage,
    MovedOn,
    PlanInForce,
    UndoEnded,
)
from workflows.account.outcome import Ending, Outcome, OutcomeStep
from workflows.account.records import FaultRecord, StepRecord, StepStatus, UndoRecord
from workflows.account.state import EntryLists, JournalState
from workflows.account.task import Task
from workflows.json_values import canonical
from workflows.limits.budget import TaskBudget
from workflows.plans.catalogue import FORM, Effect, ToolSpec

MAX_OUTCOME = 512 * 1024
"""The most bytes of all results together in an Outcome; above this, the largest results are left out."""
MAX_RECORDS = 300
"""How many steps a task keeps; of older ones only the ids and the number of effects (see `Folded`)."""
MAX_PROGRESS = 512 * 1024
"""Bytes of the state as JSON. Above this, old steps are dropped, even if they are few; the server accepts 2 MB."""
MAX_PAGE = 1024 * 1024
"""Bytes of the entries in one answer to the query `journal`; the server accepts 2 MB."""
MAX_CONTINUED = 1024 * 1024
"""Bytes of Progress with which a task continues as new; the server accepts 2 MB."""


class Progress(JournalState):
    """All state of a task, and the newest entries of its journal: a snapshot that later entries bring up to date.

    It is the answer of the query `progress`, and the input of continue-as-new.
    """

    form: int = 0
    """The FORM of the version that wrote it; 0 before 0.2.0."""
    journal: list[AnyEntry] = Field(default_factory=list, exclude_if=not_)
    number: int = 0
    """The number of the newest entry."""
    dropped: int = 0
    """The number of the newest entry that the journal has dropped; 0 if it has all."""
    tools: dict[str, ToolSpec] = Field(default_factory=dict, exclude_if=not_)
    """Only where the state is read, see `with_tools`."""
    _stood: dict[str, Standing] = PrivateAttr(default_factory=dict)
    """By the id of a step, how it stood after its newest entry in this run."""

    @classmethod
    def of(cls, task: Task) -> "Progress":
        """The state of a task that begins in the current workflow."""
        info = workflow.info()
        budget = TaskBudget(limits=task.limits)
        begun = info.workflow_start_time
        return cls(task=task, task_id=info.workflow_id, started_at=begun, budget=budget, form=FORM)

    def model_post_init(self, context: object) -> None:
        super().model_post_init(context)
        self._stood = {record.step.id: _standing(record) for record in self.records}
        if self.journal:
            self.tell_anew()

    def tell_anew(self) -> None:
        """Make the lists of the state again, from the entries that the journal has."""
        for name in EntryLists.model_fields:
            setattr(self, name, [])
        for entry in self.journal:
            entry.tell(self)

    def write(self, entry: JournalEntry) -> None:
        """Add an entry to the journal, now: the one way in which a workflow changes the state of its task."""
        # An evicted workflow passes here, too, outside of its loop: nobody reads its state any more.
        if not workflow.in_workflow():
            return
        kept = self.apply(entry.model_copy(update={"number": self.number + 1, "at": workflow.now()}))
        if not workflow.unsafe.is_replaying():
            metrics.add(workflow.metric_meter(), kept)

    def apply(self, entry: JournalEntry) -> list[metrics.Sample]:
        """Change the state as the entry says; return the samples that it adds to the metrics."""
        entry.apply(self)
        entry = self._with_standings(entry)
        self.journal.append(entry)
        self.number = entry.number
        kept = metrics.tally(self.counts, entry.samples(self))
        if workflow.in_workflow():
            for name, fields in entry.lines(self):
                workflow.logger.info(name, extra=fields)
        return kept

    def _with_standings(self, entry: JournalEntry) -> JournalEntry:
        """The entry with how the steps stand now that stood otherwise before."""
        known = self._stood
        one = None if entry.is_told_later else self.find_record(entry.step)
        stands = list[Standing]()
        for record in self.records if entry.changes_all else [one] if one else []:
            before, now = known.get(record.step.id), _standing(record)
            if now != before:
                known[record.step.id] = now
                is_new = before is None or before.revision != now.revision
                stands.append(now.model_copy(update={"title": record.label}) if is_new else now)
        return entry.model_copy(update={"stands": tuple(stands)}) if stands else entry

    def entries_after(self, run: str, after: str = "", *, most: float = MAX_PAGE) -> JournalPage:
        """The entries after a cursor (`JournalPage.cursor`), as many as fit into `most` bytes; the first without it.

        `run` is the id of the current run.
        """
        known, _, text = after.rpartition(":")
        runs = {run, *(entry.run for entry in self.journal if isinstance(entry, MovedOn))}
        restarted = bool(after) and not (known in runs and text.isdecimal() and int(text) <= self.number)
        number = int(text) if after and not restarted else 0
        later = [entry for entry in self.journal if entry.number > number]
        moves = (entry.run for entry in later if isinstance(entry, MovedOn))
        gap = next(moves, run) if number < self.dropped else ""
        size, entries = 0, list[AnyEntry]()
        for entry in later:
            size += len(entry.model_dump_json().encode())
            if entries and size > most:
                break
            entries.append(entry)
        more = len(entries) < len(later)
        last = entries[-1].number if entries else self.number
        page = JournalPage(run=run, entries=(), number=last, more=more, gap=gap, restarted=restarted)
        return page.model_copy(update={"entries": tuple(entries)})

    def slim(self, specs: Mapping[str, ToolSpec] | None = None) -> "Progress":
        """A copy without long values; short ones that the tools in `specs` need to undo, reconcile or observe stay."""
        omitted, known = self._too_large(), specs or {}
        records = [
            record.slim(omitted.get(record.step.id, 0), known[record.kind].paths if record.kind in known else ())
            for record in self.records
        ]
        return self.model_copy(update={"records": records})

    def with_tools(self, specs: Mapping[str, ToolSpec]) -> "Progress":
        """A copy with those tools of the run that name other tools, such as an undo, and with their undos, by kind."""
        named = [specs[record.kind] for record in self.records if record.kind in specs]
        tools = {spec.kind: spec for spec in named if spec.undo or spec.observe or spec.reconcile or spec.fallback}
        undos = {spec.undo.kind for spec in tools.values() if spec.undo}
        return self.model_copy(update={"tools": tools | {kind: specs[kind] for kind in undos if kind in specs}})

    def without_course(self) -> "Progress":
        """A copy for a reader of the state, without the entries that no list of the state is made of."""
        kept = [entry for entry in self.journal if type(entry).tell is not JournalEntry.tell]
        return self.model_copy(update={"journal": kept, "dropped": self.number})

    def with_undo(self, undo: Iterable[UndoRecord]) -> "Progress":
        """A copy with these records of a rollback, which are known before it, in place of all others."""
        kept = [entry for entry in self.journal if not isinstance(entry, UndoEnded)]
        undone = [UndoEnded(number=self.number + at, at=LONG_AGO, undo=record) for at, record in enumerate(undo, 1)]
        copy = self.model_copy(update={"journal": [*kept, *undone], "number": self.number + len(undone)})
        copy.tell_anew()
        return copy

    def outcome(self, now: datetime) -> Outcome:
        """The Outcome of the task; while it has not ended, its duration is that until `now`."""
        ending, last = self.ending or Ending(status=self.status), {fault.step_id: fault for fault in self.faults}
        own = {
            "task": self.task.text,
            "by": self.task.by,
            "strategy": self.task.strategy,
            "steps": tuple(self._outcome_step(record, last.get(record.step.id)) for record in self.slim().records),
            "counts": self.counts or None,
            "limits": self.budget.limits,
            "omitted": len(self.folded.ids),
            "is_tainted": self.contract.is_tainted,
            "contract": self.contract.effects if self.contract.is_tainted else (),
            "spent": self.spent_until(now),
            "status": self.status,
        }
        return Outcome.model_validate({**_shared_fields(self, Outcome), **dict(ending), **own})

    def _outcome_step(self, record: StepRecord, fault: FaultRecord | None) -> OutcomeStep:
        own: dict[str, Any] = {
            "id": record.step.id,
            "is_fallback": record.is_fallback,
            "result_omitted": record.left_out > 0,
            "result_bytes": record.left_out,
            "fault": fault,
        }
        if record.step.id in self._in_history and not record.left_out:
            kind = record.kind if record.is_fallback else ""
            own |= {"in_history": True, "kind": kind, "args": {}, "result": None}
        else:
            needs = tuple(sorted(record.step.dependencies))
            own |= {"title": record.label, "args": record.shown_args, "needs": needs}
        return OutcomeStep.model_validate({**_shared_fields(record, OutcomeStep), **own})

    def _too_large(self) -> dict[str, int]:
        """By step id, the bytes of each large result that is left out, so that the rest fits into MAX_OUTCOME."""
        sizes = sorted((len(canonical(record.result).encode()), record.step.id) for record in self.records)
        total, omitted = sum(size for size, _ in sizes), dict[str, int]()
        while total > MAX_OUTCOME:
            size, id = sizes.pop()
            total -= size
            omitted[id] = size
        return omitted


def _standing(record: StepRecord) -> Standing:
    about = {"status": record.status, "attempts": record.attempts, "revision": record.revision}
    return Standing(id=record.step.id, kind=record.kind, **about)


def _shared_fields(source: BaseModel, model: type[BaseModel]) -> dict[str, Any]:
    return {name: value for name, value in source if name in model.model_fields}


def fold(progress: Progress) -> None:
    """Drop the oldest steps and entries of a long task; the steps of the current plan are kept."""
    _fold_oldest(progress, len(progress.records) - MAX_RECORDS)
    # Half of the steps at a time, because to measure the size takes most of the time.
    while _foldable(progress) and len(progress.model_dump_json(exclude={"journal"})) > MAX_PROGRESS:
        _fold_oldest(progress, max(1, len(_foldable(progress)) // 2))
    _drop_entries(progress)


def _drop_entries(progress: Progress) -> None:
    folded, number = progress.folded, Counter(map(_sort, progress.journal))
    over = {sort: n - KEPT.get(sort[0], MAX_OF_KIND) for sort, n in number.items()}
    planned = sum(len(entry.stands) for entry in progress.journal if isinstance(entry, PlanInForce))
    if planned <= MAX_PLANNED and max(over.values(), default=0) <= 0:
        return
    kept = list[AnyEntry]()
    for entry in progress.journal:
        if isinstance(entry, PlanInForce) and planned > MAX_PLANNED and entry.stands:
            planned -= len(entry.stands)
            progress.dropped = max(progress.dropped, entry.number)
            entry = entry.model_copy(update={"stands": ()})
        if over[_sort(entry)] <= 0:
            kept.append(entry)
            continue
        over[_sort(entry)] -= 1
        progress.dropped = max(progress.dropped, entry.number)
        folded.revisions += 1 if isinstance(entry, PlanInForce) else 0
        folded.faults += 1 if _sort(entry) == ("attempted", False) else 0
    progress.journal = kept
    progress.tell_anew()


def _sort(entry: AnyEntry) -> tuple[str, bool]:
    """What is counted by itself when old entries are dropped: no outage of the planner drops faults of steps."""
    return entry.kind, isinstance(entry, Attempted) and entry.is_own


def fits_continue_as_new(progress: Progress) -> bool:
    """Whether a task is small enough to continue as new; the current plan alone can be too large."""
    return len(progress.model_dump_json().encode()) <= MAX_CONTINUED


def _fold_oldest(progress: Progress, count: int) -> None:
    gone = _foldable(progress)[: max(0, count)]
    ids = {record.step.id for record in gone}
    progress.records = [record for record in progress.records if record.step.id not in ids]
    # A step that never started leaves its id free.
    progress.folded.ids += [record.step.id for record in gone if record.started is not None]
    progress.folded.effects += sum(_is_finished_effect(record) for record in gone)


def _foldable(progress: Progress) -> list[StepRecord]:
    old = [record for record in progress.records if record.revision < progress.revision]
    if progress.has_untold_effects:  # otherwise the planner could plan them again
        return [record for record in old if record.revision]
    return old


def _is_finished_effect(record: StepRecord) -> bool:
    is_known_to_stand = record.status is StepStatus.COMPLETED
    may_stand = not record.revision and record.status is StepStatus.CANCELLED  # of an earlier run
    return (is_known_to_stand or may_stand) and record.effect is not Effect.READ
