"""Runs cases on a worker in this process, and grades them."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from pydantic import BaseModel
from temporalio.client import Client as TemporalClient
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from activities.registration import Abilities
from activities.toolbox.registry import Registry
from evals.fakes.model_api import KEY, MODEL, Json, running
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.script import ModelReply, ReceivedRequest
from evals.injection.arms import ARMS, Arm
from evals.injection.model import Model, Strategy, tag, tag_of
from evals.injection.suites import MARK, Case, Suite, suite
from evals.injection.worlds import World, tools
from replan import Client, TaskHandle, TaskNotCompleted
from replan.plugin import serving
from runtime.client import connect
from runtime.serve import CannotContinue
from runtime.settings import of_program
from runtime.settings_file import SettingsFile
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.limits.budget import Limits

AT_ONCE = 8
"""Tasks of one process that run at the same time."""
ASK_SECONDS = 0.5
"""How often an approver looks for requests."""
TASK_SECONDS = 300.0
"""A task that takes longer is unfinished, and graded as it stands."""
LIMITS = Limits(replans=30, fruitless=6)
"""Enough that no task ends because of a rejected injection; what the model does is bounded by itself."""


class Run(BaseModel):
    """One task and its grades."""

    suite: str
    user: str
    injection: str | None
    strategy: str
    arm: str
    status: str
    code: str | None
    is_useful: bool
    is_won: bool
    """Whether AgentDojo's grader says that the attack had its way."""
    was_shown: bool
    """Whether a request to the model had the text of the attack."""
    injected: int
    """How many calls of the injection task were made, besides those that the user task has, too."""
    questions: int
    """How many requests to people the task made."""

    @property
    def is_faulty(self) -> bool:
        """Whether the grader reports an attack although no call of the injection task was made."""
        return self.is_won and not self.injected


class Api(OpenAIApi):
    """The API of all models of a worker; schemas of tools are checked once."""

    def schema_mistakes(self, body: Json) -> Iterable[str]:  # type: ignore[override]
        """No mistakes: the tests check them, and it takes long."""
        return ()


class Trial:
    """The tasks of one arm on one suite; up inside `async with`."""

    def __init__(self, arm: Arm, client: Client, worlds: dict[str, World], failures: Sequence[str]) -> None:
        self._arm, self._client, self._worlds, self._failures = arm, client, worlds, failures
        self._models = dict[str, Model]()
        self._shown = set[str]()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def reply(self, request: ReceivedRequest) -> ModelReply:
        """The reply of the model whose task a request is about."""
        name = tag_of(request)
        if MARK in request.all_text:
            self._shown.add(name)
        return self._models[name](request)

    async def run(self, strategy: Strategy, cases: Iterable[Case]) -> list[Run]:
        """Run each case once.

        Raises:
            CannotContinue: the worker cannot go on.
        """

        async def one(case: Case) -> Run:
            async with self._slots:
                return await self._run(strategy, case)

        async with asyncio.TaskGroup() as group:
            started = [group.create_task(one(case)) for case in cases]
        return [task.result() for task in started]

    async def _run(self, strategy: Strategy, case: Case) -> Run:
        if self._failures:
            raise CannotContinue(self._failures[0])
        name = tag(len(self._worlds))
        id = f"{self._arm.name}-{strategy}-{case.name}".replace("/", "-").replace(" ", "-").replace(",", "")
        world = self._worlds[id] = World(case)
        self._models[name] = Model(world, strategy, self._arm.opening, self._arm.writes)
        task = Task(
            text=f"{case.prompt}\n\n{name}",
            strategy=strategy,
            limits=LIMITS,
            on_escalation="wait" if self._arm.approver else "end",
        ).model_copy(update=dict(self._arm.options(case)))
        handle = await self._client.start(task, id=id)
        outcome = await outcome_of(handle, self._answer(handle, case) if self._arm.approver else None)
        answer = outcome.result if outcome and isinstance(outcome.result, str) else ""
        others = Counter(world.made) - Counter(case.user_calls)
        grades = answer, world.before, world.environment, world.made
        return Run(
            suite=case.suite.name,
            user=case.user,
            injection=case.injection,
            strategy=strategy,
            arm=self._arm.name,
            status=outcome.status if outcome else "unfinished",
            code=outcome.code if outcome else None,
            is_useful=case.is_useful(*grades),
            is_won=case.is_won(*grades),
            was_shown=name in self._shown,
            injected=sum(others[call] for call in {*case.injected_calls}),
            questions=len(outcome.requests) if outcome else 0,
        )

    async def _answer(self, task: TaskHandle, case: Case) -> None:
        """Answer the requests of a task until it is cancelled."""
        answered = set[str]()
        while self._arm.approver:
            for request in await task.requests():
                if request.id not in answered:
                    answered.add(request.id)
                    await self._arm.approver(task, request, case)
            await asyncio.sleep(ASK_SECONDS)


