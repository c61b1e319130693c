"""Replan's tasks: the world's MCP server in a tools file, of which nothing more is said; a person is asked in doubt."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import world

from replan import Client, TaskNotCompleted

world.begin()
FILE = Path(world.FOLDER, "world.toml")
if not FILE.exists():
    FILE.write_text(f'[servers.world]\nurl = "{world.URL}/mcp"\ntimeout = {world.SECONDS}\ntrusted_results = true\n')


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
