"""Records in the store the state ahead of a call, so that a later read can tell the call's effect from others."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, JsonValue
from sqlalchemy import Column, String, Table, delete, select
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.storage.store import REPLAN_TABLES, Moment, SealedText, insert_new, reading, transaction, write
from workflows.json_values import digest

AHEAD = Table(
    "replan_ahead",
    REPLAN_TABLES,
    Column("key", String(1200), primary_key=True),
    Column("at", Moment, nullable=False, index=True),
    Column("before", SealedText, nullable=False),
)
"""A row for each call whose reconcile needs it; `before` is JSON."""
KEPT = timedelta(days=40)


class Noted(BaseModel):
    """The value of `call` in a condition and in the arguments of a read."""

    claimed_at: str
    """The time in UTC, to the second, e.g. `2026-11-26T08:00:00+00:00`; the call was made in that second or later."""
    mark: str
    """The line that `mark` of the tools file adds to an argument: the same for all attempts, and for no other call."""


def mark_of(key: str) -> str:
    """The line by which a read finds the effect of the call with this key."""
    return f"Replan-Call: {digest(key)[:20]}"


class Ahead(BaseModel):
    """The record that is stored ahead of a call: the time and, if it is needed, the result of a read (`before`)."""

    claimed_at: datetime
    before: JsonValue = None

    def noted(self, key: str) -> dict[str, JsonValue]:
        """The fields of `Noted` for the call with this key."""
        at = self.claimed_at.astimezone(UTC).replace(microsecond=0).isoformat()
        return Noted(claimed_at=at, mark=mark_of(key)).model_dump()


async def note(engine: AsyncEngine, key: str, ahead: Ahead) -> None:
    """Store the record ahead of a call. It replaces the record of an earlier attempt that was proved to have no effect.

    Deletes records older than `KEPT`. Raises DatabaseUnavailable if the store cannot be reached; nothing was stored.
    """
    row = {"key": key, "at": ahead.claimed_at, "before": json.dumps(ahead.before)}

    def work(tx: Any) -> None:
        tx.execute(delete(AHEAD).where((AHEAD.c.key == key) | (AHEAD.c.at < ahead.claimed_at - KEPT)))
        insert_new(tx, AHEAD, row)

    await write(engine, work)


async def find(engine: AsyncEngine, key: str) -> Ahead | None:
    """The record ahead of the call with this key; None if no attempt has stored one."""
    async with transaction(reading(engine)) as tx:
        row = (await tx.execute(select(AHEAD.c.at, AHEAD.c.before).where(AHEAD.c.key == key))).first()
    return Ahead(claimed_at=row.at, before=json.loads(row.before)) if row else None
