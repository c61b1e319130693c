"""Workers that die in the middle of a turn: what was recorded is not asked for again, all else once more."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHandle

from activities.planning.recorder import TurnRecorder
from activities.planning.transcript import Transcript
from activities.storage.store import open_store
from activities.toolbox.registry import Registry
from evals.fakes.model_api import ModelApi, running
from evals.fakes.script import (
    Delayed,
    ModelCall,
    ModelReply,
    ReceivedRequest,
    Response,
    ScriptedResponse,
    calls,
    finishes,
    proposes,
    repeated,
    step,
)
from runtime.dev_server import DevServer
from tests.activities.test_recorder import as_it_is
from tests.harness import outcome
from tests.processes import Processes, Running
from tests.providers import planning as models
from tests.providers.acting import reacting
from tests.providers.planning import MAKER, api_of
from tests.providers.plates import GOAL
from tests.providers.test_worker import environment
from tests.providers.visitor import FOUND, visitor
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.planning.situation import Situation

DESK, PLATES = Path(__file__).with_name("desk.py"), Path(__file__).with_name("plates.py")
PATIENCE = 60


class Workers(Processes):
    """Worker processes on one queue, whose model is behind one server."""

    def __init__(self, address: str, folder: Path, provider: str, api: ModelApi, tools: Path) -> None:
        """Work for the Temporal server at `address`, with the tools of a file."""
        super().__init__(address, folder, environment(provider, api))
        self._tools = tools
        self.queue = f"turns-{uuid.uuid4().hex[:8]}"
        self._model = f"{MAKER[provider]}:{api.model}"

    def one(self, *breaks: str) -> AbstractContextManager[Running]:
        """Start a worker; each of `breaks` is a `--break`."""
        words = [word for one in breaks for word in ("--break", one)]
        options = [
            "--dev",
            "--tools",
            str(self._tools),
            "--planner",
            self._model,
            "--queue",
            self.queue,
            "--log",
            "json",
        ]
        return self.worker(*options, *words)


@asynccontextmanager
async def working(
    server: DevServer, folder: Path, provider: str, *script: ScriptedResponse, tools: Path = DESK
) -> AsyncIterator[tuple[ModelApi, Workers]]:
    """A model API with a script, and workers for it."""
    async with running(api_of(provider, *script)) as api:
        yield api, Workers(server.address, folder, provider, api, tools)


async def begun(client: Client, queue: str, task: Task) -> WorkflowHandle[AgentWorkflow, Outcome]:
    """Start a task on the workers of a queue."""
    return await client.start_workflow(AgentWorkflow.run, task, id=f"turn-{uuid.uuid4().hex[:12]}", task_queue=queue)


async def dead(worker: Running) -> None:
    """Wait until a worker has killed itself."""
    await asyncio.to_thread(worker.wait, PATIENCE)


async def asked(api: ModelApi, times: int) -> None:
    """Wait until the model has been asked so often."""
    async with asyncio.timeout(PATIENCE):
        while len(api.bodies) < times:
            await asyncio.sleep(0.05)


def booking(heard: ReceivedRequest) -> Response:
    """A model that books, is refused, books another time, and says so."""
    times = ("14:00", "14:30")
    return calls(ModelCall("book", {"at": times[heard.turn]})) if heard.turn < 2 else ModelReply(text="At 14:30.")


def planning(heard: ReceivedRequest) -> Response:
    """The same with whole plans."""
    times = ("14:00", "14:30")
    if heard.turn < 2:
        return proposes(step(f"slot-{heard.turn}", "book", at=times[heard.turn]))
    return finishes("At 14:30.")


STRATEGIES = {"plan": (planning, Task(text="book a slot")), "react": (booking, reacting("book a slot"))}
POINTS = [
    pytest.param("react", "plan", "before_claim", 1, marks=pytest.mark.full),
    pytest.param("react", "plan", "after_claim", 1, marks=pytest.mark.full),
    pytest.param("react", "plan", "before_commit", 2, marks=pytest.mark.full),
    ("react", "plan", "after_commit", 1),
    pytest.param("react", "replan", "after_commit", 1, marks=pytest.mark.full),
    pytest.param("plan", "plan", "after_commit", 1, marks=pytest.mark.full),
    pytest.param("plan", "replan", "before_commit", 2, marks=pytest.mark.full),
]
"""In which activity the worker dies and where; how often the model is asked for that turn in all."""


@pytest.mark.parametrize(("strategy", "kind", "point", "times"), POINTS)
@pytest.mark.timeout(180)
async def test_a_turn_is_asked_for_once_if_it_was_recorded(
    client: Client, server: DevServer, tmp_path: Path, strategy: str, kind: str, point: str, times: int
) -> None:
    """The worker kills itself around the request; the next one asks only for what the store does not have."""
    model, task = STRATEGIES[strategy]
    async with working(server, tmp_path, "anthropic", model) as (api, workers):
        with workers.one(f"{kind}=die@{point}:1") as first:
            handle = await begun(client, workers.queue, task)
            await dead(first)
        with workers.one():
            ended = await outcome(handle)
    broken = 0 if kind == "plan" else 1
    counts = [count for _, count in sorted(repeated(api.requests).items())]

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "At 14:30.")
    assert counts == [times if turn == broken else 1 for turn in range(3)]
    assert api.violations == [] and ended.spent.tool_calls == 3  # two calls, and one look at what is free
    assert ended.spent.tokens >= api.billed
    if point == "after_commit":  # the answer was found, so it is paid once
        assert (ended.spent.model_calls, ended.spent.tokens) == (3, api.billed)


@pytest.mark.parametrize(
    ("provider", "strategy"),
    [pytest.param("anthropic", "react", marks=pytest.mark.full), ("openai", "plan"), ("responses", "react")],
)
@pytest.mark.timeout(180)
async def test_a_request_that_was_cut_off_is_made_once_more(
    client: Client, server: DevServer, tmp_path: Path, provider: str, strategy: str
) -> None:
    """kill -9 while the model thinks: exactly one request more, and the lost one is counted as spent."""
    model, task = STRATEGIES[strategy]
    async with working(server, tmp_path, provider, Delayed(PATIENCE), model) as (api, workers):
        with workers.one() as first:
            handle = await begun(client, workers.queue, task)
            await asked(api, 1)
            first.kill()
        with workers.one():
            ended = await outcome(handle)

    assert (ended.status, len(api.bodies), api.aborted) == (TaskStatus.COMPLETED, 4, 1)
    assert api.bodies[0] == api.bodies[1] and api.violations == []


@pytest.mark.full
@pytest.mark.parametrize(("point", "more"), [("before_commit", 1), ("after_commit", 0)])
@pytest.mark.timeout(180)
async def test_a_summary_is_asked_for_once_if_it_was_recorded(
    client: Client, server: DevServer, tmp_path: Path, point: str, more: int
) -> None:
    """As a turn is."""
    async with working(server, tmp_path, "anthropic", visitor, tools=PLATES) as (api, workers):
        api.window = 12_000
        with workers.one(f"compact=die@{point}:1") as first:
            handle = await begun(client, workers.queue, reacting(GOAL))
            await dead(first)
        with workers.one():
            ended = await outcome(handle)
    summaries = sum(not heard.tools for heard in api.requests)

    assert (ended.result, summaries - len(ended.compactions), api.violations) == (FOUND, more, [])


async def test_two_workers_that_ask_at_once_agree(store_url: str, provider: str) -> None:
    """One that counted as lost comes back with an answer of its own: what was written down first is the turn."""
    engine, answers = await open_store(store_url), iter((ModelReply(text="One."), ModelReply(text="Another.")))
    situation = Situation(text="a task", turn=1, now=datetime.now(UTC), strategy="react", converses=True)
    async with models.planning(provider, lambda _: Delayed(0.5, next(answers))) as (api, planner):
        recording = TurnRecorder(Transcript(engine))
        ask = partial(recording.propose, check=as_it_is, reach=lambda _: None)
        first, second = await asyncio.gather(*(ask(planner, situation, Registry(()), "run") for _ in range(2)))
        third, was_recorded = await ask(planner, situation, Registry(()), "run")
    await engine.dispose()

    assert first[0].proposal == second[0].proposal == third.proposal
    assert (was_recorded, len(api.bodies)) == (True, 2)
