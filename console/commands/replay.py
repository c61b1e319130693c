"""`replay`: replay histories of tasks, to find out whether this version of Replan could continue these tasks."""

import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import WorkflowHistory

from client import document, replay
from client.problem import Problem
from client.remedy import as_command
from client.replay import Replayed
from client.text import one_line, printable
from client.wording import count
from client.workflow_task import WHY, Cause
from console.exits import Exit
from console.options import Common

SAY_EVERY_SECONDS = 5.0
REMEDIES = {
    Cause.NONDETERMINISM: "guard the change (workflow.patched), or let workers of the earlier version end these tasks",
    Cause.UNHANDLED: "correct the code, or let workers of the earlier version end these tasks",
    Cause.PAYLOAD: "replay them in a program, with your data converter: docs/client.md#a-worker-of-your-own",
}


async def replay_command(
    *,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILES", help="Files that `export` wrote; else --query.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Of the server, the histories of all tasks that this list filter finds."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="With --query: at most so many; else all.")
    ] = None,
    common: Common,
) -> int:
    if (query is None) == (not files):
        reason = f"replay takes either files or --query, and has {'both' if files else 'neither'}"
        raise Problem("usage", reason, "name files that `export` wrote, or a filter")
    if query is None and limit is not None:
        raise Problem("usage", "--limit is for --query", "leave it out, or name fewer files")
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)  # what fails is in the result
    names, unread = list[Path](), list[tuple[Path, Problem]]()
    if query is None:
        total, histories = len(files or ()), _readable(files or [], names, unread, quiet=common.json)
        converter = common.data_converter()
    else:
        client = await common.connected()
        total = await replay.count(client, query)
        total, histories = min(total, limit or total), replay.found(client, query, limit)
        converter = client.data_converter
    done, failed, printed_at = list[dict[str, object]](), list[Replayed](), time.monotonic()
    number = 0
    async for result in replay.replayed(histories, converter=converter):
        file = str(names[number]) if names else None
        number += 1
        failed += [result] if result.cause else []
        if not common.json:
            print(_line(result, file), flush=True)
            continue
        done.append({**result.model_dump(mode="json"), "file": file})
        if time.monotonic() - printed_at > SAY_EVERY_SECONDS:
            print(f"{number} of {total} replayed, {len(failed)} of them failed", file=sys.stderr)
            printed_at = time.monotonic()
    if unread and not number:
        raise unread[0][1]
    if common.json:
        others = [{"file": str(file), "reason": problem.fields(as_command)["reason"]} for file, problem in unread]
        print(document.of_anything({"replayed": number, "failed": len(failed), "unread": others, "histories": done}))
    else:
        print("\n".join([*_summary(number, failed), *_not_replayed(unread)]))
    return Exit.FAILED if failed else Exit.BAD_USAGE if unread else Exit.COMPLETED


async def _readable(
    files: list[Path], names: list[Path], unread: list[tuple[Path, Problem]], *, quiet: bool
) -> AsyncIterator[WorkflowHistory]:
    """The histories in `files`, the name of each appended to `names`; a file without one is printed, and in `unread`.

    If there is only one file, there is no other that its line could stand beside: it is not printed.
    """
    for file in files:
        try:
            history = replay.history_in(file)
        except Problem as problem:
            unread.append((file, problem))
            if not quiet and len(files) > 1:
                print(f"{problem.fields(as_command)['reason']}.", flush=True)
            continue
        names.append(file)
        yield history


def _line(result: Replayed, file: str | None) -> str:
    name = printable(file or result.task_id)
    if result.cause is None:
        return f"{name}: ok, {count(result.events, 'event')}"
    state = "running" if result.is_open else "ended"
    return f"{name}: does not replay ({state}): {WHY[result.cause]}: {one_line(result.reason)}"


def _not_replayed(unread: list[tuple[Path, Problem]]) -> Iterator[str]:
    if unread:
        yield f"{count(len(unread), 'file')} could not be read."


def _summary(replayed: int, failed: list[Replayed]) -> Iterator[str]:
    all = count(replayed, "history", "histories")
    if not failed:
        replays = f"{all} {'replays' if replayed == 1 else 'replay'} with this version."
        yield replays if replayed else "There is no history to replay."
        return
    yield f"{len(failed)} of {all} {'does' if len(failed) == 1 else 'do'} not replay with this version."
    if running := sum(result.is_open for result in failed):
        yield f"{running} of them still running: a worker of this version stops at the next step, and nothing is lost."
    if running < len(failed):
        yield f"{len(failed) - running} of them ended: `undo` and `reset` need a version that replays them."
    for cause in sorted({result.cause for result in failed if result.cause}):
        yield f"{cause}: {REMEDIES[cause]}."
