"""What workflow tests share: a worker with tools of the test's own, and a task run to its end."""

import os
import random
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Interceptor

from activities import deadline
from activities.boundary.approved import Verifier
from activities.boundary.boundary import Boundary
from activities.boundary.breakers.admitting import telling
from activities.boundary.breakers.rows import Breakers
from activities.boundary.effects import EffectFinder
from activities.boundary.failpoints import FaultInjection
from activities.boundary.interceptor import HeaderInterceptor
from activities.notification import Notifier, receiver_of
from activities.planning.activities import Planning
from activities.planning.planner import Planner, ScriptedPlanner
from activities.planning.published import Catalogues
from activities.planning.transcript import Transcript
from activities.providers.messages import LanguageModel
from activities.providers.metering import MeteredModel
from activities.resolving import RESOLVING
from activities.storage.store import Datasources, open_store, store_id
from activities.toolbox.declare.tool import Tool
from activities.toolbox.registry import Registry
from activities.toolbox.resources import Resources
from activities.words import Words
from client.history.reader import read_history
from client.history.story import Story, with_values
from runtime import serve
from runtime.payloads import DATA_CONVERTER
from runtime.prometheus import meter_of
from runtime.settings import Settings
from tests.counting import check_counts
from tests.stores import make_store
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.calls.interceptor import CallInterceptor
from workflows.inquiries import InspectWorkflow
from workflows.limits.budget import Limits
from workflows.people.incidents import ResolveWorkflow
from workflows.people.notifications import NotifyWorkflow
from workflows.plans.catalogue import Price
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Question, Step
from workflows.rollback import UndoWorkflow

Proposals = Sequence[NewSteps | Answer | Question | GiveUp]

DONE = Answer(result="done")


def plan(*steps: Step, because: str = "") -> NewSteps:
    return NewSteps(steps=steps, because=because)


def step(id: str, kind: str, *needs: str, **args: JsonValue) -> Step:
    return Step(id=id, kind=kind, args=args, needs=needs)


@dataclass
class Stage:
    client: Client
    queue: str
    started: list[str] = field(default_factory=list)
    breakers: Breakers | None = None
    """Those of the worker's tools, if the worker is in this process."""

    async def start(
        self, task: Task | str = "a task", *, id: str = "", **limits: Any
    ) -> WorkflowHandle[AgentWorkflow, Outcome]:
        given = Task(text=task, limits=Limits(**limits)) if isinstance(task, str) else task
        id = id or f"test-{uuid.uuid4().hex[:12]}"
        self.started.append(id)
        return await self.client.start_workflow(AgentWorkflow.run, given, id=id, task_queue=self.queue)

    async def run(self, task: Task | str = "a task", **limits: Any) -> Outcome:
        """Run a task to its end, however it ends."""
        return await outcome(await self.start(task, **limits))


async def outcome(handle: WorkflowHandle[AgentWorkflow, Outcome]) -> Outcome:
    """The outcome of a task that completed, failed or was cancelled, with what only its history has."""
    ended = await _closing_outcome(handle)
    if not any(one.in_history for one in ended.steps):
        return ended
    return with_values(ended, Story(await read_history(handle.id, handle.fetch_history_events(), DATA_CONVERTER)))


async def _closing_outcome(handle: WorkflowHandle[AgentWorkflow, Outcome]) -> Outcome:
    try:
        return await handle.result()
    except WorkflowFailureError as error:
        if isinstance(error.cause, ApplicationError):
            return Outcome.model_validate(error.cause.details[0])
        return Outcome.model_validate(await (await handle.describe()).memo_value("outcome"))


@asynccontextmanager
async def staged(
    client: Client,
    folder: Path,
    tools: Sequence[Tool[..., Any]],
    planner: Planner | Proposals,
    *,
    queue: str | None = None,
    patience: float = 60,
    workflow: type = AgentWorkflow,
    model: LanguageModel | None = None,
    price: Price | None = None,
    jitter: Callable[[], float] = random.random,
    extra: Sequence[Callable[..., Any]] = (),
    breaks: Sequence[str] = (),
    notify: str | None = None,
    slots: int = Settings.slots,
    people: Verifier | None = None,
) -> AsyncIterator[Stage]:
    """A worker with these tools and this planner, or prepared proposals; `model` is for tools that ask one.

    `jitter` is the share of the longest backoff that is waited before each retry, `extra` are further activities, and
    `breaks` the faults that are injected into planning and tools, as for the option `--break`. `notify` is that of
    `--notify`, and `people` verifies who approves.
    """
    name = queue or f"queue-{uuid.uuid4().hex[:12]}"
    engine = await open_store(await make_store(folder))
    receiver = receiver_of(notify, os.environ)
    chosen = ScriptedPlanner(planner) if isinstance(planner, Sequence) else planner
    registry = Registry(tools)
    async with deadline.client() as http, AsyncExitStack() as opened:
        datasources = Datasources(engine, [kind.datasource for kind in registry.values()])
        await datasources.open(opened)
        store = await store_id(engine)
        given: dict[str, Any] = {"documents": folder, "store": store, "transcript": Transcript(engine)}
        faults = FaultInjection(breaks, {kind: one.spec for kind, one in registry.items()})
        given["breaks"] = faults
        given["step_prices"] = {model.name: price} if model else {}
        given["notifies"] = receiver is not None
        given["catalogues"] = await opened.enter_async_context(published(client, name, engine, registry))
        planning = Planning(chosen, registry, searchable=True, patience=patience, **given)
        resources = Resources(engine, http, folder, model=MeteredModel(model, price) if model else None)
        boundary = Boundary(resources, faults, store=store, ledgers=datasources, people=people)
        finder = EffectFinder(datasources, store)
        own = [*planning.activities(), finder.find_effect, *RESOLVING]
        own += [Notifier(receiver).notify_people] if receiver else []
        activities = [*own, *boundary.activities(registry, given["catalogues"].is_elsewhere), *extra]
        async with (
            (words := Words(engine)).exchanged(),
            worker(client, name, activities, workflow, jitter, slots, [words]),
            telling(boundary.breakers, client, meter_of(client, name)),
        ):
            stage = Stage(client, name, breakers=boundary.breakers)
            yield stage
            await check_counts(client, name, stage.started)
    await engine.dispose()


@asynccontextmanager
async def published(client: Client, queue: str, engine: AsyncEngine, registry: Registry) -> AsyncIterator[Catalogues]:
    """What the workers of the queue have; this one says so while it serves, as in the product."""
    catalogues = Catalogues(engine, client.namespace, queue, registry)
    async with catalogues.published():
        yield catalogues


def worker(
    client: Client,
    queue: str,
    activities: Sequence[Any],
    workflow: type = AgentWorkflow,
    jitter: Callable[[], float] = random.random,
    slots: int = Settings.slots,
    more: Sequence[Interceptor] = (),
) -> serve.Workers:
    """A worker as the product builds it; `more` are further interceptors."""
    return serve.build(
        client,
        queue,
        workflows=[workflow, UndoWorkflow, InspectWorkflow, NotifyWorkflow, ResolveWorkflow],
        activities=activities,
        interceptors=[CallInterceptor(), HeaderInterceptor(jitter), *more],
        slots=slots,
        is_watched=True,
    )
