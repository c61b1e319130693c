"""`answer`: answer a request of a task that waits for a person, or show what it asks."""

from typing import Annotated, Any

import typer
from temporalio.client import Client

from client import document, people, tasks
from client.connection import ui_url_of
from client.problem import Problem
from client.tasks import Handle
from client.text import printable
from client.vouching import Voucher
from console.answers import either, given_of, options_of
from console.commands import show
from console.completion import choices
from console.confirm import Yes, find_task
from console.exits import Exit
from console.options import Common, Identity, TaskId, voucher_of
from console.render import requests
from console.render.command import starter
from console.render.terminal import print_lines
from workflows.people.requests import CHOICES, Choice
from workflows.text import nearest

ANSWERS = tuple(choice.value for choice in Choice if choice is not Choice.EXTEND)
"""The values of CHOICE; `extend` is a command of its own."""
OPTIONS = options_of(*map(Choice, ANSWERS))

Request = Annotated[
    str | None, typer.Option("--request", metavar="REQUEST", help="Which request, if several are open, e.g. r2.")
]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who answers; else your login name.")]


async def answer_command(
    *,
    id: TaskId = None,
    choice: Annotated[
        str | None, typer.Argument(metavar="CHOICE", help=f"{either(ANSWERS)}.", autocompletion=choices)
    ] = None,
    request: Request = None,
    by: By = None,
    identity: Identity = None,
    yes: Yes = False,
    common: Common,
    **values: Any,
) -> int:
    if choice is None and id in ANSWERS:  # `answer retry`, for the newest task
        id, choice = None, id
    options, who = without_none(**values), without_none(request=request, by=by)
    if choice is None:
        if options:
            raise Problem("usage", f"--{next(iter(options))} goes with an answer", f"write one of {', '.join(ANSWERS)}")
        client = await common.connected()
        return await print_requests(client, await tasks.find_task(client, id), common)
    if choice not in ANSWERS:
        reason = f"There is no answer {choice!r}{nearest(choice, ANSWERS)}"
        raise Problem("usage", reason, f"it is one of {', '.join(ANSWERS)}; `extend` gives a task more")
    chosen = Choice(choice)
    sent = given_of(chosen, options)
    people.given_with(chosen, sent | who)  # a mistake is reported without connecting
    voucher = voucher_of(identity, by)
    client = await common.connected()
    handle = await find_task(client, id, common, command="answer", yes=yes)
    if CHOICES[chosen].needs_code:
        shown = await people.request_to_approve(handle, request)
        sent |= people.reference_to(shown, chosen)
        if not common.json:
            print_lines(requests.call_lines(shown, await people.asker(handle)))
    return await send(handle, common, chosen, voucher, **who | sent)


def without_none(**values: Any) -> dict[str, Any]:
    """The values by name, without those that are None."""
    return {name: value for name, value in values.items() if value is not None}


async def send(handle: Handle, common: Common, choice: Choice, voucher: Voucher | None, **values: Any) -> int:
    """Send an answer to a task, signed by `voucher` if there is one, and print what became of it."""
    reply = await people.answer(handle, choice, voucher=voucher, **values)
    if common.json:
        by = voucher.person if voucher else people.given_with(choice, values).by
        fields = {"task_id": handle.id, "answer": choice.value, "by": by, "said": reply, "checked": reply is not None}
        print(document.of_anything(fields))
        return Exit.COMPLETED
    what = reply or f"{choice.value}, which is still being checked"
    show.say(printable(f"{handle.id} took the answer: {what}. Follow: {starter('show', handle.id, '--follow')}"))
    return Exit.COMPLETED


async def print_requests(client: Client, handle: Handle, common: Common) -> int:
    """Print the open requests of a task, and the commands that answer them."""
    opened = await people.open_requests(handle)
    if common.json:
        ui_url = ui_url_of(client, handle.id)
        print(document.of_anything({"task_id": handle.id, "requests": opened, "ui_url": ui_url}))
        return Exit.COMPLETED
    if not opened:
        show.say(printable(f"{handle.id} asks nothing now: {starter('show', handle.id)}"))
    asker = await people.asker(handle)
    for request in opened:
        for line in requests.choices(request, asker, is_alone=len(opened) == 1):
            print(printable(line))
    return Exit.COMPLETED
