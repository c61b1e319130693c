"""`extend`: give a running task more than its limits, also one that waits because a limit is reached."""

from typing import Annotated

import typer

from client.problem import Problem
from console.answers import check_given
from console.commands.answer import By, Request, send
from console.confirm import Yes, find_task
from console.options import Common, TaskId
from workflows.people import Choice


async def extend_command(
    *,
    id: TaskId = None,
    tool_calls: Annotated[int | None, typer.Option(metavar="+N", help="So many tool calls more.")] = None,
    replans: Annotated[int | None, typer.Option(metavar="+N", help="So many new plans more.")] = None,
    tokens: Annotated[int | None, typer.Option(metavar="+N", help="So many model tokens more.")] = None,
    usd: Annotated[float | None, typer.Option(metavar="+USD", help="So many US dollars more.")] = None,
    request: Request = None,
    by: By = None,
    yes: Yes = False,
    common: Common,
) -> int:
    more = {"tool_calls": tool_calls, "replans": replans, "tokens": tokens, "usd": usd}
    if not any(more.values()):
        raise Problem("usage", "extend needs to know what to give", "write e.g. --tool-calls +10 or --usd +1.50")
    given = {name: value for name, value in {**more, "request": request, "by": by}.items() if value is not None}
    check_given(Choice.EXTEND, given)  # a mistake is reported without connecting
    client = await common.connected()
    handle = await find_task(client, id, common, command="extend", yes=yes)
    return await send(handle, common, Choice.EXTEND, **given)
