"""`breakers`: list the circuit breakers of tools that have failed, or close one."""

from typing import Annotated, Any

import typer
from temporalio.client import Client

from client import workers
from client.text import printable
from console.exits import Exit
from console.options import Common
from console.render import document
from workflows.inspect import BreakerCard


async def breakers_command(
    *,
    reset: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Close the breaker of this tool first: its service is back. If calls wait, the next is made at once.",
        ),
    ] = None,
    common: Common,
) -> int:
    return await breakers(await common.connected(), common, reset)


async def breakers(client: Client, common: Common, reset: str | None) -> int:
    """Print the state of each tool that ever failed; before, close the breaker of `reset`."""
    found = await workers.list_breakers(client, common.queue, reset)
    cards = found.breakers or ()
    if common.json:
        whole: dict[str, Any] = {"breakers": [card.model_dump(mode="json") for card in cards]}
        if found.before:
            whole["reset"] = found.before.model_dump(mode="json")
        print(document.of_anything(whole))
        return Exit.COMPLETED
    if found.before:
        after = next((card.state for card in cards if card.kind == found.before.kind), "closed")
        # Calls wait: closed at once, it would let all of them through together.
        done = "closed" if after == "closed" else "tried at once"
        print(printable(f"{done} {found.before.kind}, which was {state(found.before)}"))
    elif not cards:
        print("no tool has failed")
    width = max((len(card.kind) for card in cards), default=0)
    for card in cards:
        print(printable(f"{card.kind:<{width}}  {state(card)}"))
    return Exit.COMPLETED


def state(card: BreakerCard) -> str:
    """The state of a breaker in a few words."""
    words = [card.state.replace("_", "-")]
    words += [f"since {card.since:%Y-%m-%d %H:%M:%S} UTC"] if card.since else []
    failures = "1 failure" if card.failures == 1 else f"{card.failures} failures in a row"
    last = f", the newest {card.code}" if card.code else ""
    words += [f"after {failures}{last}"] if card.failures else []
    if card.state == "open":
        words += [f"a trial call in {card.trial_in:g} s" if card.trial_in else "the next call is a trial"]
    elif card.state == "half_open":
        runs = "a trial call runs" if card.trials == 1 else f"{card.trials} trial calls run"
        words += [runs if card.trials else "the next call is a trial"]
    words += [f"at most {card.limit} calls"] * bool(card.limit)
    words += [f"{card.waiting} calls wait for their turn" if card.waiting > 1 else "1 call waits for its turn"] * bool(
        card.waiting
    )
    return ", ".join(words)
