"""The shop: what is bought leaves the stock, what is refunded comes back, and no cent is lost."""

import asyncio
from decimal import Decimal
from typing import Any

from sqlalchemy import insert, select, update

from activities.errors import Refused
from activities.storage.store import writing
from examples.desk.shop import (
    ARTICLES,
    Order,
    OrdersOf,
    Price,
    PriceOf,
    Purchase,
    Refund,
    get_price,
    list_orders,
    purchase,
    refund,
)
from tests.activities.desk.front import LAMP, Desk


async def buy(desk: Desk, sku: str = "A-17", quantity: int = 1, at_most: str = "24.50", **more: Any) -> Order:
    return await desk.do(purchase, Purchase(sku=sku, quantity=quantity, at_most=Decimal(at_most), **more))


async def price(desk: Desk, sku: str = "A-17") -> Price:
    return await desk.do(get_price, PriceOf(sku=sku))


async def reprice(desk: Desk, price: str) -> None:
    async with writing(desk.engine).begin() as tx:
        await tx.execute(update(ARTICLES).where(ARTICLES.c.sku == "A-17").values(price=Decimal(price)))


async def test_what_is_bought_leaves_the_stock_until_it_is_refunded(desk: Desk) -> None:
    """Money is text with both places in JSON; the order carries the price of its moment, and a refund pays that.

    `at_most` is a limit, not an offer: nobody pays more, and the refusal names the price that is asked now.
    """
    looked_up = (await price(desk)).model_dump(mode="json")
    first = await buy(desk, quantity=3, at_most="30", customer="C-0001")
    order = first.model_dump(mode="json")
    await buy(desk, quantity=9)
    sold_out = (await price(desk)).stock
    await reprice(desk, "24.51")
    back = await desk.do(refund, Refund(order=first.id))
    dear = await desk.refuses(purchase, Purchase(sku="A-17", at_most=Decimal("24.50")))

    assert looked_up == LAMP
    assert order["bought"].endswith("Z")
    assert order == {
        **{"id": order["id"], "sku": "A-17", "quantity": 3, "price": "24.50", "total": "73.50"},
        **{"customer": "C-0001", "bought": order["bought"], "refunded": None},
    }
    assert (back.id, back.total, back.refunded is not None) == (first.id, Decimal("73.50"), True)
    assert (sold_out, (await price(desk)).stock) == (0, 3)
    assert (dear.code, dear.observed) == ("precondition_failed", (await price(desk)).model_dump(mode="json"))


ORDERS = [
    (OrdersOf(order=7), [7]),
    (OrdersOf(sku="A-17"), [217, 109, 1]),
    (OrdersOf(customer="C-0008"), [2]),
    (OrdersOf(customer="C-0008", sku="A-17"), []),
    (OrdersOf(), [*range(217, 197, -1)]),
]


async def test_orders_are_listed_the_latest_first_and_no_cent_is_lost(desk: Desk) -> None:
    """By id, article, customer, or all; amounts come back as they were stored, also what a float does not hold."""
    found = [(of, [order.id for order in (await desk.do(list_orders, of)).orders]) for of, _ in ORDERS]

    assert found == ORDERS

    async with writing(desk.engine).begin() as tx:
        for amount in AMOUNTS:
            row = {"sku": f"Z-{amount}", "name": "anything", "price": Decimal(amount), "stock": 1}
            await tx.execute(insert(ARTICLES), row)
        rows = await tx.execute(select(ARTICLES.c.sku, ARTICLES.c.price))
        stored = {row.sku: row.price for row in rows}

    assert [str(stored[f"Z-{amount}"]) for amount in AMOUNTS] == AMOUNTS


AMOUNTS = ["0.01", "0.07", "0.10", "0.29", "1.15", "24.50", "1.10", "4503599627370.49", "9999999999.99"]


async def test_the_stock_is_never_oversold(desk: Desk) -> None:
    """The update itself decides, so nothing can come between looking and buying."""
    tries = await asyncio.gather(*(buy(desk, "A-18", at_most="29") for _ in range(10)), return_exceptions=True)

    assert sum(isinstance(one, Order) for one in tries) == 7
    assert sum(isinstance(one, Refused) and one.fault.code == "conflict" for one in tries) == 3
