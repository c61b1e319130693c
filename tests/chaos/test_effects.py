"""What really happened is read from the journals: a cent that is missing, and a row too many, are seen."""

from pathlib import Path

import pytest
from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import create_async_engine

from evals.chaos import effects
from evals.chaos.accounts import ACCOUNTS, TRANSFERS, open_accounts
from evals.chaos.book import Book
from evals.chaos.effects import Effects

MOVED = {"reference": "r", "source": 1, "target": 2, "amount": 5}


async def after(folder: Path, *changes: tuple[int, int], rows: int = 1) -> Effects:
    """A bank in which so many transfers were written down, and these balances changed."""
    url = f"sqlite+aiosqlite:///{folder / 'bank.db'}"
    engine = create_async_engine(url)
    await open_accounts(engine)
    async with engine.begin() as tx:
        await tx.execute(insert(TRANSFERS), [MOVED] * rows)
        for account, change in changes:
            changed = update(ACCOUNTS).where(ACCOUNTS.c.id == account)
            await tx.execute(changed.values(balance=ACCOUNTS.c.balance + change))
    await engine.dispose()
    return await effects.read(url, Book(folder / "book.db"))


@pytest.mark.parametrize(
    ("changes", "rows", "unbalanced", "is_conserved"),
    [
        ([(1, -5), (2, 5)], 1, [], True),
        ([(1, -5), (2, 5)], 2, [1, 2], False),
        ([(1, -5)], 1, [2], False),
        ([(1, -5), (2, 5), (3, 1), (4, -1)], 1, [3, 4], False),
    ],
    ids=["moved", "written twice", "a cent is missing", "nobody wrote it down"],
)
async def test_the_books_are_held_against_the_balances(
    tmp_path: Path, changes: list[tuple[int, int]], rows: int, unbalanced: list[int], is_conserved: bool
) -> None:
    """Each balance must be what the transfers made of it, and the total what it was."""
    found = await after(tmp_path, *changes, rows=rows)

    assert (found.unbalanced, found.is_conserved) == (unbalanced, is_conserved)
    assert found.count("transfer", "r") == rows
