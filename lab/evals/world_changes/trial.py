"""Runs scenarios as real workflows: one server, one world, and workers that are processes of their own."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from evals.fakes.model_api import MODEL, running
from evals.retry_waste.mind import PlannerApi
from evals.retry_waste.trial import HUGE_WINDOW, TrialBroken, ready
from evals.tape.player import ROOT, Played, played_by
from evals.tape.world import Entry
from evals.world_changes.families import Scene
from evals.world_changes.judge import Past, Ran, broken
from evals.world_changes.minds import Planner, repeats, scripted
from evals.world_changes.scenario import SECOND, SEPARATOR, Deploy, Event, Plotted, Property, Scenario, ScenarioPlot
from evals.world_changes.worker import ServedRun, ServedRuns
from replan import Client, TaskNotCompleted
from runtime.child import end, spawn
from runtime.client import connect
from workflows.account.task import Task

GRACE_SECONDS = 60.0
"""After its deadline, until a task that does not end is given up."""
POLL_SECONDS = 0.2
AT_ONCE = 8
"""The most runs of a worker."""
DEPLOYS_AT_ONCE = 3


class Planned(NamedTuple):
    """A scenario to be run once."""

    scenario: Scenario
    planner: str
    repeat: int = 0
    mutation: str | None = None

    @property
    def id(self) -> str:
        """Of its workflow; the world knows the scenario by its beginning."""
        planner = re.sub(r"[^a-z0-9-]+", "-", self.planner.lower())
        mutation = f".{self.mutation}" if self.mutation else ""
        return f"{self.scenario.name}{SEPARATOR}{planner}{SEPARATOR}{self.repeat}{mutation}"

    @property
    def key(self) -> tuple[str, str, str, int, str | None]:
        """What its row is known by."""
        return self.scenario.name, self.scenario.digest, self.planner, self.repeat, self.mutation

    @property
    def task(self) -> Task:
        """What is asked; a scripted model is told which run it is."""
        scenario, is_by_hand = self.scenario, self.planner == Planner.BY_HAND
        is_scripted = self.planner in list(Planner) and Planner(self.planner).is_model
        return Task(
            text=f"{scenario.text} [{self.id}]" if is_scripted else scenario.text,
            plan=scenario.plan if is_by_hand else None,
            revisions=scenario.revised if is_by_hand else (),
            limits=scenario.limits,
            effect_key=self.id if scenario.starts > 1 else None,
        )


class Row(BaseModel, frozen=True):
    """What became of a run."""

    scenario: str
    family: str
    planner: str
    repeat: int
    mutation: str | None
    digest: str
    """Of the scenario: a row of another version of it is not counted."""
    status: str
    code: str | None
    broken: dict[Property, str]
    """The properties that do not hold, each with what shows it."""
    calls: int
    replans: int
    met_guard: bool
    """Whether a proposal was rejected that made a rejected call again."""
    seconds: float

    @property
    def key(self) -> tuple[str, str, str, int, str | None]:
        return self.scenario, self.digest, self.planner, self.repeat, self.mutation


def batches(planned: Sequence[Planned]) -> Iterator[list[Planned]]:
    """The runs, as workers serve them: of one planner and mutation each; one alone that replaces its worker."""
    groups = dict[tuple[object, ...], list[Planned]]()
    for run in planned:
        alone = run.id if run.scenario.deploys else None
        groups.setdefault((run.planner, run.mutation, alone), []).append(run)
    for group in groups.values():
        yield from (group[at : at + AT_ONCE] for at in range(0, len(group), AT_ONCE))


@dataclass(frozen=True)
class Stage:
    """Where runs are made: the server, the world and the scripted model."""

    address: str
    folder: Path
    played: Played[Scene]
    model: str
    """The URL of the scripted model."""
    client: Client
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(os.cpu_count() or 1))
    """How many workers may run at once that serve several runs."""
    deploys: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DEPLOYS_AT_ONCE))
    """The same for those that are replaced: they mostly wait."""

    async def play(self, batch: Sequence[Planned], keep: Callable[[Row], None]) -> None:
        """Make the runs of a batch; `keep` gets the row of each as soon as it has ended. Raises TrialBroken."""

        async def one(run: Planned) -> None:
            keep(await self._run(run))

        turns = self.deploys if batch[0].scenario.deploys else self.turns
        async with turns, self._worker(batch), asyncio.TaskGroup() as group:
            for run in batch:
                group.create_task(one(run))

    @asynccontextmanager
    async def _worker(self, batch: Sequence[Planned]) -> AsyncIterator[None]:
        """Keep a worker for a batch, and replace it as an event of the one run of the batch says."""
        processes = list[subprocess.Popen[bytes]]()
        planner, mutation = batch[0].planner, batch[0].mutation
        folder = self.folder / batch[0].id

        async def start(deploy: Deploy | None = None) -> None:
            runs = [
                ServedRun(queue=run.id, family=run.scenario.family, state=folder / run.id, deploy=deploy)
                for run in batch
            ]
            is_scripted = planner in list(Planner) and Planner(planner).is_model
            job = ServedRuns(
                address=self.address,
                world=self.played.url,
                planner=f"openai:{MODEL}" if is_scripted else "offline" if planner in list(Planner) else planner,
                model=self.model if is_scripted else None,
                mutation=mutation,
                runs=tuple(runs),
            )
            file, log = folder / f"job-{len(processes)}.json", folder / f"worker-{len(processes)}.log"
            file.write_text(job.model_dump_json())
            command = [sys.executable, "-m", "evals.world_changes.worker", str(file)]
            processes.append(spawn(command, log, environment={**os.environ, "PYTHONPATH": str(ROOT)}))
            await ready(log, processes[-1])

        async def replace() -> None:
            for event in batch[0].scenario.events:
                if event.deploy:
                    await self._called(batch[0], event)
                    await asyncio.sleep(event.deploy.after)
                    await end(processes[-1])
                    await start(event.deploy)

        folder.mkdir(parents=True)
        try:
            await start()
            async with asyncio.TaskGroup() as group:
                replacing = group.create_task(replace())
                yield
                replacing.cancel()
        finally:
            await asyncio.gather(*(end(process, grace=2.0) for process in processes))

    async def _called(self, run: Planned, event: Event) -> None:
        """Wait until the call has been made that an event is about."""
        made = 0
        while made < event.number:
            await asyncio.sleep(POLL_SECONDS)
            made = sum(entry.tool == event.tool for entry in await self._entries(run))

    async def _entries(self, run: Planned) -> list[Entry]:
        entries = await asyncio.to_thread(self.played.world.entries)
        return [entry for entry in entries if entry.task == run.id]

    async def _run(self, run: Planned) -> Row:
        """Start the task, as often as the scenario says, and judge what became of it."""
        ran, began = list[Ran](), time.monotonic()
        for number in range(run.scenario.starts):
            done = await self._task(run, f"{run.id}{SECOND if number else ''}")
            if done is None:
                break
            ran.append(done)
        entries, scene = await self._entries(run), await asyncio.to_thread(self.played.world.state, run.id)
        is_ended = len(ran) == run.scenario.starts
        has_own = run.planner == Planner.OFFLINE or run.planner not in list(Planner)
        found = broken(run.scenario, entries, scene, ran, has_own_plans=has_own) if ran else {}
        if not is_ended:
            found[Property.OUTCOME] = "it did not end in time"
        outcome = ran[0].outcome if ran else None
        rejected = [id for one in ran for rejection in one.outcome.rejections for id in rejection.steps]
        return Row(
            scenario=run.scenario.name,
            family=run.scenario.family,
            planner=run.planner,
            repeat=run.repeat,
            mutation=run.mutation,
            digest=run.scenario.digest,
            status=outcome.status if outcome and is_ended else "unfinished",
            code=outcome.code if outcome else None,
            broken=found,
            calls=len(entries),
            replans=outcome.replans if outcome else 0,
            met_guard=any(repeats(rejected)),
            seconds=round(time.monotonic() - began, 1),
        )

    async def _task(self, run: Planned, id: str) -> Ran | None:
        """Run one task to its end; None if it does not end in time."""
        client = Client(self.client.temporal, queue=run.id)
        task = await client.start(run.task, id=id)
        try:
            async with asyncio.timeout((run.scenario.limits.deadline or 0.0) + GRACE_SECONDS):
                await task.result()
        except TaskNotCompleted:
            pass
        except TimeoutError:
            return None
        history = await client.temporal.get_workflow_handle(id).fetch_history()
        return Ran(await task.outcome(), Past.of(history))


@asynccontextmanager
async def staged(
    address: str, folder: Path, scenarios: Sequence[Scenario], hallucination: float
) -> AsyncIterator[Stage]:
    """A world that plays these scenarios, and the scripted model. Raises TapeNotPlayed, TrialBroken."""
    api = PlannerApi([scripted(scenarios, hallucination)], window=HUGE_WINDOW)
    words, plot = Plotted(scenarios=tuple(scenarios)), ScenarioPlot(scenarios)
    async with played_by("evals.world_changes.service", folder, words, plot) as played, running(api):
        await played.begin()
        client = Client(await connect(address=address, plain=True))
        yield Stage(address, folder, played, api.url, client)
        if api.violations:
            raise TrialBroken(f"A request broke the rules of the provider: {api.violations[0]}")
