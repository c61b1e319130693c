"""The rows of the front desk, about a thousand. For a given day they are the same on every machine."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

from sqlalchemy import Table, delete, false, func, insert, literal, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from examples.desk.bookings import BOOKINGS, SLOTS
from examples.desk.customers import CUSTOMERS
from examples.desk.near import folded
from examples.desk.papers import PAPERS
from examples.desk.shop import ARTICLES, ORDERS
from replan import Moment, Transaction

TABLES: tuple[Table, ...] = (SLOTS, BOOKINGS, PAPERS, ARTICLES, CUSTOMERS, ORDERS)
"""The tables of the front desk, in the order in which `seed` fills them."""
FEWEST = 8  # the fewest articles, customers and orders

Rows = Iterator[dict[str, Any]]


async def seed(engine: AsyncEngine, today: date, rows: int = 1000) -> Mapping[str, int]:
    """Insert about `rows` rows, unless one of the tables has any; returns the number of new rows by table."""
    try:
        async with engine.begin() as tx:
            await tx.execute(delete(SLOTS).where(false()))  # SQLite takes its write lock now, not after the count
            if any((await _count(tx)).values()):
                return {}
            await _fill(tx, today, rows)
            return await _count(tx)
    except IntegrityError:
        return {}  # another worker inserted the rows at the same time


async def _count(tx: Transaction) -> dict[str, int]:
    counts = {table.name: await tx.scalar(select(func.count()).select_from(table)) for table in TABLES}
    return {name: count or 0 for name, count in counts.items()}


async def _fill(tx: Transaction, today: date, rows: int) -> None:
    await tx.execute(insert(SLOTS), list(slots(today)))
    await _book(tx, today)
    await tx.execute(insert(PAPERS), list(papers(today)))
    left = rows - sum((await _count(tx)).values())
    sales, goods = max(FEWEST, left // 3), list(articles(max(FEWEST, left // 6)))
    people = list(customers(max(FEWEST, left - len(goods) - sales)))
    await tx.execute(insert(ARTICLES), goods)
    await tx.execute(insert(CUSTOMERS), people)
    await tx.execute(insert(ORDERS), list(orders(sales, goods, people, today)))


async def _book(tx: Transaction, today: date) -> None:
    columns: list[Any] = [BOOKINGS.c.slot, BOOKINGS.c.name]
    taken = select(SLOTS.c.id, SLOTS.c.name).where(SLOTS.c.name.is_not(None)).order_by(SLOTS.c.id)
    await tx.execute(insert(BOOKINGS).from_select(columns, taken))
    when = literal(datetime.combine(today, time(8), UTC) - timedelta(days=1), Moment)
    is_cancelled = SLOTS.c.name.is_(None) & (SLOTS.c.at == CANCELLED_AT)
    cancelled = select(SLOTS.c.id, literal(BOOKERS[0]), when).where(is_cancelled).order_by(SLOTS.c.id)
    await tx.execute(insert(BOOKINGS).from_select([*columns, BOOKINGS.c.cancelled], cancelled))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


DAYS = 14
HALF_HOURS = [time(9 + half // 2, half % 2 * 30) for half in range(16)]
BOOKERS = ("Ada", "Grace", "the night shift", "Linus", "the auditors")
CANCELLED_AT = time(11)  # if this time is free on a day, that day has a cancelled booking of it

FIRST = _words(
    "Ada Grace Linus Barbara Edsger Margaret Alan Radia Donald Zoë José Katherine Tim Anita Dennis Frances Niklaus "
    "Shafi Jürgen Hedy"
)
LAST = _words(
    "Brook Marsh Keller Nakamura Okafor Lindqvist Moreau Silva Novak Rossi Peña Haugen Dvořák Yilmaz Costa Weiss Adler "
    "Fischer Ortiz Tanaka"
)

PRICE_LIST = (
    ("A-17", "Desk lamp Alder, oak", "24.50", 12),
    ("A-18", "Desk lamp Alder, walnut", "29.00", 7),
    ("B-03", "Floor lamp Birch, 1.6 m", "118.00", 4),
    ("B-04", "Floor lamp Birch, dimmable", "139.00", 1),
    ("C-21", "Wall lamp Cedar, brass", "62.00", 0),
    ("L-01", "LED bulb, warm white, pack of 4", "11.20", 140),
    ("W-09", "Linen shade, 30 cm", "34.90", 15),
)
"""For each article its stock code, its name, its price in EUR, and the number of pieces in stock. The example document
`price-list.txt` has the same prices."""
THINGS = _words("Hanging-lamp Reading-lamp Table-lamp Ceiling-lamp Glass-globe Cable Dimmer Bracket Lantern Spot")
FINISHES = _words("oak walnut ash brass copper white black smoked linen chrome red sand")

SUBJECTS = _words(
    "returns suppliers fire-drill night-shift stocktaking complaints deliveries website training insurance"
)
FORMS = _words("checklist contract handover minutes")


def slots(today: date) -> Rows:
    """Slots of half an hour for two weeks, of which about every third is taken.

    Today 14:00 is taken, and 14:30 and 15:00 are free.
    """
    for ahead, (half, at) in product(range(DAYS), enumerate(HALF_HOURS)):
        is_taken = (ahead * 5 + half * 7) % 3 == 0
        if ahead == 0 and time(14) <= at <= time(15):
            is_taken = at == time(14)
        name = BOOKERS[(ahead + half) % len(BOOKERS)] if is_taken else None
        yield {"day": today + timedelta(days=ahead), "at": at, "name": name}


def articles(count: int) -> Rows:
    """`count` articles: first the articles of the price list, and then made-up articles in several finishes."""
    for sku, name, price, stock in PRICE_LIST[:count]:
        yield {"sku": sku, "name": name, "price": Decimal(price), "stock": stock, "version": 1}
    for number in range(count - len(PRICE_LIST)):
        thing, finish = THINGS[number % len(THINGS)], FINISHES[number // len(THINGS) % len(FINISHES)]
        yield {
            "sku": f"{thing[0]}-{100 + number}",
            "name": f"{thing.replace('-', ' ')} No. {100 + number}, {finish}",
            "price": Decimal(5 + number * 37 % 180) + Decimal(number % 10) / 10,
            "stock": number * 7 % 23,
            "version": 1 + number % 3,
        }


def customers(count: int) -> Rows:
    """Customers; after all names are used, the names are repeated with a number."""
    for number in range(count):
        first = FIRST[number % len(FIRST)]
        last = LAST[(number + number // len(FIRST)) % len(LAST)]
        again = number // (len(FIRST) * len(LAST))
        yield {
            "id": f"C-{number + 1:04d}",
            "name": f"{first} {last}{f' {again + 1}' if again else ''}",
            "email": f"{folded(first)}.{folded(last)}{again + 1 if again else ''}@mail.example",
            "phone": f"+49 30 {5550000 + number}",
            "version": 1 + number % 4,
        }


def orders(count: int, goods: Sequence[dict[str, Any]], people: Sequence[dict[str, Any]], today: date) -> Rows:
    """Purchases of the last months. Every fifth has no customer, and every ninth was refunded."""
    for number in range(count):
        article, customer = goods[number * 5 % len(goods)], people[number * 7 % len(people)]
        bought = _moment(today, days=count - number, hour=9 + number % 8)
        yield {
            "sku": article["sku"],
            "quantity": 1 + number % 4,
            "price": article["price"],
            "customer": customer["id"] if number % 5 else None,
            "bought": bought,
            "refunded": bought + timedelta(hours=20) if number % 9 == 4 else None,
        }


def papers(today: date) -> Rows:
    """Documents of the shop; every seventh of them was deleted."""
    for number, (subject, form) in enumerate(product(SUBJECTS, FORMS)):
        title = f"{subject.replace('-', ' ').capitalize()}: {form}"
        keeper, weeks = FIRST[number % len(FIRST)], number + 2
        yield {
            "name": f"{subject}-{form}",
            "title": title,
            "text": f"# {title}\n\nKept by {keeper}. To be looked through every {weeks} weeks.\n",
            "deleted": _moment(today, days=number, hour=17) if number % 7 == 3 else None,
        }


def _moment(today: date, days: int, hour: int) -> datetime:
    return datetime.combine(today - timedelta(days=days), time(hour), UTC)
