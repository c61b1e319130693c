"""What really happened is read from the journals: a cent that is missing, and a row too many, are seen."""

from pathlib import Path

import pytest
from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import create_async_engine

from evals.chaos.payments import Book
from evals.chaos.world import ACCOUNTS, TRANSFERS, Effects, open_accounts, read_effects

MOVED = {"reference": "r", "source": 1, "target": 2, "amount": 5}


async def after(folder: Path, *changes: tuple[int, int], rows: int = 1) -> Effects:
    url = f"sqlite+aiosqlite:///{folder / 'bank.db'}"
    engine = create_async_engine(url)
    await open_accounts(engine)
    async with engine.begin() as tx:
        await tx.execute(insert(TRANSFERS), [MOVED] * rows)
        for account, change in changes:
            changed = update(ACCOUNTS).where(ACCOUNTS.c.id == account)
            await tx.execute(changed.values(balance=ACCOUNTS.c.balance + change))
    await engine.dispose()
    return await read_effects(url, Book(folder / "book.db"))


@pytest.mark.parametrize(
    ("changes", "rows", "unbalanced", "total"),
    [
        ([(1, -5), (2, 5)], 1, [], 2_000_000),
        ([(1, -5), (2, 5)], 2, [1, 2], 2_000_000),
        ([(1, -5)], 1, [2], 1_999_995),
        ([(1, -5), (2, 5), (3, 1), (4, -1)], 1, [3, 4], 2_000_000),
    ],
    ids=["moved", "written twice", "a cent is missing", "nobody wrote it down"],
)
async def test_the_books_are_held_against_the_balances(
    tmp_path: Path, changes: list[tuple[int, int]], rows: int, unbalanced: list[int], total: int
) -> None:
    """Each balance must be what the transfers made of it, and the total what it was."""
    found = await after(tmp_path, *changes, rows=rows)

    assert (found.unbalanced, found.total) == (unbalanced, total)
    assert found.count("transfer", "r") == rows