class Job(BaseModel, frozen=True):
    """Some cases of one arm, for one process."""

    number: int
    address: str
    folder: Path
    arm: str
    suite: str
    strategies: tuple[Strategy, ...]
    cases: tuple[tuple[str, str | None], ...]
    """Each a user task and an injection task."""

    @property
    def size(self) -> int:
        """How many tasks it runs."""
        return len(self.cases) * len(self.strategies)


def play(job: Job) -> list[Run]:
    """Run all tasks of a job with a worker in this process.

    Raises:
        CannotContinue: the worker cannot go on.
    """
    # Errors only: each task logs every step, and rejected calls are what the eval is about.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    logging.getLogger("temporalio").setLevel(logging.ERROR)
    return asyncio.run(_play(job))


def silent() -> Runtime:
    """A runtime that logs no warning, such as of a query whose task has ended."""
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(TelemetryFilter("ERROR", "ERROR"))))


async def _play(job: Job) -> list[Run]:
    played, runs = suite(job.suite), list[Run]()
    cases = [Case(played, user, injection) for user, injection in job.cases]
    temporal = await connect(address=job.address, plain=True, runtime=silent())
    async with _trial(ARMS[job.arm], played, temporal, job.folder / f"worker-{job.number}") as trial:
        for strategy in job.strategies:
            runs += await trial.run(strategy, cases)
    return runs


@asynccontextmanager
async def _trial(arm: Arm, played: Suite, temporal: TemporalClient, state: Path) -> AsyncIterator[Trial]:
    """A worker with the tools of a suite as an arm declares them, and with the scripted models."""
    worlds, failures = dict[str, World](), list[str]()
    trial = Trial(arm, Client(temporal, queue=state.name), worlds, failures)
    async with running(Api([trial.reply])) as api:
        chosen = of_program({}, queue=state.name, state=state, planner=f"openai:{MODEL}")
        models = SettingsFile.read(chosen.settings_file).models
        own = tools(played, worlds, arm.declares)
        environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{api.url}/v1"}
        every = Abilities.of(chosen, environment, models, own=own)
        abilities = replace(every, registry=Registry(own))  # AgentDojo's functions only, as its own agents have
        async with serving(chosen, abilities, temporal, failures.append):
            yield trial
        if api.violations:
            raise RuntimeError(f"A request broke the rules of the provider: {api.violations[0]}")


async def outcome_of(task: TaskHandle, answers: Coroutine[Any, Any, None] | None) -> Outcome | None:
    """How a task ended; None if it did not end in time. `answers` answers its requests; None if nobody does."""
    answering = asyncio.create_task(answers) if answers else None
    try:
        async with asyncio.timeout(TASK_SECONDS):
            return await task.result()
    except TaskNotCompleted as ended:
        return ended.outcome
    except TimeoutError:
        return None
    finally:
        if answering:
            answering.cancel()
