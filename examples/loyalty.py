"""Loyalty points in a database of their own; the points and the record of the call commit there in one transaction.

LOYALTY_DB is the SQLAlchemy URL of this database. Run `python examples/loyalty.py` once to create the table.
"""

import asyncio
import os

from pydantic import BaseModel, Field
from sqlalchemy import CheckConstraint, Column, Integer, MetaData, String, Table, insert, select, update
from sqlalchemy.ext.asyncio import create_async_engine

from replan import Transaction, tool

LOYALTY = create_async_engine(os.environ.get("LOYALTY_DB", "sqlite+aiosqlite:///loyalty.db"))  # connects when used
ENOUGH = CheckConstraint("points >= 0")
POINTS = Table("points", MetaData(), Column("customer", String, primary_key=True), Column("points", Integer), ENOUGH)


class Customer(BaseModel):
    customer: str = Field(max_length=80)


class Points(Customer):
    points: int = Field(ge=0)


@tool.read(datasource=LOYALTY)
async def points_of(args: Customer, tx: Transaction) -> Points:
    """Look up the loyalty points of a customer."""
    found = await tx.scalar(select(POINTS.c.points).where(POINTS.c.customer == args.customer))
    return Points(customer=args.customer, points=found or 0)


@tool.transactional(datasource=LOYALTY, observe=points_of)
async def spend_points(args: Points, tx: Transaction) -> Points:
    """Take loyalty points from a customer who has enough of them."""
    less = update(POINTS).where(POINTS.c.customer == args.customer).values(points=POINTS.c.points - args.points)
    left = (await tx.execute(less.returning(POINTS.c.points))).scalar_one()  # nobody: not_found; too few: conflict
    return Points(customer=args.customer, points=left)


@tool.transactional(datasource=LOYALTY, observe=points_of, undo=spend_points)
async def give_points(args: Points, tx: Transaction) -> Points:
    """Give a customer loyalty points."""
    more = update(POINTS).where(POINTS.c.customer == args.customer).values(points=POINTS.c.points + args.points)
    if (await tx.execute(more)).rowcount == 0:
        await tx.execute(insert(POINTS).values(args.model_dump()))
    return await points_of(args, tx)


async def make_table() -> None:
    async with LOYALTY.begin() as connection:
        await connection.run_sync(POINTS.metadata.create_all)
    await LOYALTY.dispose()


if __name__ == "__main__":
    asyncio.run(make_table())
