"""The tools of workers, whose calls with an effect are tasks, as a connection of an agent uses them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp import MCPError
from pydantic import JsonValue

from client.client import Client, TaskHandle
from server.gateway import attending, own_tools
from server.gateway.calls import Calls
from server.gateway.matching import Delivery
from server.gateway.offers import Offer
from server.gateway.request import Report, Request
from server.gateway.session import Desk
from server.gateway.side_door import DoorClosed, DoorError, SideDoor


class TaskDesk(Desk):
    """The tools of a worker: each call with an effect is a task."""

    own_tools = own_tools.BY_NAME
    client: Client
    """The client of the workers' task queue; there as soon as the tools are known."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls
        self.door: SideDoor | None = None

    @property
    def can_pass(self) -> bool:
        return self.door is not None

    async def call(self, offer: Offer, args: dict[str, JsonValue], request: Request) -> dict[str, Any]:
        return await self.calls.call(self.client, offer, args, request)

    async def call_own(self, name: str, args: dict[str, JsonValue], request: Request) -> dict[str, Any]:
        return await self.own_tools[name](own_tools.Asked(self.client, self.calls, request, args))

    async def resume(
        self, params: types.CallToolRequestParams, request: Request, *, is_structured: bool
    ) -> dict[str, Any]:
        found = attending.read_state(params.request_state or "")
        if found is None or not found[0].startswith(request.session.prefix):
            raise MCPError(types.INVALID_PARAMS, "This session has not asked for this input")
        task_id, asked, code = found
        said = (params.input_responses or {}).get(attending.INPUT)
        if isinstance(said, types.ElicitResult) and request.attended:
            handle = TaskHandle(self.client.temporal, task_id)
            why = await attending.answer(handle, asked, code, said.model_dump(), request.attended.client)
            if why is not None or said.action != "accept":
                request = replace(request, attended=None)  # the page has it
        patience = request.session.patience
        return await self.calls.outcome_of(
            self.client, task_id, request, patience=patience, is_structured=is_structured
        )

    async def pass_on(self, method: str, params: Mapping[str, Any], server: str, report: Report | None) -> Any:
        if self.door is None:
            raise MCPError(types.METHOD_NOT_FOUND, f"{method} passes only to a worker on this machine")
        try:
            return await self.door.request(method, params, server=server, report=report)
        except DoorError as error:
            raise MCPError(error.code, error.message, error.data) from None
        except DoorClosed:
            raise MCPError(types.INTERNAL_ERROR, "The worker of Replan does not answer: call again.") from None

    def went_on(self, connection: str) -> None:
        self.calls.journal.went_on(connection)

    def answer_written(self, request: str) -> None:
        self.calls.journal.note_request(request, Delivery.WRITTEN)

    def answer_failed(self, request: str) -> None:
        self.calls.journal.note_request(request, Delivery.BROKEN)
