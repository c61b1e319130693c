"""The ledger: what an effect came to, written in the effect's own transaction, so that it happens once.

A call inserts its key first. Whoever loses that race waits for the winner's commit and is given the winner's result.
An effect outside the database, which nothing can repeat safely, claims its key before it happens.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import JsonValue
from sqlalchemy import Column, String, Table, Text, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.store import Moment, insert_new, metadata, writing

LEDGER = Table(
    "ledger",
    metadata,
    Column("key", String(1200), primary_key=True),
    Column("task", String(1000), nullable=False, index=True),
    Column("step", String(200), nullable=False),
    Column("kind", String(200), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("result", Text),
    Column("at", Moment, nullable=False),
)
"""One row for each effect that happened; `digest` is that of its arguments, `result` JSON."""


class Entry(NamedTuple):
    """Whose effect it is."""

    key: str
    """The idempotency key."""
    task: str
    step: str
    kind: str
    digest: str
    """Of the kind and its arguments."""


class Once(NamedTuple):
    """What an effect came to."""

    result: JsonValue
    replayed: bool
    """Whether it had happened before, and this is what it came to then."""


class Unanswered(Exception):
    """The key was claimed and nobody wrote down what became of it: the effect may have happened."""


class OtherArguments(Exception):
    """The key belongs to a call with other arguments."""


async def once(tx: AsyncConnection, entry: Entry, effect: Callable[[], Awaitable[JsonValue]]) -> Once:
    """Let `effect` happen in this transaction unless it has happened, and return what it came to.

    Raises:
        OtherArguments: it happened with other arguments.
    """
    if not await _claim(tx, entry):
        return await _happened(tx, entry)
    result = await effect()
    await _write(tx, entry, result)
    return Once(result, replayed=False)


async def claimed(
    engine: AsyncEngine, entry: Entry, effect: Callable[[], Awaitable[JsonValue]], is_none: Callable[[Exception], bool]
) -> Once:
    """Let `effect` happen at the most once: its key is claimed, and that is committed, before it begins.

    The claim is given up only when it failed with an exception of which `is_none` says that nothing happened.

    Raises:
        Unanswered: an earlier attempt claimed the key and left no result.
        OtherArguments: the key was used with other arguments.
    """
    async with writing(engine).begin() as tx:
        if not await _claim(tx, entry):
            return await _happened(tx, entry)
    try:
        result = await effect()
    except Exception as error:
        if is_none(error):
            async with writing(engine).begin() as tx:
                await tx.execute(delete(LEDGER).where(LEDGER.c.key == entry.key))
        raise
    async with writing(engine).begin() as tx:
        await _write(tx, entry, result)
    return Once(result, replayed=False)


async def effects(tx: AsyncConnection, task: str) -> Sequence[dict[str, Any]]:
    """What a task did to the world, the oldest first."""
    found = await tx.execute(select(LEDGER).where(LEDGER.c.task == task).order_by(LEDGER.c.at, LEDGER.c.key))
    return [{**row._mapping, "result": json.loads(row.result) if row.result else None} for row in found]


async def _claim(tx: AsyncConnection, entry: Entry) -> bool:
    """Whether the key was free."""
    return await insert_new(tx, LEDGER, {**entry._asdict(), "at": datetime.now(UTC)})


async def _write(tx: AsyncConnection, entry: Entry, result: JsonValue) -> None:
    await tx.execute(update(LEDGER).where(LEDGER.c.key == entry.key).values(result=json.dumps(result)))


async def _happened(tx: AsyncConnection, entry: Entry) -> Once:
    row = (await tx.execute(select(LEDGER.c.digest, LEDGER.c.result).where(LEDGER.c.key == entry.key))).one()
    if row.digest != entry.digest:
        raise OtherArguments(entry.key)
    if row.result is None:
        raise Unanswered(entry.key)
    return Once(json.loads(row.result), replayed=True)
