"""The stack of docker-compose.yml does what it is for."""

import asyncio
import os
import signal
import subprocess
import time
import uuid

import pytest
from temporalio.client import Client

from console.demo import TASK
from runtime.settings import DEFAULT_QUEUE
from runtime.temporal_cli import spoken
from tests.harness import outcome
from tests.processes import ROOT
from tests.stack.stack import Stack
from tests.whole.deploy.composition import services
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow

WORKER = services()["worker"]
TASKS = 20

pytestmark = pytest.mark.timeout(600)  # the first one waits until packages are fetched and the stack is up


def test_the_server_knows_every_dynamic_setting(stack: Stack) -> None:
    command = [str(stack.places.programs.temporal_server), "validate-dynamic-config", "deploy/temporal/dynamic.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.stdout.split() == [command[-1]]


async def test_the_demo_runs_on_healthy_workers(stack: Stack, figures: list[str]) -> None:
    """`docker compose exec worker replan --task ...` meets a changed world and completes; the doctor finds all well."""
    began = time.monotonic()
    done = await stack.inside(WORKER, "replan", "--task", TASK)
    figures.append(f"demo: {spoken(time.monotonic() - began)}")
    healthy = await stack.inside(WORKER, *WORKER.said["healthcheck"]["test"][1:])
    doctor = await stack.inside(WORKER, "replan", "doctor")

    assert done.returncode == 0, done.stdout + done.stderr
    assert all(words in done.stdout for words in ("Plan 1", "Plan 2", "Completed in"))
    assert (healthy.returncode, healthy.stderr, doctor.returncode) == (0, "", 0), doctor.stdout


@pytest.mark.parametrize("name", ["schema", "namespace"])
async def test_set_up_can_be_repeated(stack: Stack, name: str) -> None:
    await stack.once(name)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_one_worker_goes_on_where_the_other_ended(
    stack: Stack, client: Client, figures: list[str], number: signal.Signals
) -> None:
    """Every task of a full queue completes although one of the two workers ends in the middle of them."""
    began = time.monotonic()
    text = "calculate 18% of 2450, then get the price of A-17, then calculate 2 + 2"
    ids = [f"stack-{uuid.uuid4().hex[:12]}" for _ in range(TASKS)]
    handles = [
        await client.start_workflow(AgentWorkflow.run, Task(text=text), id=id, task_queue=DEFAULT_QUEUE) for id in ids
    ]
    first = stack.workers[0]
    assert first.pid is not None
    os.kill(first.pid, number)
    ended = await asyncio.gather(*map(outcome, handles))
    figures.append(f"{TASKS} tasks with one worker ended by {number.name}: {spoken(time.monotonic() - began)}")
    await first.start()

    assert [one.status for one in ended] == [TaskStatus.COMPLETED] * TASKS
