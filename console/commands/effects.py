"""`effects`: list what a task changed in the world, with idempotency keys, from its history and a worker's ledgers."""

from collections.abc import Iterator, Mapping, Sequence

from temporalio.client import Client

from client import document, sessions, tasks
from client.effects import EffectState, TaskEffect
from client.explain import prose
from client.schemas import with_numbers
from client.text import cut, one_line, printable
from client.wording import count
from client.workers import EffectList, list_effects, tools_of
from console.exits import Exit
from console.options import Common, Session, TaskId, require_alone
from console.render.sessions import print_more
from console.render.terminal import print_lines
from workflows.inquiries import ToolCard
from workflows.json_values import canonical
from workflows.people.card import args_text

MAX_RESULT = 400


async def effects_command(*, id: TaskId = None, session: Session = None, common: Common) -> int:
    """Print all effects of a task or a session, the oldest first. Raises Problem if no worker answers."""
    if session is not None:
        require_alone("--session", {"ID": id})
        return await _print_session(await common.connected(), session, common)
    client = await common.connected()
    handle = await tasks.find_task(client, id)
    found = await list_effects(client, handle)
    if common.json:
        print(document.of_anything(found.document(handle.id)))
        return Exit.COMPLETED
    tools = await tools_of(client, common.queue, (effect.result for effect in found.effects))
    lines = list[str]()
    for effect in found.effects:
        lines += _lines(effect, found.effects, tools)
    lines += _not_listed_lines(found, "its")
    nothing = f"{handle.id} has changed nothing: neither its history nor a ledger has an effect of it."
    print_lines(map(printable, lines or [nothing]))
    return Exit.COMPLETED


async def _print_session(client: Client, name: str, common: Common) -> int:
    session = await sessions.tasks_of(client, name)
    found = await sessions.effects_of_each(client, session.handles)
    if common.json:
        print(document.of_anything(found.document(session)))
        return Exit.COMPLETED
    of_task = dict(found.tasks)
    tools = await tools_of(client, common.queue, (effect.result for _, effect in found.in_order))
    lines = list[str]()
    for task_id, effect in found.in_order:
        head, *others = _lines(effect, of_task[task_id].effects, tools)
        lines += [head, f"    task {task_id}", *others]
    not_listed = [line for task_id, listed in found.tasks for line in _not_listed_lines(listed, f"{task_id}'s")]
    lines += dict.fromkeys(not_listed)  # the tasks of a worker have the same ledgers
    calls = count(len(session.handles), "task")
    nothing = f"Session {name} has changed nothing: neither the histories of its {calls} nor a ledger has an effect."
    print_lines(map(printable, lines or [nothing]))
    print_more(session)
    return Exit.COMPLETED


def _not_listed_lines(found: EffectList, whose: str) -> Iterator[str]:
    for ledger in found.unread:
        yield f"The ledger {ledger.where} cannot be read ({ledger.problem}): what it has is not listed."
    if found.lost:
        yield found.lost
    for run in found.deleted_runs:
        yield f"The history of {whose} run {run} was deleted: of that, only what a ledger has is listed."


def _lines(effect: TaskEffect, all: Sequence[TaskEffect], tools: Mapping[str, ToolCard]) -> list[str]:
    kind_of_effect = f" ({effect.effect})" if effect.effect else ""
    head = f"{prose.moment(effect.at)}  {effect.step}  {effect.kind}{kind_of_effect}  {_state_text(effect, all)}"
    lines = [head, f"    key {effect.key}"]
    if args := args_text(effect.args):
        lines.append(f"    with {one_line(args)}")
    if effect.result is not None:
        schema = tools[effect.kind].result_schema if effect.kind in tools else {}
        lines.append(f"    {cut(one_line(with_numbers(canonical, effect.result, schema)), MAX_RESULT)}")
    return lines


def _state_text(effect: TaskEffect, all: Sequence[TaskEffect]) -> str:
    if effect.state is EffectState.UNKNOWN:
        return "outcome unknown"
    if effect.lacks_row:
        return "applied, but no ledger has a row of it"
    if effect.state is EffectState.APPLIED:
        return f"applied, and took back {effect.undoes}" if effect.undoes else "applied"
    by = next((f"{other.step} ({other.kind})" for other in all if other.key == effect.undone_by), effect.undone_by)
    return f"undone at {prose.moment(effect.undone_at)} by {by}" if effect.undone_at else f"undone by {by}"
