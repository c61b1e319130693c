"""Calls of one tool through the boundary, without a server."""

import itertools
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.common import RawValue
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities import deadline
from activities.boundary.approved import Verifier
from activities.boundary.boundary import Boundary
from activities.boundary.interceptor import HeaderInterceptor
from activities.boundary.tool_loop import ToolLoop
from activities.providers.fallback import FallbackModel
from activities.providers.messages import LanguageModel
from activities.providers.metering import MeteredModel
from activities.storage.store import open_store
from activities.toolbox.declare.tool import Companion
from activities.toolbox.foreign import ForeignTools
from activities.toolbox.http.network import Reach, Web
from activities.toolbox.http.services import Services
from activities.toolbox.registry import Registry
from activities.toolbox.resources import Resources
from replan import Tool
from tests.stores import make_store
from workflows.calls.header import HEADER, CallHeader
from workflows.faults.fault import Fault
from workflows.plans.catalogue import Price
from workflows.plans.proposal import StepReturn

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody: an HTTP client that has it loads no certificates, which takes longer than most calls."""


@dataclass
class Bench:
    """What a worker would give to the tools."""

    engine: AsyncEngine
    boundary: Boundary
    calls: Iterator[int] = field(default_factory=itertools.count)
    logs_values: bool = False
    """Whether the worker logs arguments and results, as with `--log-values`."""

    async def call(
        self,
        tool: Tool[..., Any],
        *,
        attempt: int = 1,
        run: str | None = None,
        heartbeats: Sequence[Any] = (),
        environment: ActivityEnvironment | None = None,
        header: CallHeader | None = None,
        **args: JsonValue,
    ) -> StepReturn:
        """Run the tool's activity once, as a worker does; each call has a key of its own, unless they share a `run`.

        `header` is what the workflow tells besides the arguments.
        """
        chosen = environment or ActivityEnvironment()
        chosen.payload_converter = pydantic_data_converter.payload_converter
        info = replace(chosen.info, attempt=attempt, heartbeat_details=heartbeats)
        chosen.info = replace(
            info, activity_id="a", workflow_id="a-task", workflow_run_id=run or f"run-{next(self.calls)}"
        )
        payload = RawValue(chosen.payload_converter.to_payload(args))
        kind = Registry(_with_companions(tool))[tool.__name__]
        headers = {HEADER: chosen.payload_converter.to_payload(header)} if header else {}

        async def intercepted(payload: RawValue) -> StepReturn:
            inbound = HeaderInterceptor(logs_values=self.logs_values).intercept_activity(_Innermost())
            called = ExecuteActivityInput(self.boundary.activity(kind), [payload], None, headers)
            back: StepReturn = await inbound.execute_activity(called)
            return back

        return await chosen.run(intercepted, payload)

    async def fails(self, tool: Tool[..., Any], **more: Any) -> tuple[Fault, ApplicationError]:
        """Run it once and return how it failed."""
        with pytest.raises(ApplicationError) as failed:
            await self.call(tool, **more)
        fault = failed.value.details[0]
        assert isinstance(fault, Fault)
        return fault, failed.value

    async def rows(self, statement: str) -> list[Any]:
        """The first column of what a query finds."""
        async with self.engine.begin() as connection:
            return [row[0] for row in await connection.execute(text(statement))]


def _with_companions(tool: Tool[..., Any]) -> list[Tool[..., Any]]:
    others = [tool.options.observe, tool.options.reconcile, tool.options.undo, tool.options.fallback]
    tools = [other.tool if isinstance(other, Companion) else other for other in others if other]
    return list(dict.fromkeys([tool, *tools]))


class _Innermost(ActivityInboundInterceptor):
    def __init__(self) -> None:
        """There is no next one."""

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return await input.fn(*input.args)


@asynccontextmanager
async def bench(
    folder: Path,
    documents: Path | None = None,
    *,
    workspace: Path | None = None,
    allow_hosts: Sequence[str] = (),
    store: str | None = None,
    services: Services | None = None,
    servers: ForeignTools | None = None,
    model: LanguageModel | None = None,
    price: Price | None = None,
    loop: ToolLoop | None = None,
    people: Verifier | None = None,
) -> AsyncIterator[Bench]:
    """A bench with a store, in `folder` unless its URL is given, which has a table `notes (word)`.

    `servers` are the MCP servers that the tools call; they are ended at the end. `people` verifies who approves.
    """
    engine = await open_store(store or await make_store(folder))
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE notes (word TEXT PRIMARY KEY)"))
    async with deadline.client(trust_env=False, verify=NO_TLS) as http:
        if model is not None and not isinstance(model, FallbackModel):
            model = MeteredModel(model, price)
        reached = (servers or ForeignTools()).servers(engine, Web(Reach.of(allow_hosts)))
        asked: dict[str, Any] = {"services": services, "servers": reached, "model": model}
        resources = Resources(engine, http, documents, workspace=workspace, allow_hosts=allow_hosts, **asked)
        async with reached.opened():
            yield Bench(engine, Boundary(resources, loop=loop, people=people))
    await engine.dispose()
