"""The shop: what is bought leaves the stock, what is refunded comes back, and no cent is lost."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError
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
from tests.activities.desk.front import Desk


async def buy(desk: Desk, sku: str = "A-17", quantity: int = 1, at_most: str = "24.50", **more: Any) -> Order:
    """Buy an article."""
    return await desk.do(purchase, Purchase(sku=sku, quantity=quantity, at_most=Decimal(at_most), **more))


async def price(desk: Desk, sku: str = "A-17") -> Price:
    """What an article costs."""
    return await desk.do(get_price, PriceOf(sku=sku))


async def reprice(desk: Desk, price: str) -> None:
    """Change the price of A-17, as somebody else does."""
    async with writing(desk.engine).begin() as tx:
        await tx.execute(update(ARTICLES).where(ARTICLES.c.sku == "A-17").values(price=Decimal(price)))


async def test_a_price_is_looked_up(desk: Desk) -> None:
    """Money is text with both places in JSON, so that nothing makes a float of it."""
    assert (await price(desk)).model_dump(mode="json") == {
        "sku": "A-17",
        "name": "Desk lamp Alder, oak",
        "price": "24.50",
        "stock": 12,
        "version": 1,
    }


async def test_a_purchase_says_what_was_paid(desk: Desk) -> None:
    """The order carries the price of its moment and the sum."""
    order = (await buy(desk, quantity=3, at_most="30", customer="C-0001")).model_dump(mode="json")

    assert order["bought"].endswith("Z")
    assert order == {
        **{"id": order["id"], "sku": "A-17", "quantity": 3, "price": "24.50", "total": "73.50"},
        **{"customer": "C-0001", "bought": order["bought"], "refunded": None},
    }


async def test_what_is_bought_leaves_the_stock(desk: Desk) -> None:
    """The next customer sees what is left."""
    await buy(desk, quantity=5)

    assert (await price(desk)).stock == 7


async def test_the_last_piece_can_be_bought(desk: Desk) -> None:
    """All that is there may be sold, and not one piece more."""
    await buy(desk, quantity=12)

    assert (await price(desk)).stock == 0


async def test_a_price_that_moves_up_stops_the_purchase(desk: Desk) -> None:
    """Nobody pays more than was said, and the refusal names the price that is asked now."""
    await reprice(desk, "24.51")
    fault = await desk.refuses(purchase, Purchase(sku="A-17", at_most=Decimal("24.50")))

    assert fault.code == "precondition_failed"
    assert fault.observed == (await price(desk)).model_dump(mode="json")


async def test_a_price_that_moves_down_is_paid_as_it_is(desk: Desk) -> None:
    """`at_most` is a limit, not an offer."""
    assert (await buy(desk, at_most="99")).price == Decimal("24.50")


async def test_what_is_refunded_comes_back_into_stock(desk: Desk) -> None:
    """A refund undoes the purchase."""
    order = await buy(desk, quantity=5)
    back = await desk.do(refund, Refund(order=order.id))

    assert (back.id, back.total, back.refunded is not None) == (order.id, Decimal("122.50"), True)
    assert (await price(desk)).stock == 12


async def test_a_refund_pays_what_was_paid(desk: Desk) -> None:
    """The price of today does not matter."""
    order = await buy(desk)
    await reprice(desk, "99")

    assert (await desk.do(refund, Refund(order=order.id))).total == Decimal("24.50")


@pytest.mark.parametrize(
    ("of", "ids"),
    [
        (OrdersOf(order=7), [7]),
        (OrdersOf(sku="A-17"), [217, 109, 1]),
        (OrdersOf(customer="C-0008"), [2]),
        (OrdersOf(customer="C-0008", sku="A-17"), []),
        (OrdersOf(), list(range(217, 197, -1))),
    ],
)
async def test_orders_are_listed_the_latest_first(desk: Desk, of: OrdersOf, ids: list[int]) -> None:
    """By id, article, customer, or all of them; none is an answer too."""
    assert [order.id for order in (await desk.do(list_orders, of)).orders] == ids


@pytest.mark.parametrize(
    "amount", ["0.01", "0.07", "0.10", "0.29", "1.15", "24.50", "1.10", "4503599627370.49", "9999999999.99"]
)
async def test_no_cent_is_lost(desk: Desk, amount: str) -> None:
    """Amounts come back as they were stored, also those that a float does not hold."""
    row = {"sku": "Z-1", "name": "anything", "price": Decimal(amount), "stock": 1}
    async with writing(desk.engine).begin() as tx:
        await tx.execute(insert(ARTICLES), row)
        stored = await tx.scalar(select(ARTICLES.c.price).where(ARTICLES.c.sku == "Z-1"))

    assert str(stored) == amount


@pytest.mark.parametrize("at_most", ["24.505", "NaN", "Infinity", "-1", "99999999999", "1e40", "a lot"])
def test_an_amount_that_is_none_is_refused_by_the_schema(at_most: str) -> None:
    """Money has two places and an end."""
    with pytest.raises(ValidationError):
        Purchase.model_validate({"sku": "A-17", "at_most": at_most})


async def test_the_stock_is_never_oversold(desk: Desk) -> None:
    """The update itself decides, so nothing can come between looking and buying."""
    tries = await asyncio.gather(*(buy(desk, "A-18", at_most="29") for _ in range(10)), return_exceptions=True)

    assert sum(isinstance(one, Order) for one in tries) == 7
    assert sum(isinstance(one, Refused) and one.fault.code == "conflict" for one in tries) == 3
