"""Workers that die or freeze again and again under one payment: its attempts stay for what the service does."""

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import Client

from runtime.dev_server import DevServer
from tests.crash.test_crash import Workers, ended_under, noted, start
from tests.harness import DONE, outcome, plan, step
from workflows.account.task import TaskStatus
from workflows.faults import retries

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


def paying(server: DevServer, folder: Path, **how: JsonValue) -> tuple[Workers, Path]:
    """Workers whose tasks make one payment, and the file in which it is noted."""
    pay = plan(step("pay", "pay", file=str(folder / "notes"), word="pay", **how))
    return Workers(server.address, folder, [pay, DONE]), folder / "notes"


async def test_a_payment_survives_as_many_losses_as_are_free(client: Client, server: DevServer, tmp_path: Path) -> None:
    """Five workers are killed under a payment with a key: it is made, and none of its attempts was used up before."""
    workers, notes = paying(server, tmp_path, patience=retries.MAX_LOSSES)
    ended = await outcome(await ended_under(client, workers, notes, "pay", retries.MAX_LOSSES))

    assert (ended.status, ended.steps[0].attempts) == (TaskStatus.COMPLETED, 1)
    assert [fault.code for fault in ended.faults] == ["worker_lost"] * retries.MAX_LOSSES


async def test_a_tool_that_kills_its_workers_is_for_a_person(client: Client, server: DevServer, tmp_path: Path) -> None:
    """After the free losses the task ends with `worker_lost`, and names the key to look for."""
    workers, notes = paying(server, tmp_path, patience=99)
    handle = await ended_under(client, workers, notes, "pay", retries.MAX_LOSSES + 1)
    ended = await outcome(handle)

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "worker_lost")
    assert f"{handle.first_execution_run_id}/pay" in ended.reason


@pytest.mark.parametrize(("count", "seconds"), [(1, 9), (2, 25)])
async def test_a_payment_survives_workers_that_get_no_processor_for_a_while(
    client: Client, server: DevServer, tmp_path: Path, count: int, seconds: float
) -> None:
    """One is stopped for 9 s in the middle of it, as on a machine with a load of 20: it is not lost, and the call is
    made once. Two are stopped for 25 s: the attempts are not used up.
    """
    workers, notes = paying(server, tmp_path, seconds=3)
    with ExitStack() as stack:
        stopped = [stack.enter_context(workers.one()) for _ in range(count)]
        handle = await start(client, workers.queue)
        await noted(notes, "pay", 1)
        for worker in stopped:
            worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        for worker in stopped:
            worker.send_signal(signal.SIGCONT)
        ended = await outcome(handle)

    assert (ended.status, ended.steps[0].attempts) == (TaskStatus.COMPLETED, 1)
    if count == 1:
        assert ended.faults == () and len(notes.read_text().splitlines()) == 1
