"""The worker of an arm, a process that may be killed: `python -m evals.retry_waste.worker JOB`."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import structlog
from pydantic import BaseModel
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from activities.registration import Abilities
from activities.toolbox.registry import Registry
from evals.fakes.model_api import KEY, MODEL
from evals.retry_waste.arms import Arm
from evals.retry_waste.bare import PlanWorkflow, ReactWorkflow
from evals.retry_waste.mind import think
from evals.retry_waste.tools import Desk, replan_tools
from replan.plugin import serving
from runtime.client import connect
from runtime.settings import of_program
from runtime.settings_file import SettingsFile


class WorkerJob(BaseModel, frozen=True):
    """What a worker serves."""

    arm: Arm
    address: str
    """Of the Temporal server."""
    world: str
    """The URL of the world."""
    model: str
    """The URL of the model API."""
    queue: str
    state: Path


@asynccontextmanager
async def served(job: WorkerJob) -> AsyncIterator[None]:
    """Serve the arm's tasks until the block ends."""
    if job.arm.how == "replan":
        own = replan_tools(job.world, job.arm)
        chosen = of_program({}, queue=job.queue, state=job.state, planner=f"openai:{MODEL}")
        models = SettingsFile.read(chosen.settings_file).models
        environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{job.model}/v1"}
        abilities = replace(Abilities.of(chosen, environment, models, own=own), registry=Registry(own))
        temporal = await connect(address=job.address, plain=True)
        async with serving(chosen, abilities, temporal, sys.exit):
            yield
        return
    client = await Client.connect(job.address, data_converter=pydantic_data_converter)
    async with httpx2.AsyncClient(trust_env=False) as http:
        activities: list[Callable[..., Any]] = [Desk(job.world, http).call_tool, think]
        workflows = [ReactWorkflow, PlanWorkflow]
        async with Worker(client, task_queue=job.queue, workflows=workflows, activities=activities):
            yield


async def main(job: WorkerJob) -> None:
    """Serve until killed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    logging.getLogger("temporalio").setLevel(logging.ERROR)
    async with served(job):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(WorkerJob.model_validate_json(Path(sys.argv[1]).read_text())))
