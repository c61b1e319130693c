"""`effects`: what a task did to the world, with keys: from its history, and from a worker's ledgers."""

from collections.abc import Sequence

from temporalio.client import Client

from client import effects as known
from client.effects import Known, KnownEffect
from client.history.fetch import fetch_history, rollbacks
from client.history.story import Story
from client.problem import Exit, Problem
from client.tasks import Handle
from console.commands import show, tools
from console.explain import words
from console.options import Common
from console.render import document
from console.render.terminal import cut, one_line, printable
from workflows.inspect import EffectCard, EffectsInquiry
from workflows.plan import canonical

MAX_RESULT = 400
"""Cells of a result in a line."""


async def effects(client: Client, handle: Handle, common: Common) -> int:
    """Print every effect of a task that happened or may have, the oldest first.

    Raises:
        Problem: no worker answers, or it is too old to have a ledger.
    """
    answer = await tools.ask(client, common, EffectsInquiry(task_id=handle.id))
    if answer.effects is None:
        remedy = "restart it on the version of this console"
        raise Problem("old_worker", "The worker is too old to list effects", remedy, Exit.FAILED)
    story = Story(await fetch_history(client, handle))
    found = await known_effects(client, story, answer.effects)
    if common.json:
        told = [one.model_dump(mode="json") for one in found]
        unread = [one.model_dump(mode="json") for one in answer.unread]
        fields = {"task_id": handle.id, "effects": told, "unread": unread, "deleted_runs": story.history.deleted}
        print(document.of_anything(fields))
        return Exit.COMPLETED
    for one in found:
        for line in _lines(one, found):
            show.say(printable(line))
    for ledger in answer.unread:
        show.say(printable(f"The ledger {ledger.where} cannot be read ({ledger.problem}): what it has is not listed."))
    for run in story.history.deleted:
        show.say(printable(f"The history of its run {run} was deleted: of that, only what a ledger has is listed."))
    if not found and not answer.unread and not story.history.deleted:
        show.say(printable(f"{handle.id} has changed nothing: neither its history nor a ledger has an effect of it."))
    return Exit.COMPLETED


async def known_effects(client: Client, story: Story, cards: Sequence[EffectCard]) -> list[KnownEffect]:
    """What the histories of all runs and rollbacks of a task, and these ledgers, know of its effects."""
    undone = [Story(one) for one in await rollbacks(client, story.history.task_id, story.history.first_run)]
    newest = undone.pop() if undone else None
    return known.effects(story, newest, cards, undone)


def _lines(one: KnownEffect, all: Sequence[KnownEffect]) -> list[str]:
    effect = f" ({one.effect})" if one.effect else ""
    said = [f"{words.moment(one.at)}  {one.step}  {one.kind}{effect}  {_standing(one, all)}", f"    key {one.key}"]
    if one.result is not None:
        said.append(f"    {cut(one_line(canonical(one.result)), MAX_RESULT)}")
    return said


def _standing(one: KnownEffect, all: Sequence[KnownEffect]) -> str:
    """Whether it stands, in words."""
    if one.known is Known.MAY:
        return "may have happened"
    if one.known is Known.HAPPENED:
        return f"happened, and took back {one.undoes}" if one.undoes else "happened"
    by = next((f"{other.step} ({other.kind})" for other in all if other.key == one.undone_by), one.undone_by)
    return f"undone at {words.moment(one.undone_at)} by {by}" if one.undone_at else f"undone by {by}"
