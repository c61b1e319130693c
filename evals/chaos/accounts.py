"""The bank's own database: accounts whose total never changes, transfers between them, receipts."""

from collections.abc import Mapping

from sqlalchemy import Column, Integer, MetaData, String, Table, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

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
"""Nothing keeps a reference from being used twice: a second transfer of the same step would be seen."""
RECEIPTS = Table(
    "receipts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("reference", String(200), nullable=False, index=True),
    Column("words", String(1000), nullable=False),
)


def back_of(reference: str) -> str:
    """The reference of what takes an effect back."""
    return f"{reference}:back"


async def open_accounts(engine: AsyncEngine) -> None:
    """Make the tables and the accounts in an empty database."""
    async with engine.begin() as tx:
        await tx.run_sync(metadata.create_all)
        await tx.execute(insert(ACCOUNTS), [{"id": number, "balance": OPENING} for number in range(1, SIZE + 1)])


async def counts(engine: AsyncEngine, table: Table) -> Mapping[str, int]:
    """How many rows each reference has."""
    async with engine.connect() as tx:
        rows = await tx.execute(select(table.c.reference, func.count()).group_by(table.c.reference))
        return {row[0]: row[1] for row in rows}


async def total(engine: AsyncEngine) -> int:
    """Cents in all accounts."""
    async with engine.connect() as tx:
        return int(await tx.scalar(select(func.sum(ACCOUNTS.c.balance))) or 0)


async def unbalanced(engine: AsyncEngine) -> list[int]:
    """The accounts whose balance is not what the transfers made of it."""
    async with engine.connect() as tx:
        rows = await tx.execute(select(ACCOUNTS.c.id, ACCOUNTS.c.balance))
        balances = {row.id: row.balance for row in rows}
        moved = list(await tx.execute(select(TRANSFERS.c.source, TRANSFERS.c.target, TRANSFERS.c.amount)))
    expected = dict.fromkeys(balances, OPENING)
    for source, target, amount in moved:
        expected[source] -= amount
        expected[target] += amount
    return [id for id, balance in balances.items() if balance != expected[id]]
