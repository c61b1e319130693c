"""The tools of workers that run elsewhere, for a gateway that has no tools itself: each of their calls is a task."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import structlog
from mcp import MCPError
from mcp_types import METHOD_NOT_FOUND
from pydantic import BaseModel, JsonValue
from temporalio.service import RPCError

from activities.storage.store import Cipher
from client.problem import Problem
from client.workers import ask
from extras.gateway.request import Report
from extras.gateway.task_calls import QueueKind
from extras.gateway.tasks import ServerAway, Tasks
from workflows.inquiries import ToolCard, ToolsInquiry
from workflows.plans.catalogue import Effect

LOOK_SECONDS, RETRY_SECONDS = 30.0, 1.0
"""Seconds between two queries for the tools of the workers, and after one that had no answer."""

log = structlog.get_logger("replan.gateway")


class QueueTools:
    """The tools of the workers of a task queue."""

    def __init__(self, tasks: Tasks) -> None:
        self.problem = ""
        """Why the tools are not known yet."""
        self.list_file: Path | None = None
        self._tasks = tasks
        self._kinds: Mapping[str, QueueKind] = {}

    @asynccontextmanager
    async def loaded(
        self, offer: Callable[[Mapping[str, Any]], None], heard: Callable[[str, dict[str, Any]], None]
    ) -> AsyncIterator[None]:
        """Ask the workers for their tools until the block ends; `offer` gets them, also when they have changed."""
        tools = await self._ask_until_answered()
        offer(tools)
        asking = asyncio.create_task(self._keep_asking(tools, offer))
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.wait([asking])

    @asynccontextmanager
    async def opened(self, store: str, cipher: Cipher | None) -> AsyncIterator[None]:
        yield

    async def _ask_until_answered(self) -> Mapping[str, Any]:
        while True:
            try:
                return await self._ask()
            except (Problem, ServerAway, RPCError) as error:
                if str(error) != self.problem:
                    log.warning("gateway_no_tools", reason=str(error))
                self.problem = str(error)
            await asyncio.sleep(RETRY_SECONDS)

    async def _keep_asking(self, offered: Mapping[str, Any], offer: Callable[[Mapping[str, Any]], None]) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with suppress(Problem, ServerAway, RPCError):  # what was offered stays: its calls wait for a worker
                found = await self._ask()
                if found != offered:
                    offered = found
                    offer(offered)

    async def _ask(self) -> Mapping[str, Any]:
        client = await self._tasks.client()
        found = await ask(client.temporal, client.queue, ToolsInquiry())
        self._kinds = {card.spec.kind: QueueKind(card.spec) for card in found.tools}
        shown = [_listed(card) for card in found.tools if card.is_own]
        return {"tools": shown, "servers": {}, "left_out": dict(found.unusable)}

    def kind(self, name: str) -> QueueKind | None:
        """A tool by its kind; None if there is none."""
        return self._kinds.get(name)

    def is_over(self, kind: QueueKind) -> bool:
        return True

    async def call(self, kind: QueueKind, args: BaseModel, key: str, called: Callable[[], None]) -> JsonValue:
        raise LookupError(f"{kind.spec.kind} is made by a worker")

    async def pass_on(self, method: str, params: Mapping[str, Any], server: str, report: Report | None) -> Any:
        raise MCPError(METHOD_NOT_FOUND, f"{method} does not pass to the servers of a worker")


def _listed(card: ToolCard) -> dict[str, Any]:
    """A tool as `tools_result` lists it."""
    spec = card.spec
    is_read = spec.pure or spec.effect is Effect.READ
    is_content = card.result_schema.get("properties", {}).keys() >= {"text", "parts"}
    result = {} if is_content or card.result_schema.get("type") != "object" else {"outputSchema": card.result_schema}
    return {
        "kind": spec.kind,
        "server": None,
        "name": spec.kind,
        "effect": "pure" if spec.pure else spec.effect.value,
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
