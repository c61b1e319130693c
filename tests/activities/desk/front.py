"""A front desk for tests: a real store, one transaction a call."""

import hashlib
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.storage.store import open_store, writing
from activities.toolbox.injection import Transaction
from examples.desk.world import TABLES, seed
from replan import Refused, Tool
from workflows.faults.fault import Fault
from workflows.plans.catalogue import Effect

TODAY = date(2025, 11, 21)
FREE: list[Any] = ["09:30", "10:00", "11:00", "11:30", "12:30", "13:00", "14:30", "15:00", "15:30", "16:00"]
"""What is free today."""
LAMP: dict[str, Any] = {"sku": "A-17", "name": "Desk lamp Alder, oak", "price": "24.50", "stock": 12, "version": 1}

Args = TypeVar("Args", bound=BaseModel)
Result = TypeVar("Result")


@dataclass
class Desk:
    """The demo world behind the kinds."""

    engine: AsyncEngine

    async def do(self, tool: Tool[[Args, Transaction], Coroutine[Any, Any, Result]], args: Args) -> Result:
        """Call a kind in a transaction of its own, as the boundary does."""
        engine = writing(self.engine) if tool.effect is Effect.TRANSACTIONAL else self.engine
        async with engine.begin() as tx:
            return await tool(args, tx)

    async def refuses(self, tool: Tool[[Args, Transaction], Coroutine[Any, Any, Any]], args: Args) -> Fault:
        """Call a kind that cannot do it, and return why."""
        with pytest.raises(Refused) as caught:
            await self.do(tool, args)
        return caught.value.fault

    async def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        async with self.engine.begin() as tx:
            return {
                table.name: [tuple(row) for row in await tx.execute(select(table).order_by(*table.primary_key))]
                for table in TABLES
            }

    async def digest(self) -> str:
        return hashlib.sha256(repr(await self.rows()).encode()).hexdigest()


async def open_desk(store: str, rows: int = 1000) -> Desk:
    """The demo world in the store of this URL; whoever opens it disposes of the engine."""
    desk = Desk(await open_store(store))
    await seed(desk.engine, TODAY, rows)
    return desk
