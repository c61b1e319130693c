"""The activity of InspectWorkflow: it answers the console's questions about this worker, its store and its tasks.

One question, PruneInquiry, also deletes what ended tasks left in the store.
"""

import asyncio
import os
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, assert_never

import sqlalchemy
from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity, service
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus as Status
from temporalio.converter import (
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    WorkflowSerializationContext,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.borders import classify
from activities.borders.sql import DATABASE_ERRORS
from activities.boundary.approved import Verifier
from activities.boundary.attempt import attempt_of
from activities.boundary.breakers.rows import Breakers
from activities.boundary.breakers.states import Breaker, BreakerState
from activities.effects.ledger import effects_of, known_keys
from activities.errors import NeedsPerson
from activities.planning.transcript import Transcript
from activities.storage.store import REPLAN_TABLES, file_of, metadata, reading, spoken, transaction
from activities.storage.vault import EndedTasks, PayloadLost, Vault
from activities.toolbox.declare.arguments import approvals, misfits
from activities.toolbox.declare.kind import Kind
from workflows.account.task import CONTINUES_MEMO
from workflows.faults.fault import Code
from workflows.ids import reset_rollback_id, rollback_id
from workflows.inquiries import (
    AppliedEffect,
    ApprovalsFindings,
    ApprovalsInquiry,
    BreakerCard,
    BreakersFindings,
    BreakersInquiry,
    CallsFindings,
    CallsInquiry,
    Capacity,
    ClaimsFindings,
    ClaimsInquiry,
    EffectCard,
    EffectsFindings,
    EffectsInquiry,
    Findings,
    InquiryInput,
    PayloadClaim,
    PayloadFindings,
    PayloadInquiry,
    Place,
    PlanInquiry,
    PrunedPayloads,
    PruneFindings,
    PruneInquiry,
    RowsFindings,
    RowsInquiry,
    ToolCard,
    ToolsFindings,
    ToolsInquiry,
    TranscriptFindings,
    TranscriptInquiry,
    WorkerCard,
    WorkerFindings,
    WorkerInquiry,
)
from workflows.plans import own_activities
from workflows.plans.catalogue import IN_LEDGER, Price
from workflows.plans.references import PRUNED_ENCODING

LOOK_SECONDS = 3.0
"""Seconds that the check of one place (a database or a folder) may take."""
LEDGERS = frozenset({"replan_ledger"})
"""Replan's tables in a datasource, the database of a tool."""
WRITTEN = frozenset({"state", "workspace"})
"""Names of the folders that the worker writes to; it only reads from the other folders."""


@dataclass(frozen=True)
class Host:
    """What a worker reports about its process: databases and folders, API keys, versions."""

    engine: AsyncEngine
    """The database of the worker's store."""
    folders: Mapping[str, Path | None]
    """The worker's folders by name; None for a folder that is not configured."""
    keys: Mapping[str, bool]
    """The name of each API key, and whether it is set in the worker's environment."""
    version: str
    datasources: Iterable[AsyncEngine] = ()
    """The databases with a ledger; the store may be among them."""
    capacity: Callable[[], Capacity] | None = None
    notifies: str = ""
    """The name of the receiver of notifications about requests to people; empty if there is none."""
    breakers: Breakers | None = None
    people: Verifier | None = None
    """Knows who may approve; None if this worker knows nobody."""

    async def card(self) -> WorkerCard:
        """The state of the worker. All places are checked at the same time, which takes at most about LOOK_SECONDS."""
        store = _check_database("store", self.engine, {**REPLAN_TABLES.tables, **metadata.tables})
        others = [
            _check_database("datasource", engine, LEDGERS) for engine in self.datasources if engine is not self.engine
        ]
        checks = [store, *others, *(_check_folder(name, path) for name, path in self.folders.items())]
        return WorkerCard(
            version=self.version,
            python=platform.python_version(),
            sdk=service.__version__,
            places=tuple(await asyncio.gather(*checks)),
            keys=dict(self.keys),
            clock=datetime.now(UTC),
            server_clock=activity.info().started_time,
            capacity=self.capacity() if self.capacity else None,
            notifies=self.notifies,
            breakers=await self._breaker_cards(),
            approvers=tuple(self.people.approvers()) if self.people else None,
        )

    async def _breaker_cards(self) -> tuple[BreakerCard, ...] | None:
        with suppress(*DATABASE_ERRORS, TimeoutError):  # the check of the store says why
            return await _cards(self.breakers) if self.breakers else None
        return None


async def _cards(breakers: Breakers) -> tuple[BreakerCard, ...]:
    """Cards of the breakers of all services that ever failed or have a limit. Raises as `Breakers.all`."""
    (found, now), waiting = await breakers.all(), await breakers.waiting()
    return tuple(_card(service, found[service], now, waiting.get(service, 0)) for service in sorted(found))


def _card(kind: str, breaker: Breaker, now: float, waiting: int = 0) -> BreakerCard:
    is_closed = breaker.state is BreakerState.CLOSED
    return BreakerCard(
        kind=kind,
        state=breaker.state,
        since=datetime.fromtimestamp(breaker.since, UTC) if breaker.since else None,
        failures=breaker.failures,
        code=breaker.code,
        trial_in=None if is_closed else max(0.0, round(breaker.until - now, 1)),
        trials=len(breaker.live_places(now)),
        waiting=waiting,
        limit=breaker.limit,
    )


async def _check_database(name: str, engine: AsyncEngine, required_tables: Collection[str]) -> Place:
    return Place(name=name, where=spoken(engine.url), problem=await _problem_of_database(engine, required_tables))


async def _problem_of_database(engine: AsyncEngine, required_tables: Collection[str]) -> str | None:
    file = file_of(engine)
    try:
        async with asyncio.timeout(LOOK_SECONDS), engine.connect() as connection:
            existing = await connection.run_sync(lambda sync: sqlalchemy.inspect(sync).get_table_names())
    except TimeoutError:
        return f"it gave no answer within {LOOK_SECONDS:g} s"
    except Exception as error:  # any driver's; its words may quote the URL, those of the border's tables do not
        fault = classify(error)
        return f"it cannot be read ({type(error).__name__})" if fault.code is Code.BUG else fault.reason.rstrip(".")
    if missing := sorted(set(required_tables) - set(existing)):
        return f"it lacks the tables {', '.join(missing)}"
    # A deleted file stays readable as long as it is open, so connecting is no proof that it is there.
    return await asyncio.to_thread(_problem_of_path, file, os.path.isfile, os.R_OK | os.W_OK) if file else None


async def _check_folder(name: str, path: Path | None) -> Place:
    if path is None:
        return Place(name=name, where=None)
    path = path.absolute()  # noqa: ASYNC240  # it only asks for the current folder
    mode = os.R_OK | os.X_OK | (os.W_OK if name in WRITTEN else 0)
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            problem = await asyncio.to_thread(_problem_of_path, path, os.path.isdir, mode)
    except TimeoutError:
        problem = f"it gave no answer within {LOOK_SECONDS:g} s"
    return Place(name=name, where=str(path), problem=problem)


def _problem_of_path(path: Path, is_there: Callable[[Path], bool], mode: int) -> str | None:
    if not is_there(path):
        return "it is not there any more"
    return None if os.access(path, mode) else f"the worker may not {'write' if mode & os.W_OK else 'read'} there"


CLOSED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELED, Status.TERMINATED, Status.TIMED_OUT})
"""The statuses of ended tasks. A task with any other status, even a status unknown here, may need its payloads."""
MARGIN = timedelta(hours=1)
"""The age below which no data is pruned: clocks differ, and a task that has just ended may be reset or undone."""
MAX_TASKS = 100
"""The most tasks that one PruneInquiry looks at; the client asks again for the rest."""
MAX_PAGE = 1024 * 1024
"""Bytes of the turns in one answer about a transcript; the Temporal server's limit for a payload is 2 MB."""


