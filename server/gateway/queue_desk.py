"""The tools of workers that run elsewhere, for a gateway that starts none."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog
from temporalio.service import RPCError

from client.client import Client
from client.problem import Problem
from client.workers import ask
from server.gateway.calls import Calls
from server.gateway.offers import Offer, offers_of
from server.gateway.side_door import SideDoor
from workflows.inquiries import ToolCard, ToolsInquiry
from workflows.plans.catalogue import Effect

LOOK_SECONDS = 30.0
"""Seconds between two queries for the tools of the workers."""
RETRY_SECONDS = 2.0

log = structlog.get_logger("replan.gateway")


class QueueDesk:
    """A `session.Desk` for the workers of a task queue. Reads are tasks, too."""

    def __init__(self, client: Client, calls: Calls) -> None:
        self.client = client
        self.calls = calls
        self.offers: Mapping[str, Offer] = {}
        self.servers: Mapping[str, Mapping[str, Any]] = {}
        self.door: SideDoor | None = None
        self.on_notification = dict[str, Callable[[str, dict[str, Any]], None]]()
        self._is_ready = asyncio.Event()

    async def ready(self, seconds: float) -> bool:
        """Wait at most `seconds` until the tools are known; returns whether they are."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_ready.wait(), seconds)
        return self._is_ready.is_set()

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Ask the workers for their tools at once, and then repeatedly. Raises Problem if none answers at first."""
        await self._look()
        task = asyncio.create_task(self._keep_looking())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _keep_looking(self) -> None:
        wait = LOOK_SECONDS
        while True:
            await asyncio.sleep(wait)
            try:
                await self._look()
                wait = LOOK_SECONDS
            except (Problem, RPCError):  # what was offered before stays: its calls wait for a worker
                wait = RETRY_SECONDS

    async def _look(self) -> None:
        found = await ask(self.client.temporal, self.client.queue, ToolsInquiry())
        named = {one.name: one for one in offers_of([listed(card) for card in found.tools if card.is_own])}
        is_changed, self.offers = self._is_ready.is_set() and named != self.offers, named
        self._is_ready.set()
        if is_changed:
            log.info("gateway_tools", queue=self.client.queue, tools=len(named))
            for tell in list(self.on_notification.values()):
                tell("notifications/tools/list_changed", {})


def listed(card: ToolCard) -> dict[str, Any]:
    """A tool as the side door of a worker lists it."""
    spec = card.spec
    is_read = spec.pure or spec.effect is Effect.READ
    is_content = card.result_schema.get("properties", {}).keys() >= {"text", "parts"}
    result = {} if is_content or card.result_schema.get("type") != "object" else {"outputSchema": card.result_schema}
    return {
        "kind": spec.kind,
        "server": None,
        "name": spec.kind,
        "effect": "pure" if spec.pure else spec.effect.value,
        "authority": spec.authority_of([*card.args_schema.get("properties", {})]),
        "approve": spec.approve or "never",
        "tool": {
            "name": spec.kind,
            "description": card.description,
            "inputSchema": {"type": "object", **card.args_schema},
            **result,
            "annotations": {
                "readOnlyHint": is_read,
                "idempotentHint": is_read or spec.effect is Effect.IDEMPOTENT,
                "destructiveHint": not is_read,
            },
        },
    }
