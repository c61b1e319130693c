"""Lets pages answer soon, with a problem, while the Temporal server does not answer."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from client.problem import Problem, ProblemKind

SILENT_SECONDS = 1.2
"""A page that takes longer checks whether the Temporal server answers at all."""
PING = timedelta(milliseconds=500)
AGAIN_SECONDS = 2.0


class PageRoute(APIRoute):
    """The route of a page, which stops waiting when the Temporal server is silent: the SDK alone tries for 10 s."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def respond(request: Request) -> Response:
            served = getattr(request.app.state, "client", None)
            if served is None:  # the page of a store, which needs no server
                return await handle(request)
            client: Client = served.temporal
            working = asyncio.ensure_future(handle(request))
            try:
                patience = SILENT_SECONDS
                while not (await asyncio.wait([working], timeout=patience))[0]:
                    if not await _server_answers(client):
                        raise Problem(
                            "unreachable",
                            "The Temporal server does not answer",
                            "what was sent may or may not have reached it, and sent again it counts once"
                            if request.method == "POST"
                            else "tasks go on when it is back",
                            ProblemKind.UNREACHABLE,
                        )
                    patience = AGAIN_SECONDS
                return await working
            finally:
                working.cancel()

        return respond


async def _server_answers(client: Client) -> bool:
    try:
        await client.workflow_service.get_system_info(GetSystemInfoRequest(), retry=False, timeout=PING)
    except RPCError:
        return False
    return True
