"""The tools of workers that run elsewhere, for a gateway that starts none."""

import asyncio
from typing import Any

import structlog
from temporalio.service import RPCError

from client.client import Client
from client.problem import Problem
from client.workers import ask
from server.gateway.calls import Calls
from server.gateway.offers import offers_of
from server.gateway.task_desk import TaskDesk
from workflows.inquiries import ToolCard, ToolsInquiry
from workflows.plans.catalogue import Effect

LOOK_SECONDS = 30.0
"""Seconds between two queries for the tools of the workers."""
RETRY_SECONDS = 2.0

log = structlog.get_logger("replan.gateway")


class QueueDesk(TaskDesk):
    """The tools of the workers of a task queue. Reads are tasks, too."""

    def __init__(self, client: Client, calls: Calls) -> None:
        super().__init__(calls)
        self.client = client

    async def keep_asking(self) -> None:
        """Ask the workers for their tools again and again; changed tools take the place of the offers."""
        wait = LOOK_SECONDS
        while True:
            await asyncio.sleep(wait)
            try:
                await self.ask_workers()
                wait = LOOK_SECONDS
            except (Problem, RPCError):  # what was offered before stays: its calls wait for a worker
                wait = RETRY_SECONDS

    async def ask_workers(self) -> None:
        """Ask the workers for their tools, and offer these. Raises Problem or RPCError if none answers."""
        found = await ask(self.client.temporal, self.client.queue, ToolsInquiry())
        named = {one.name: one for one in offers_of([listed(card) for card in found.tools if card.is_own])}
        is_changed, self.offers = self.is_ready.is_set() and named != self.offers, named
        self.left_out = found.unusable
        self.is_ready.set()
        if is_changed:
            log.info("gateway_tools", queue=self.client.queue, tools=len(named))
            self.notify("notifications/tools/list_changed", {})


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
