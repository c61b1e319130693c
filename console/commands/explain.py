"""`explain`: why a task did what it did, from its history alone; no worker is asked."""

from typing import Annotated

import typer
from temporalio.client import Client

from client import document, sessions, tasks
from client.explain import explanation, page
from client.history import fetch
from client.remedy import as_command
from client.tasks import Handle
from console.exits import Exit
from console.options import Common, Session, TaskId, require_alone
from console.render.sessions import print_more
from console.render.terminal import output_width


async def explain_command(
    *,
    id: TaskId = None,
    step: Annotated[str | None, typer.Option(metavar="STEP", help="Only what concerns this step.")] = None,
    session: Session = None,
    common: Common,
) -> int:
    if session is not None:
        require_alone("--session", {"ID": id, "--step": step})
        return await _print_session(await common.connected(), session, common)
    client = await common.connected()
    return await explain(client, await tasks.find_task(client, id), common, step)


async def _print_session(client: Client, name: str, common: Common) -> int:
    session = await sessions.tasks_of(client, name)
    explained = await sessions.explain_each(client, session.handles)
    if common.json:
        whole = [explanation.document(as_command) for explanation in explained]
        print(document.of_anything({"session": session.name, "more": session.more, "tasks": whole}))
        return Exit.COMPLETED
    print("\n".join(line for one in explained for line in page.brief_lines(one, output_width())))
    print_more(session)
    return Exit.COMPLETED


async def explain(client: Client, handle: Handle, common: Common, step: str | None) -> int:
    """Print why a task, or one step of it, did what it did."""
    explained = explanation.explain_task(await fetch.fetch_history(client, handle, journal=True))
    chosen = explained.step(step) if step is not None else None
    width = output_width()
    if common.json:
        print(document.of_anything((chosen or explained).document(as_command)))
    else:
        lines = page.step_lines(chosen, width) if chosen else page.page_lines(explained, width)
        print("\n".join(lines))
    return Exit.COMPLETED
