"""What concerns one step of a task: where it was planned, what became of it, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from console.explaining import explanation, page, words
from console.explaining.explanation import Explanation
from console.explaining.item import Cost, Item, Sentence
from console.explaining.moves import Row
from console.explaining.page import INDENT
from console.explaining.revisions import Diff
from console.problem import Problem
from workflows.plan import nearest


@dataclass(frozen=True)
class OneStep:
    """A step, and what is said of it."""

    id: str
    whole: Explanation

    @property
    def items(self) -> list[Item]:
        """The items that name it."""
        named = f"step {self.id!r}"
        return [item for item in self.whole.items if self.id in item.steps or named in item.what.text]

    @property
    def revisions(self) -> list[Diff]:
        """The plans that plan, change, drop or keep it, with nothing but that."""
        return [narrowed for diff in self.whole.plans if (narrowed := _narrowed(diff, self.id))]


def of(whole: Explanation, id: str) -> OneStep:
    """The step with this id.

    Raises:
        Problem: the task never planned such a step.
    """
    ids = whole.story.step_ids
    if id not in ids:
        task = whole.story.history.task_id
        remedy = f"it has {words.listed(ids)}" if ids else "it has no step at all yet"
        raise Problem("unknown_step", f"Task {task!r} has no step {id!r}{nearest(id, ids)}", remedy)
    return OneStep(id, whole)


def rows(one: OneStep) -> Iterator[Row]:
    """What is said of the step, row by row."""
    yield "", _heading(one)
    for diff in one.revisions:
        for text in page.difference_lines(diff):
            yield (
                INDENT,
                Sentence(
                    text=f"{diff.name.capitalize()}: {text}", events=one.whole.story.plans[diff.number - 1].events
                ),
            )
    for number, item in enumerate(one.items, 1):
        yield from page.item_rows(number, item)
    if not one.items:
        yield "", Sentence(text=_nothing(one))


def _heading(one: OneStep) -> Sentence:
    story = one.whole.story
    calls = story.history.of_step(one.id)
    kinds = dict.fromkeys(
        [*([story.steps[one.id].kind] if one.id in story.steps else []), *(call.kind for call in calls)]
    )
    standing = explanation.standing(story, one.id)
    tried = (
        f" after {words.count(sum(call.attempt for call in calls), 'attempt')}" if calls and calls[-1].closed else ""
    )
    done = [call for call in story.done if call.step == one.id]
    got = f" It returned: {words.stop(words.value(done[-1].result))}" if done else ""
    text = f"{one.id} ({', then '.join(kinds)}) of {story.history.task_id}: {standing}{tried}.{got}"
    return Sentence(text=text, events=tuple(event for call in calls for event in call.events))


def _nothing(one: OneStep) -> str:
    calls = one.whole.story.history.of_step(one.id)
    if calls:
        return "It met no fault: nothing to explain."
    return "It was never called: a plan ended, or the task did, before its turn came."


def document(one: OneStep) -> dict[str, Any]:
    """The same as JSON: the task's document with nothing but what concerns the step."""
    whole = explanation.document(one.whole)
    return {
        "task_id": whole["task_id"],
        "status": whole["status"],
        "step": next(step for step in whole["steps"] if step["id"] == one.id),
        "summary": _heading(one).text,
        "items": [item.document() for item in one.items],
        "revisions": [diff.model_dump(mode="json") for diff in one.revisions],
        "kept": {number: ids for number, ids in whole["kept"].items() if one.id in ids},
        "changed": [change for change in whole["changed"] if change["step_id"] == one.id],
        "cost": sum((item.cost for item in one.items), Cost()).model_dump(),
        "notes": whole["notes"],
    }


def _narrowed(diff: Diff, id: str) -> Diff | None:
    """A plan's differences as far as they concern a step; None where they do not."""
    narrowed = diff.model_copy(
        update={
            "kept": tuple(one for one in diff.kept if one == id),
            "unchanged": tuple(one for one in diff.unchanged if one == id),
            "changed": tuple(one for one in diff.changed if id in (one.before.id, one.after.id)),
            "added": tuple(one for one in diff.added if one.id == id),
            "dropped": tuple(one for one in diff.dropped if one.id == id),
        }
    )
    parts = (narrowed.kept, narrowed.unchanged, narrowed.changed, narrowed.added, narrowed.dropped)
    return narrowed if any(parts) else None
