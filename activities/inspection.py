"""The activity behind InspectWorkflow: what this worker says of itself."""

import asyncio
import os
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, assert_never

import sqlalchemy
from pydantic import JsonValue
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity, service
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.converter import StorageDriver, StorageDriverClaim, StorageDriverRetrieveContext
from temporalio.service import RPCError, RPCStatusCode

from activities.borders import classify
from activities.borders.sql import DATABASE_ERRORS
from activities.boundary.attempt import attempt_of
from activities.boundary.ledger import effects_of
from activities.errors import NeedsPerson
from activities.planning.transcript import Transcript
from activities.storage.store import REPLAN_TABLES, begun, file_of, metadata, reading, spoken
from activities.storage.vault import Over, PayloadLost, Vault
from activities.toolbox.declare.kind import Kind
from workflows import routing
from workflows.catalogue import Price
from workflows.faults import Code
from workflows.ids import reset_rollback_id, rollback_id
from workflows.inspect import (
    Claim,
    ClaimsFindings,
    ClaimsInquiry,
    EffectCard,
    EffectsFindings,
    EffectsInquiry,
    Findings,
    InquiryInput,
    PayloadFindings,
    PayloadInquiry,
    Place,
    PlanInquiry,
    Pruned,
    PruneFindings,
    PruneInquiry,
    ToolCard,
    ToolsFindings,
    ToolsInquiry,
    TranscriptFindings,
    TranscriptInquiry,
    TurnCard,
    WorkerCard,
    WorkerFindings,
    WorkerInquiry,
)
from workflows.plan import PRUNED_ENCODING
from workflows.task import CONTINUES_MEMO

LOOK_SECONDS = 3.0
"""How long a look at one place may take."""
LEDGERS = frozenset({"replan_ledger"})
"""The tables of ours that a datasource has."""
WRITTEN = frozenset({"state", "workspace"})
"""The folders that are written to; the others are read."""


class Host:
    """One worker's process and what it was given."""

    def __init__(
        self,
        engine: AsyncEngine,
        folders: Mapping[str, Path | None],
        keys: Mapping[str, bool],
        version: str,
        datasources: Iterable[AsyncEngine] = (),
    ) -> None:
        """Speak of this store, these folders and these datasources.

        `keys` says by name which keys the environment has; the store may be among the datasources.
        """
        self._engine = engine
        self._brought = tuple(one for one in datasources if one is not engine)
        self._folders = {name: path.absolute() if path else None for name, path in folders.items()}
        self._keys = dict(keys)
        self._version = version

    async def card(self) -> WorkerCard:
        """How the worker stands, in about three seconds at the most."""
        store = _database("store", self._engine, {**REPLAN_TABLES.tables, **metadata.tables})
        brought = (_database("datasource", engine, LEDGERS) for engine in self._brought)
        looks = [store, *brought, *(_folder(name, path) for name, path in self._folders.items())]
        return WorkerCard(
            version=self._version,
            python=platform.python_version(),
            sdk=service.__version__,
            places=tuple(await asyncio.gather(*looks)),
            keys=self._keys,
            clock=datetime.now(UTC),
            server_clock=activity.info().started_time,
        )


async def _database(name: str, engine: AsyncEngine, tables: Collection[str]) -> Place:
    return Place(name=name, where=spoken(engine.url), problem=await _wrong_with_database(engine, tables))


async def _wrong_with_database(engine: AsyncEngine, tables: Collection[str]) -> str | None:
    file = file_of(engine)
    try:
        async with asyncio.timeout(LOOK_SECONDS), engine.connect() as connection:
            missing = await connection.run_sync(_missing, tables)
    except TimeoutError:
        return f"it gave no answer within {LOOK_SECONDS:g} s"
    except Exception as error:  # total: what the border's tables say is said, never the driver's own words
        fault = classify(error)
        return f"it cannot be read ({type(error).__name__})" if fault.code is Code.BUG else fault.reason.rstrip(".")
    if missing:
        return f"it lacks the tables {', '.join(missing)}"
    # a file that was deleted stays readable for whoever has it open
    return await asyncio.to_thread(_wrong_with, file, os.path.isfile, os.R_OK | os.W_OK) if file else None


def _missing(connection: Connection, tables: Collection[str]) -> list[str]:
    return sorted(set(tables) - set(sqlalchemy.inspect(connection).get_table_names()))


async def _folder(name: str, path: Path | None) -> Place:
    if path is None:
        return Place(name=name, where=None)
    mode = os.R_OK | os.X_OK | (os.W_OK if name in WRITTEN else 0)
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            problem = await asyncio.to_thread(_wrong_with, path, os.path.isdir, mode)
    except TimeoutError:
        problem = f"it gave no answer within {LOOK_SECONDS:g} s"
    return Place(name=name, where=str(path), problem=problem)


