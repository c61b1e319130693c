"""How a process ends: also if a task in it does not end when it is cancelled, as a replay of the SDK may not."""

import asyncio
import contextlib
import subprocess
import sys
import time

import pytest

from console.commands.doctor import _within
from console.render.checks import Status
from tests.processes import ROOT

STUBBORN = """
import asyncio
from runtime import process

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def late():
    try:
        await asyncio.sleep(3600)
    finally:
        raise LookupError("nobody reads this")

async def main():
    tasks = [asyncio.create_task(work()) for work in (stubborn, late)]
    await asyncio.sleep(0.1)
    END
"""


@pytest.mark.parametrize(("end", "code"), [("return 3", 3), ("raise SystemExit(4)", 4)])
def test_a_task_that_ignores_its_cancel_does_not_keep_the_process(end: str, code: int) -> None:
    """It is left behind, without a word."""
    script = STUBBORN.replace("END", end)
    script += (
        "try:\n    code = process.run(main())\nexcept SystemExit as left:\n    code = left.code\nprocess.leave(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


async def test_a_check_that_ignores_its_cancel_is_given_up_in_time() -> None:
    is_over = asyncio.Event()

    async def stubborn() -> list[object]:
        while not is_over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await is_over.wait()
        return []

    begun = time.monotonic()
    [check] = await _within(asyncio.get_running_loop().time() + 0.2, "open tasks", stubborn())  # type: ignore[arg-type]
    is_over.set()

    assert (check.status, check.found) == (Status.FAIL, "no answer in time")
    assert time.monotonic() - begun < 20
