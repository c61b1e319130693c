"""Replan beside workflows of a user's own, in one process with one connection, whose codec encrypts."""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient, WorkflowHistory
from temporalio.worker import Replayer, Worker

from activities.toolbox.registry import ToolMistakes
from client.client import Client
from replan.plugin import Replan
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.own_worker import CONVERTER, QUEUE, OrderWorkflow, charge, confirm, plugin
from tests.processes import ROOT
from workflows.account import search_attributes


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[DevServer]:
    spec = ServerSpec(tmp_path / "server", port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        yield running


@pytest.fixture
async def theirs(own_server: DevServer) -> TemporalClient:
    return await TemporalClient.connect(own_server.address, data_converter=CONVERTER)


async def test_one_worker_serves_both(theirs: TemporalClient, tmp_path: Path) -> None:
    both = plugin(tmp_path / "state")
    file = str(tmp_path / "calls")
    async with Worker(
        theirs, task_queue=QUEUE, workflows=[OrderWorkflow], activities=[confirm], plugins=[both]
    ) as worker:
        order = await theirs.start_workflow(OrderWorkflow.run, args=[40, file], id="order-1", task_queue=QUEUE)
        done = await order.result()
        outcome = await Client(theirs).run("calculate 18% of 2450")
        histories = [
            await theirs.get_workflow_handle(id).fetch_history()
            for id in ("order-1", "order-1-payment", outcome.task_id)
        ]

    assert (worker.client, done) == (theirs, "confirmed: completed 40")
    assert outcome.result == "18% of 2450 = 441."
    replayer = Replayer(workflows=[OrderWorkflow], plugins=[both], data_converter=CONVERTER)
    replayed = await replayer.replay_workflows(each(histories), raise_on_replay_failure=False)
    assert replayed.replay_failures == {}


async def each(histories: list[WorkflowHistory]) -> AsyncIterator[WorkflowHistory]:
    for one in histories:
        yield one


@contextmanager
def running(words: Sequence[str], address: str, folder: Path = ROOT) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TEMPORAL_ADDRESS": address, "PYTHONPATH": str(folder)}
    with subprocess.Popen(words, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_what_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ToolMistakes, match="another tool has this name already"):
        Replan([charge, charge.__class__(charge, None, charge.options)], state=tmp_path)
    with pytest.raises(TypeError, match="no_such"):
        Replan([charge], state=tmp_path, no_such=1)
    with pytest.raises(TypeError, match="give the SDK's Runtime of your program metrics="):
        Replan([charge], state=tmp_path, metrics="9464")
