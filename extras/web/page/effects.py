"""What a task changed in the world, what undoes it, and what was undone."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from temporalio.client import Client

from client.effects import EffectState, TaskEffect, fetch_effects
from client.history.story import Story
from workflows.people.card import args_text

LABELS: Mapping[EffectState, str] = {
    EffectState.APPLIED: "applied",
    EffectState.UNKNOWN: "may have been applied",
    EffectState.RUNNING: "may still be applied",
    EffectState.UNDONE: "undone",
    EffectState.NONE: "not applied",
}


class EffectRow(NamedTuple):
    """An effect of a task, and what became of it."""

    step: str
    kind: str
    state: str
    """A class of the style sheet."""
    label: str
    at: datetime
    undo: str
    """The kind of tool that can undo it; empty if there is none."""
    undone_at: datetime | None
    undone_by: str
    """The kind of tool that undid the effect; empty if it was not undone, or if the history does not have the kind."""
    args: str
    """The arguments of the effect's call, cut; empty without arguments, or if the history does not have them."""

    @property
    def is_undone(self) -> bool:
        return self.undone_at is not None or self.state == EffectState.UNDONE

    @property
    def can_be_undone(self) -> bool:
        return bool(self.undo) and not self.is_undone


async def effect_rows(client: Client, story: Story) -> list[EffectRow]:
    """The effects in the histories of the task and of its rollbacks, the oldest first; no worker is asked."""
    found = await fetch_effects(client, story, ())
    by_key = {effect.key: effect for effect in found}
    return [_row(story, effect, by_key) for effect in found if effect.undoes is None]


def _row(story: Story, effect: TaskEffect, by_key: Mapping[str, TaskEffect]) -> EffectRow:
    spec, by = story.history.spec(effect.kind), by_key.get(effect.undone_by or "")
    undo = spec.undo.kind if spec and spec.undo else ""
    is_undone = effect.state is EffectState.UNDONE
    return EffectRow(
        effect.step,
        effect.kind,
        effect.state.value,
        LABELS[effect.state],
        effect.at,
        undo,
        effect.undone_at if is_undone else None,
        by.kind if by else "",
        args_text(effect.args),
    )


def undo_text(rows: Sequence[EffectRow], rollback: str | None) -> str:
    """What was undone, and what stays; empty if nothing was undone. `rollback` is Temporal's status of the rollback."""
    undone = [row.step for row in rows if row.is_undone]
    stays = [row.step for row in rows if not row.is_undone]
    if rollback == "running":
        return "What it did is being undone now."
    if not undone:
        return ""
    rest = f" {', '.join(stays)} {'stays' if len(stays) == 1 else 'stay'}." if stays else ""
    return f"What it did was undone: {', '.join(undone)}.{rest}" if stays else f"It was undone: {', '.join(undone)}."
