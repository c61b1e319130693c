"""The ledger: what an effect came to, written in the effect's own transaction, so that it happens once.

A call inserts its key first. Whoever loses that race waits for the winner's commit and is given the winner's result.
An effect outside the database, which nothing can repeat safely, claims its key before it happens. An effect that was
undone has no result any more: whoever asks for it is told so.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import structlog
from pydantic import JsonValue
from sqlalchemy import Column, ColumnElement, Integer, String, Table, Text, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.borders.sql import DATABASE_ERRORS
from activities.storage.store import OWN, Moment, begun, insert_new, reached, reading, writing

log = structlog.get_logger("replan.ledger")

LEDGER = Table(
    "replan_ledger",
    OWN,
    Column("key", String(1200), primary_key=True),
    Column("task", String(1000), nullable=False, index=True),
    Column("step", String(200), nullable=False),
    Column("kind", String(200), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("result", Text),
    Column("at", Moment, nullable=False),
    Column("claim", Integer, nullable=False, default=0),
    Column("undone_at", Moment),
    Column("undone_by", String(1200)),
)
"""One row for each effect that happened; `digest` is that of its arguments, `result` JSON, `undone_by` a key."""


class Entry(NamedTuple):
    """Whose effect it is."""

    key: str
    """The idempotency key."""
    task: str
    step: str
    kind: str
    digest: str
    """Of the kind and its arguments."""
    claim: int = 0
    """How often the effect was found not to have happened: an older claim gives way."""


class Once(NamedTuple):
    """What an effect came to."""

    result: JsonValue
    replayed: bool
    """Whether it had happened before, and this is what it came to then."""


class Unanswered(Exception):
    """The key was claimed and nobody wrote down what became of it: the effect may have happened."""


class Undone(Exception):
    """The effect happened and was taken back: its result stands for nothing any more."""


class OtherArguments(Exception):
    """The key belongs to a call with other arguments."""


async def once(tx: AsyncConnection, entry: Entry, effect: Callable[[], Awaitable[JsonValue]]) -> Once:
    """Let `effect` happen in this transaction unless it has happened, and return what it came to.

    Raises:
        OtherArguments: it happened with other arguments.
        Undone: it happened and was taken back.
        DatabaseUnavailable: the datasource cannot be reached; nothing happened.
    """
    while not await _claim(tx, entry):
        if happened := await _happened(tx, entry):
            return happened
    result = await effect()
    await _write(tx, entry, result)
    return Once(result, replayed=False)


async def claimed(
    engine: AsyncEngine,
    entry: Entry,
    effect: Callable[[], Awaitable[JsonValue]],
    is_none: Callable[[BaseException], bool],
) -> Once:
    """Let `effect` happen at the most once: its key is claimed, and that is committed, before it begins.

    The claim is given up only when it failed with an exception of which `is_none` says that nothing happened.

    Raises:
        Unanswered: an earlier attempt claimed the key and left no result.
        OtherArguments: the key was used with other arguments.
        Undone: it happened and was taken back.
        DatabaseUnavailable: the store cannot be reached; nothing happened.
    """
    async with begun(writing(engine)) as tx:
        while not await _claim(tx, entry):
            if happened := await _happened(tx, entry):
                return happened
    return Once(await settled(engine, entry, effect, is_none), replayed=False)


async def settled(
    engine: AsyncEngine,
    entry: Entry,
    effect: Callable[[], Awaitable[JsonValue]],
    is_none: Callable[[BaseException], bool],
) -> JsonValue:
    """Let an effect happen whose key is claimed, write down what it came to, and return that."""
    try:
        result = await effect()
    except BaseException as error:
        if is_none(error):
            async with writing(engine).begin() as tx:
                await tx.execute(delete(LEDGER).where(*_mine(entry)))
        raise
    try:
        async with writing(engine).begin() as tx:
            await _write(tx, entry, result)
    except DATABASE_ERRORS as error:  # history keeps what it came to, and the claim alone keeps it from happening again
        log.warning("ledger_behind", task=entry.task, step=entry.step, kind=entry.kind, error=type(error).__name__)
    return result


async def undone_by(ledgers: Sequence[AsyncEngine], key: str) -> str | None:
    """The key of the call that took the effect of `key` back; None where nobody has."""
    for engine in ledgers:
        async with begun(reading(engine)) as tx:
            by = await tx.scalar(select(LEDGER.c.undone_by).where(LEDGER.c.key == key))
        if by is not None:
            return str(by)
    return None


async def find(engine: AsyncEngine, key: str) -> Once | None:
    """What the effect of `key` came to; None where it did not happen, or was undone.

    Raises:
        Unanswered: it has a row without a result.
    """
    what = select(LEDGER.c.result).where(LEDGER.c.key == key, LEDGER.c.undone_at.is_(None))
    async with begun(reading(engine)) as tx:
        row = (await tx.execute(what)).first()
    if row is None:
        return None
    if row.result is None:
        raise Unanswered(key)
    return Once(json.loads(row.result), replayed=True)


async def undo(ledgers: Sequence[AsyncEngine], entry: Entry, by: str) -> None:
    """Write down that an effect was taken back by the call with the key `by`.

    That goes into the ledger that has the effect; the first one takes what has no row yet.
    """
    mark = {"undone_at": datetime.now(UTC), "undone_by": by}
    for engine in ledgers:
        async with writing(engine).begin() as tx:
            if (await tx.execute(update(LEDGER).where(LEDGER.c.key == entry.key).values(mark))).rowcount:
                return
    async with writing(ledgers[0]).begin() as tx:
        await insert_new(tx, LEDGER, {**entry._asdict(), "at": mark["undone_at"], **mark})


async def effects(tx: AsyncConnection, task: str) -> Sequence[dict[str, Any]]:
    """What a task did to the world, the oldest first."""
    found = await tx.execute(select(LEDGER).where(LEDGER.c.task == task).order_by(LEDGER.c.at, LEDGER.c.key))
    return [{**row._mapping, "result": json.loads(row.result) if row.result else None} for row in found]


async def _claim(tx: AsyncConnection, entry: Entry) -> bool:
    """Whether the key was free, or an older claim on it gave way.

    Raises:
        DatabaseUnavailable: it cannot be written.
    """
    row = {**entry._asdict(), "at": datetime.now(UTC)}
    with reached():
        if await insert_new(tx, LEDGER, row):
            return True
        older = (LEDGER.c.key == entry.key, LEDGER.c.digest == entry.digest, LEDGER.c.claim < entry.claim)
        empty = (LEDGER.c.result.is_(None), LEDGER.c.undone_at.is_(None))
        return (await tx.execute(update(LEDGER).where(*older, *empty).values(row))).rowcount == 1


async def _write(tx: AsyncConnection, entry: Entry, result: JsonValue) -> None:
    wrote = await tx.execute(update(LEDGER).where(*_mine(entry)).values(result=json.dumps(result)))
    if not wrote.rowcount:  # a newer claim has the key, so there may be two effects
        log.error("ledger_superseded", task=entry.task, step=entry.step, kind=entry.kind, key=entry.key)


def _mine(entry: Entry) -> tuple[ColumnElement[bool], ...]:
    return LEDGER.c.key == entry.key, LEDGER.c.claim == entry.claim


async def _happened(tx: AsyncConnection, entry: Entry) -> Once | None:
    """What the call came to that has the key; None where its claim was given up in this moment."""
    what = select(LEDGER.c.digest, LEDGER.c.result, LEDGER.c.undone_at).where(LEDGER.c.key == entry.key)
    row = (await tx.execute(what)).one_or_none()
    if row is None:
        return None
    if row.undone_at is not None:
        raise Undone(entry.key)
    if row.digest != entry.digest:
        raise OtherArguments(entry.key)
    if row.result is None:
        raise Unanswered(entry.key)
    return Once(json.loads(row.result), replayed=True)