@dataclass(frozen=True)
class Inspector:
    """Answers the inquiries of InspectWorkflow about one worker."""

    kinds: Mapping[str, Kind]
    planner: str
    """The name of the planner."""
    host: Host
    vault: Vault
    ledgers: Iterable[AsyncEngine]
    """The databases that have a ledger, the table of applied effects."""
    buckets: Sequence[StorageDriver] = ()
    """Storage drivers of the buckets that hold large payloads outside the vault, which is a table of the store."""
    transcript: Transcript | None = None
    store: str = ""
    """The id of the worker's store."""
    left_out: Sequence[str] = ()
    """Kinds of tools that this worker lacks because it has no model."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Tools of servers that this worker cannot offer, each with the reason."""
    own: Collection[str] = ()
    """The kinds of the user's own tools; the others come with Replan."""
    described: Callable[[], str] = str
    """Returns the planner's name, with the API that each model of OpenAI is asked with."""
    converses: bool = False
    """Whether the planner is a model."""
    price: Price | None = None
    """The price of the planner's tokens; None if it is unknown, or the planner is no model."""
    price_date: date | None = None
    """The oldest day on which a published price of the worker's models was known to be valid; None if none is
    published."""

    @activity.defn(name=own_activities.INSPECT.kind)
    async def inspect(self, inquiry: InquiryInput) -> Findings:
        """Answer an inquiry; a PruneInquiry also deletes data, and a BreakersInquiry may reset a circuit breaker."""
        question = inquiry.root
        async with attempt_of(own_activities.inquiry_spec(question.about)):
            match question:
                case ToolsInquiry() | PlanInquiry():  # a plan is drafted by the workflow
                    kind = question.kind if isinstance(question, ToolsInquiry) else None
                    tools, left_out = self._tools(kind), tuple(self.left_out)
                    return ToolsFindings(
                        planner=self.planner,
                        tools=tools,
                        left_out=left_out,
                        unusable=dict(self.unusable),
                        store=self.store,
                    )
                case WorkerInquiry():
                    return WorkerFindings(
                        planner=self.planner,
                        tools=self._tools(),
                        left_out=tuple(self.left_out),
                        unusable=dict(self.unusable),
                        store=self.store,
                        worker=await self.host.card(),
                        described=self.described(),
                        converses=self.converses,
                        price=self.price,
                        price_date=self.price_date,
                    )
                case PayloadInquiry():
                    payload = await self._fetch_value(question.driver, question.claim)
                    return PayloadFindings(planner=self.planner, payload=payload)
                case ClaimsInquiry():
                    return ClaimsFindings(planner=self.planner, lacks=await self._lacks(question.claims))
                case PruneInquiry():
                    pruned = await self._prune(question.older_than, question.after, question.by)
                    return PruneFindings(planner=self.planner, pruned=pruned)
                case EffectsInquiry():
                    return await self._effects(question.task_id)
                case RowsInquiry():
                    return RowsFindings(planner=self.planner, lacks=await self._without_row(question.effects))
                case BreakersInquiry():
                    return await self._breakers(question.reset)
                case CallsInquiry():
                    return CallsFindings(planner=self.planner, misfits=tuple(misfits(self.kinds, question.calls)))
                case ApprovalsInquiry():
                    return ApprovalsFindings(planner=self.planner, approvals=approvals(self.kinds, question.calls))
                case TranscriptInquiry():
                    return await self._turns(question.run, question.skip)
                case unreachable:
                    assert_never(unreachable)

    def _tools(self, kind: str | None = None) -> tuple[ToolCard, ...]:
        return tuple(
            ToolCard(
                spec=tool_kind.spec,
                description=tool_kind.description,
                args_schema=tool_kind.args_schema,
                result_schema=tool_kind.result_schema,
                is_own=name in self.own,
                breaker=tool_kind.breaker,
                service=tool_kind.service,
                limit=tool_kind.limit,
            )
            for name, tool_kind in self.kinds.items()
            if not tool_kind.is_hidden
            if kind in (None, name)
        )

    async def _breakers(self, reset: str) -> BreakersFindings:
        """Reset the breaker of `reset`, if that is a known kind or service, and list all circuit breakers."""
        kinds, before = tuple(name for name, kind in self.kinds.items() if kind.breaker), None
        breakers = self.host.breakers
        if breakers is None:
            return BreakersFindings(planner=self.planner, breakers=(), kinds=kinds)
        found, now = await breakers.all()
        service = self.kinds[reset].service if reset in kinds else reset
        if reset in kinds or service in found:  # the breaker of another worker's kind is in the same store
            before = _card(service, (await breakers.reset(service)).before, now)
        return BreakersFindings(planner=self.planner, breakers=await _cards(breakers), kinds=kinds, before=before)

    async def _prune(self, older_than: datetime, after: str, by: str) -> PrunedPayloads:
        """Delete old data of ended tasks among the next MAX_TASKS tasks with ids above `after`; `by` is who asked."""
        before = min(older_than, datetime.now(UTC) - MARGIN)
        with_turns = await self.transcript.tasks(before, after, MAX_TASKS) if self.transcript else []
        ids = {*await self.vault.tasks(before, after, MAX_TASKS), *with_turns}
        chosen = sorted(ids)[:MAX_TASKS]
        over = await _select_ended(activity.client(), chosen)
        pruned = await self.vault.prune(over, before, by)
        turns = 0
        if self.transcript:
            ended = {*over.closed, *over.gone} & set(with_turns)
            continued = await _continued_by_open_tasks(activity.client()) if ended else ()
            turns = await self.transcript.prune(ended, before, continued)
        found = {
            "turns": turns,
            "after": chosen[-1] if len(ids) >= MAX_TASKS else None,
            "kept": len(chosen) - len(over.closed) - len(over.gone),
            "ownerless": await self.vault.ownerless(before),
        }
        return pruned.model_copy(update=found)

    async def _lacks(self, claims: Sequence[PayloadClaim]) -> str:
        """Why one of the payloads that `claims` refer to cannot be fetched; empty if all can be fetched."""
        # The vault checks its own claims with one query each, and without the data.
        in_vault = [StorageDriverClaim(claim.data) for claim in claims if claim.driver == self.vault.name()]
        if missing := await self.vault.lacks(in_vault):
            return missing
        for claim in claims:
            if claim.driver != self.vault.name():
                try:
                    await self._fetch_payload(claim.driver, claim.data)
                except NeedsPerson as missing:
                    return str(missing)
        return ""

    async def _effects(self, task: str) -> EffectsFindings:
        found, unread = list[Mapping[str, Any]](), list[Place]()
        for engine in self.ledgers:
            try:
                async with transaction(reading(engine)) as tx:
                    found += await effects_of(tx, task)
            except DATABASE_ERRORS as error:
                problem = classify(error).reason.rstrip(".")
                unread.append(Place(name="ledger", where=spoken(engine.url), problem=problem))
        cards = [EffectCard.model_validate(effect) for effect in sorted(found, key=lambda effect: effect["at"])]
        return EffectsFindings(planner=self.planner, effects=tuple(cards), unread=tuple(unread))

    async def _without_row(self, effects: Sequence[AppliedEffect]) -> tuple[str, ...]:
        """The keys of `effects` of which no ledger has a row; empty if a ledger cannot be read.

        Effects of another store, and of kinds whose database this worker may not have open, are left out.
        """
        here = {name for name, kind in self.kinds.items() if kind.spec.effect in IN_LEDGER}
        keys = [effect.key for effect in effects if effect.store == self.store and effect.kind in here]
        known = set[str]()
        try:
            for engine in self.ledgers:
                async with transaction(reading(engine)) as tx:
                    known |= await known_keys(tx, keys)
        except DATABASE_ERRORS:  # the check of the store, or the list of effects, says so
            return ()
        return tuple(key for key in keys if key not in known)

    async def _turns(self, run: str, skip: int) -> TranscriptFindings:
        """The turns of the task whose first run is `run`, from turn `skip` on; as many as fit into one answer."""
        cards = (await self.transcript.cards(run))[skip:] if self.transcript else ()
        sizes = accumulate(len(card.model_dump_json().encode()) for card in cards)
        # At least one turn, however large: an empty page would let the client ask for the same turn for ever.
        page = cards[: max(1, sum(size <= MAX_PAGE for size in sizes))]
        return TranscriptFindings(planner=self.planner, transcript=tuple(page), more=len(page) < len(cards))

    async def _fetch_value(self, driver: str, claim: dict[str, str]) -> JsonValue:
        payload = await self._fetch_payload(driver, claim)
        if payload.metadata.get("encoding") == PRUNED_ENCODING:
            raise NeedsPerson(payload.data.decode())
        converter, task = activity.client().data_converter, claim.get("task")
        if task:  # a codec may have a key for each task
            converter = converter.with_context(WorkflowSerializationContext(activity.info().namespace, task))
        value: JsonValue = (await converter.decode([payload]))[0]
        return value

    async def _fetch_payload(self, driver: str, claim: dict[str, str]) -> Payload:
        """Fetch a payload from external storage. Raises NeedsPerson if the payload or its driver is missing."""
        drivers = {storage.name(): storage for storage in (self.vault, *self.buckets)}
        if driver not in drivers:
            raise NeedsPerson(f"This worker has no driver {driver!r}: start a worker with the same REPLAN_PAYLOADS.")
        try:
            [payload] = await drivers[driver].retrieve(StorageDriverRetrieveContext(), [StorageDriverClaim(claim)])
        except (PayloadLost, RuntimeError, ValueError) as lost:  # the SDK's S3 driver raises the last two
            raise NeedsPerson(str(lost)) from lost
        return payload


