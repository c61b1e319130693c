"""Runs arms on a tape: real workflows on one server, each arm with a world and a worker of its own."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client as TemporalClient, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import TimeoutError as TemporalTimeout

from evals.fakes.model_api import running
from evals.retry_waste.arms import Arm
from evals.retry_waste.bare import PLAN, REACT, BareInput, BareOutcome
from evals.retry_waste.measures import Own, Row, count, verdict
from evals.retry_waste.mind import PlannerApi, scripted
from evals.retry_waste.orders import Order, orders
from evals.retry_waste.tools import SEPARATOR
from evals.retry_waste.worker import WorkerJob
from evals.tape.desk import State
from evals.tape.player import ROOT, Played, playing
from evals.tape.tape import Point, Tape
from replan import Client, TaskNotCompleted
from runtime.child import end, last_line, spawn
from runtime.client import connect
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.json_values import digest
from workflows.limits.budget import Limits

POLL_SECONDS = 0.1
START_SECONDS = 120.0
HUGE_WINDOW = 10**9
"""Tokens: the scripted model then counts the tokens of each request instead of saying always the same number."""
GRACE_SECONDS = 15.0
"""After its deadline, until a task that does not end is counted as cut off."""


class TrialBroken(RuntimeError):
    """A worker did not start; the message has the last line of its log."""


class Setting(BaseModel, frozen=True):
    """What all arms of a seed share."""

    tape: Tape
    hallucination: float = 0.28
    tasks: int = 16
    every: float = 1.5
    """Seconds from one task's start to the next one's."""
    deadline: float = 60.0
    """Seconds that a task may take."""

    @property
    def digest(self) -> str:
        """The same for all seeds of this setting."""
        return digest(self.model_dump(mode="json", exclude={"tape": {"seed"}}))

    @property
    def seconds(self) -> float:
        """How long an arm takes at most."""
        return self.every * self.tasks + self.deadline + GRACE_SECONDS


async def play(address: str, folder: Path, arm: Arm, setting: Setting, ended: Callable[[], None]) -> list[Row]:
    """Carry out all orders of a seed in an arm; `ended` is called after each. Raises TrialBroken, TapeNotPlayed."""
    planned = {order.task: order for order in orders(setting.tape, setting.tasks)}
    api = PlannerApi([scripted(planned, setting.hallucination)], window=HUGE_WINDOW)
    (folder / "state").mkdir(parents=True)
    async with playing(folder, setting.tape) as played, running(api):
        queue = f"{arm.name}-{setting.tape.seed}"
        names = {"address": address, "world": played.url, "model": api.url, "queue": queue}
        job = WorkerJob(arm=arm, **names, state=folder / "state")
        async with _worker(folder, job, played):
            await played.begin()
            owns = await _owns(address, job, setting, planned, ended)
        entries = played.world.entries()
        states = {task: played.world.state(task) for task in planned}
    if api.violations:
        raise TrialBroken(f"A request broke the rules of the provider: {api.violations[0]}")
    rows = []
    for task, order in planned.items():
        mine = [entry for entry in entries if entry.task == task]
        found, duplicates = verdict(order, states[task], mine, owns[task].claim)
        rows.append(
            Row(
                arm=arm.name,
                seed=setting.tape.seed,
                task=task,
                setting=setting.digest,
                verdict=found,
                duplicates=duplicates,
                own=owns[task],
                calls=count(mine),
            )
        )
    return rows


@asynccontextmanager
async def _worker(folder: Path, job: WorkerJob, played: Played[State]) -> AsyncIterator[None]:
    """Keep a worker running; kill it where the tape says, and start another one. Raises TrialBroken."""
    file = folder / "job.json"
    file.write_text(job.model_dump_json())
    processes = list[subprocess.Popen[bytes]]()

    def start() -> Path:
        log = folder / f"worker-{len(processes)}.log"
        command = [sys.executable, "-m", "evals.retry_waste.worker", str(file)]
        processes.append(spawn(command, log, environment={**os.environ, "PYTHONPATH": str(ROOT)}))
        return log

    async def keep() -> None:
        seen = 0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for entry in await asyncio.to_thread(played.world.entries, seen):
                seen = entry.id
                is_kill = entry.point in (Point.KILL_BEFORE, Point.KILL_AFTER)
                if is_kill and entry.worker == processes[-1].pid:
                    with suppress(ProcessLookupError):
                        os.kill(entry.worker, signal.SIGKILL)
                    start()

    try:
        await ready(start(), processes[-1])
        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
    finally:
        await asyncio.gather(*(end(process, grace=0.5) for process in processes))


async def ready(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a worker has written `ready` into its log. Raises TrialBroken."""
    for _ in range(int(START_SECONDS / POLL_SECONDS)):
        if process.poll() is not None:
            break
        if _is_ready(log):
            return
        await asyncio.sleep(POLL_SECONDS)
    raise TrialBroken(f"A worker did not start ({last_line(log)}): look into {log}.")


