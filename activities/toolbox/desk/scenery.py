"""The rows of the demo world: the same for the same day, whoever makes them."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

from activities.toolbox.desk.near import folded

Rows = Iterator[dict[str, Any]]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


DAYS = 14
HALF_HOURS = [time(9 + half // 2, half % 2 * 30) for half in range(16)]
BOOKERS = ("Ada", "Grace", "the night shift", "Linus", "the auditors")
CANCELLED_AT = time(11)
"""At this time somebody cancelled on every day on which it is free."""

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
"""As in the document `price-list.txt` of the examples, with the stock."""
THINGS = _words("Hanging-lamp Reading-lamp Table-lamp Ceiling-lamp Glass-globe Cable Dimmer Bracket Lantern Spot")
FINISHES = _words("oak walnut ash brass copper white black smoked linen chrome red sand")

SUBJECTS = _words(
    "returns suppliers fire-drill night-shift stocktaking complaints deliveries website training insurance"
)
FORMS = _words("checklist contract handover minutes")


def slots(today: date) -> Rows:
    """Two weeks of half hours; today 14:00 is taken, 14:30 and 15:00 are free; elsewhere about every third is taken."""
    for ahead, (half, at) in product(range(DAYS), enumerate(HALF_HOURS)):
        is_taken = (ahead * 5 + half * 7) % 3 == 0
        if ahead == 0 and time(14) <= at <= time(15):
            is_taken = at == time(14)
        name = BOOKERS[(ahead + half) % len(BOOKERS)] if is_taken else None
        yield {"day": today + timedelta(days=ahead), "at": at, "name": name}


def articles(count: int) -> Rows:
    """The price list, and after it lamps of all finishes."""
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
    """People; when all names are used up, they come again with a number."""
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
    """Purchases of the last months by customers and passers-by, of which every ninth was refunded."""
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
    """Documents of the shop, of which every seventh was deleted."""
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
