"""The desk's tools: as activities of the bare arms, and as tools of Replan. Both send the same requests."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
from pydantic import BaseModel
from temporalio import activity
from temporalio.exceptions import ApplicationError

from evals.retry_waste.arms import Arm
from evals.retry_waste.bare import REFUSAL
from replan import Key, Tool, tool
from workflows.faults.circuit_breaker import STANDARD_BREAKER

PATIENCE = 5.0
"""Seconds that a call waits for its answer."""
SETTLE = 1.0
"""Seconds after which a call that is not found never comes: the world applies nothing late."""
SEPARATOR = "--"
"""In the id of a workflow, before the order."""


class Desk:
    """The activity of the bare arms; it sends no key, as tools of tutorials do not."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        """Call the world at `url`."""
        self._url, self._http = url, http

    @activity.defn
    async def call_tool(self, task: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """Call a tool by the name that the model wrote."""
        sent = {"task": task, "args": args}
        reply = await self._http.post(
            f"{self._url}/{name}", json=sent, headers={"x-worker": str(os.getpid())}, timeout=PATIENCE
        )
        body: dict[str, Any] = reply.json()
        if reply.status_code != 200:
            raise ApplicationError(f"{name} answered {reply.status_code}", reply.status_code, body, type=REFUSAL)
        return body


class Customer(BaseModel):
    """Whose slots."""

    name: str


class FreeHours(BaseModel):
    """The free hours of the day."""

    free: list[str]


class Item(BaseModel):
    """What is priced."""

    item: str


class PriceTag(BaseModel):
    """A price."""

    price: int


class Slot(Customer):
    """An hour to book."""

    at: str


class Booked(BaseModel):
    """A booking that was made."""

    id: int
    at: str


class Reference(BaseModel):
    """By what the result of a call is found."""

    key: str


class Note(Customer):
    """A note to send."""

    text: str


class Sent(BaseModel):
    """A note that was sent."""

    number: int


Send = Callable[..., Awaitable[Any]]


def _sender(url: str) -> Send:
    async def send(http: httpx2.AsyncClient, name: str, args: BaseModel, key: str | None = None) -> Any:
        task = (activity.info().workflow_id or "").rpartition(SEPARATOR)[2]
        headers = {"x-worker": str(os.getpid()), **({"idempotency-key": key} if key else {})}
        sent = {"task": task, "args": args.model_dump()}
        reply = await http.post(f"{url}/{name}", json=sent, headers=headers)
        return reply.raise_for_status().json()

    return send


def replan_tools(url: str, arm: Arm) -> list[Tool[..., Any]]:
    """The tools of Replan, declared as the arm wants it."""
    send = _sender(url)
    options: dict[str, Any] = {"timeout": PATIENCE, "breaker": STANDARD_BREAKER if arm.has_breaker else None}

    @tool.read(**options)
    async def find_slots(args: Customer, http: httpx2.AsyncClient) -> FreeHours:
        """Find the free hours of the day."""
        return FreeHours.model_validate(await send(http, "find_slots", args))

    @tool.read(**options)
    async def get_list_price(args: Item, http: httpx2.AsyncClient) -> PriceTag:
        """Look up the price of an item in an old list."""
        return PriceTag.model_validate(await send(http, "get_list_price", args))

    @tool.read(**options, fallback=get_list_price if arm.has_fallback else None)
    async def get_price(args: Item, http: httpx2.AsyncClient) -> PriceTag:
        """Look up the price of an item."""
        return PriceTag.model_validate(await send(http, "get_price", args))

    @tool.read(**options)
    async def find_booking(args: Reference, http: httpx2.AsyncClient) -> Booked:
        """Find a booking by the key that it was made with."""
        return Booked.model_validate(await send(http, "find_result", args))

    @tool.read(**options)
    async def find_note(args: Reference, http: httpx2.AsyncClient) -> Sent:
        """Find a note by the key that it was sent with."""
        return Sent.model_validate(await send(http, "find_result", args))

    @tool.keyed(**options, observe=find_slots, reconcile=find_booking.using(key="key"), settle=SETTLE)
    async def book_slot(args: Slot, key: Key, http: httpx2.AsyncClient) -> Booked:
        """Book an hour for a customer."""
        return Booked.model_validate(await send(http, "book_slot", args, key))

    @tool.keyed(**options, reconcile=find_note.using(key="key"), settle=SETTLE)
    async def send_note(args: Note, key: Key, http: httpx2.AsyncClient) -> Sent:
        """Send a customer a note."""
        return Sent.model_validate(await send(http, "send_note", args, key))

    return [find_slots, get_list_price, get_price, find_booking, find_note, book_slot, send_note]
