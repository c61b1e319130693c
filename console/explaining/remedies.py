"""What a person can do about the end of a task, in the words of docs/errors.md."""

from collections.abc import Iterator

from console.call import UNDO, Closed
from console.explaining.item import Sentence
from console.explaining.story import Story
from console.remedies import ENDINGS, FAULTS
from console.shown import starter
from workflows.faults import Applied, Code
from workflows.task import TaskStatus

LOOK = "See whether it happened ({effects} has its key), then start a new task for what is left."
RIGHT = "It happened: see whether it may stay, then start a new task for what is left."
BACK = " Or take back what was done: {undo}."
STAYS = "What stays can be tried again ({undo}), or is to be put right by hand."
ENDED_BADLY = (TaskStatus.ESCALATED, TaskStatus.OVER_BUDGET, TaskStatus.FAILED)


def of(story: Story) -> Iterator[Sentence]:
    """The remedy of the code that ended the task, and where it can go on from then."""
    outcome, failing = story.history.outcome, story.history.failing
    if failing is not None and story.history.end is None:
        yield Sentence(text=f"{failing.remedy[:1].upper()}{failing.remedy[1:]}.")
    if outcome is None or outcome.status not in ENDED_BADLY or outcome.code is None:
        return
    last = [fault for fault in outcome.faults if fault.decision == "escalate" and not fault.step_id.startswith(UNDO)]
    named = {name: f"`{starter(name, outcome.task_id)}`" for name in ("effects", "undo")}
    if any(not one.done for one in outcome.undo):
        yield Sentence(text=STAYS.format(**named))
    if last and last[-1].effect is not Applied.NONE:
        text = (LOOK if last[-1].effect is Applied.UNKNOWN else RIGHT) + (
            "" if outcome.undo or story.history.rollback else BACK
        )
        yield Sentence(text=text.format(**named))
    elif outcome.code in ENDINGS:
        yield Sentence(text=ENDINGS[outcome.code])
    elif outcome.code in set(Code):
        do = FAULTS[Code(outcome.code)]
        if outcome.status is TaskStatus.ESCALATED:
            asked = [call for call in story.history.calls if call.is_step or call.is_own]
            failed = [call.id for call in asked if call.closed is Closed.FAILED]
            step = last[-1].step_id if last else failed[-1] if failed else "STEP"
            do += f" Then `{starter('reset', outcome.task_id, '--to', step)}` goes on from there."
        yield Sentence(text=do)
