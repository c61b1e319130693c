"""The vault: large payloads of tasks, stored by task and digest, so that histories stay small.

A payload that `prune` deletes leaves a row without data, which says when and by whom it was deleted.
"""

import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    case,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriver,
    StorageDriverActivityInfo,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)
from temporalio.exceptions import ApplicationError

from activities.borders import classify
from activities.borders.sql import DATABASE_ERRORS
from activities.storage.store import REPLAN_TABLES, Moment, insert_new, reading, translated_outage, write
from workflows.faults.fault import Code, Fault
from workflows.inquiries import PrunedPayloads
from workflows.plans.references import PRUNED_ENCODING

PAYLOADS = Table(
    "replan_payloads",
    REPLAN_TABLES,
    Column("task", String(1000), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("size", Integer, nullable=False),
    Column("stored", Moment, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("namespace", String(200)),
    Column("pruned", Moment),
    Column("pruned_by", String(200)),
    Index("replan_payloads_owner", "namespace", "task", "stored"),  # without it, a query about owners reads all data
)
"""One row for each different payload of a task; `stored` is the time of its last write, `size` its bytes.

`namespace` is the id of the task's namespace; null if the namespace is unknown, or if two namespaces share the payload.
`pruned` is the time when `prune` deleted the data, and `pruned_by` the person who asked for that.
"""


class PayloadLost(ApplicationError):
    """A payload cannot be stored or fetched: an ApplicationError with a Fault, as activities raise it.

    A failed fetch is retryable: the SDK fetches what a workflow task needs before workflow code runs, and a
    non-retryable error there would close the workflow. So the workflow task fails, and the server repeats it until a
    worker has the payload. A failed store is not retryable: the activity whose result cannot be stored ends, and the
    workflow decides by the fault.
    """

    def __init__(self, fault: Fault, *, non_retryable: bool = False) -> None:
        super().__init__(fault.reason, fault, type=fault.quadrant.value, non_retryable=non_retryable)

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class EndedTasks:
    """The workflow ids of tasks without an open run."""

    closed: Sequence[str]
    """Tasks whose histories the Temporal server still has."""
    gone: Sequence[str]
    """Tasks that the Temporal server does not have any more."""


class Vault(StorageDriver):
    """A driver for the SDK's external storage; it keeps the payloads in a table of Replan's store."""

    def __init__(self, engine: AsyncEngine, namespace: str | None = None) -> None:
        """`namespace` is the id of the namespace to which the stored payloads belong."""
        self._engine = engine
        self._namespace = namespace

    def name(self) -> str:
        return "replan-store"

    def type(self) -> str:
        return "replan.store"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Store the payloads and return a claim (a reference) for each; a task's equal payloads are stored once.

        Raises:
            PayloadLost: the payloads cannot be stored.
        """
        target = context.target
        task = "" if target is None or isinstance(target, StorageDriverActivityInfo) else target.id or ""
        namespace = self._namespace if task else None
        written = [payload.SerializeToString(deterministic=True) for payload in payloads]
        stored = [(hashlib.sha256(data).hexdigest(), data) for data in written]

        def keep(tx: Connection) -> None:
            for digest, data in dict(stored).items():
                _keep(tx, task, digest, data, namespace)

        with _lost(non_retryable=True):
            await write(self._engine, keep)
        return [StorageDriverClaim({"task": task, "digest": digest, "size": str(len(data))}) for digest, data in stored]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Fetch the payloads; a payload with a sentence about the deletion replaces one that `prune` deleted.

        Raises:
            PayloadLost: a payload is missing or damaged, or the store cannot be used.
        """
        async with _transaction(self._engine) as tx:
            return [await _take(tx, claim.claim_data["task"], claim.claim_data["digest"]) for claim in claims]

    async def lacks(self, claims: Sequence[StorageDriverClaim]) -> str | None:
        """Say why the first payload that is missing or deleted cannot be fetched; None if there is no such payload.

        Raises:
            PayloadLost: the store cannot be used.
        """
        async with _transaction(self._engine) as tx:
            for claim in claims:
                task, digest = claim.claim_data["task"], claim.claim_data["digest"]
                query = select(PAYLOADS.c.size, PAYLOADS.c.pruned, PAYLOADS.c.pruned_by)  # without the data
                same = (PAYLOADS.c.task == task, PAYLOADS.c.digest == digest)
                found = (await tx.execute(query.where(*same))).first()
                if found is None or found.pruned is not None:
                    return _missing_message(task, digest) if found is None else _deletion_message(task, digest, found)
        return None

    async def tasks(self, before: datetime, after: str, limit: int) -> list[str]:
        """List workflow ids of this namespace's tasks that have payloads older than `before`.

        The ids are sorted and begin after the id `after`; there are at most `limit`.
        """
        later = PAYLOADS.c.task > after
        query = select(PAYLOADS.c.task).distinct().where(self._old(before), later)
        async with reading(self._engine).begin() as tx:
            return list(await tx.scalars(query.order_by(PAYLOADS.c.task).limit(limit)))

    async def prune(self, tasks: EndedTasks, before: datetime, by: str) -> PrunedPayloads:
        """Delete payloads of ended tasks of this namespace that are older than `before`; `by` is the person who asked.

        The rows of closed tasks stay without their data, since the histories of these tasks can still be read.
        """
        old = self._old(before)
        closed, gone = PAYLOADS.c.task.in_(tasks.closed), PAYLOADS.c.task.in_(tasks.gone)
        kept = PAYLOADS.c.pruned.is_(None)
        left = {"data": b"", "pruned": datetime.now(UTC), "pruned_by": by[:200]}

        def delete_old(tx: Connection) -> PrunedPayloads:
            sizes = select(func.count(), func.sum(PAYLOADS.c.size)).where(old, kept, closed | gone)
            count, size = tx.execute(sizes).one()
            tx.execute(update(PAYLOADS).where(old, kept, closed).values(left))
            tx.execute(delete(PAYLOADS).where(old, gone))
            return PrunedPayloads(payloads=count, size=size or 0)

        return await write(self._engine, delete_old)

    def _old(self, before: datetime) -> ColumnElement[bool]:
        return (PAYLOADS.c.namespace == (self._namespace or "")) & (PAYLOADS.c.stored < before)

    async def ownerless(self, before: datetime) -> int:
        """Count the payloads older than `before` that belong to no known namespace, or to several."""
        old = (PAYLOADS.c.namespace.is_(None), PAYLOADS.c.stored < before)
        async with reading(self._engine).begin() as tx:
            return await tx.scalar(select(func.count()).select_from(PAYLOADS).where(*old)) or 0


@asynccontextmanager
async def _transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A transaction whose database errors become PayloadLost."""
    with _lost():
        async with engine.begin() as tx:
            yield tx


@contextmanager
def _lost(*, non_retryable: bool = False) -> Iterator[None]:
    """Inside the block, raise PayloadLost in place of an error of the database, without the driver's message."""
    try:
        with translated_outage():
            yield
    except DATABASE_ERRORS as error:
        raise PayloadLost(classify(error), non_retryable=non_retryable) from None


def _keep(tx: Connection, task: str, digest: str, data: bytes, namespace: str | None) -> None:
    row = {"task": task, "digest": digest, "size": len(data), "stored": datetime.now(UTC), "data": data}
    if insert_new(tx, PAYLOADS, {**row, "namespace": namespace}):
        return
    same = (PAYLOADS.c.task == task) & (PAYLOADS.c.digest == digest)
    # A task of another namespace may have the same id: a payload of both gets no owner, so neither can delete it.
    owner = case((PAYLOADS.c.namespace == namespace, PAYLOADS.c.namespace))
    tx.execute(update(PAYLOADS).where(same).values(stored=row["stored"], namespace=owner))
    again = update(PAYLOADS).where(same, PAYLOADS.c.pruned.is_not(None))
    tx.execute(again.values(data=data, pruned=None, pruned_by=None))


async def _take(tx: AsyncConnection, task: str, digest: str) -> Payload:
    same = (PAYLOADS.c.task == task) & (PAYLOADS.c.digest == digest)
    row = (await tx.execute(select(PAYLOADS).where(same))).first()
    if row is None:
        raise PayloadLost(Fault.of(Code.WRONG_STORE, _missing_message(task, digest)))
    if row.pruned is not None:
        return Payload(metadata={"encoding": PRUNED_ENCODING}, data=_deletion_message(task, digest, row).encode())
    if hashlib.sha256(row.data).hexdigest() != digest:
        reason = f"{_payload_name(task, digest)} is not what was stored: restore the store from a backup."
        raise PayloadLost(Fault.of(Code.WRONG_STORE, reason))
    return Payload.FromString(row.data)


def _payload_name(task: str, digest: str) -> str:
    return f"The payload {digest[:12]} of task {task!r}"


def _missing_message(task: str, digest: str) -> str:
    return f"{_payload_name(task, digest)} is not in this worker's store: start a worker on the store that has it."


def _deletion_message(task: str, digest: str, row: Any) -> str:
    when = f"{row.pruned:%Y-%m-%d %H:%M} UTC, asked by {row.pruned_by or 'an unknown person'}"
    return f"{_payload_name(task, digest)} ({row.size} bytes) was deleted by `prune` ({when}): start the task anew."
