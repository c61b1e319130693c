"""What the tests of the loop have in common: words, an echo, tools and planners that play, and where tasks run."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client

from activities.planning.planner import Planner, ScriptedPlanner
from activities.toolbox.declare.kind import Kind
from replan import Tool, tool
from tests.harness import Proposals, Stage, outcome, staged
from tests.workflows.history import Handle
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.limits.budget import Limits
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Question

Proposal = NewSteps | Answer | Question | GiveUp
AT_ONCE = 3
"""Tasks that one worker of a test has at the same time: on a busy machine more of them are too slow for the server."""


class Word(BaseModel):
    """An argument."""

    word: str = ""


class Said(BaseModel):
    """A result."""

    said: str


@tool.read
async def echo(args: Word) -> Said:
    """Say the word."""
    return Said(said=args.word)


def played(
    name: str, *acts: BaseException | str | None, declare: Any = tool.read, called: list[str] | None = None
) -> Tool[..., Any]:
    """A tool that plays these in turn, and then the last one for ever: it raises, or says a text, or its own word.

    `called` gets its name with the word of each call.
    """
    left = list(acts)

    async def function(args: Word) -> Said:
        if called is not None:
            called.append(f"{name} {args.word}".strip())
        act = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(act, BaseException):
            raise act
        return Said(said=args.word if act is None else act)

    function.__name__, function.__doc__ = name, f"Play {name}."
    made: Tool[..., Any] = declare(function)
    return made


class Recording:
    """A planner that plays proposals and keeps what it was told."""

    name = "recording"

    def __init__(self, *proposals: Proposal) -> None:
        """Prepare the proposals, one per request."""
        self._script = ScriptedPlanner(proposals)
        self.told = list[Situation]()

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposal:
        """Play the next proposal."""
        self.told.append(situation)
        return await self._script.propose(situation, kinds)


class Scripts:
    """A planner of many tasks: each has the proposals of its text; and what it was told of each."""

    name = "scripted"

    def __init__(self, scripts: Mapping[str, Proposals]) -> None:
        """Prepare the proposals by the text of the task."""
        self.scripts = {text: ScriptedPlanner(script) for text, script in scripts.items()}
        self.told = defaultdict[str, list[Situation]](list)

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposal:
        """Play the next proposal of this task."""
        self.told[situation.text].append(situation)
        return await self.scripts[situation.text].propose(situation, kinds)


class Stages:
    """The workers of one test, with their store in the test's folder."""

    def __init__(self, client: Client, folder: Path) -> None:
        """On this server."""
        self.client, self.folder = client, folder

    def __call__(
        self, tools: Sequence[Tool[..., Any]], planner: Planner | Proposals, **more: Any
    ) -> AbstractAsyncContextManager[Stage]:
        """A worker with these tools and this planner, or prepared proposals; for the rest see `staged`."""
        return staged(self.client, self.folder, tools, planner, **more)

    async def ended(
        self,
        tools: Sequence[Tool[..., Any]],
        planner: Planner | Proposals,
        task: Task | str = "a task",
        **limits: Any,
    ) -> tuple[Outcome, Handle]:
        """How a task ended, and its handle."""
        async with self(tools, planner) as stage:
            handle = await stage.start(task, **limits)
            return await outcome(handle), handle

    async def run(
        self,
        tools: Sequence[Tool[..., Any]],
        planner: Planner | Proposals,
        task: Task | str = "a task",
        **limits: Any,
    ) -> Outcome:
        """How a task ended."""
        return (await self.ended(tools, planner, task, **limits))[0]

    async def each(
        self, tools: Sequence[Tool[..., Any]], scripts: Scripts | Mapping[str, Proposals], *tasks: Task, **limits: Any
    ) -> dict[str, Outcome]:
        """How tasks ended that ran on one worker: the given ones, else one for each script; by their texts."""
        planner = scripts if isinstance(scripts, Scripts) else Scripts(scripts)
        given = list(tasks) or [Task(text=text, limits=Limits(**limits)) for text in planner.scripts]
        turn = asyncio.Semaphore(AT_ONCE)

        async def ended_in_turn(stage: Stage, task: Task) -> Outcome:
            async with turn:
                return await stage.run(task)

        async with self(tools, planner) as stage:
            ended = await asyncio.gather(*(ended_in_turn(stage, task) for task in given))
        return {task.text: one for task, one in zip(given, ended, strict=True)}
