"""Workers with tools that harm them, each on a queue of its own."""

import asyncio
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle

from tests import preloaded
from tests.harness import outcome, step
from tests.processes import Processes, Running
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import Step

TOOLS = Path(__file__).with_name("harmful.py")
FAST_SECONDS = 30.0
"""How long a task may take; a lost worker is noticed later."""
Handle = WorkflowHandle[AgentWorkflow, Outcome]


class Place(Processes):
    """A queue of its own, with a file in which the tools note their calls."""

    def __init__(self, address: str, folder: Path, client: Client) -> None:
        super().__init__(address, folder)
        self.client = client
        self.queue = f"harmed-{uuid.uuid4().hex[:8]}"
        self.notes, self.log = folder / "notes", folder / "worker.log"

    @contextmanager
    def serving(self, *options: str) -> Iterator[Running]:
        """A worker with these tools, which plans offline."""
        common = ("--tools", str(TOOLS), "--queue", self.queue, "--planner", "offline", "--log", "json")
        with self.worker(*common, *options) as process:
            yield process

    async def start(self, kind: str, *words: str, seconds: float = 600) -> Handle:
        """Start a task that calls a tool once for each word, at the same time."""
        steps = [step(word, kind, file=str(self.notes), word=word, seconds=seconds) for word in words]
        return await self.begin(*steps)

    async def begin(self, *steps: Step) -> Handle:
        """Start a task with this plan."""
        task, id = Task(text="a task", plan=steps, plan_only=True), f"harmed-{uuid.uuid4().hex[:12]}"
        return await self.client.start_workflow(AgentWorkflow.run, task, id=id, task_queue=self.queue)

    async def call(self, kind: str, word: str) -> Outcome:
        """Run a task that calls a tool once."""
        handle = await self.start(kind, word)
        async with asyncio.timeout(FAST_SECONDS):
            return await outcome(handle)

    async def noted(self, *words: str) -> None:
        """Wait until a call has begun for each word."""
        while not self.notes.exists() or not set(words) <= set(self.notes.read_text().split()):
            await asyncio.sleep(0.05)

    async def follow_until(self, said: str, *words: str) -> int:
        """Run a command until it has said this, then open the gate for the tools; returns its exit code."""
        command = [preloaded.python(), str(preloaded.STARTER), *words, "--queue", self.queue]
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, "TEMPORAL_ADDRESS": self.address}, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        async for line in process.stdout:
            if said in line.decode():
                (self.folder / "gate").touch()
        return await process.wait()

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines of the worker's log with this event."""
        entries = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [entry for entry in entries if entry["event"] == event]