def _wrong_with(path: Path, is_there: Callable[[Path], bool], mode: int) -> str | None:
    if not is_there(path):
        return "it is not there any more"
    return None if os.access(path, mode) else f"the worker may not {'write' if mode & os.W_OK else 'read'} there"


CLOSED = frozenset(
    {
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
    }
)
"""How a newest run stands that is over; every other status, also one of a newer server, may need its payloads."""
MARGIN = timedelta(hours=1)
"""What is younger is never pruned: clocks differ, and a task that has just closed may be reset or undone."""
MAX_TASKS = 100
"""Tasks of which the server is asked in one answer about pruning."""
MAX_PAGE = 1024 * 1024
"""Bytes of the turns in one answer; a server takes no answer of 2 MB."""


class Inspecting:
    """Answers inquiries."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        planner: str,
        host: Host,
        vault: Vault,
        ledgers: Iterable[AsyncEngine],
        elsewhere: Sequence[StorageDriver] = (),
        *,
        transcript: Transcript | None = None,
        left_out: Iterable[str] = (),
        converses: bool = False,
        price: Price | None = None,
    ) -> None:
        """Speak for a worker with these kinds and this planner, on `host`.

        Its payloads are in `vault` and `elsewhere`, what its tools have done in `ledgers`, what its planner was told
        and said in `transcript`. `left_out` are kinds that it would have with a model; `converses` says whether the
        planner is one, and `price` what that costs.
        """
        self._kinds = kinds
        self._planner = planner
        self._host = host
        self._vault = vault
        self._ledgers = tuple(ledgers)
        self._transcript = transcript
        self._left_out = tuple(left_out)
        self._converses = converses
        self._price = price
        self._drivers = {driver.name(): driver for driver in (vault, *elsewhere)}

    def activities(self) -> list[Callable[..., Any]]:
        """What the worker registers."""
        return [self.inspect]

    @activity.defn(name=routing.INSPECT.kind)
    async def inspect(self, inquiry: InquiryInput) -> Findings:
        """Answer an inquiry."""
        question = inquiry.root
        async with attempt_of(routing.inspect(question.about)):
            match question:
                case ToolsInquiry() | PlanInquiry():  # a plan is drafted by the workflow
                    kind = question.kind if isinstance(question, ToolsInquiry) else None
                    return ToolsFindings(planner=self._planner, tools=self._cards(kind), left_out=self._left_out)
                case WorkerInquiry():
                    return await self._worker()
                case PayloadInquiry():
                    payload = await self._payload(question.driver, question.claim)
                    return PayloadFindings(planner=self._planner, payload=payload)
                case ClaimsInquiry():
                    return ClaimsFindings(planner=self._planner, lacks=await self._lacks(question.claims))
                case PruneInquiry():
                    pruned = await self._pruned(question.older_than, question.after, question.by)
                    return PruneFindings(planner=self._planner, pruned=pruned)
                case EffectsInquiry():
                    return await self._effects(question.task_id)
                case TranscriptInquiry():
                    return await self._turns(question.run, question.skip)
                case unreachable:
                    assert_never(unreachable)

    async def _worker(self) -> WorkerFindings:
        return WorkerFindings(
            planner=self._planner,
            tools=self._cards(),
            left_out=self._left_out,
            worker=await self._host.card(),
            converses=self._converses,
            price=self._price,
        )

    def _cards(self, wanted: str | None = None) -> tuple[ToolCard, ...]:
        return tuple(_card(kind) for name, kind in self._kinds.items() if wanted in (None, name))

    async def _pruned(self, older_than: datetime | None, after: str, by: str) -> Pruned:
        """What was deleted of payloads and conversations of the next tasks after `after`.

        Raises:
            NeedsPerson: an older console asks, which would have what open tasks need deleted.
        """
        if older_than is None:
            raise NeedsPerson("This console does not say whose payloads may go: update it to the worker's version.")
        before = min(older_than, datetime.now(UTC) - MARGIN)
        turned = await self._transcript.tasks(before, after, MAX_TASKS) if self._transcript else []
        ids = {*await self._vault.tasks(before, after, MAX_TASKS), *turned}
        asked = sorted(ids)[:MAX_TASKS]
        over = await _over(activity.client(), asked)
        pruned = await self._vault.prune(over, before, by)
        turns, ownerless = 0, await self._vault.ownerless(before)
        if self._transcript:
            ended = {*over.closed, *over.gone} & set(turned)
            carried = await _continued(activity.client()) if ended else ()
            turns = await self._transcript.prune(ended, before, carried)
            ownerless += await self._transcript.ownerless(before)
        found = {
            "turns": turns,
            "after": asked[-1] if len(ids) >= MAX_TASKS else None,
            "kept": len(asked) - len(over.closed) - len(over.gone),
            "ownerless": ownerless,
        }
        return pruned.model_copy(update=found)

    async def _lacks(self, claims: Sequence[Claim]) -> str:
        """Why the first of the claims that cannot be fetched cannot; empty where all can."""
        ours = [StorageDriverClaim(claim.data) for claim in claims if claim.driver == self._vault.name()]
        if missing := await self._vault.lacks(ours):
            return missing
        for claim in claims:
            if claim.driver != self._vault.name():
                try:
                    await self._fetched(claim.driver, claim.data)
                except NeedsPerson as missing:
                    return str(missing)
        return ""

    async def _effects(self, task: str) -> EffectsFindings:
        """What the ledgers know; one that cannot be read is named, and the others are read."""
        found, unread = list[Mapping[str, Any]](), list[Place]()
        for engine in self._ledgers:
            try:
                async with begun(reading(engine)) as tx:
                    found += await effects_of(tx, task)
            except DATABASE_ERRORS as error:
                problem = classify(error).reason.rstrip(".")
                unread.append(Place(name="ledger", where=spoken(engine.url), problem=problem))
        cards = [EffectCard.model_validate(effect) for effect in sorted(found, key=lambda effect: effect["at"])]
        return EffectsFindings(planner=self._planner, effects=tuple(cards), unread=tuple(unread))

    async def _turns(self, run: str, skip: int) -> TranscriptFindings:
        """The transcript from its turn `skip` on, as much as one answer takes."""
        cards = (await self._transcript.cards(run))[skip:] if self._transcript else ()
        page = _page(cards)
        return TranscriptFindings(planner=self._planner, transcript=tuple(page), more=len(page) < len(cards))

    async def _payload(self, driver: str, claim: dict[str, str]) -> JsonValue:
        """What a step returned, from where the history says that it lies.

        Raises:
            NeedsPerson: it is not there.
        """
        payload = await self._fetched(driver, claim)
        if payload.metadata.get("encoding") == PRUNED_ENCODING:
            raise NeedsPerson(payload.data.decode())
        value: JsonValue = activity.payload_converter().from_payload(payload)
        return value

    async def _fetched(self, driver: str, claim: dict[str, str]) -> Payload:
        """A payload from where the history says that it lies.

        Raises:
            NeedsPerson: it is not there.
        """
        if driver not in self._drivers:
            raise NeedsPerson(f"This worker has no storage {driver!r}: ask one that was started with it.")
        try:
            [payload] = await self._drivers[driver].retrieve(
                StorageDriverRetrieveContext(), [StorageDriverClaim(claim)]
            )
        except (PayloadLost, RuntimeError, ValueError) as lost:  # the last two are what the SDK's S3 driver raises
            raise NeedsPerson(str(lost)) from lost
        return payload


async def _over(client: Client, tasks: Sequence[str]) -> Over:
    """Those of the tasks that have no open run and are not being undone, as the server knows without delay.

    A list of open workflows would not do: the server writes it about a second behind.
    """
    own = await asyncio.gather(*(_is_open(client, task) for task in tasks))
    undone = await asyncio.gather(*(_is_open(client, rollback_id(task)) for task in tasks))
    before = await asyncio.gather(*(_is_open(client, reset_rollback_id(task)) for task in tasks))
    seen = zip(tasks, own, undone, before, strict=True)
    over = [(task, found) for task, found, *rollbacks in seen if not (found or any(rollbacks))]
    return Over(
        closed=[task for task, found in over if found is not None],
        gone=[task for task, found in over if found is None],
    )


async def _is_open(client: Client, id: str) -> bool | None:
    """Whether the newest run of a workflow is open; None where the server knows of none."""
    which = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=WorkflowExecution(workflow_id=id))
    try:
        seen = await client.workflow_service.describe_workflow_execution(which, retry=True)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    return seen.workflow_execution_info.status not in CLOSED


async def _continued(client: Client) -> set[str]:
    """The first runs of the tasks whose conversations open tasks carry on, be it that they have no turn yet."""
    rows = client.list_workflows("WorkflowType = 'AgentWorkflow' AND ExecutionStatus = 'Running'")
    found = [(await row.memo()).get(CONTINUES_MEMO) async for row in rows]
    return {str(run) for run in found if run}


def _page(cards: Sequence[TurnCard]) -> Sequence[TurnCard]:
    """The first of the cards, at least one, that fit in an answer."""
    sizes = accumulate(len(card.model_dump_json().encode()) for card in cards)
    return cards[: max(1, sum(size <= MAX_PAGE for size in sizes))]


def _card(kind: Kind) -> ToolCard:
    return ToolCard(
        spec=kind.spec,
        description=kind.description,
        args_schema=kind.args_schema,
        result_schema=kind.result.json_schema(),
    )
