"""Two transactions on one store: one of them wins, and no update is lost."""

import asyncio
from collections.abc import AsyncIterator
from datetime import time
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from sqlalchemy.exc import OperationalError

from activities.borders import classify
from activities.storage.store import open_store, writing
from examples.desk.bookings import Book, Cancel, book_slot, cancel_booking
from examples.desk.customers import Changes, Update, update_customer
from examples.desk.papers import Delete, delete_document
from examples.desk.shop import PriceOf, Purchase, Refund, get_price, purchase, refund
from replan import Refused, Tool
from tests.activities.desk.front import TODAY, Desk
from tests.gate import sampled


class Race(NamedTuple):
    """One call that only one of two can make."""

    tool: Tool[..., Any]
    args: BaseModel
    code: str
    """How the other is refused."""


RACES = [
    Race(book_slot, Book(day=TODAY, at=time(14, 30), name="team"), "conflict"),
    Race(cancel_booking, Cancel(booking=1), "gone"),
    Race(purchase, Purchase(sku="B-04", at_most=Decimal(139)), "conflict"),
    Race(refund, Refund(order=1), "gone"),
    Race(
        update_customer, Update(customer="C-0001", version=1, changes=Changes(name="Ada Marsh")), "precondition_failed"
    ),
    Race(delete_document, Delete(document="returns-checklist"), "gone"),
]
each = pytest.mark.parametrize("race", RACES, ids=lambda race: race.tool.__name__)


@pytest.fixture
async def other(world: str) -> AsyncIterator[Desk]:
    """The same world through another worker's connections."""
    opened = Desk(await open_store(world))
    yield opened
    await opened.engine.dispose()


@each
async def test_of_two_at_the_same_time_one_is_refused(desk: Desk, other: Desk, race: Race) -> None:
    """The second waits for the first to commit and then sees what it did."""
    async with writing(desk.engine).begin() as tx:
        await race.tool(race.args, tx)
        second = asyncio.create_task(other.do(race.tool, race.args))
        await asyncio.wait([second], timeout=0.1)
        assert not second.done()

    with pytest.raises(Refused) as refused:
        await second
    assert refused.value.fault.code == race.code


@pytest.mark.parametrize("race", sampled({race.tool.__name__: [race] for race in RACES}, "purchase"))
async def test_one_that_is_taken_back_leaves_the_way_free(desk: Desk, other: Desk, race: Race) -> None:
    """A transaction that fails after the effect has had none."""
    async with writing(desk.engine).connect() as tx:
        await race.tool(race.args, tx)
        await tx.rollback()

    await other.do(race.tool, race.args)
    assert (await desk.refuses(race.tool, race.args)).code == race.code


async def test_two_that_saw_the_same_stock_do_not_both_sell_it(desk: Desk, other: Desk) -> None:
    """Who looked first and took no lock in time is not believed: SQLite says to come again, PostgreSQL looks again."""
    last = Purchase(sku="B-04", at_most=Decimal(139))
    async with other.engine.connect() as late:
        assert (await get_price(PriceOf(sku="B-04"), late)).stock == 1
        await desk.do(purchase, last)
        with pytest.raises((OperationalError, Refused)) as late_one:
            await purchase(last, late)

    assert classify(late_one.value).code == {"sqlite": "busy", "postgresql": "conflict"}[other.engine.dialect.name]
    assert (await other.refuses(purchase, last)).code == "conflict"
