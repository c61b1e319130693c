"""Approved calls whose worker is killed: each is made once, as it was approved."""

import asyncio
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from activities.boundary.failpoints import Failpoint
from runtime.dev_server import DevServer
from tests.crash.test_crash import Workers
from tests.harness import DONE, outcome, plan, step
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow

PLANNED, EDITED = 900, 700


async def asking(client: Client, workers: Workers, number: int) -> WorkflowHandle[AgentWorkflow, Outcome]:
    """Start a task that waits for an approval."""
    task = Task(text=f"order {number}", on_escalation="wait")
    return await client.start_workflow(
        AgentWorkflow.run, task, id=f"{workers.queue}-{number}", task_queue=workers.queue
    )


async def code(handle: WorkflowHandle[AgentWorkflow, Outcome]) -> str:
    """The code of the call that a task asks about, as soon as it asks."""
    while True:
        progress = await handle.query(AgentWorkflow.progress)
        if progress.requests and progress.requests[0].call:
            return progress.requests[0].call.code
        await asyncio.sleep(0.1)


async def answer(handle: WorkflowHandle[AgentWorkflow, Outcome], choice: str, given: dict[str, Any]) -> None:
    """Answer once, however often the worker is killed meanwhile."""
    await handle.execute_update(choice, {"request": "r1", **given}, id="r1-answer")


CASES = [(kind, failpoint, rounds) for rounds in (1, 5) for kind in ("order", "spend") for failpoint in Failpoint]
QUICK = ("order", Failpoint.AFTER_CLAIM, 1)


@pytest.mark.parametrize(
    ("kind", "failpoint", "rounds"),
    [pytest.param(*case, marks=() if case == QUICK else pytest.mark.full) for case in CASES],
)
@pytest.mark.timeout(600)
async def test_what_was_approved_is_done_once(
    client: Client, server: DevServer, tmp_path: Path, kind: str, failpoint: Failpoint, rounds: int
) -> None:
    """No effect twice, none lost, none with other arguments than those that a person saw or wrote."""
    done = tmp_path / "done"
    steps = plan(step("bought", kind, item="desk", amount=PLANNED, file=str(done)))
    expected = Counter[str]()
    handles = list[WorkflowHandle[AgentWorkflow, Outcome]]()
    for round_ in range(rounds):
        workers = Workers(server.address, tmp_path, [steps, DONE])
        with workers.one("--dev", "--break", f"{kind}=die@{failpoint}:1") as dying:
            new = [await asking(client, workers, number) for number in range(5)]
            codes = [await code(handle) for handle in new]
            answers = list[asyncio.Task[None]]()
            for number, (handle, shown) in enumerate(zip(new, codes, strict=True)):
                is_edited = number % 2 == 1
                more = {"args": {"amount": EDITED}} if is_edited else {}
                given = {"call": shown, "by": "ann", **more}
                answers.append(asyncio.create_task(answer(handle, "edit" if is_edited else "approve", given)))
                whose = handle.id if kind == "spend" else f"{(await handle.describe()).run_id}/bought"
                expected[f"{whose} {EDITED if is_edited else PLANNED}"] = 1
            assert await asyncio.to_thread(dying.wait, 60) == -signal.SIGKILL
        with workers.one():
            await asyncio.gather(*answers)
            for handle in new:
                assert (await outcome(handle)).status is TaskStatus.COMPLETED, (round_, handle.id)
        handles += new

    assert applied(kind, tmp_path) == expected


def applied(kind: str, folder: Path) -> Counter[str]:
    """How often each effect was applied; the service of the keyed one applies each key once."""
    if kind == "order":
        return Counter({*(folder / "done").read_text().splitlines()})
    with closing(sqlite3.connect(folder / "state" / "store.db")) as store:
        return Counter(word for (word,) in store.execute("SELECT word FROM crash_entries"))
