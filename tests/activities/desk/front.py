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
        """All that is stored, by table."""
        async with self.engine.begin() as tx:
            return {
                table.name: [tuple(row) for row in await tx.execute(select(table).order_by(*table.primary_key))]
                for table in TABLES
            }

    async def digest(self) -> str:
        """A digest of all that is stored."""
        return hashlib.sha256(repr(await self.rows()).encode()).hexdigest()


async def open_desk(store: str, rows: int = 1000) -> Desk:
    """The demo world in the store of this URL; whoever opens it disposes of the engine."""
    desk = Desk(await open_store(store))
    await seed(desk.engine, TODAY, rows)
    return desk