async def _select_ended(client: Client, tasks: Sequence[str]) -> EndedTasks:
    """Select the tasks (workflow ids) that have no open run and no open rollback, a workflow that undoes effects."""
    # Each workflow is asked for: a list of open workflows is about a second old.
    own = await asyncio.gather(*(_is_open(client, task) for task in tasks))
    undone = await asyncio.gather(*(_is_open(client, rollback_id(task)) for task in tasks))
    before = await asyncio.gather(*(_is_open(client, reset_rollback_id(task)) for task in tasks))
    states = zip(tasks, own, undone, before, strict=True)
    over = [(task, found) for task, found, *rollbacks in states if not (found or any(rollbacks))]
    return EndedTasks(
        closed=[task for task, found in over if found is not None],
        gone=[task for task, found in over if found is None],
    )


async def _is_open(client: Client, id: str) -> bool | None:
    """Whether a workflow may still run; None if the server does not have the workflow."""
    which = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=WorkflowExecution(workflow_id=id))
    try:
        description = await client.workflow_service.describe_workflow_execution(which, retry=True)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    return int(description.workflow_execution_info.status) not in CLOSED


async def _continued_by_open_tasks(client: Client) -> set[str]:
    """Find the tasks whose conversation an open task continues; return the ids of their first runs."""
    # From memos, since an open task that has no turn yet is not in the table of turns.
    found = set[str]()
    async for row in client.list_workflows("WorkflowType = 'AgentWorkflow' AND CloseTime IS NULL"):
        # Any program may start such a workflow: a memo that cannot be read names no conversation.
        with suppress(Exception):  # codecs may raise anything
            found.add(await row.memo_value(CONTINUES_MEMO, "", type_hint=str))
    return found
