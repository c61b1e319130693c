"""Workers that end in the middle of pure steps: the workflow task is repeated elsewhere, and no step is lost."""

import asyncio
import signal
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import Client

from runtime.dev_server import DevServer
from tests.crash.test_crash import Workers, noted, start
from tests.harness import DONE, outcome, plan, step
from workflows.account.task import TaskStatus
from workflows.plans.proposal import NewSteps


def thoughts(notes: Path, count: int) -> NewSteps:
    """A plan of pure steps in sequence, half a second each."""
    words = [f"s{number}" for number in range(count)]
    args: dict[str, JsonValue] = {"file": str(notes), "seconds": 0.5}
    return plan(*(step(word, "ponder", *words[max(0, i - 1) : i], word=word, **args) for i, word in enumerate(words)))


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
async def test_pure_steps_survive_their_worker(
    client: Client, server: DevServer, tmp_path: Path, number: signal.Signals
) -> None:
    """One that is killed has recorded nothing, so they run again; one that shuts down ends them or hands them over."""
    notes = tmp_path / "notes"
    workers = Workers(server.address, tmp_path, [thoughts(notes, 4), DONE])
    with workers.one() as first:
        handle = await start(client, workers.queue)
        await noted(notes, "s1", 1)
        first.send_signal(number)
        await asyncio.to_thread(first.wait, 30)
    with workers.one():
        ended = await outcome(handle)

    ran = notes.read_text().split()
    assert (ended.status, [one.attempts for one in ended.steps]) == (TaskStatus.COMPLETED, [1] * 4)
    assert ran.count("s0") == (2 if number is signal.SIGKILL else 1)
