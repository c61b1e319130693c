"""What `start` and `show` do with a task: follow it, show it, leave it alone."""

import asyncio
import json
import os
import sys

from temporalio.client import Client

from console import document, tree
from console.cells import printable
from console.connection import ui_url
from console.events import Events
from console.explaining import runs, words, world
from console.explaining.story import Story
from console.follow import Follower, View
from console.lines import Lines
from console.live import Live
from console.options import Common
from console.outcome import Handle, ended, exit_code
from console.paint import Paint
from console.problem import Exit, Problem
from console.screen import size
from console.shown import starter
from console.sight import Sight, look
from console.step_lines import WIDTH
from console.view import Aside
from console.workflow_task import with_step
from workflows.outcome import Outcome


def check(common: Common, *, jsonl: bool, follows: bool) -> None:
    """Before anything is connected: whether these options go together.

    Raises:
        Problem: --jsonl beside --json, or where nothing is followed.
    """
    if jsonl and common.json:
        raise Problem("usage", "--json is one document and --jsonl one event a line", "give one of them")
    if jsonl and not follows:
        reason = "--jsonl says what happens while a task is followed, and nothing is followed here"
        raise Problem("usage", reason, "leave it out, or follow the task")


async def follow(client: Client, handle: Handle, common: Common, *, jsonl: bool = False) -> int:
    """Show what happens until the task ends; Ctrl-C leaves it running and says how to come back."""
    view = await _view(client, handle, await common.at(handle), jsonl)
    outcome = await to_the_end(client, handle, view, is_attended=is_attended(common, jsonl=jsonl))
    if isinstance(view, Events):
        view.close(json.loads(await _document(client, handle, outcome)))
    elif common.json:
        print(await _document(client, handle, outcome))
    return exit_code(outcome)


def is_attended(common: Common, *, jsonl: bool = False) -> bool:
    """Whether a person watches who can do something about a task that cannot go on by itself."""
    return sys.stdout.isatty() and not (common.json or jsonl)


async def to_the_end(client: Client, handle: Handle, view: View, *, is_attended: bool) -> Outcome:
    """Tell a view what happens until the task ends; Ctrl-C leaves it running and says how to come back."""
    try:
        with view:
            return await Follower(client, handle, view, is_attended=is_attended).to_the_end()
    except asyncio.CancelledError:
        _leave(handle.id)
        raise


async def show(client: Client, handle: Handle, common: Common) -> int:
    """Show how a task stands or ended, once.

    Raises:
        Problem: it runs and its workflow task fails, or no worker answers, or the server does not.
    """
    outcome, sight = await _standing(client, handle, common)
    rolled_back = await runs.rollback(client, handle.id, outcome.ended_at) if outcome.ended_at else None
    if common.json:
        print(await _document(client, handle, outcome))
        return exit_code(outcome)
    place, live = _place(client, handle), sys.stdout.isatty()
    width = size(sys.stdout)[0] if live else WIDTH
    body, closing = tree.body(outcome, place, width, sight.now() if sight else None), tree.closing(outcome)
    body += [printable(f"  ● {what}") for what in sight.doing] if sight else []
    closing += [printable(words.rolled_back(handle.id, rolled_back))] if rolled_back else []
    closing += await _earlier(client, handle)
    for line in Paint.of(sys.stdout).whole(body, closing, width) if live else body + closing:
        print(line)
    return exit_code(outcome)


async def _earlier(client: Client, handle: Handle) -> list[str]:
    """What runs before a reset changed, where there are any."""
    seen = await handle.describe()
    if seen.raw_description.workflow_execution_info.first_run_id in ("", seen.run_id):
        return []
    said = [printable(one.text) for one in world.earlier(Story(await runs.history(client, handle)))]
    return [*said, f"See what stands: {starter('effects', handle.id)}"] if said else []


async def detached(client: Client, handle: Handle, common: Common) -> int:
    """Say where a task is that was started and is left alone."""
    place = _place(client, handle)
    if common.json:
        print(document.of_start(handle.id, handle.result_run_id, place))
    else:
        say(printable("  ".join(filter(None, [handle.id, "started", place]))))
        say(f"Follow: {starter('show', handle.id, '--follow')}")
    return Exit.COMPLETED


async def _view(client: Client, handle: Handle, common: Common, jsonl: bool) -> View:
    place = _place(client, handle)
    if jsonl:
        return Events(common, (await handle.describe()).run_id, place, sys.stdout)
    if common.json:
        return Aside(common)
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Live(common, handle.id, place, sys.stdout)
    return Lines(common, place, say, size(sys.stdout)[0] if sys.stdout.isatty() else WIDTH)


async def _standing(client: Client, handle: Handle, common: Common) -> tuple[Outcome, Sight | None]:
    found = await look(client, handle)
    if found is None:
        remedy = "see whether it runs (`python starter.py doctor`), and try again"
        raise Problem("unreachable", "The server does not answer", remedy, Exit.UNREACHABLE)
    if found.closed:
        return await ended(handle), None
    if found.failing is not None:
        raise (await with_step(client, found.failing)).problem()
    if found.sight is None:
        reason = f"Task {handle.id!r} is running, but no worker answers for it"
        remedy = f"start one with `python worker.py{(await common.at(handle)).at_queue}`"
        raise Problem("no_worker", reason, remedy, Exit.UNREACHABLE)
    return found.sight.outcome, found.sight


async def _document(client: Client, handle: Handle, outcome: Outcome) -> str:
    return document.of_task(outcome, (await handle.describe()).run_id, _place(client, handle))


def _leave(id: str) -> None:
    follow, stop = starter("show", id, "--follow"), starter("cancel", id)
    if sys.stderr.isatty():
        print(f"\ndetached; still running.\nFollow: {follow}\nStop:   {stop}", file=sys.stderr)
    else:
        print(f"\ndetached; still running. Follow: {follow}  Stop: {stop}", file=sys.stderr)


def _place(client: Client, handle: Handle) -> str | None:
    return ui_url(client.service_client.config.target_host, client.namespace, handle.id)


def say(line: str) -> None:
    """Print a line, wrapped on a terminal and whole in a file."""
    if sys.stdout.isatty():
        width, _ = size(sys.stdout)
        line = "\n".join(tree.wrapped(part, width) for part in line.split("\n"))
    print(line, flush=True)
