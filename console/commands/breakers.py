"""`breakers`: list the circuit breakers of tools that have failed, or close one."""

from typing import Annotated

import typer

from client import document, workers
from client.text import printable
from client.wording import breaker_state
from console.completion import kinds
from console.exits import Exit
from console.options import Common


async def breakers_command(
    *,
    reset: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            autocompletion=kinds,
            help="Close the breaker of this tool first: its service is back. If calls wait, the next is made at once.",
        ),
    ] = None,
    common: Common,
) -> int:
    """Close the breaker of the tool `reset`, if it is named; then print the state of each tool that ever failed."""
    found = await workers.list_breakers(await common.connected(), common.queue, reset)
    cards = found.breakers or ()
    if common.json:
        print(document.of_anything({"breakers": cards, **({"reset": found.before} if found.before else {})}))
        return Exit.COMPLETED
    if found.before:
        after = next((card.state for card in cards if card.kind == found.before.kind), "closed")
        # Calls wait: closed at once, it would let all of them through together.
        done = "closed" if after == "closed" else "tried at once"
        print(printable(f"{done} {found.before.kind}, which was {breaker_state(found.before)}"))
    elif not cards:
        print("no tool has failed")
    width = max((len(card.kind) for card in cards), default=0)
    for card in cards:
        print(printable(f"{card.kind:<{width}}  {breaker_state(card)}"))
    return Exit.COMPLETED
