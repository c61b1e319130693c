"""The situations as tasks: a worker is killed in a step, or its call fails; another worker goes on."""

import asyncio
import json
import sqlite3
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from temporalio.client import Client

from evals.chaos.fleet import ROOT, Fleet
from evals.chaos.stage import Server
from evals.chaos.tasks import outcome
from evals.situations.situation import SITUATIONS, Act, End, end_of
from runtime.client import connect
from runtime.dev_server import free_port
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import Answer, NewSteps, Proposal, Step

TOOLS = ROOT / "lab" / "evals" / "situations" / "task_tools.py"
REWORDED, REJECTED = 3, 6
PLAYED = [number for number in SITUATIONS if number != REWORDED]
"""In a task the model's turn is recorded: a step that is repeated is the same step, and no model words it anew."""
SECONDS = 180.0


class TaskArm(NamedTuple):
    """The tool of the task."""

    has_reconcile: bool

    def __str__(self) -> str:
        return f"tasks, {'with' if self.has_reconcile else 'without'} reconcile"


TASK_ARMS = (TaskArm(True), TaskArm(False))


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Server, Client]]:
    """A server and its client."""
    (folder / "server").mkdir()
    async with Server(folder / "server", free_port()) as server:
        yield server, await connect(address=server.address)


async def cell(number: int, arm: TaskArm, runs: int, folder: Path, server: Server, client: Client) -> Counter[End]:
    """What so many tasks of a situation come to, one after the other."""
    place = folder / f"tasks-{number}-{arm.has_reconcile}"
    place.mkdir()
    script, queue = place / "script.json", f"situation-{uuid.uuid4().hex[:8]}"
    script.write_text(json.dumps([proposal.model_dump(mode="json") for proposal in _proposals(number, arm)]))
    options = ["--tools", str(TOOLS), "--planner", f"scripted:{script}", "--queue", queue]
    environment = {
        "TEMPORAL_ADDRESS": server.address,
        "REPLAN_STATE": str(place / "state"),
        "SITUATION": str(place),
        "PYTHONPATH": str(ROOT),
    }
    ends = Counter[End]()
    async with Fleet(place, options, environment, 1):
        for run in range(runs):
            (place / "acts").write_text("\n".join(call.act for call in SITUATIONS[number].calls if call.act != Act.OK))
            before = _effects(place)
            handle = await client.start_workflow(
                AgentWorkflow.run, Task(text="charge"), id=f"{queue}-{run}", task_queue=queue
            )
            ended = await asyncio.wait_for(outcome(handle), SECONDS)
            ends[_end(number, ended, _effects(place) - before)] += 1
            (place / "book").unlink(missing_ok=True)  # what one task has charged is no charge of the next one
    return ends


def _end(number: int, ended: Outcome | None, effects: int) -> End:
    if ended is None or ended.status not in (TaskStatus.COMPLETED, TaskStatus.ESCALATED):
        return End.WRONG
    return end_of(effects, SITUATIONS[number].wanted, is_asked=ended.status is TaskStatus.ESCALATED)


def _proposals(number: int, arm: TaskArm) -> list[Proposal]:
    kind, calls = "charge" if arm.has_reconcile else "charge_blindly", SITUATIONS[number].calls
    meant = [call for call in calls if not call.is_again]
    steps = [
        Step(id=f"s{place}", kind=kind, args={"customer": "cus_1", "amount": 500, "note": call.note})
        for place, call in enumerate(meant, 1)
    ]
    turns = [[step] for step in steps] if number == REJECTED else [steps]
    return [*(NewSteps(steps=tuple(turn)) for turn in turns), Answer(result="done")]


def _effects(place: Path) -> int:
    with sqlite3.connect(place / "book") as book:
        book.execute("CREATE TABLE IF NOT EXISTS charges (customer TEXT, amount INTEGER, note TEXT)")
        return int(book.execute("SELECT count(*) FROM charges").fetchone()[0])
