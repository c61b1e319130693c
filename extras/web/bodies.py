"""Reads the JSON body of a request: what cannot be passed on is refused before its route runs."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from client import document


class JsonRequest(Request):
    """A request whose body is JSON that every reader takes."""

    async def json(self) -> Any:
        """The body. FastAPI answers a JSONDecodeError with 422, any other error (too deep, not UTF-8) with 400."""
        if not hasattr(self, "_json"):
            try:
                self._json = document.parsed(await self.body())
            except (json.JSONDecodeError, UnicodeDecodeError):
                raise
            except ValueError as error:
                raise json.JSONDecodeError(str(error), "", 0) from error
        return self._json


class JsonRoute(APIRoute):
    """A route whose requests are JsonRequests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle
