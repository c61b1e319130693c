"""Single tasks that are watched closely: races of two workers for one call, tools that outlive their timeouts or harm
their worker, tasks that an older worker begins, and tasks that run again after a reset or under the id of a closed one.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError

from activities.boundary.failpoints import Failpoint
from console.exits import Exit
from evals.chaos.fleet import Worker, WorkerUnavailable
from evals.chaos.placed import Cell, Expected
from evals.chaos.stage import OLDER_TOOLS, Stage
from evals.chaos.tasks import Job, ResetPoint, TaskRunner, outcome, reset, single
from evals.chaos.world import read_effects
from workflows.account.records import FaultRecord
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.faults.fault import Code
from workflows.plans.proposal import Answer, NewSteps

TWICE = {"transfer": "transactional", "pay_patiently": "keyed"}
"""The kinds that two workers get at once; a retry of any other kind waits for the first attempt."""
LATE = (Failpoint.BEFORE_CLAIM, Failpoint.AFTER_CLAIM)
OVERDUE = {"pay_late": "completed", "pay_too_late": "escalated"}
"""The kinds whose threads outlive their timeouts, and how their tasks end."""
HARMFUL = {"pay_and_exit": "completed", "pay_and_stop": "completed", "pay_and_ask": "escalated"}
"""The kinds that exit, stop their loop or send a second request after their effect, and how their tasks end."""
OLDER = ("by hand", "planned", "turn by turn")
"""How tasks are planned that an older worker begins."""
RACES = len(TWICE) + len(LATE) + 1 + len(OVERDUE) + len(HARMFUL) + len(OLDER)
"""How many cells `races` returns."""
FREEZE_SECONDS = 60.0
END_SECONDS = 120.0
POLL_SECONDS = 0.05
CUT_SECONDS = 0.1
APART_SECONDS = 1.5
"""How long two workers are cut off from the server, so that neither learns of the other."""
QUERY_TIMEOUT = timedelta(seconds=5)
LAND_SECONDS = 3.0
"""How long a call may take after its worker was let go."""


async def twice(stage: Stage, seed: int, kind: str) -> Cell:
    """Freeze a worker before the claim, and the one that gets the retry, too; let both go at once."""
    race = Race.of(stage, f"twice-{kind}-{seed}", kind)
    cell = Cell(effect=TWICE[kind], point="twice at once", expected=Expected(statuses=("completed",), effects=(1,)))
    breaks = ["--dev", "--break", f"{kind}=freeze@{Failpoint.BEFORE_CLAIM}:1"]
    async with race.recorded(cell), stage.fleet(race.queue, 0) as fleet:
        first = await race.wait_frozen(await fleet.add(*breaks), start=True)
        second = await race.wait_frozen(await fleet.add(*breaks))
        apart = asyncio.create_task(stage.proxy.drop(APART_SECONDS))
        await asyncio.sleep(0)
        for worker in (first, second):
            worker.send(signal.SIGCONT)
        await apart
        await race.wait_settled()
        cell.remark = _wrong_answers(sorted(_outcome(worker) for worker in (first, second)), kind)
    return cell


def _outcome(worker: Worker) -> str:
    """How the one call of a worker ended, by its log."""
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
    ends = [line["outcome"] for line in lines if line.get("event") == "step" and line.get("step") == "s1"]
    return ", ".join(ends) or "nothing"


def _wrong_answers(answers: Sequence[str], kind: str) -> str:
    """What is wrong with two answers; the ledger's second answer is a replayed result."""
    right = ["ok", "replayed"] if kind == "transfer" else ["ok", "ok"]
    return "" if answers == right else f"the two answers were {answers}"


async def late(stage: Stage, seed: int, point: Failpoint) -> Cell:
    """Freeze a worker before an unkeyed call until another worker has made the call, and let it go then."""
    expected = Expected(statuses=("completed",), effects=(1,))
    cell = Cell(effect="unkeyed, with reconcile", point=f"frozen {point}, let go late", expected=expected)
    race = Race.of(stage, f"late-{point}-{seed}", "pay_once")
    return await _let_go_late(race, cell, "--dev", "--break", f"pay_once=freeze@{point}:1")


async def frozen(stage: Stage, seed: int) -> Cell:
    """Freeze a worker after the last deadline check of an unkeyed call, and let it go when the task has ended."""
    expected = Expected(statuses=("completed",), effects=(1, 2))
    cell = Cell(effect="unkeyed", point="stopped between check and send", expected=expected, is_apart=True)
    return await _let_go_late(Race.of(stage, f"frozen-{seed}", "pay_frozen"), cell)


async def overdue(stage: Stage, seed: int, kind: str) -> Cell:
    """Let a thread block past its timeout; `pay_too_late` also past the limit of its attempt."""
    expected = Expected(statuses=(OVERDUE[kind],), effects=(1,))
    where = "past its limit" if OVERDUE[kind] == "escalated" else "past its timeout"
    cell = Cell(effect="unkeyed, in a thread", point=where, expected=expected)
    race = Race.of(stage, f"overdue-{kind}-{seed}", kind)
    async with race.recorded(cell), stage.fleet(race.queue, 1):
        await race.runner.start(race.job)
        await race.wait_settled()
    return cell


async def harmful(stage: Stage, seed: int, kind: str) -> Cell:
    """Call a tool that harms its worker or itself after its effect; the same worker serves the next step."""
    expected = Expected(statuses=(HARMFUL[kind],), effects=(1,))
    cell = Cell(effect="unkeyed", point=kind.removeprefix("pay_and_"), expected=expected)
    race = Race.of(stage, f"harmful-{kind}-{seed}", kind)
    async with race.recorded(cell), stage.fleet(race.queue, 0) as fleet:
        worker = await fleet.add()
        await race.runner.start(race.job)
        await race.wait_settled()
        if not worker.is_alive:
            cell.remark = f"the worker ended with {worker.process.returncode}"
    return cell


async def older(stage: Stage, seed: int, how: str) -> Cell:
    """Begin a task on a worker without its tool, which has served the queue a moment ago and soon does so again."""
    expected = Expected(statuses=("completed",), effects=(1,))
    cell = Cell(effect="transactional", point=f"begun by an older worker, {how}", expected=expected)
    race = Race.of(stage, f"older-{how}-{seed}".replace(" ", "-"), "transfer")
    planner = ["--planner", "offline" if how == "by hand" else _script(stage, race, "s1")]
    newer, before = stage.fleet(race.queue, 0), stage.fleet(race.queue, 0, OLDER_TOOLS)
    async with race.recorded(cell), newer, before:
        (await newer.add(*planner)).send(signal.SIGKILL)
        await before.add(*planner)
        if how == "by hand":
            await race.runner.start(race.job)
        else:
            task = Task(text=race.job.id, strategy="react" if how == "turn by turn" else "plan")
            await stage.client.start_workflow(AgentWorkflow.run, task, id=race.job.id, task_queue=race.queue)
        await race.wait_fault(Code.MISSING_TOOL)
        await newer.add(*planner)
        await race.wait_closed()
    return cell


async def _let_go_late(race: "Race", cell: Cell, *breaks: str) -> Cell:
    async with race.recorded(cell), race.stage.fleet(race.queue, 0) as fleet:
        first = await race.wait_frozen(await fleet.add(*breaks), start=True)
        await fleet.add()
        await race.wait_closed()
        first.send(signal.SIGCONT)
        await race.wait_settled()
    return cell


@dataclass(frozen=True)
class Race:
    """One task of one step."""

    stage: Stage
    kind: str
    job: Job
    runner: TaskRunner

    @classmethod
    def of(cls, stage: Stage, id: str, kind: str, queue: str | None = None) -> "Race":
        """The task `id` of a kind; without a `queue` it has its own."""
        job = single(id.replace("_", "-"), kind)
        return cls(stage, kind, job, TaskRunner(stage.client, queue or job.id, [job], 1, lambda: None))

    @property
    def queue(self) -> str:
        """Its workers' task queue."""
        return self.runner.queue

    async def wait_frozen(self, worker: Worker, *, start: bool = False) -> Worker:
        """Wait until a worker has frozen itself, and cut its connection, so that the server gives it no more work.

        Raises:
            TimeoutError: it did not freeze.
        """
        if start:
            await self.runner.start(self.job)
        async with asyncio.timeout(FREEZE_SECONDS):
            while not worker.is_stopped:  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(POLL_SECONDS)
        await self.stage.proxy.drop(CUT_SECONDS)
        return worker

    async def wait_fault(self, code: Code) -> None:
        """Wait until one of the workflow's own calls has failed with this code. Raises TimeoutError."""
        async with asyncio.timeout(END_SECONDS):
            while not any(fault.code is code for fault in await self._own_faults()):  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)

    async def _own_faults(self) -> Sequence[FaultRecord]:
        with suppress(RPCError, WorkflowQueryFailedError):
            return (
                await self.runner.handle(self.job).query(AgentWorkflow.progress, rpc_timeout=QUERY_TIMEOUT)
            ).own_faults
        return ()

    async def wait_closed(self) -> None:
        """Wait until the task has ended. Raises TimeoutError."""
        await asyncio.wait_for(self.runner.wait_closed(self.job), END_SECONDS)

    async def wait_settled(self) -> None:
        """Wait until the task and all its calls have ended. Raises TimeoutError."""
        await self.wait_closed()
        await asyncio.sleep(LAND_SECONDS)

    @asynccontextmanager
    async def recorded(self, cell: Cell) -> AsyncIterator[None]:
        """Add to the cell what became of the task, or that it took too long."""
        try:
            yield
        except (TimeoutError, WorkerUnavailable) as problem:
            cell.remark = f"given up: {problem or type(problem).__name__}"
            return
        happened = await read_effects(self.stage.databases.bank, self.stage.book)
        ended = await outcome(self.runner.handle(self.job))
        cell.ended.append(str(ended.status) if ended else "unfinished")
        cell.effects.append(happened.count(self.kind, self.job.reference("s1")))


async def races(stage: Stage, seed: int, changed: Callable[[], None]) -> list[Cell]:
    """Run all races; `changed` is called after each."""
    cells = list[Cell]()
    doubled = (twice(stage, seed, kind) for kind in TWICE)
    blocked = (overdue(stage, seed, kind) for kind in OVERDUE)
    harming = (harmful(stage, seed, kind) for kind in HARMFUL)
    begun = (older(stage, seed, how) for how in OLDER)
    lately = (late(stage, seed, point) for point in LATE)
    for race in (*doubled, *lately, frozen(stage, seed), *blocked, *harming, *begun):
        cells.append(await race)
        changed()
    return cells


KINDS_RUN_AGAIN = {
    "set_limit": "idempotent",
    "pay": "keyed",
    "pay_strictly": "keyed, second call refused",
    "transfer": "transactional",
    "pay_once": "unkeyed, with reconcile",
    "pay_blindly": "unkeyed, without",
}
ANEW = {"transfer": "move_back", "pay": "refund"}
"""The kinds that a planner plans again under another id, and what undoes them."""
LIVES = len(KINDS_RUN_AGAIN) * (len(ResetPoint) + 1) + 2 * len(ANEW)
"""How many cells `lives` returns."""


async def lives(
    stage: Stage, seed: int, changed: Callable[[], None], kinds: Collection[str] = KINDS_RUN_AGAIN
) -> list[Cell]:
    """Run tasks of these kinds again; `changed` is called after each."""
    cells = list[Cell]()
    async with stage.fleet("lives", 1):
        for kind in kinds:
            for point in (*ResetPoint, None):
                cells.append(await (_reset(stage, seed, kind, point) if point else _reused(stage, seed, kind)))
                changed()
    for kind in ANEW.keys() & set(kinds):
        for is_undone in (False, True):
            cells.append(await _planned_anew(stage, seed, kind, is_undone=is_undone))
            changed()
    return cells


async def _reset(stage: Stage, seed: int, kind: str, point: ResetPoint) -> Cell:
    """A closed task is reset: it runs again, and its effect happens once."""
    race = Race.of(stage, f"{point}-{seed}-{kind}".replace(" ", "-"), kind, "lives")
    cell = Cell(
        effect=KINDS_RUN_AGAIN[kind], point=f"reset {point}", expected=Expected(statuses=("completed",), effects=(1,))
    )
    async with race.recorded(cell):
        await race.runner.start(race.job)
        await race.wait_closed()
        if not await reset(stage.client, race.job.id, point):
            cell.remark = "there was nothing to reset to"
        await race.wait_closed()
    return cell


async def _reused(stage: Stage, seed: int, kind: str) -> Cell:
    """A new task under the same id has an effect of its own."""
    race = Race.of(stage, f"reused-{seed}-{kind}", kind, "lives")
    effects = (1,) if kind == "set_limit" else (2,)  # a limit that is set twice is set
    expected = Expected(statuses=("completed",), effects=effects)
    cell = Cell(effect=KINDS_RUN_AGAIN[kind], point="a new task with its id", expected=expected)
    async with race.recorded(cell):
        for _ in range(2):
            await race.runner.start(race.job)
            await race.wait_closed()
    return cell


async def _planned_anew(stage: Stage, seed: int, kind: str, *, is_undone: bool) -> Cell:
    """A task is reset to before its plan, and its planner names the step `again`: refused, or undone first."""
    point, effects = ("reset --undo", 2) if is_undone else ("reset, refused", 1)
    cell = Cell(
        effect=KINDS_RUN_AGAIN[kind], point=point, expected=Expected(statuses=("completed",), effects=(effects,))
    )
    race = Race.of(stage, f"anew-{seed}-{kind}{'-undo' * is_undone}", kind)
    async with race.recorded(cell), stage.fleet(race.queue, 0) as fleet:
        first = await fleet.add("--planner", _script(stage, race, "s1"))
        task = Task(text=race.job.id)
        await stage.client.start_workflow(AgentWorkflow.run, task, id=race.job.id, task_queue=race.queue)
        await race.wait_closed()
        first.send(signal.SIGKILL)
        await fleet.add("--planner", _script(stage, race, "again"))
        code = await fleet.starter("reset", race.job.id, "--to", "catalogue", *["--undo"] * is_undone)
        await race.wait_closed()
        if (code == Exit.COMPLETED) is not is_undone:
            cell.remark = f"reset ended with {code}"
    happened = await read_effects(stage.databases.bank, stage.book)
    if happened.count(ANEW[kind], race.job.reference("s1")) != is_undone:
        cell.remark = f"{cell.remark} the first effect was{' not' * is_undone} undone".strip()
    return cell


def _script(stage: Stage, race: Race, id: str) -> str:
    """A scripted planner that gives the task's first step this id."""
    step = race.job.steps[0].model_copy(update={"id": id})
    script = [NewSteps(steps=(step,)), Answer(result="done")]
    file = stage.folder / f"{race.job.id}-{id}.json"
    file.write_text(json.dumps([proposal.model_dump(mode="json") for proposal in script]))
    return f"scripted:{file}"
