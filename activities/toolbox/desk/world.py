"""The demo world: about a thousand rows in the tables of the front desk, made once."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import Table, func, insert, literal, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.storage.store import Moment, writing
from activities.toolbox.desk import scenery
from activities.toolbox.desk.bookings import BOOKINGS, SLOTS
from activities.toolbox.desk.customers import CUSTOMERS
from activities.toolbox.desk.papers import PAPERS
from activities.toolbox.desk.shop import ARTICLES, ORDERS
from activities.toolbox.injection import Transaction

TABLES: tuple[Table, ...] = (SLOTS, BOOKINGS, PAPERS, ARTICLES, CUSTOMERS, ORDERS)
"""The tables of the front desk, in the order in which they are filled."""
FEWEST = 8
"""Articles, customers, and orders that even a small world has."""


async def seed(engine: AsyncEngine, today: date, rows: int = 1000) -> Mapping[str, int]:
    """Fill an empty front desk with about `rows` rows; a world that has any row is left alone.

    Returns the number of new rows by table, nothing where there was a world already.
    """
    try:
        async with writing(engine).begin() as tx:
            if any((await _count(tx)).values()):
                return {}
            await _fill(tx, today, rows)
            return await _count(tx)
    except IntegrityError:
        return {}  # another worker filled it in the same moment


async def _count(tx: Transaction) -> dict[str, int]:
    counts = {table.name: await tx.scalar(select(func.count()).select_from(table)) for table in TABLES}
    return {name: count or 0 for name, count in counts.items()}


async def _fill(tx: Transaction, today: date, rows: int) -> None:
    await tx.execute(insert(SLOTS), list(scenery.slots(today)))
    await _book(tx, today)
    await tx.execute(insert(PAPERS), list(scenery.papers(today)))
    left = rows - sum((await _count(tx)).values())
    articles, orders = max(FEWEST, left // 6), max(FEWEST, left // 3)
    await _trade(tx, today, articles, max(FEWEST, left - articles - orders), orders)


async def _book(tx: Transaction, today: date) -> None:
    """A booking for each taken slot, and some that were cancelled; the database knows the ids of the slots."""
    columns: list[Any] = [BOOKINGS.c.slot, BOOKINGS.c.name]
    taken = select(SLOTS.c.id, SLOTS.c.name).where(SLOTS.c.name.is_not(None)).order_by(SLOTS.c.id)
    await tx.execute(insert(BOOKINGS).from_select(columns, taken))
    when = literal(datetime.combine(today, time(8), UTC) - timedelta(days=1), Moment)
    is_cancelled = SLOTS.c.name.is_(None) & (SLOTS.c.at == scenery.CANCELLED_AT)
    cancelled = select(SLOTS.c.id, literal(scenery.BOOKERS[0]), when).where(is_cancelled).order_by(SLOTS.c.id)
    await tx.execute(insert(BOOKINGS).from_select([*columns, BOOKINGS.c.cancelled], cancelled))


async def _trade(tx: Transaction, today: date, articles: int, customers: int, orders: int) -> None:
    goods, people = list(scenery.articles(articles)), list(scenery.customers(customers))
    await tx.execute(insert(ARTICLES), goods)
    await tx.execute(insert(CUSTOMERS), people)
    await tx.execute(insert(ORDERS), list(scenery.orders(orders, goods, people, today)))
