"""`mcp --prepare`: fetches, builds and starts what an agent's first connection would wait for."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from runtime.dev_server import find_cli
from server.gateway.bridge import IDLE_SECONDS, Bridge, HolderPlace, name_of
from server.gateway.proxy import Proxy
from server.gateway.wire import Hello

OWN = "replan_"
"""What the names of the gateway's own tools begin with."""


class _Asker:
    """An agent that lists the tools until there are some, and leaves."""

    def __init__(self) -> None:
        self.tools = list[str]()
        self._next: asyncio.Queue[bytes | None] = asyncio.Queue()
        client = {"name": "prepare", "version": "1"}
        self._queue_message(
            "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}, 0
        )

    def _queue_message(self, method: str, params: dict[str, Any], number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self._next.put_nowait(to_json(message | ({"id": number} if number is not None else {})) + b"\n")

    async def next(self) -> bytes | None:
        return await self._next.get()

    async def write(self, line: bytes) -> None:
        message = from_json(line)
        if message.get("id") == 0:
            self._queue_message("notifications/initialized", {})
            self._queue_message("tools/list", {}, 1)
        elif "id" in message:
            named = [one["name"] for one in message.get("result", {}).get("tools", [])]
            self.tools = [name for name in named if not name.startswith(OWN)]
            if self.tools:
                self._next.put_nowait(None)
            else:
                self._queue_message("tools/list", {}, message["id"] + 1)

    async def ask(self, to_bridge: int, of_bridge: int) -> None:
        """Ask through pipes, until the tools are known."""
        with open(of_bridge, "rb") as answers:  # noqa: ASYNC230  # a loop of its own
            while (line := await self.next()) is not None:
                os.write(to_bridge, line)
                while b'"id"' in line and self._next.empty():
                    await self.write(answers.readline())
            os.close(to_bridge)


async def prepare(state: Path, hello: Hello, idle: float, say: Callable[[str], None]) -> int:
    """Make everything ready, and say which tools there are; returns the exit code 0.

    Raises:
        ServerUnavailable: there is no `temporal` program, and none could be fetched.
        CannotServe: the daemon cannot be started, or does not serve these tools.
    """
    await find_cli(say)
    say("starting the tools ...")
    asker = _Asker()
    await Proxy(state, hello, asker, idle).run()
    say(f"ready  {len(asker.tools)} tools: {', '.join(asker.tools)}")
    return 0


def prepare_holder(state: Path, hello: Hello, idle: float | None, say: Callable[[str], None]) -> int:
    """`prepare` for a gateway without tasks. Raises bridge.CannotServe if no holder serves these tools."""
    say("starting the tools ...")
    of_agent, to_bridge = os.pipe()
    of_bridge, to_agent = os.pipe()
    told = hello.model_dump(mode="json", exclude={"environment"})
    place = HolderPlace(str(state), name_of(told, dict(os.environ)))
    asker = _Asker()
    asking = threading.Thread(target=asyncio.run, args=(asker.ask(to_bridge, of_bridge),), daemon=True)
    asking.start()
    Bridge(place, told, idle or IDLE_SECONDS, of_agent, to_agent).run()
    asking.join()
    say(f"ready  {len(asker.tools)} tools: {', '.join(asker.tools)}")
    return 0
