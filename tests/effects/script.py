"""What the scripts of small tests use; `begin` has opened the floor as `effects`, and its functions by their names."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from replan import Refused
from replan.effects import DoubtfulCall, Effects, Joined, Key, OutcomeUnknown, StoreUnavailable, Transaction
from tests.effects.lives import at_line
from tests.effects.world import MOMENT, Conflict, Moment, World, bank_of, functions

effects: Effects = Effects("none.db")


def say(*words: object) -> None:
    """Print a line at once."""
    print(*words, flush=True)


def begin(folder: str, url: str, options: Mapping[str, Any]) -> None:
    """Open the floor; `settle` and `timeout` among the options are those of the functions."""
    rest = dict(options)
    settle, timeout = rest.pop("settle", 0.01), rest.pop("timeout", 5.0)
    floor = Effects(url, on_joined=lambda joined: say("said", joined.function), **rest)
    there = World(Path(folder))
    made = {"effects": floor, "world": there, **functions(floor, there, bank_of(there), settle, timeout)}
    globals().update(made)
    sys._getframe(1).f_globals.update(made)
    with suppress(StoreUnavailable):  # so that a call takes no longer because it is the first
        floor.open()


def end() -> None:
    """End in order."""
    effects.close()


def die() -> None:
    """Be killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def befalls(
    error: str = "none", dies: str = "", before: float = 0.0, after: float = 0.0, meant: str = "nobody"
) -> None:
    """What befalls the calls that follow; nothing without an argument."""
    MOMENT.set(Moment(meant, before, after, error, dies))


def tell(function: Callable[..., Any], *arguments: str, **ids: Any) -> str | None:
    """Call a function, with the `ids` of a scope, and print what came of it; returns the key of an error."""
    try:
        with effects.scope(**ids):
            result = function(*arguments)
            if asyncio.iscoroutine(result):
                result = asyncio.run(result)
    except Exception as error:
        say("raised", type(error).__name__, getattr(error, "key", ""))
        return getattr(error, "key", None)
    say("returned", result)
    return None


__all__ = [
    "MOMENT",
    "Conflict",
    "DoubtfulCall",
    "Effects",
    "Joined",
    "Key",
    "Moment",
    "OutcomeUnknown",
    "Path",
    "Refused",
    "ThreadPoolExecutor",
    "Transaction",
    "asyncio",
    "at_line",
    "befalls",
    "begin",
    "die",
    "end",
    "os",
    "say",
    "signal",
    "tell",
    "threading",
    "time",
]  # fmt: skip
