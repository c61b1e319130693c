"""`incidents` and `resolve`: the causes for which tasks wait for a person, and one answer to all of these tasks."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from client import document
from client.incidents import Incident, find_incidents, follow_resolution, resolve
from client.people import login_name
from client.text import QUEUE, cut, one_line, printable
from client.tree import age
from console.commands.answer import By
from console.exits import Exit
from console.options import Common, Identity, voucher_of
from console.render.command import starter
from console.render.terminal import output_width, print_lines
from workflows.people.incidents import Fate, Resolved


async def incidents_command(*, common: Common) -> int:
    found = await find_incidents(await common.connected())
    if common.json:
        print(document.of_anything({"incidents": found}))
        return Exit.COMPLETED
    if not found:
        print(f"No tasks wait for one cause. `{starter('list', '--status', 'waiting')}` lists those with their own.")
        return Exit.COMPLETED
    print("\n".join(lines(found, output_width(), datetime.now(UTC))))
    return Exit.COMPLETED


def lines(incidents: Sequence[Incident], width: int | None, now: datetime) -> Iterator[str]:
    """Two lines for each incident, cut to `width` columns: what waits and why, and the command that resolves it."""
    for incident in incidents:
        many = "1 task waits" if incident.waiting == 1 else f"{incident.waiting} tasks wait"
        where = "" if incident.queue == QUEUE else f" on queue {one_line(incident.queue)}"
        since = f"since {age(incident.since, now)}: {one_line(incident.reason)}"
        line = f"{one_line(incident.cause)}: {many}{where} {since}"
        yield line if width is None else cut(line, width)
        at = () if incident.queue == QUEUE else ("--queue", incident.queue)
        yield f"    Repaired? {starter('resolve', incident.cause, *at)}"


async def resolve_command(
    *,
    cause: Annotated[str, typer.Argument(metavar="CAUSE", help="What was repaired, as `incidents` names it.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What was done, for the histories of the tasks.")] = "",
    by: By = None,
    identity: Identity = None,
    common: Common,
) -> int:
    voucher = voucher_of(identity, by)
    name = voucher.person if voucher else by or login_name()
    client = await common.connected()
    running = await resolve(client, cause, common.queue, by=name, note=reason, voucher=voucher)
    last = Resolved(cause=cause)
    async for now in follow_resolution(client, running):
        if not common.json:
            print_lines(map(printable, _new_lines(last, now)))
        last = now
    if common.json:
        print(document.of_anything({**last.model_dump(mode="json"), "went_on": last.went_on, "by": name}))
    else:
        print("\n".join(map(printable, _closing_lines(last))))
    if last.fate is not Fate.WENT_ON:
        return Exit.FAILED
    return Exit.NEEDS_PERSON if last.again or last.left else Exit.COMPLETED


def _new_lines(before: Resolved, now: Resolved) -> Iterator[str]:
    if now.canary and now.canary != before.canary:
        yield f"First only {now.canary}: if it fails again, no other task is told."
    if now.fate is Fate.WENT_ON and before.fate is not Fate.WENT_ON:
        yield f"{now.canary} went on. Now the others."
    if now.tasks > max(1, before.tasks):
        yield f"{now.tasks} tasks were told."


def _closing_lines(done: Resolved) -> Iterator[str]:
    if done.fate is Fate.FAILED_AGAIN:
        yield f"{done.canary} failed again, so no other task was told: {one_line(done.reason)}"
        yield f"Repair it, then once more: {starter('resolve', done.cause)}"
        return
    if done.fate is not Fate.WENT_ON:
        yield f"No task was told. {one_line(done.reason)}"
        return
    went_on = "1 task went on" if done.went_on == 1 else f"{done.went_on} tasks went on"
    gone = f", {done.gone} had ended already" if done.gone else ""
    yield f"{done.cause}: {went_on}{gone}."
    if done.again:
        yield f"{done.again} wait again: {starter('incidents')}"
    if done.left:
        yield f"{done.left} have not taken it yet: {starter('incidents')}"
