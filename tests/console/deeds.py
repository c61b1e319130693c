"""A world whose answers can be lost: payments, and how they are undone."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client

from replan import Key, NeedsPerson, Refused, Tool, Unreachable, tool
from tests.harness import Proposals, Stage, staged

SETTLE = 0.4
"""Seconds."""


class Pay(BaseModel):
    amount: int = 7


class Sought(BaseModel):
    amount: int = 7


class Paid(BaseModel):
    id: int


@dataclass
class World:
    """What was paid, and what happens at the next calls: `lost` and `dead` give no answer, `late` happens later."""

    calls: list[str] = field(default_factory=list)
    paid: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    is_closed: bool = False
    """Whether nobody can look for a payment."""

    def pay(self, what: str) -> Paid:
        match self.calls.pop(0) if self.calls else "paid":
            case "lost":
                self.paid.append(what)
                raise ConnectionResetError("the answer never came")
            case "late":
                self.pending.append(what)
                raise ConnectionResetError("the answer never came")
            case "dead":
                raise ConnectionResetError("the answer never came")
            case "refused":
                raise Refused("It was paid already.", code="conflict")
        self.paid.append(what)
        return Paid(id=len(self.paid))

    def find(self) -> Paid:
        if self.is_closed:
            raise Unreachable("The bank is closed.")
        if not self.paid:
            self.paid += self.pending
            raise Refused("There is no such payment.", code="not_found")
        return Paid(id=len(self.paid))


def tools(world: World) -> Sequence[Tool[..., Any]]:
    """Payments with a key and without one, a refund, and what ends a task."""

    @tool.read(retry="once")
    async def find(args: Sought) -> Paid:
        """Find a payment."""
        return world.find()

    @tool.keyed
    async def refund(args: Paid, key: Key) -> Paid:
        """Give the money back."""
        return world.pay("refund")

    more: dict[str, Any] = {"reconcile": find, "settle": SETTLE, "timeout": 0.5, "undo": refund.using(id="result.id")}

    @tool.unkeyed(**more)
    async def pay(args: Pay) -> Paid:
        """Pay without a key."""
        return world.pay("paid")

    @tool.keyed(**more)
    async def charge(args: Pay, key: Key) -> Paid:
        """Pay with a key."""
        return world.pay("charged")

    @tool.keyed
    async def tell(args: Pay, key: Key) -> Paid:
        """Send a letter, which cannot be taken back."""
        return Paid(id=0)

    @tool.read
    async def person(args: Sought) -> Paid:
        """Need a person."""
        raise NeedsPerson("Somebody has to look.")

    return [find, refund, pay, charge, tell, person]


@asynccontextmanager
async def bank(client: Client, folder: Path, world: World, script: Proposals) -> AsyncIterator[Stage]:
    async with staged(client, folder, tools(world), script) as stage:
        yield stage
