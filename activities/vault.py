"""The vault: large payloads of tasks, kept in the store by task and digest, so that histories stay small."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from sqlalchemy import Column, Integer, LargeBinary, String, Table, delete, func, select, update
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
from activities.store import DATABASE_ERRORS, OWN, Moment, insert_new, reached, writing
from workflows.faults import Code, Fault
from workflows.inspect import Pruned

PAYLOADS = Table(
    "replan_payloads",
    OWN,
    Column("task", String(1000), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("size", Integer, nullable=False),
    Column("stored", Moment, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""One row for each different payload of a task; `stored` is when it was written last."""


class PayloadLost(ApplicationError):
    """A payload cannot be kept, or is not there; it says so in the form in which a fault leaves an activity.

    A worker whose store is away fails its workflow tasks with it, which the server repeats until the store is back.
    """

    def __init__(self, fault: Fault) -> None:
        """Say why."""
        super().__init__(fault.reason, fault, type=fault.quadrant.value, non_retryable=True)

    def __str__(self) -> str:
        """Only the reason."""
        return self.message


class Vault(StorageDriver):
    """The driver of the SDK's external storage on the project's own store."""

    def __init__(self, engine: AsyncEngine) -> None:
        """Keep payloads in this store."""
        self._engine = engine

    def name(self) -> str:
        """How histories refer to this driver."""
        return "replan-store"

    def type(self) -> str:
        """The same wherever it is written again."""
        return "replan.store"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Keep the payloads and return where they are; the same payload of a task is kept once.

        Raises:
            PayloadLost: they cannot be kept.
        """
        target = context.target
        task = "" if target is None or isinstance(target, StorageDriverActivityInfo) else target.id or ""
        claims = list[StorageDriverClaim]()
        async with _transaction(writing(self._engine)) as tx:
            for payload in payloads:
                data = payload.SerializeToString(deterministic=True)
                digest = hashlib.sha256(data).hexdigest()
                await _keep(tx, task, digest, data)
                claims.append(StorageDriverClaim({"task": task, "digest": digest, "size": str(len(data))}))
        return claims

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Return the payloads.

        Raises:
            PayloadLost: one is not there, or does not have its digest, or the store cannot be used.
        """
        async with _transaction(self._engine) as tx:
            return [await _take(tx, claim.claim_data["task"], claim.claim_data["digest"]) for claim in claims]

    async def prune(self, before: datetime) -> Pruned:
        """Delete what was stored before a moment; the caller knows that no open task is older."""
        old = PAYLOADS.c.stored < before
        async with writing(self._engine).begin() as tx:
            counted = (await tx.execute(select(func.count(), func.sum(PAYLOADS.c.size)).where(old))).one()
            await tx.execute(delete(PAYLOADS).where(old))
        return Pruned(payloads=counted[0], size=counted[1] or 0)


@asynccontextmanager
async def _transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A transaction of which no foreign word gets into a history."""
    try:
        with reached():
            async with engine.begin() as tx:
                yield tx
    except DATABASE_ERRORS as error:
        raise PayloadLost(classify(error)) from None


async def _keep(tx: AsyncConnection, task: str, digest: str, data: bytes) -> None:
    row = {"task": task, "digest": digest, "size": len(data), "stored": datetime.now(UTC), "data": data}
    if not await insert_new(tx, PAYLOADS, row):
        same = (PAYLOADS.c.task == task) & (PAYLOADS.c.digest == digest)
        await tx.execute(update(PAYLOADS).where(same).values(stored=row["stored"]))


async def _take(tx: AsyncConnection, task: str, digest: str) -> Payload:
    same = (PAYLOADS.c.task == task) & (PAYLOADS.c.digest == digest)
    data = await tx.scalar(select(PAYLOADS.c.data).where(same))
    where = f"The payload {digest[:12]} of task {task!r}"
    if data is None:
        raise _lost(f"{where} is not in this worker's store: start a worker on the store that has it.")
    if hashlib.sha256(data).hexdigest() != digest:
        raise _lost(f"{where} is not what was stored: restore the store from a backup.")
    return Payload.FromString(data)


def _lost(reason: str) -> PayloadLost:
    return PayloadLost(Fault.of(Code.WRONG_STORE, reason))
