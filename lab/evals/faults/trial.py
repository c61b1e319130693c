"""A worker as in the samples of Temporal's SDK, with one activity for each library, with the line and without it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Plugin, UnsandboxedWorkflowRunner, Worker

from evals.faults.libraries import LIBRARIES, Attempt, Kind
from evals.faults.servers import Places, places_for
from replan import FaultsPlugin

ATTEMPTS = 5
POLICY = RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=ATTEMPTS)
TIMEOUT = timedelta(seconds=20)
DONE = "done"
ARMS: Mapping[str, Sequence[Plugin]] = {"without the line": [], "with the line": [FaultsPlugin()]}


@workflow.defn(name="Shop")
class ShopWorkflow:
    """Makes one call, and says how it ended."""

    @workflow.run
    async def run(self, library: str, situation: str) -> str:
        """`done`, or the type and the message of the failure."""
        try:
            await workflow.execute_activity(
                f"call_{library}", situation, start_to_close_timeout=TIMEOUT, retry_policy=POLICY
            )
        except ActivityError as error:
            cause = error.cause
            return f"{cause.type}: {cause.message}" if isinstance(cause, ApplicationError) else repr(cause)
        return DONE


class Side(BaseModel, frozen=True):
    """What became of a call."""

    attempts: int
    ended: str
    """`done`, or the type and message of the failure."""

    @property
    def is_done(self) -> bool:
        """Whether the call succeeded."""
        return self.ended == DONE


class Cell(BaseModel, frozen=True):
    """One situation of a library, without the line and with it."""

    library: str
    situation: str
    kind: Kind
    without: Side
    within: Side

    def useless(self, side: Side) -> int:
        """The retries that could not help: all where no attempt can succeed, and those before a limit was over."""
        retries = side.attempts - 1
        match self.kind:
            case Kind.NEVER:
                return retries
            case Kind.LIMIT:
                return retries - side.is_done
            case Kind.PASSES:
                return 0

    @property
    def is_unharmed(self) -> bool:
        """Whether the line changed nothing else: a success is one, a failure of the same kind looks the same."""
        if self.without.is_done:
            return self.within.is_done and self.within.attempts <= self.without.attempts
        return self.within.is_done or self.within.ended.partition(":")[0] == self.without.ended.partition(":")[0]


@dataclass
class _Desk:
    """The activities of a worker, and how many attempts were made of each workflow's call."""

    places: Places
    attempts: Counter[str] = field(default_factory=Counter)

    def activity(self, library: str) -> Callable[[str], None]:
        """The activity that calls a library."""

        @activity.defn(name=f"call_{library}")
        def call(situation: str) -> None:
            info = activity.info()
            id = str(info.workflow_id)
            self.attempts[id] += 1
            LIBRARIES[library].situations[situation].call(Attempt(info.attempt, id, self.places))

        return call


async def run(client: Client, names: Sequence[str], progress: Callable[[str], None] = lambda _: None) -> list[Cell]:
    """Make each call of these libraries without the line and with it. Raises NoServer."""
    for name in names:
        LIBRARIES[name].load()
    async with places_for(names) as places:
        sides = list[dict[tuple[str, str], Side]]()
        for title, plugins in ARMS.items():
            progress(title)
            sides.append(await _sides(client, names, places, plugins))
    return [
        Cell(library=name, situation=situation, kind=one.kind, without=sides[0][name, situation], within=found)
        for name in names
        for situation, one in LIBRARIES[name].situations.items()
        for found in (sides[1][name, situation],)
    ]


async def _sides(
    client: Client, names: Sequence[str], places: Places, plugins: Sequence[Plugin]
) -> dict[tuple[str, str], Side]:
    desk, queue = _Desk(places), f"faults-{uuid4().hex[:8]}"
    activities = [desk.activity(name) for name in names]
    found = dict[tuple[str, str], Side]()

    async def each(name: str) -> None:
        for situation in LIBRARIES[name].situations:  # one after another: some are about a server that others use
            id = f"{queue}-{name}-{situation.replace(' ', '-')}"
            ended = await client.execute_workflow(
                ShopWorkflow.run, args=[name, situation], id=id, task_queue=queue, execution_timeout=3 * TIMEOUT
            )
            found[name, situation] = Side(attempts=desk.attempts[id], ended=ended)

    with ThreadPoolExecutor(2 * len(names)) as threads:
        async with Worker(
            client,
            task_queue=queue,
            workflows=[ShopWorkflow],
            activities=activities,
            activity_executor=threads,
            workflow_runner=UnsandboxedWorkflowRunner(),
            plugins=plugins,
        ):
            await asyncio.gather(*map(each, names))
    return found
