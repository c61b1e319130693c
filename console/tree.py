"""A task as lines for people: plans, steps, faults, what followed, and the result. Pure functions of an Outcome."""

from dataclasses import dataclass

from console import closing as last
from console import headings, notes
from console import step_lines as steps
from console.call import UNDO
from console.cells import cut
from console.cells import one_line as one_line
from console.cells import printable as printable
from console.cells import wrapped as wrapped
from console.step_lines import Columns, Now
from workflows.outcome import Outcome, OutcomeStep
from workflows.record import StepStatus, UndoRecord

UNDO_HEADING = "Undo  the newest first"
EARLIER_HEADING = "Before a reset  by an earlier run"


@dataclass(frozen=True)
class Block:
    """Lines that belong together: those of a step, or those above the steps of a plan."""

    lines: list[str]
    revision: int
    step: OutcomeStep | None = None


def heading(outcome: Outcome, ui_url: str | None) -> str:
    """The first line: which task, whose plan, where to read it."""
    nobody = "planner unknown" if outcome.ended_at else "waiting for a worker"
    planner = f"{outcome.planner} planner" if outcome.planner else nobody
    return printable("  ".join(filter(None, [outcome.task_id, planner, ui_url])))


def step_lines(outcome: Outcome, step: OutcomeStep, columns: Columns | None = None) -> list[str]:
    """A step, and below it what went wrong and what followed."""
    return steps.lines(outcome, step, columns or Columns(outcome))


def blocks(outcome: Outcome, columns: Columns, now: Now | None = None) -> list[Block]:
    """All plans with their steps, in order, without those that never had their turn."""
    found = list[Block]()
    if outcome.omitted:
        found.append(Block([f"  … {outcome.omitted} earlier steps of this long task: `explain` tells of them"], 0))
    found += [Block(told, 0) for told in notes.failovers(outcome).values()]
    earlier = [step for step in outcome.steps if not step.revision and not is_undo(step)]
    found += _blocks_of([EARLIER_HEADING] if earlier else [], 0)
    found += [Block(steps.lines(outcome, step, columns, now), 0, step) for step in earlier]
    for revision in outcome.revisions:
        found += _blocks_of([line for _, line in notes.above(outcome, revision)], revision.number)
        found += _blocks_of(headings.lines(outcome, revision), revision.number)
        for step in outcome.steps:
            if step.revision == revision.number and step.status is not StepStatus.SKIPPED and not is_undo(step):
                found.append(Block(steps.lines(outcome, step, columns, now), revision.number, step))
    last = outcome.revisions[-1].number if outcome.revisions else 0
    found += _blocks_of([line for _, line in notes.above(outcome, None)], last)
    return found + _undo(outcome, columns, now)


def _blocks_of(lines: list[str], revision: int) -> list[Block]:
    return [Block(lines, revision)] if lines else []


def _undo(outcome: Outcome, columns: Columns, now: Now | None) -> list[Block]:
    """What was taken back, the newest first, and what stays, below all plans."""
    undos, stays = [step for step in outcome.steps if is_undo(step)], not_tried(outcome)
    if not undos and not stays:
        return []
    last = outcome.revisions[-1].number if outcome.revisions else 0
    found = [Block([UNDO_HEADING, *map(stays_line, stays)], last)]
    return found + [Block(steps.lines(outcome, step, columns, now), last, step) for step in undos]


def is_undo(step: OutcomeStep) -> bool:
    """Whether a step is none of a plan but takes one back."""
    return step.id.startswith(UNDO)


def not_tried(outcome: Outcome) -> list[UndoRecord]:
    """What was to be undone and has no call that could have done it."""
    tried = {step.id for step in outcome.steps}
    return [one for one in outcome.undo if not one.done and f"{UNDO}{one.step_id}" not in tried]


def stays_line(stays: UndoRecord) -> str:
    """A step that nothing takes back."""
    return f"    {printable(stays.step_id)} stays: {cut(one_line(stays.reason), steps.MAX_REASON)}"


def body(outcome: Outcome, ui_url: str | None, width: int = steps.WIDTH, now: Now | None = None) -> list[str]:
    """Heading, and all plans with their steps."""
    told = blocks(outcome, Columns(outcome, width), now)
    return [heading(outcome, ui_url), *(line for block in told for line in block.lines)]


def closing(outcome: Outcome) -> list[str]:
    """The last lines: how it ended, what it cost, and the result."""
    return last.lines(outcome)


def whole(outcome: Outcome, ui_url: str | None, width: int = steps.WIDTH, now: Now | None = None) -> list[str]:
    """Everything at once: heading, plans with their steps, closing."""
    return body(outcome, ui_url, width, now) + closing(outcome)


def has_ended(step: OutcomeStep) -> bool:
    """Whether a step will not change any more, and did something."""
    return step.status in (StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.CANCELLED, StepStatus.UNDONE)
