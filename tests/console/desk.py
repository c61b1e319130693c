"""A worker whose tools count their calls, for tests of what a person does to a task."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client

from client.tasks import Handle
from console.commands.reset import reset
from console.options import Common
from replan import NeedsPerson, Refused, Tool, tool
from tests.harness import DONE, Stage, outcome, staged
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow

QUIET = Common(json=True)


class Word(BaseModel):
    word: str = ""


def tools(calls: Counter[str]) -> list[Tool[..., Any]]:
    """Reads and effects that count their calls, and one effect that works at the second call only."""

    def called(kind: str, word: str) -> Word:
        calls[f"{kind} {word}".strip()] += 1
        return Word(word=word)

    @tool.read
    async def look(args: Word) -> Word:
        """Look."""
        return called("look", args.word)

    @tool.read
    async def stare(args: Word) -> Word:
        """Look for a minute."""
        called("stare", args.word)
        await asyncio.sleep(60)
        return args

    @tool.read
    async def linger(args: Word) -> Word:
        """Look for a while."""
        await asyncio.sleep(1)
        return called("linger", args.word)

    @tool.idempotent
    async def write(args: Word) -> Word:
        """Change the world."""
        if args.word == "slowly":
            await asyncio.sleep(1)
        if args.word == "taken":
            raise Refused("It is taken.")
        return called("write", args.word)

    @tool.idempotent
    async def sign(args: Word) -> Word:
        """Need a key that is there at the second call."""
        if called("sign", args.word) and calls[f"sign {args.word}".strip()] == 1:
            raise NeedsPerson("The key is missing.")
        return args

    @tool.idempotent(ensure="result.word == 'other'")
    async def lie(args: Word) -> Word:
        """Change the world and say something else."""
        return args

    @tool.idempotent
    async def engrave(args: Word) -> Word:
        """Change the world for a minute."""
        await asyncio.sleep(60)
        return args

    return [look, stare, linger, write, sign, lie, engrave]


class Desk:
    def __init__(self, stage: Stage, calls: Counter[str]) -> None:
        self.calls, self._stage, self._client = calls, stage, stage.client

    async def begin(self, task: Task | str = "a task") -> Handle:
        """Start a task; what is returned stands for its newest run."""
        return self._newest((await self._stage.start(task)).id)

    async def run(self, task: Task | str = "a task") -> Handle:
        handle = await self.begin(task)
        await outcome(handle)
        return handle

    async def reset(self, handle: Handle, to: str) -> Outcome:
        """Reset a task and wait for its end."""
        assert await reset(self._client, handle, QUIET, to=to, why=None) == 0
        return await outcome(self._newest(handle.id))

    async def called(self, call: str) -> None:
        async with asyncio.timeout(20):
            while not self.calls[call]:
                await asyncio.sleep(0.02)

    def _newest(self, id: str) -> Handle:
        return self._client.get_workflow_handle_for(AgentWorkflow.run, id)


@asynccontextmanager
async def desk(
    client: Client, folder: Path, *proposals: Any, queue: str | None = None, calls: Counter[str] | None = None
) -> AsyncIterator[Desk]:
    """A desk whose planner makes these proposals; `calls` were made before."""
    calls = Counter[str]() if calls is None else calls
    async with staged(client, folder, tools(calls), [*proposals, DONE], queue=queue) as stage:
        yield Desk(stage, calls)
