"""What a task left behind: the steps that new plans kept, and what changed in the world, surely or perhaps."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from console.explaining import words
from console.explaining.item import Sentence
from console.explaining.story import Story
from console.history import Call, Closed, Event
from workflows.faults import Applied


class Changed(BaseModel):
    """A step that changed the world, or may have."""

    model_config = ConfigDict(frozen=True)

    step_id: str
    kind: str
    sure: bool
    """False where the call may have changed the world and nobody knows."""
    replayed: bool
    """Whether it had been done before, so that nothing was done twice."""
    events: tuple[int, ...]


def kept(story: Story) -> dict[str, list[str]]:
    """The steps that a replan kept, by the number of the plan that finished them."""
    replanned = [plan.turn.call.scheduled for plan in story.plans if plan.turn.is_replan]
    by_plan = dict[str, list[str]]()
    for call in story.done:
        plan = story.plan_of(call.scheduled)
        if plan and call.ended and any(call.ended < event for event in replanned):
            by_plan.setdefault(str(plan.number), []).append(call.id)
    return by_plan


def left(story: Story) -> list[Sentence]:
    """What was kept, what never started, what changed in the world, each with its events."""
    said = [
        Sentence(text=f"Kept from plan {number}: {words.listed(ids)}.", events=_ended(story, ids))
        for number, ids in kept(story).items()
    ]
    never = never_started(story)
    said += [Sentence(text=f"Never started: {words.listed(never)}.")] if never else []
    changed = changes(story)
    sure, perhaps = [one for one in changed if one.sure], [one for one in changed if not one.sure]
    certain = " for certain" if perhaps and not sure else ""
    said.append(
        Sentence(text=f"Changed in the world: {_named(sure) or 'nothing'}{certain}.", events=_proof(story, sure))
    )
    return said + _doubtful(story, perhaps)


def _doubtful(story: Story, perhaps: Sequence[Changed]) -> list[Sentence]:
    """What still runs and may change the world, and what may have changed it."""
    is_open = story.history.end is None
    open = {call.id for call in story.history.calls if call.closed is None and is_open}
    groups = {
        "Runs, and may change the world": [one for one in perhaps if one.step_id in open],
        "May have changed the world, nobody knows": [one for one in perhaps if one.step_id not in open],
    }
    return [
        Sentence(text=f"{text}: {_named(ones)}.", events=_proof(story, ones)) for text, ones in groups.items() if ones
    ]


def never_started(story: Story) -> list[str]:
    """The steps of the last plan that a task ended without."""
    if not story.plans or story.history.end is None:
        return []
    return [step.id for step in story.plans[-1].steps if not story.history.of_step(step.id)]


def _named(changed: Sequence[Changed]) -> str:
    return words.listed(f"{one.step_id} ({one.kind}{', done before' if one.replayed else ''})" for one in changed)


def _ended(story: Story, ids: Sequence[str]) -> tuple[Event, ...]:
    return tuple(call.ended for call in story.done if call.ended and call.id in ids)


def _proof(story: Story, changed: Sequence[Changed]) -> tuple[Event, ...]:
    ids = {id for one in changed for id in one.events}
    return tuple(event for call in story.history.calls for event in call.events[-1:] if event.id in ids)


def changes(story: Story) -> list[Changed]:
    """Every call that changed the world or may have, in order."""
    found = [(call, _changed(story, call)) for call in story.history.calls if call.is_step]
    return [
        Changed(
            step_id=call.id,
            kind=call.kind,
            sure=sure,
            replayed=call.replayed,
            events=tuple(event.id for event in call.events),
        )
        for call, sure in found
        if sure is not None
    ]


def _changed(story: Story, call: Call) -> bool | None:
    """True, False for perhaps, None for no."""
    effect = story.history.changes_world(call.kind)
    if effect is False:
        return None
    match call.closed:
        case Closed.COMPLETED:
            return bool(effect)
        case Closed.FAILED:
            return _after_fault(call)
        case _:
            return False


def _after_fault(call: Call) -> bool | None:
    fault = call.failing.fault if call.failing else None
    if fault is None:
        return False
    return {Applied.NONE: None, Applied.APPLIED: True, Applied.UNKNOWN: False}[fault.effect]
