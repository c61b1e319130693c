"""Replan's tasks, as replan_tasks_arm.py; the tools file names the argument for a key, and when errors come."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import world

from replan import Client, TaskNotCompleted

FILE = Path(world.FOLDER, "world.toml")
TOOLS = world.begin()
KEYED = "".join(
    f'[servers.world.tools.{one["name"]}]\neffect = "keyed"\nkey = "request_id"\nerrors = "before"\n'
    for one in TOOLS
    if one["changes"]
)
if not FILE.exists():
    FILE.write_text(
        f'[servers.world]\nurl = "{world.URL}/mcp/keyed"\ntimeout = {world.SECONDS}\ntrusted_results = true\n{KEYED}'
    )


if "reviewed" not in FILE.read_text():  # the texts of the server are read by a person, once
    subprocess.run([sys.executable, "-m", "replan", "worker", "--check", "--tools", FILE, "--write-tools", FILE])


def worker() -> subprocess.Popen:
    """A worker as its supervisor starts it."""
    options = ["--tools", str(FILE), "--planner", f"openai:{world.MODEL}", "--state", world.FOLDER]
    return subprocess.Popen([sys.executable, "-m", "replan", "worker", *options, "--queue", world.MODEL])


async def main() -> None:
    running = worker()

    async def keep_running() -> None:
        nonlocal running
        while True:
            await asyncio.sleep(0.2)
            if running.poll() is not None:
                running = worker()

    keeping = asyncio.create_task(keep_running())
    try:
        replan = await Client.connect(os.environ["TEMPORAL_ADDRESS"], queue=world.MODEL)
        task = await replan.start(world.TEXT, id=world.MODEL, strategy="react")
        try:
            print((await task.result()).result)
        except TaskNotCompleted as ended:
            print(f"a person is told: {ended}")
    finally:
        keeping.cancel()
        running.terminate()
        running.wait()


asyncio.run(main())
