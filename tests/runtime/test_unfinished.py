"""A worker of a new version looks before it serves whether it can go on with the unfinished tasks of its queue."""

import asyncio
import json
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError

from runtime.dev_server import DevServer
from tests.changed_workflow import ChangedWorkflow
from tests.harness import DONE, plan, staged, step
from tests.processes import Processes
from tests.workflows.history import Handle
from tests.workflows.props import echo
from workflows.account.task import Task
from workflows.agent import REQUEST_MEMO


async def until_it_asks(handle: Handle) -> None:
    """Wait until the memo of a task has its request."""
    while REQUEST_MEMO not in (await handle.describe()).raw_description.workflow_execution_info.memo.fields:
        await asyncio.sleep(0.1)


@pytest.fixture
def processes(server: DevServer, tmp_path: Path) -> Processes:
    return Processes(server.address, tmp_path / "new")


async def test_a_worker_refuses_tasks_that_another_version_began(
    client: Client, processes: Processes, tmp_path: Path
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    waits = Task(text="a task", on_escalation="wait", approve="all")
    steps = plan(step("a", "echo", word="x"))
    async with staged(client, tmp_path / "old", [echo], [steps, DONE], workflow=ChangedWorkflow) as old:
        handle = await old.start(waits)
        await until_it_asks(handle)
        before = (await handle.fetch_history()).events[-1].event_id
        refused = await asyncio.to_thread(processes.asked, "--queue", old.queue)
        was_opened = (tmp_path / "new" / "state" / "store.db").exists()
        after = (await handle.fetch_history()).events[-1].event_id
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()

    with processes.worker("--queue", old.queue):
        done = await asyncio.to_thread(processes.starter, "--task", "calculate 1+1", "--queue", old.queue, "--json")

    assert refused.returncode == 1
    assert "1 unfinished task of another version of Replan cannot go on with this one (0." in refused.stderr
    assert f": {handle.id}. Nothing was called" in refused.stderr
    assert before == after
    assert "Traceback" not in refused.stderr
    assert not was_opened, "the version before can still open its store"
    assert json.loads(done.stdout)["status"] == "completed"
