"""What a task left behind: the steps that new plans kept, and what changed in the world, surely or perhaps.

Runs when an explanation is written, after its items, and when `show` prints a task.
"""

from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel

from client import effects
from client.effects import EffectState, TaskEffect
from client.explain import prose
from client.explain.prose import Sentence, said
from client.history.records import Event
from client.history.story import Story


class Changed(BaseModel, frozen=True):
    """A step that changed the world or may have changed it."""

    step_id: str
    kind: str
    sure: bool
    """True if the step certainly changed the world; False if its outcome is unknown."""
    replayed: bool
    """Whether the last call of the step returned the recorded result of an earlier call with the same key."""
    undone: bool
    events: tuple[int, ...]


def kept(story: Story) -> dict[str, list[str]]:
    """The ids of the finished steps that a replan kept, by the number of the plan that finished them."""
    replanned = [plan.turn.call.scheduled for plan in story.plans if plan.turn.is_replan]
    by_plan = dict[str, list[str]]()
    for call in story.done:
        plan = story.plan_of(call.scheduled)
        if plan and call.ended and any(call.ended < event for event in replanned):
            by_plan.setdefault(str(plan.number), []).append(call.step)
    return by_plan


def left(story: Story) -> Iterator[Sentence]:
    """Sentences about what was kept, what never started, and what changed in the world, each with its events."""
    by_plan = {f"plan {number}": ids for number, ids in kept(story).items()}
    if story.in_turns and by_plan:
        by_plan = {"earlier turns": [id for ids in by_plan.values() for id in ids]}
    for name, ids in by_plan.items():
        yield said(f"Kept from {name}: {prose.listed(ids)}.", *(call.ended for call in story.done if call.step in ids))
    if never := never_started(story):
        yield said(f"Never started: {prose.listed(never)}.")
    changed = changes(story)
    sure = [change for change in changed if change.sure and not change.undone]
    back = [change for change in changed if change.undone]
    # Without these words, "nothing" would deny the changes that are named below as possible.
    certain = " for certain" if not sure and not all(change.sure for change in changed) else ""
    nothing = "nothing that still stands" if back else "nothing"
    yield said(f"Changed in the world: {_listed_steps(sure) or nothing}{certain}.", *_proof(story, sure))
    yield from (*earlier(story), *unknown(story))
    if back:
        proof = (event for call in story.undone for event in call.events[-1:])
        yield said(f"Changed and undone: {_listed_steps(back)}.", *proof)
    undo = story.history.outcome.undo if story.history.outcome else ()
    if stays := [f"{record.step_id} ({record.reason.rstrip('.')})" for record in undo if not record.done]:
        yield said(f"Was to be undone and stays: {prose.listed(stays)}.")
    if story.history.rollback:
        yield said(prose.rolled_back(story.history.task_id, story.history.rollback))


def earlier(story: Story) -> Iterator[Sentence]:
    """Sentences about effects of runs before a reset that were not undone, and about runs whose history was deleted."""
    own, rollbacks = effects.own_effects(story), [Story(rollback) for rollback in story.history.rollbacks]
    all = effects.all_effects(story, None, (), rollbacks) if story.history.earlier else []
    left = [effect for effect in all if effect.key not in own and effect.undoes is None]
    left = [effect for effect in left if effect.state is not EffectState.UNDONE]
    for sure, what in {True: "Changed", False: "Perhaps changed"}.items():
        steps = [f"{effect.step} ({effect.kind})" for effect in left if (effect.state is EffectState.APPLIED) is sure]
        if steps:
            yield said(f"{what} by an earlier run, before a reset, and it stands: {prose.listed(steps)}.")
    for run in story.history.deleted:
        yield said(f"The history of the run {run} was deleted: what that changed is not known here.")


def unknown(story: Story) -> Iterator[Sentence]:
    """Sentences about open calls that may change the world, and about calls whose outcome is unknown."""
    open = {call.id for call in story.history.calls if call.closed is None and story.history.end is None}
    perhaps = [change for change in changes(story) if not change.sure]
    paused = {pause.activity for pause in story.history.paused}
    groups = {
        "Runs, and may change the world": open - paused,
        "Is paused, and may change the world": open & paused,
        "May have changed the world, nobody knows": {change.step_id for change in perhaps} - open,
    }
    for what, ids in groups.items():
        if of := [change for change in perhaps if change.step_id in ids]:
            yield said(f"{what}: {_listed_steps(of)}.", *_proof(story, of))


def never_started(story: Story) -> list[str]:
    """The steps of the last plan that had not started when the task ended; empty while the task runs."""
    if not story.plans or story.history.end is None:
        return []
    return [step.id for step in story.plans[-1].steps if not story.history.of_step(step.id)]


def _listed_steps(changed: Iterable[Changed]) -> str:
    return prose.listed(f"{one.step_id} ({one.kind}{', done before' if one.replayed else ''})" for one in changed)


def _proof(story: Story, changed: Sequence[Changed]) -> list[Event]:
    ids = {id for change in changed for id in change.events}
    return [event for call in story.history.calls for event in call.events[-1:] if event.id in ids]


def changes(story: Story) -> list[Changed]:
    """Every step of the newest run that changed the world or may have changed it, in order."""
    return [_changed(story, effect) for effect in effects.own_effects(story).values() if effect.undoes is None]


def _changed(story: Story, effect: TaskEffect) -> Changed:
    # The fallback of a step has the same id, so calls of another kind are left out.
    same = (call for call in story.history.of_step(effect.step) if call.kind == effect.kind)
    calls = [call for call in same if effects.effect_of(story, call) is not EffectState.NONE]
    return Changed(
        step_id=effect.step,
        kind=effect.kind,
        sure=effect.state is not EffectState.UNKNOWN,
        replayed=calls[-1].replayed,
        undone=effect.state is EffectState.UNDONE,
        events=tuple(event.id for call in calls for event in call.events),
    )
