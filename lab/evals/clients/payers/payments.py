"""The part of a Python client that is the same for all: it pays, and writes down what was answered.

`PROGRAM RECORD COUNT SECONDS (URL | COMMAND...)`: payments 0 to COUNT - 1, each called again until it is answered, with
SECONDS for each call. RECORD has a line for each that was answered; with it, a restarted program goes on.
"""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

RECORD, COUNT, SECONDS = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
COMMAND, *ARGS = sys.argv[4:]
IS_HTTP = COMMAND.startswith("http")
MOST = 8
UNANSWERED = "no answer"


async def pay_all(pay: Callable[[str], Awaitable[object]]) -> None:
    """Make the payments that are not on record; `pay` raises if there is no answer."""
    done = RECORD.read_text().splitlines() if RECORD.exists() else []
    for number in range(len(done), COUNT):
        answer = await _until_answered(pay, f"p-{number}")
        with RECORD.open("a") as record:
            record.write(f"{answer!r}\n")
            record.flush()
            os.fsync(record.fileno())


async def _until_answered(pay: Callable[[str], Awaitable[object]], who: str) -> object:
    for _ in range(MOST):
        try:
            return await pay(who)
        except Exception as error:
            print(f"{who}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return UNANSWERED
