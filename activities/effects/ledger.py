"""The ledger: a table with one row for each effect, by the key of its call, so that each effect is applied once.

A call inserts its key first. If another call has inserted the key, this call waits until the other one commits, and
returns the recorded result. For a transactional tool, row and effect are one transaction. For an effect outside the
database, the call claims the key: it commits a row without a result before the tool is called. The result of an effect
that was undone is never returned again.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import JsonValue
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Float,
    Index,
    Integer,
    String,
    Table,
    Text,
    delete,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.borders.sql import DATABASE_ERRORS
from activities.effects.errors import EffectUndone, KeyConflict, OutcomeUnknown
from activities.storage.store import (
    REPLAN_TABLES,
    Moment,
    SealedText,
    insert_new,
    reading,
    transaction,
    translated_outage,
    write,
)

LEDGER = Table(
    "replan_ledger",
    REPLAN_TABLES,
    Column("key", String(1200), primary_key=True),
    Column("task", String(1000), nullable=False, index=True),
    Column("step", String(200), nullable=False),
    Column("kind", String(200), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("result", SealedText),
    Column("at", Moment, nullable=False),
    Column("claim", Integer, nullable=False, default=0),
    Column("undone_at", Moment),
    Column("undone_by", String(1200)),
    Column("session", String(1000)),
    Column("effect", String(20)),
    Column("state", String(20)),
    Column("arguments", SealedText),
    Column("caller_key", String(1000)),
    Column("run", String(1000)),
    Column("call", String(1000)),
    Column("family", String(1000)),
    Column("owner", String(32)),
    Column("asker", String(100)),
    Column("reader", String(100)),
    Column("seq", BigInteger),
    Column("read_seq", BigInteger),
    Column("expires", Float),
    Column("missed_at", Float),
    Column("is_unproven", Integer),
    Column("is_abandoned", Integer),
    Column("joined", Integer),
    Column("about", String(1200)),
    Column("why", Text),
    Index("replan_ledger_session", "session", "kind", "state"),
    Index("replan_ledger_seq", "seq"),
    Index("replan_ledger_asker", "asker", "session", "seq"),
    Index("replan_ledger_reader", "reader"),
)
"""`digest` is the digest of kind and arguments, `result` is JSON, and `claim` is the fencing token of the call.

`undone_by` is the key of the call that undid the effect. The columns from `session` on are empty for a call of a task;
`activities.effects.calls` explains them.
"""

MAX_KEYS = 500
"""The most keys in one query: databases limit the parameters of a statement."""

Work = Callable[[], Awaitable[JsonValue]]
"""A function that applies the effect and returns its result."""


class LedgerEntry(NamedTuple):
    """What the ledger records of a call that applies an effect."""

    key: str
    task: str
    step: str
    kind: str
    digest: str
    """The digest of the kind and the arguments."""
    fencing_token: int = 0
    """How often Replan found that the effect was not applied; a call with a higher token takes over the key."""

    @property
    def row(self) -> dict[str, Any]:
        """The values of the row by column."""
        fields = self._asdict()
        return {"claim": fields.pop("fencing_token"), **fields}


class EffectResult(NamedTuple):
    """The result of an effect, as JSON."""

    result: JsonValue
    replayed: bool
    """Whether the result was recorded by an earlier call."""


async def apply_in_transaction(tx: AsyncConnection, entry: LedgerEntry, work: Work) -> EffectResult:
    """Apply an effect in the transaction `tx`, or return its recorded result.

    Raises:
        KeyConflict: the key was used with other arguments.
        EffectUndone: the effect was undone.
        DatabaseUnavailable: the datasource cannot be reached; nothing was done.
    """
    if recorded := await tx.run_sync(_claim, entry):
        return recorded
    result = await work()
    await tx.run_sync(_record, entry, result)
    return EffectResult(result, replayed=False)


def apply_in_blocking_transaction(tx: Connection, entry: LedgerEntry, work: Callable[[], JsonValue]) -> EffectResult:
    """`apply_in_transaction` without an event loop; raises as it does."""
    if recorded := _claim(tx, entry):
        return recorded
    result = work()
    _record(tx, entry, result)
    return EffectResult(result, replayed=False)


async def apply_at_most_once(
    engine: AsyncEngine, entry: LedgerEntry, work: Work, proves_no_effect: Callable[[BaseException], bool]
) -> EffectResult:
    """Claim the key and commit the claim, then apply an effect outside the database; or return its recorded result.

    The claim is deleted only after an exception for which `proves_no_effect` returns True.

    Raises:
        OutcomeUnknown: an earlier attempt claimed the key and recorded no result.
        KeyConflict: the key was used with other arguments.
        EffectUndone: the effect was undone.
        DatabaseUnavailable: the store cannot be reached; nothing was done.
    """
    if recorded := await write(engine, lambda tx: _claim(tx, entry)):
        return recorded
    return EffectResult(await apply_claimed(engine, entry, work, proves_no_effect), replayed=False)


async def apply_claimed(
    engine: AsyncEngine, entry: LedgerEntry, work: Work, proves_no_effect: Callable[[BaseException], bool]
) -> JsonValue:
    """Apply an effect whose key this call has claimed, record its result, and return it.

    If `proves_no_effect` returns True for an exception, the claim is deleted, and another attempt may claim the key.
    """
    try:
        await asyncio.sleep(0)  # raises a cancel that came while the key was claimed
        result = await work()
    except BaseException as error:
        if proves_no_effect(error):
            await write(engine, lambda tx: tx.execute(delete(LEDGER).where(*_where_claimed_by(entry))).rowcount)
        raise
    try:
        await write(engine, lambda tx: _record(tx, entry, result), follows_effect=True)
    except DATABASE_ERRORS as error:  # history keeps the result, and the claim prevents a second effect
        log = _log()
        log.warning("ledger_behind", error=type(error).__name__)
    return result


async def undone_by(ledgers: Sequence[AsyncEngine], key: str) -> str | None:
    """The key of the call that undid the effect of `key`; None if it was not undone."""
    for engine in ledgers:
        async with transaction(reading(engine)) as tx:
            by = await tx.scalar(select(LEDGER.c.undone_by).where(LEDGER.c.key == key))
        if by is not None:
            return str(by)
    return None


async def find_result(engine: AsyncEngine, key: str) -> EffectResult | None:
    """The result of the effect of `key`; None if the ledger does not have it.

    Raises:
        EffectUndone: the effect was undone.
        OutcomeUnknown: the key was claimed, but no result is recorded.
    """
    async with transaction(reading(engine)) as tx:
        return await tx.run_sync(find_result_in, key)


def find_result_in(tx: Connection, key: str) -> EffectResult | None:
    """`find_result` in a transaction; raises as it does."""
    row = tx.execute(select(LEDGER.c.result, LEDGER.c.undone_at).where(LEDGER.c.key == key)).first()
    if row is None:
        return None
    if row.undone_at is not None:
        raise EffectUndone(key)
    if row.result is None:
        raise OutcomeUnknown(key)
    return EffectResult(json.loads(row.result), replayed=True)


async def mark_undone(ledgers: Sequence[AsyncEngine], entry: LedgerEntry, by: str) -> None:
    """Record that the call with the key `by` undid an effect, in the ledger that has it.

    If no ledger has a row for the effect (as for a keyed tool), insert a row into the first ledger.
    """
    mark = {"undone_at": datetime.now(UTC), "undone_by": by}
    marked = update(LEDGER).where(LEDGER.c.key == entry.key).values(mark)
    for engine in ledgers:
        if await write(engine, lambda tx: tx.execute(marked).rowcount):
            return
    await write(ledgers[0], lambda tx: insert_new(tx, LEDGER, {**entry.row, "at": mark["undone_at"], **mark}))


async def effects_of(tx: AsyncConnection, task: str) -> Sequence[dict[str, Any]]:
    """The ledger's rows about a task as dictionaries, the oldest first."""
    found = await tx.execute(select(LEDGER).where(LEDGER.c.task == task).order_by(LEDGER.c.at, LEDGER.c.key))
    return [{**row._mapping, "result": json.loads(row.result) if row.result else None} for row in found]


