"""`extend`: give a running task more than its limits, also one that waits because a limit is reached."""

from typing import Any

from client.people import given_with
from client.problem import Problem
from console.answers import options_of
from console.commands.answer import By, Request, send, without_none
from console.confirm import Yes, find_task
from console.options import Common, Identity, TaskId, voucher_of
from workflows.people.requests import Choice

OPTIONS = options_of(Choice.EXTEND)


async def extend_command(
    *,
    id: TaskId = None,
    request: Request = None,
    by: By = None,
    identity: Identity = None,
    yes: Yes = False,
    common: Common,
    **more: Any,
) -> int:
    if not any(more.values()):
        raise Problem("usage", "extend needs to know what to give", "write e.g. --tool-calls +10 or --usd +1.50")
    values = without_none(**more, request=request, by=by)
    given_with(Choice.EXTEND, values)  # a mistake is reported without connecting
    voucher = voucher_of(identity, by)
    client = await common.connected()
    handle = await find_task(client, id, common, command="extend", yes=yes)
    return await send(handle, common, Choice.EXTEND, voucher, **values)
