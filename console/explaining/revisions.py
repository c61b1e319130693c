"""What a new plan changed: steps kept, changed, added, dropped, with the arguments that are different."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from console.explaining.story import Plan, Story
from workflows.plan import Step

MISSING = "(none)"
"""What stands for an argument that one of two steps does not have."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Planned(_Frozen):
    """A step as it was planned."""

    id: str
    kind: str
    args: dict[str, JsonValue]
    needs: tuple[str, ...] = ()

    @classmethod
    def of(cls, step: Step) -> "Planned":
        """The step without its title."""
        return cls(id=step.id, kind=step.kind, args=step.args, needs=tuple(sorted(step.dependencies)))


class Was(_Frozen):
    """Two values of one thing; `(none)` stands for one that is not there."""

    before: JsonValue
    after: JsonValue


class Change(_Frozen):
    """A step of the new plan that takes the place of one of the old plan."""

    before: Planned
    after: Planned
    args: dict[str, Was]
    """What is different in the arguments, by dotted path."""

    @property
    def differences(self) -> list[tuple[str, Was]]:
        """All that is different by name: the kind, the arguments, what it needs."""
        before, after = self.before, self.after
        kind = [("kind", Was(before=before.kind, after=after.kind))] if before.kind != after.kind else []
        moved = Was(before=list(before.needs), after=list(after.needs))
        return [*kind, *self.args.items(), *([("needs", moved)] if before.needs != after.needs else [])]


class Diff(_Frozen):
    """A plan, and how it differs from the one before."""

    number: int
    name: str
    """`plan 2`; `turn 7` for what a model called for by itself in one turn."""
    is_turn: bool
    because: str
    replan: bool
    """Whether a fault led to it; else it goes on after a finished plan."""
    kept: tuple[str, ...] = ()
    """Steps that were finished before."""
    unchanged: tuple[str, ...] = ()
    """Steps that were not finished, and are planned as before."""
    changed: tuple[Change, ...] = ()
    added: tuple[Planned, ...] = ()
    dropped: tuple[Planned, ...] = ()
    events: tuple[int, ...] = ()


def diffs(story: Story) -> list[Diff]:
    """Every plan against the one before; the first, and a turn that only goes on, against nothing."""
    earlier: Sequence[Plan | None] = [None, *story.plans]
    pairs = zip(earlier, story.plans, strict=False)
    return [diff(story, before if plan.move is None or plan.turn.is_replan else None, plan) for before, plan in pairs]


def diff(story: Story, before: Plan | None, plan: Plan) -> Diff:
    """How a plan differs from the one before."""
    kept = story.done_before(plan.turn.call.ended or plan.turn.call.scheduled)
    old = {step.id: step for step in before.steps if step.id not in kept} if before else {}
    pairs = dict(_pairs(list(old.values()), plan.steps))
    changed = [(step, pairs[step.id]) for step in plan.steps if step.id in pairs]
    taken = {one.id for _, one in changed}
    return Diff(
        number=plan.number,
        name=plan.name,
        is_turn=plan.move is not None,
        because=plan.because,
        replan=plan.turn.is_replan,
        kept=tuple(kept),
        unchanged=tuple(new.id for new, was in changed if Planned.of(new) == Planned.of(was)),
        changed=tuple(_change(was, new) for new, was in changed if Planned.of(new) != Planned.of(was)),
        added=tuple(Planned.of(step) for step in plan.steps if step.id not in pairs),
        dropped=tuple(Planned.of(step) for id, step in old.items() if id not in taken),
        events=tuple(event.id for event in plan.events),
    )


def _pairs(old: list[Step], new: Sequence[Step]) -> Iterator[tuple[str, Step]]:
    """For each new step the old one whose place it takes: the same id, the same id with an ending, the same kind."""
    rest, waiting = list(old), list(new)
    for alike in (_same_id, _extended_id, _same_kind):
        for step in list(waiting):
            found = max((one for one in rest if alike(one, step)), key=lambda one: _shared(one, step), default=None)
            if found is not None:
                rest.remove(found)
                waiting.remove(step)
                yield step.id, found


def _same_id(one: Step, other: Step) -> bool:
    return one.id == other.id


def _extended_id(one: Step, other: Step) -> bool:
    """`book-2`, or `book_again`, for `book`."""
    return other.id.startswith((one.id + "-", one.id + "_"))


def _same_kind(one: Step, other: Step) -> bool:
    return one.kind == other.kind


def _shared(one: Step, other: Step) -> int:
    """How many arguments are equal."""
    return sum(other.args.get(name) == value for name, value in one.args.items())


def _change(was: Step, new: Step) -> Change:
    before, after = dict(_flat(was.args)), dict(_flat(new.args))
    paths = dict.fromkeys([*before, *after])
    different = {
        path: Was(before=before.get(path, MISSING), after=after.get(path, MISSING))
        for path in paths
        if before.get(path, MISSING) != after.get(path, MISSING)
    }
    return Change(before=Planned.of(was), after=Planned.of(new), args=different)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Dotted paths to everything below an object; lists and references stay whole."""
    for name, item in value.items():
        inner = f"{path}.{name}" if path else name
        if isinstance(item, dict) and item and "$from" not in item:
            yield from _flat(item, inner)
        else:
            yield inner, item
