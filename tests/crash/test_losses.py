"""Workers that die or freeze again and again under one payment: its attempts stay for what the service does."""

import asyncio
import signal
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHandle

from runtime.dev_server import DevServer
from tests.crash.test_crash import Workers, noted, start
from tests.harness import DONE, outcome, plan, step
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.agent import AgentWorkflow
from workflows.faults import retries


async def killed(client: Client, workers: Workers, notes: Path, times: int) -> WorkflowHandle[AgentWorkflow, Outcome]:
    """A task that has ended, after so many workers were killed under its payment."""
    handle = None
    for number in range(1, times + 1):
        with workers.one() as worker:
            handle = handle or await start(client, workers.queue)
            await noted(notes, "pay", number)
            worker.kill()
    assert handle is not None
    with workers.one():
        await outcome(handle)
    return handle


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_a_payment_survives_as_many_losses_as_are_free(client: Client, server: DevServer, tmp_path: Path) -> None:
    """Five workers are killed under a payment with a key: it is made, and none of its attempts was used up before."""
    notes = tmp_path / "notes"
    pay = plan(step("pay", "pay", file=str(notes), word="pay", patience=retries.MAX_LOSSES))
    handle = await killed(client, Workers(server.address, tmp_path, [pay, DONE]), notes, retries.MAX_LOSSES)
    ended = await outcome(handle)

    assert (ended.status, ended.steps[0].attempts) == (TaskStatus.COMPLETED, 1)
    assert [fault.code for fault in ended.faults] == ["worker_lost"] * retries.MAX_LOSSES


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_a_tool_that_kills_its_workers_is_for_a_person(client: Client, server: DevServer, tmp_path: Path) -> None:
    """After the free losses the task ends with `worker_lost`, and names the key to look for."""
    notes = tmp_path / "notes"
    pay = plan(step("pay", "pay", file=str(notes), word="pay", patience=99))
    handle = await killed(client, Workers(server.address, tmp_path, [pay, DONE]), notes, retries.MAX_LOSSES + 1)
    ended = await outcome(handle)

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "worker_lost")
    assert f"{handle.first_execution_run_id}/pay" in ended.reason


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_worker_that_gets_no_processor_for_a_while_is_not_lost(
    client: Client, server: DevServer, tmp_path: Path
) -> None:
    """It is stopped for 9 s in the middle of a payment, as on a machine with a load of 20: the call is made once."""
    notes = tmp_path / "notes"
    pay = plan(step("pay", "pay", file=str(notes), word="pay", seconds=3))
    workers = Workers(server.address, tmp_path, [pay, DONE])
    with workers.one() as worker:
        handle = await start(client, workers.queue)
        await noted(notes, "pay", 1)
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(9)
        worker.send_signal(signal.SIGCONT)
        ended = await outcome(handle)

    assert (ended.status, ended.faults) == (TaskStatus.COMPLETED, ())
    assert len(notes.read_text().splitlines()) == 1


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_a_payment_survives_two_frozen_workers(client: Client, server: DevServer, tmp_path: Path) -> None:
    """Both workers are stopped for 25 s in the middle of a payment: its attempts are not used up."""
    notes = tmp_path / "notes"
    pay = plan(step("pay", "pay", file=str(notes), word="pay", seconds=3))
    workers = Workers(server.address, tmp_path, [pay, DONE])
    with workers.one() as first, workers.one() as second:
        handle = await start(client, workers.queue)
        await noted(notes, "pay", 1)
        for worker in (first, second):
            worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(25)
        for worker in (first, second):
            worker.send_signal(signal.SIGCONT)
        ended = await outcome(handle)

    assert (ended.status, ended.steps[0].attempts) == (TaskStatus.COMPLETED, 1)
