"""The shop: `get_price`, `purchase`, `list_orders` and `refund`."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, Field, WithJsonSchema, computed_field
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, String, Table, insert, select, update
from sqlalchemy.types import TypeDecorator

from examples.desk.customers import CUSTOMERS, require
from examples.desk.near import near
from replan import Moment, Refused, Transaction, metadata, tool

PLACES = 2


class Cents(TypeDecorator[Decimal]):
    """A column for an exact amount of money, stored as whole cents."""

    # Not NUMERIC: SQLite would store it as a float.

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Any) -> int | None:
        if value is None:
            return None
        cents = value.scaleb(PLACES)
        if cents != int(cents):
            raise ValueError(f"{value} is no whole number of cents: round it first.")
        return int(cents)

    def process_result_value(self, value: int | None, dialect: Any) -> Decimal | None:
        return None if value is None else Decimal(value).scaleb(-PLACES)


ARTICLES = Table(
    "articles",
    metadata,
    Column("sku", String(20), primary_key=True),
    Column("name", String(80), nullable=False),
    Column("price", Cents, nullable=False),
    Column("stock", Integer, nullable=False),
    Column("version", Integer, nullable=False, server_default="1"),
)
"""The articles; `version` counts the price changes of an article."""

ORDERS = Table(
    "orders",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("sku", ForeignKey(ARTICLES.c.sku), nullable=False),
    Column("quantity", Integer, nullable=False),
    Column("price", Cents, nullable=False),
    Column("customer", ForeignKey(CUSTOMERS.c.id)),
    Column("bought", Moment, nullable=False),
    Column("refunded", Moment),
    sqlite_autoincrement=True,
)
"""The purchases, each with the price of one piece. No row is deleted."""

MAX_LISTED = 20
MAX_QUANTITY = 10_000

Amount = Annotated[
    Decimal,
    Field(max_digits=12, decimal_places=PLACES, ge=0),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": r"^[0-9]{1,10}(\.[0-9]{1,2})?$"}, {"type": "number"}]}),
]
"""Money in EUR. In JSON it is a string, because many JSON parsers would read a number as a float."""
Sku = Annotated[str, Field(description="Stock code, e.g. A-17", max_length=80)]
CustomerId = Annotated[str | None, Field(description="The id of the customer who buys, e.g. C-0001", max_length=20)]


class PriceOf(BaseModel):
    """Which article."""

    sku: Sku


class Price(BaseModel, from_attributes=True):
    """An article with its current price and stock."""

    sku: str
    name: str
    price: Amount
    """The price of one piece, in EUR."""
    stock: int
    version: int
    """A number that grows with each change of the price."""


class Purchase(BaseModel, extra="forbid"):
    """What to buy, and what it may cost."""

    sku: Sku
    quantity: int = Field(default=1, description="How many pieces", ge=1, le=MAX_QUANTITY)
    at_most: Amount = Field(description="The most that one piece may cost, in EUR, e.g. 24.50")
    customer: CustomerId = None


class OrdersOf(BaseModel, extra="forbid"):
    """Which orders; without an argument the latest of all."""

    order: int | None = Field(default=None, description="The id of one order", ge=1, lt=2**31)
    sku: Sku | None = None
    customer: CustomerId = None


class Order(BaseModel, from_attributes=True):
    """A purchase, which may have been refunded."""

    id: int
    sku: str
    quantity: int
    price: Amount
    """The price of one piece, in EUR."""
    customer: str | None
    bought: datetime
    refunded: datetime | None

    @computed_field  # type: ignore[prop-decorator]  # https://github.com/python/mypy/issues/1362
    @property
    def total(self) -> Decimal:
        """The price of all pieces, in EUR."""
        return self.price * self.quantity


class Orders(BaseModel):
    """The latest orders first."""

    orders: list[Order]


class Refund(BaseModel):
    """Which order."""

    order: int = Field(description="The id of the order, as purchase returned it", ge=1, lt=2**31)


@tool.read
async def get_price(args: PriceOf, tx: Transaction) -> Price:
    """Look up one article: what a piece costs now and how many are in stock."""
    row = (await tx.execute(select(ARTICLES).where(ARTICLES.c.sku == args.sku))).one_or_none()
    if row is None:
        alike = await near(args.sku, select(ARTICLES.c.sku, ARTICLES.c.name).order_by(ARTICLES.c.sku), tx)
        reason = "There is no such article: use the stock code of one."
        raise Refused(reason, code="not_found", observed={"near": alike})
    return Price.model_validate(row)


@tool.read
async def list_orders(args: OrdersOf, tx: Transaction) -> Orders:
    """List orders with their ids, by article, customer or id; the latest 20 at the most."""
    query = select(ORDERS).order_by(ORDERS.c.id.desc()).limit(MAX_LISTED)
    if args.order is not None:
        query = query.where(ORDERS.c.id == args.order)
    if args.sku is not None:
        query = query.where(ORDERS.c.sku == args.sku)
    if args.customer is not None:
        query = query.where(ORDERS.c.customer == args.customer)
    return Orders(orders=[Order.model_validate(row) for row in await tx.execute(query)])


@tool.transactional(observe=list_orders)
async def refund(args: Refund, tx: Transaction) -> Order:
    """Pay back one order in full and put its pieces back into stock."""
    paid = (ORDERS.c.id == args.order) & ORDERS.c.refunded.is_(None)
    mark = update(ORDERS).where(paid).values(refunded=datetime.now(UTC))
    row = (await tx.execute(mark.returning(ORDERS))).one_or_none()
    if row is None:
        raise await _not_refundable(args.order, tx)
    order = Order.model_validate(row)
    back = ARTICLES.c.stock + order.quantity
    await tx.execute(update(ARTICLES).where(ARTICLES.c.sku == order.sku).values(stock=back))
    return order


@tool.transactional(observe=get_price, undo=refund.using(order="result.id"))
async def purchase(args: Purchase, tx: Transaction) -> Order:
    """Buy pieces of one article from stock, unless a piece costs more than `at_most`."""
    await require(args.customer, tx)
    for_sale = (ARTICLES.c.price <= args.at_most) & (ARTICLES.c.stock >= args.quantity)
    sale = update(ARTICLES).where(ARTICLES.c.sku == args.sku, for_sale).returning(ARTICLES.c.price)
    price = await tx.scalar(sale.values(stock=ARTICLES.c.stock - args.quantity))
    if price is None:
        raise _not_sold(args, await get_price(PriceOf(sku=args.sku), tx))
    bought = {**args.model_dump(exclude={"at_most"}), "price": price, "bought": datetime.now(UTC)}
    return Order.model_validate((await tx.execute(insert(ORDERS).values(bought).returning(ORDERS))).one())


def _not_sold(args: Purchase, price: Price) -> Refused:
    if price.price > args.at_most:
        reason = (
            f"{price.sku} costs {price.price} EUR now, more than the {args.at_most} that it may: nothing was bought."
        )
        return Refused(reason, code="precondition_failed", observed=price)
    reason = f"{price.sku} has {price.stock} pieces in stock, and {args.quantity} are wanted: nothing was bought."
    return Refused(reason, code="conflict", observed=price)


async def _not_refundable(id: int, tx: Transaction) -> Refused:
    found = await list_orders(OrdersOf(order=id), tx)
    if not found.orders:
        reason = f"There is no order {id}: look for it with list_orders."
        return Refused(reason, code="not_found", observed=await list_orders(OrdersOf(), tx))
    when = found.orders[0].refunded
    reason = f"Order {id} was refunded at {when:%Y-%m-%d %H:%M} UTC: there is nothing left to pay back."
    return Refused(reason, code="gone", observed=found)
