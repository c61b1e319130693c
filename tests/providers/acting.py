"""Whole ReAct tasks on a real Temporal server, with a model behind a server that holds its provider's rules."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client

from activities.planning.model_planner import ModelPlanner
from evals.fakes.model_api import ModelApi, running
from evals.fakes.script import ScriptedResponse
from tests.harness import Stage, outcome, staged
from tests.providers.desk import TOOLS
from tests.providers.planning import api_of, model_of
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.limits.budget import Limits


@dataclass
class Acting:
    """A model API with a script, and a worker whose model acts turn by turn."""

    api: ModelApi
    stage: Stage

    async def run(self, text: str = "a task", *, more: dict[str, Any] | None = None, **limits: Any) -> Outcome:
        """Run a task to its end, however it ends; `more` are other fields of Task."""
        return await outcome(await self.stage.start(reacting(text, more=more, **limits)))


def reacting(text: str = "a task", *, more: dict[str, Any] | None = None, **limits: Any) -> Task:
    """A task that is done turn by turn."""
    return Task(text=text, strategy="react", limits=Limits(**{"replans": 20, **limits}), **(more or {}))


@asynccontextmanager
async def acting(
    client: Client,
    folder: Path,
    provider: str,
    *script: ScriptedResponse,
    tools: Any = TOOLS,
    known: int | None = None,
    **options: Any,
) -> AsyncIterator[Acting]:
    """A server that plays a script, and a worker that asks it; `options` are fields of the server.

    `known` is the window of the model, in tokens, as far as the worker knows it.
    """
    api = api_of(provider, *script)
    for name, value in options.items():
        setattr(api, name, value)
    async with running(api):
        planner = ModelPlanner(model_of(provider, api), window=known)
        async with staged(client, folder, tools, planner) as stage:
            yield Acting(api, stage)