def _is_ready(log: Path) -> bool:
    return "ready" in log.read_text(errors="replace").split()


async def _owns(
    address: str, job: WorkerJob, setting: Setting, planned: Mapping[str, Order], ended: Callable[[], None]
) -> Mapping[str, Own]:
    """Start each order at its time, and wait for how it ends."""
    client = await TemporalClient.connect(address, data_converter=pydantic_data_converter)
    replan = Client(await connect(address=address, plain=True), queue=job.queue)

    async def one(number: int, order: Order) -> Own:
        await asyncio.sleep(number * setting.every)
        id = f"{job.queue}{SEPARATOR}{order.task}"
        run = (
            _run_replan(replan, id, job.arm, setting, order)
            if job.arm.how == "replan"
            else _run_bare(client, id, job, setting, order)
        )
        own = await run
        ended()
        return await _with_size(client, id, own)

    found = await asyncio.gather(*(one(number, order) for number, order in enumerate(planned.values())))
    return dict(zip(planned, found, strict=True))


async def _run_bare(client: TemporalClient, id: str, job: WorkerJob, setting: Setting, order: Order) -> Own:
    given = BareInput(arm=job.arm, order=order, hallucination=setting.hallucination)
    begin, deadline = asyncio.get_running_loop().time(), timedelta(seconds=setting.deadline)
    name = REACT if job.arm.how == "react" else PLAN
    handle: WorkflowHandle[Any, BareOutcome] = await client.start_workflow(
        name, given, id=id, task_queue=job.queue, execution_timeout=deadline, result_type=BareOutcome
    )
    try:
        outcome = await handle.result()
    except WorkflowFailureError as error:
        claim = "none" if isinstance(error.cause, TemporalTimeout) else "failed"
        seconds = asyncio.get_running_loop().time() - begin
        return Own.model_validate({"claim": claim, "seconds": seconds, "reason": str(error.cause)})
    return Own(
        claim="done" if outcome.is_done else "failed",
        seconds=asyncio.get_running_loop().time() - begin,
        model_calls=outcome.model_calls,
        tokens=outcome.tokens,
        reason=outcome.reason,
    )


async def _run_replan(client: Client, id: str, arm: Arm, setting: Setting, order: Order) -> Own:
    limits = Limits(deadline=setting.deadline, **({} if arm.replans is None else {"replans": arm.replans}))
    begin = asyncio.get_running_loop().time()
    handle = await client.start(Task(text=order.text, limits=limits), id=id)
    outcome: Outcome | None = None
    try:
        async with asyncio.timeout(setting.deadline + GRACE_SECONDS):
            outcome = await handle.result()
    except TaskNotCompleted as error:
        outcome = error.outcome
    except TimeoutError:
        outcome = None
    seconds = asyncio.get_running_loop().time() - begin
    if outcome is None:
        return Own(claim="none", seconds=seconds)
    is_late = outcome.status is TaskStatus.OVER_BUDGET and outcome.code == "deadline"
    return Own(
        claim="done" if outcome.status is TaskStatus.COMPLETED else "none" if is_late else "failed",
        seconds=seconds,
        model_calls=outcome.spent.model_calls,
        tokens=outcome.spent.tokens,
        replans=outcome.replans,
        reason=outcome.reason,
    )


async def _with_size(client: TemporalClient, id: str, own: Own) -> Own:
    """Add what the server says of the history."""
    info = (await client.get_workflow_handle(id).describe()).raw_description.workflow_execution_info
    return own.model_copy(update={"events": info.history_length, "bytes": info.history_size_bytes})


async def play_seed(
    address: str,
    folder: Path,
    arms: Sequence[Arm],
    setting: Setting,
    ended: Callable[[], None],
    keep: Callable[[Sequence[Row]], None],
) -> None:
    """All arms of a seed, at the same time: each has the same load beside it. `keep` gets the rows of each arm.

    Raises:
        TrialBroken, TapeNotPlayed: an arm cannot be run.
    """

    async def one(arm: Arm) -> None:
        keep(await play(address, folder / arm.name, arm, setting, ended))

    async with asyncio.TaskGroup() as group:
        for arm in arms:
            group.create_task(one(arm))
