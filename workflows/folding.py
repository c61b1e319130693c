"""Folding: a long task keeps its last steps in full, so that its state and its time per step stay flat."""

from workflows.catalogue import Effect
from workflows.progress import Progress
from workflows.record import StepRecord, StepStatus

MAX_RECORDS = 300
"""Steps that are kept in full."""
MAX_FAULTS, MAX_REVISIONS = 200, 100
MAX_PROGRESS = 512 * 1024
"""Bytes of Progress as JSON beyond which steps are folded even if they are few; the server takes 2 MB."""


MAX_CARRIED = 1024 * 1024
"""Bytes of Progress that a new run can be started with; the server takes 2 MB."""


def fold(progress: Progress) -> None:
    """Fold away the oldest steps, faults and plans; those of the plan in force stay."""
    folded, faults, revisions = progress.folded, len(progress.faults), len(progress.revisions)
    progress.faults = progress.faults[-MAX_FAULTS:]
    progress.revisions = progress.revisions[-MAX_REVISIONS:]
    folded.faults += faults - len(progress.faults)
    folded.revisions += revisions - len(progress.revisions)
    _fold_oldest(progress, len(progress.records) - MAX_RECORDS)
    while _foldable(progress) and len(progress.model_dump_json()) > MAX_PROGRESS:
        _fold_oldest(progress, max(1, len(_foldable(progress)) // 2))


def can_be_carried(progress: Progress) -> bool:
    """Whether a new run can be started with it: the steps of the plan in force alone may be too much."""
    return len(progress.model_dump_json().encode()) <= MAX_CARRIED


def _fold_oldest(progress: Progress, count: int) -> None:
    gone = _foldable(progress)[: max(0, count)]
    ids = {record.step.id for record in gone}
    progress.records = [record for record in progress.records if record.step.id not in ids]
    progress.folded.ids += [record.step.id for record in gone if record.started is not None]
    progress.folded.effects += sum(_is_finished_effect(record) for record in gone)


def _foldable(progress: Progress) -> list[StepRecord]:
    old = [record for record in progress.records if record.revision < progress.revision]
    if progress.has_untold_effects:  # else the planner would never hear of them, and could plan them once more
        return [record for record in old if record.revision]
    return old


def _is_finished_effect(record: StepRecord) -> bool:
    is_known_to_stand = record.status is StepStatus.COMPLETED
    may_stand = not record.revision and record.status is StepStatus.CANCELLED  # of an earlier run
    return (is_known_to_stand or may_stand) and record.effect is not Effect.READ
