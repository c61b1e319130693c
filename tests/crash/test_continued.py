"""Killing workers just when a long task goes on in a new run."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from temporalio.client import WorkflowHandle

from runtime.client import connect
from runtime.dev_server import DevServer
from tests.crash.test_crash import Workers, chain, start
from tests.harness import DONE, outcome
from tests.workflows.history import calls
from tests.workflows.test_agent_long import EARLY, runs
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.agent import AgentWorkflow


async def another_run(handle: WorkflowHandle[AgentWorkflow, Outcome], known: set[str | None]) -> None:
    """Wait until the task goes on in a run that is not among the known ones, and add that."""
    while (run := (await handle.describe()).run_id) in known:
        await asyncio.sleep(0.01)
    known.add(run)


@pytest.mark.parametrize("own_server", [EARLY], indirect=True)
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.full)])
@pytest.mark.timeout(180)
async def test_a_worker_killed_as_a_new_run_begins_loses_nothing(
    own_server: DevServer, tmp_path: Path, kills: int
) -> None:
    """As often, at the first sign of the new run: the task completes, no step is scheduled twice."""
    notes, words = tmp_path / "notes", [f"w{number}" for number in range(2 * (kills + 1))]
    client = await connect(address=own_server.address, plain=True)
    plans = [chain(notes, word, seconds=0.1) for word in words]
    workers = Workers(own_server.address, tmp_path, [*plans, DONE])
    handle = await start(client, workers.queue)
    known: set[str | None] = {handle.first_execution_run_id}
    latest: WorkflowHandle[AgentWorkflow, Outcome] = client.get_workflow_handle(handle.id, result_type=Outcome)
    for _ in range(kills):
        with workers.one() as worker:
            await another_run(latest, known)
            worker.kill()
    with workers.one():
        ended = await outcome(latest)
    parts = await runs(client, handle)
    scheduled = Counter([call.id for part in parts for call in await calls(part) if call.kind == "note"])

    assert (ended.status, len(ended.steps)) == (TaskStatus.COMPLETED, len(words))
    assert scheduled == dict.fromkeys(words, 1) and len(parts) > kills
