"""Replan's tasks: a plan of steps, one tool, and a worker that its supervisor starts again."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import steps

from replan import Client, Limits, Step

TOOLS = Path(__file__).with_name("replan_tool.py")
SCRIPT = Path(steps.FOLDER, "script.json")
MOST = 50
"""The steps of one plan; a longer task is planned in parts."""


def worker() -> subprocess.Popen:
    """A worker that is ready."""
    options = ["--tools", TOOLS, "--state", steps.FOLDER, "--queue", steps.RUN, "--planner", f"scripted:{SCRIPT}"]
    process = subprocess.Popen([sys.executable, "-m", "replan", "worker", *options], stdout=subprocess.PIPE)
    while not (line := process.stdout.readline()).startswith(b"ready"):
        if not line:
            raise RuntimeError("The worker ended before it was ready.")
    return process


def plan(task: str, numbers: range) -> list[Step]:
    """Steps, each after the one before it, or all at once."""
    return [
        Step(
            id=f"s{number}",
            kind="act",
            args={"task": task, "number": number},
            needs=() if steps.SHAPE == "fan" or number == numbers.start else (f"s{number - 1}",),
        )
        for number in numbers
    ]


def write_script() -> None:
    """What is planned for the one long task, part by part."""
    (task,) = steps.tasks()
    parts = [range(first, min(first + MOST, steps.SIZE)) for first in range(0, steps.SIZE, MOST)]
    plans = [
        {"type": "steps", "steps": [one.model_dump(mode="json") for one in plan(task, part)], "because": "go on"}
        for part in parts
    ]
    SCRIPT.write_text(json.dumps([*plans, {"type": "answer", "result": "done"}]))


async def main() -> None:
    is_long = steps.SIZE > MOST
    if is_long:
        write_script()
    else:
        SCRIPT.write_text(json.dumps([{"type": "answer", "result": "done"}]))
    running = worker()
    replan = await Client.connect(os.environ["TEMPORAL_ADDRESS"], queue=steps.RUN)
    limits = Limits(tool_calls=10 * steps.SIZE)

    async def keep_running() -> None:
        nonlocal running
        while True:
            await asyncio.sleep(0.05)
            if running.poll() is not None:
                running = worker()

    async def run(task: str) -> None:
        by_hand = {} if is_long else {"plan": plan(task, range(steps.SIZE)), "plan_only": True}
        handle = await replan.start("peers", id=task, limits=limits, **by_hand)
        await handle.result()

    keeping = asyncio.create_task(keep_running())
    try:
        await steps.begin(running.pid)
        await asyncio.gather(*map(run, steps.tasks()))
        await steps.end()
    finally:
        keeping.cancel()
        running.kill()
        running.wait()


asyncio.run(main())