async def known_keys(tx: AsyncConnection, keys: Sequence[str]) -> set[str]:
    """Those of the idempotency keys that have a row in the ledger."""
    parts = [keys[at : at + MAX_KEYS] for at in range(0, len(keys), MAX_KEYS)]
    return {key for part in parts for key in await tx.scalars(select(LEDGER.c.key).where(LEDGER.c.key.in_(part)))}


def _claim(tx: Connection, entry: LedgerEntry) -> EffectResult | None:
    """Claim the key, and return None; or return the recorded result. Raises as `_recorded`."""
    # The other call may delete its claim between these two queries: then try to claim the key again.
    while not _try_to_claim(tx, entry):
        if recorded := _recorded(tx, entry):
            return recorded
    return None


def _try_to_claim(tx: Connection, entry: LedgerEntry) -> bool:
    """Claim the key if it has no row, or one with the same arguments, a lower fencing token, no result and no undo."""
    row = {**entry.row, "at": datetime.now(UTC)}
    with translated_outage():
        if insert_new(tx, LEDGER, row):
            return True
        older = (LEDGER.c.key == entry.key, LEDGER.c.digest == entry.digest, LEDGER.c.claim < entry.fencing_token)
        empty = (LEDGER.c.result.is_(None), LEDGER.c.undone_at.is_(None))
        return tx.execute(update(LEDGER).where(*older, *empty).values(row)).rowcount == 1


def _record(tx: Connection, entry: LedgerEntry, result: JsonValue) -> None:
    recorded = tx.execute(update(LEDGER).where(*_where_claimed_by(entry)).values(result=json.dumps(result)))
    if not recorded.rowcount:  # a call with a newer fencing token has the key, so there may be two effects
        log = _log()
        log.error("ledger_superseded", key=entry.key)


def _log() -> Any:
    import structlog  # which takes a tenth of the time to import this floor, and most programs log nothing here

    return structlog.get_logger("replan.ledger")


def _where_claimed_by(entry: LedgerEntry) -> tuple[ColumnElement[bool], ...]:
    return LEDGER.c.key == entry.key, LEDGER.c.claim == entry.fencing_token


def _recorded(tx: Connection, entry: LedgerEntry) -> EffectResult | None:
    """The recorded result of a key that this call could not claim; None if the row was deleted meanwhile.

    Raises EffectUndone, KeyConflict or OutcomeUnknown if the row has no result that this call may return.
    """
    columns = select(LEDGER.c.digest, LEDGER.c.result, LEDGER.c.undone_at).where(LEDGER.c.key == entry.key)
    row = tx.execute(columns).one_or_none()
    if row is None:
        return None
    if row.undone_at is not None:
        raise EffectUndone(entry.key)
    if row.digest != entry.digest:
        raise KeyConflict(entry.key)
    if row.result is None:
        raise OutcomeUnknown(entry.key)
    return EffectResult(json.loads(row.result), replayed=True)
