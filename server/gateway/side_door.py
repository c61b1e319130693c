"""The gateway's connection to the side door of a worker, through which reads pass without a task."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from server.gateway.bridge import MAX_LINE
from server.gateway.request import Report

AGAIN_SECONDS = 30.0
"""How long a request waits for a worker that is started again."""
RETRY_SECONDS = 0.2


class DoorError(Exception):
    """The error of JSON-RPC that a server, or the side door, answered with."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class DoorClosed(Exception):
    """The worker has ended, or does not listen yet."""


class SideDoor:
    """One connection to a side door, which is opened again after the worker was started again."""

    def __init__(self, path: Path, on_notification: Callable[[str, str, dict[str, Any]], None]) -> None:
        """`on_notification` gets the server's name, the method and the parameters."""
        self._path = path
        self._on_notification = on_notification
        self._numbers = itertools.count(1)
        self._waiting = dict[int, tuple[asyncio.Future[Any], Report | None]]()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._reports = set[asyncio.Task[None]]()

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, server: str = "", report: Report | None = None
    ) -> Any:
        """Send a request that has no effect, again if the worker ended meanwhile, and return the result.

        `server` names the MCP server behind the worker; empty for the worker itself.

        Raises:
            DoorError: the server answered with an error.
            DoorClosed: no worker came back within `AGAIN_SECONDS`.
        """
        until = asyncio.get_running_loop().time() + AGAIN_SECONDS
        while True:
            try:
                return await self._request(method, params, server, report)
            except (DoorClosed, OSError) as closed:
                if asyncio.get_running_loop().time() > until:
                    raise DoorClosed("the worker does not answer") from closed
                await asyncio.sleep(RETRY_SECONDS)

    async def _request(self, method: str, params: Mapping[str, Any] | None, server: str, report: Report | None) -> Any:
        writer = await self._open()
        number, future = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = (future, report)
        line: dict[str, Any] = {"id": number, "method": method}
        line |= {"params": dict(params)} if params is not None else {}
        line |= {"server": server} if server else {}
        line |= {"progress": True} if report else {}
        try:
            writer.write(to_json(line) + b"\n")
            await writer.drain()
            return await future
        except asyncio.CancelledError:
            with suppress(OSError):
                writer.write(to_json({"cancel": number}) + b"\n")
            raise
        finally:
            self._waiting.pop(number, None)

    async def _open(self) -> asyncio.StreamWriter:
        async with self._opening:
            if self._writer is None or self._reading is None or self._reading.done():
                reader, self._writer = await asyncio.open_unix_connection(str(self._path), limit=MAX_LINE)
                self._reading = asyncio.create_task(self._read(reader, self._writer))
            return self._writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._handle_line(from_json(line))
        except (OSError, ValueError):
            pass
        finally:
            writer.close()
            for future, _ in self._waiting.values():
                if not future.done():
                    future.set_exception(DoorClosed("the worker ended"))

    def _handle_line(self, line: dict[str, Any]) -> None:
        if "notification" in line:
            told = line["notification"]
            self._on_notification(line.get("server", ""), told["method"], told.get("params") or {})
            return
        if "progress" in line:
            told = line["progress"]
            _, report = self._waiting.get(told["id"], (None, None))
            if report:
                done = asyncio.ensure_future(report(told["progress"], told.get("total"), told.get("message") or ""))
                self._reports.add(done)
                done.add_done_callback(self._reports.discard)
            return
        future, _ = self._waiting.get(line.get("id") or 0, (None, None))
        if future is None or future.done():
            return
        if "error" in line:
            error = line["error"]
            future.set_exception(DoorError(error["code"], error["message"], error.get("data")))
        else:
            future.set_result(line["result"])

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
