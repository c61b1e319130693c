"""A worker of the evaluation, a process of its own: `python -m evals.world_changes.worker JOB`.

It serves several runs, each with a queue and a state folder of its own, so that no run meets the circuit breakers of
another one.
"""

import asyncio
import logging
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import structlog
from pydantic import BaseModel

from activities.registration import Abilities
from activities.toolbox.registry import Registry
from evals.fakes.model_api import KEY
from evals.world_changes.mutations import MUTATIONS
from evals.world_changes.scenario import Deploy
from evals.world_changes.tools import family_tools
from replan.plugin import serving
from runtime.client import connect
from runtime.settings import of_program
from runtime.settings_file import SettingsFile


class ServedRun(BaseModel, frozen=True):
    """What one run needs."""

    queue: str
    family: str
    state: Path
    deploy: Deploy | None = None


class ServedRuns(BaseModel, frozen=True):
    """What a worker serves."""

    address: str
    """Of the Temporal server."""
    world: str
    """The URL of the world."""
    planner: str
    model: str | None
    """The URL of the scripted model that plans; None where another planner does."""
    mutation: str | None
    runs: tuple[ServedRun, ...]


async def main(job: ServedRuns) -> None:
    """Serve until killed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    logging.getLogger("temporalio").setLevel(logging.ERROR)
    if job.mutation:
        MUTATIONS[job.mutation].replace()
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{job.model}/v1"} if job.model else os.environ
    temporal = await connect(address=job.address, plain=True)
    async with AsyncExitStack() as stack:
        for run in job.runs:
            own = family_tools(run.family, job.world, run.deploy)
            chosen = of_program({}, queue=run.queue, state=run.state, planner=job.planner)
            models = SettingsFile.read(chosen.settings_file).models
            every = Abilities.of(chosen, environment, models, own=own)
            abilities = replace(every, registry=Registry(own))
            await stack.enter_async_context(serving(chosen, abilities, temporal, sys.exit))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(ServedRuns.model_validate_json(Path(sys.argv[1]).read_text())))
