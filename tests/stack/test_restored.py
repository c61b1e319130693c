"""A backup, made and put back by the very lines of docs/operations.md."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHandle

from runtime.settings import DEFAULT_QUEUE
from tests import documentation
from tests.harness import outcome
from tests.stack.stack import Stack
from tests.whole.deploy.composition import services
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow

INSIDE = "docker compose exec -T postgresql "
DATABASES = ("temporal", "temporal_visibility")


def lines(program: str) -> list[str]:
    commands = [line.command.removeprefix(INSIDE) for line in documentation.lines() if line.command.startswith(INSIDE)]
    return [command for command in commands if command.startswith(f"{program} ")]


async def run(stack: Stack, folder: Path, command: str) -> None:
    given, places = services()["postgresql"].environment, stack.places
    settings = {"PGHOST": "127.0.0.1", "PGPORT": str(places.database), "PGPASSWORD": given["POSTGRES_PASSWORD"]}
    path = f"{places.programs.postgresql}:{os.environ['PATH']}"
    words = ["sh", "-c", command]
    await asyncio.to_thread(subprocess.run, words, env={**settings, "PATH": path}, cwd=folder, check=True)


async def start(client: Client, id: str) -> WorkflowHandle[AgentWorkflow, Outcome]:
    task = Task(text="calculate 2 + 2")
    return await client.start_workflow(AgentWorkflow.run, task, id=id, task_queue=DEFAULT_QUEUE)


@pytest.mark.timeout(600)
async def test_a_backup_brings_everything_back(stack: Stack, client: Client, tmp_path: Path) -> None:
    before = await start(client, "before-the-backup")
    await outcome(before)
    for process in (*stack.workers, stack.server):
        await process.stop()
    for command in lines("pg_dump"):
        await run(stack, tmp_path, command)
    for name in DATABASES:
        await run(stack, tmp_path, f"dropdb -U temporal {name} && createdb -U temporal {name}")
    for command in lines("pg_restore"):
        await run(stack, tmp_path, command)
    for process in (stack.server, *stack.workers):
        await process.start()
    after = await start(client, "after-the-backup")

    assert [(await outcome(one)).status for one in (before, after)] == [TaskStatus.COMPLETED] * 2
