"""The schemas of tools, which only workers know: they are asked once, and their answer is kept for a while."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from client.problem import Problem
from client.workers import ask
from workflows.inquiries import ToolsInquiry

KEPT_SECONDS = 300.0
"""How long a schema is used without asking again."""
AGAIN_SECONDS = 20.0
"""How long no worker is asked again after no worker answered, or the kind was not known."""

Schema = Mapping[str, Any]


class Schemas:
    """The schemas of the arguments of all tools, by task queue and kind."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known = dict[str, Mapping[str, Schema]]()
        self._asked = dict[str, float]()
        self._asking = dict[str, asyncio.Task[None]]()

    async def of(self, queue: str, kind: str, within: float) -> Schema | None:
        """The schema of a tool; None if no worker reports it within `within` seconds. A late answer is kept, too."""
        age = time.monotonic() - self._asked.get(queue, float("-inf"))
        is_known = kind in self._known.get(queue, {})
        if age > (KEPT_SECONDS if is_known else AGAIN_SECONDS):
            self._asked[queue] = time.monotonic()
            self._asking[queue] = asyncio.create_task(self._ask(queue))
        if not is_known and queue in self._asking:
            await asyncio.wait([self._asking[queue]], timeout=within)
        return self._known.get(queue, {}).get(kind)

    async def _ask(self, queue: str) -> None:
        with suppress(Problem, RPCError):
            found = await ask(self._client, queue, ToolsInquiry())
            self._known[queue] = {tool.spec.kind: tool.args_schema for tool in found.tools}
