"""What really happens in a trial: the bank's database, the calls that tools note, and the effects."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel
from sqlalchemy import Column, Integer, MetaData, String, Table, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from temporalio import activity

from evals.chaos.payments import Book

OPENING = 100_000
"""Cents in every account at the beginning."""
SIZE = 20
"""How many accounts there are, numbered from 1."""

metadata = MetaData()

ACCOUNTS = Table(
    "accounts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("balance", Integer, nullable=False),
)
TRANSFERS = Table(
    "transfers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("reference", String(200), nullable=False, index=True),
    Column("source", Integer, nullable=False),
    Column("target", Integer, nullable=False),
    Column("amount", Integer, nullable=False),
)
"""No constraint on the reference: a second transfer of the same step must be visible."""
RECEIPTS = Table(
    "receipts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("reference", String(200), nullable=False, index=True),
    Column("words", String(1000), nullable=False),
)


def back_of(reference: str) -> str:
    """The reference of the undo of an effect."""
    return f"{reference}:back"


async def open_accounts(engine: AsyncEngine) -> None:
    """Create the tables and the accounts in an empty database."""
    async with engine.begin() as tx:
        await tx.run_sync(metadata.create_all)
        await tx.execute(insert(ACCOUNTS), [{"id": number, "balance": OPENING} for number in range(1, SIZE + 1)])


NOTES = "REPLAN_CHAOS_NOTES"
"""The environment variable that names the file of notes, to which all workers append."""


class Note(BaseModel):
    """One call of a tool."""

    task: str
    run: str
    step: str
    kind: str
    attempt: int
    scheduled: datetime
    """When the server scheduled this attempt, by its clock."""
    worker: int


def take_note() -> None:
    """Note the call that runs now; not in its transaction, which may be rolled back."""
    info = activity.info()
    note = Note(
        task=info.workflow_id or "",
        run=info.workflow_run_id or "",
        step=info.activity_id,
        kind=info.activity_type,
        attempt=info.attempt,
        scheduled=info.current_attempt_scheduled_time,
        worker=os.getpid(),
    )
    with Path(os.environ[NOTES]).open("a") as file:  # one short line, appended atomically
        file.write(f"{note.model_dump_json()}\n")


def read_notes(file: Path) -> list[Note]:
    """All calls so far, the oldest first."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [Note.model_validate_json(line) for line in lines]


CHARGES = (
    *(
        "pay",
        "pay_strictly",
        "pay_once",
        "pay_blindly",
        "pay_slowly",
        "pay_patiently",
        "pay_frozen",
        "pay_late",
        "pay_too_late",
    ),
    *("pay_and_exit", "pay_and_stop", "pay_and_ask"),
)


@dataclass(frozen=True)
class Effects:
    """The effects that really happened."""

    transfers: Mapping[str, int]
    """How many, by reference; the next two alike."""
    receipts: Mapping[str, int]
    charges: Mapping[str, int]
    limits: Mapping[str, int]
    """Amount by reference."""
    total: int
    """Cents in all accounts."""
    unbalanced: Sequence[int]
    """Accounts whose balance differs from the sum of their transfers."""

    def count(self, kind: str, reference: str) -> int | None:
        """How often an effect happened; None for a kind that has none."""
        if kind in CHARGES:
            return self.charges.get(reference, 0)
        match kind:
            case "refund":
                return self.charges.get(back_of(reference), 0)
            case "move_back":
                return self.transfers.get(back_of(reference), 0)
            case "transfer":
                return self.transfers.get(reference, 0)
            case "write_receipt":
                return self.receipts.get(reference, 0)
            case "set_limit":
                return int(reference in self.limits)
        return None

    @property
    def all(self) -> Mapping[str, int]:
        """How often each sort of effect happened."""
        return {
            "transfers": sum(self.transfers.values()),
            "receipts": sum(self.receipts.values()),
            "charges": sum(self.charges.values()),
            "limits": len(self.limits),
        }


async def read_effects(bank: str, book: Book) -> Effects:
    """Read the journals of the bank and of the payment service."""
    engine = create_async_engine(bank)
    try:
        async with engine.connect() as tx:
            moved, receipts = await _counts(tx, TRANSFERS), await _counts(tx, RECEIPTS)
            balances = {row.id: row.balance for row in await tx.execute(select(ACCOUNTS))}
            transfers = list(await tx.execute(select(TRANSFERS)))
    finally:
        await engine.dispose()
    expected = dict.fromkeys(balances, OPENING)
    for transfer in transfers:
        expected[transfer.source] -= transfer.amount
        expected[transfer.target] += transfer.amount
    unbalanced = [id for id, balance in balances.items() if balance != expected[id]]
    return Effects(moved, receipts, book.charges(), book.limits(), sum(balances.values()), unbalanced)


async def _counts(tx: AsyncConnection, table: Table) -> Mapping[str, int]:
    """How many rows each reference has."""
    rows = await tx.execute(select(table.c.reference, func.count()).group_by(table.c.reference))
    return {row[0]: row[1] for row in rows}
