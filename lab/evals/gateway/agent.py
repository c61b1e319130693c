"""An agent with the SDK's own client, which issues a call again when its connection breaks, as MCP says."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mcp import MCPError
from mcp_types import CallToolResult, TextContent

from evals.gateway.moments import GATEWAYS_OWN, Blow, Break, Effect, Moment
from evals.gateway.pipes import Connection
from evals.gateway.world import World

LOOK_SECONDS = 0.02
AGAIN_SECONDS = 0.3
HELD_WITHIN = 60.0
LATE_SECONDS = 5.0
"""Seconds for which a late answer is held if the call is not issued again."""
GIVE_UP_SECONDS = 240.0
MAX_WAIT = 5.0
"""The most seconds that this agent waits when it is told to wait and call again."""


class Ending(StrEnum):
    """What an agent knows of its effect in the end."""

    DONE = "done"
    SETTLED = "told not to repeat it"
    REFUSED = "an error"
    STUCK = "no answer"


@dataclass
class Tally:
    """What the agents of a run saw."""

    endings: dict[str, Ending] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    """By token, the error that an agent got in the end."""
    noted: int = 0
    """Answers that say that they are those of an earlier call."""
    issued_again: int = 0
    cut: int = 0


@dataclass(frozen=True)
class Reach:
    """How an agent reaches its tools."""

    connect: Callable[[str], Awaitable[Connection]]
    """Makes a new connection for a server."""
    is_shared: bool
    """Whether one connection has all servers: the gateway's."""
    strike: Callable[[Blow], Awaitable[None]] | None
    """Kills processes of the gateway; None without one."""
    ask: Callable[[str, str], Awaitable[None]] | None
    """Has a person settle the call with this id, which is about this token; None without a gateway."""
    has_keys: bool


class Agent:
    """Does one effect after the other."""

    def __init__(self, name: str, world: World, reach: Reach, tally: Tally) -> None:
        self._name, self._world, self._reach, self._tally = name, world, reach, tally
        self._connections = dict[str, Connection]()
        self._key, self._begun = "", 0
        """How often a call of the present effect was issued."""
        self.last = list[Connection]()
        """All connections, also those that were cut."""

    async def perform(self, effect: Effect) -> None:
        """Have an effect made, whatever breaks meanwhile."""
        self._begun, self._key = 0, effect.token
        striking = asyncio.create_task(self._break(effect.token, effect.server, effect.happens))
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                ending = await self._until_settled(effect)
        except TimeoutError:
            ending = Ending.STUCK
            await self._drop(effect.server)
        finally:
            striking.cancel()
            with suppress(asyncio.CancelledError):
                await striking
            self._release(effect.token)
        self._tally.endings[effect.token] = ending

    async def _until_settled(self, effect: Effect) -> Ending:
        call = self._world.call(effect.server, self._name, effect.token)
        is_written = effect.happens.moment is Moment.WRITTEN and effect.happens.blow is not Blow.NONE
        while True:
            try:
                connection = await self._connection(effect.server)
                self._begun += 1
                self._tally.issued_again += self._begun > 1
                connection.pipes.breaks_at_answer = is_written and self._begun == 1
                self._tally.cut += connection.pipes.breaks_at_answer
                meta: Any = {"replan/key": self._key} if self._reach.has_keys else None
                result = await (await connection.client()).call_tool(call.tool, dict(call.args), meta=meta)
                ending = await self._read(result, connection, effect.token)
            except (MCPError, OSError, BaseExceptionGroup):  # the connection is gone
                await self._drop(effect.server)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if ending is not None:
                return ending

    async def _read(self, result: CallToolResult, connection: Connection, token: str) -> Ending | None:
        """What an answer means; None if the call is to be made again."""
        while result.is_error:
            told = _told(result)
            match told.get("do"):
                case "wait":
                    await asyncio.sleep(min(float(told.get("wait_seconds") or 1), MAX_WAIT))
                    return None
                case "a_person_was_asked" if self._reach.ask is not None:
                    await self._reach.ask(str(told["task"]), token)
                    result = await (await connection.client()).call_tool("replan_outcome", {"id": told["task"]})
                case "do_not_repeat":
                    self._tally.words[token] = _text(result)[:300]
                    return Ending.SETTLED
                case _:
                    self._tally.words[token] = _text(result)[:300]
                    return Ending.REFUSED
        self._tally.noted += "Not done again" in _text(result)
        return Ending.DONE

    async def list_tools(self, server: str) -> None:
        """See that the server's tools are there."""
        client = await (await self._connection(server)).client()
        await client.list_tools()

    async def call(self, server: str, tool: str, args: dict[str, Any], **meta: str) -> Ending | None:
        """Make one call, and see its outcome."""
        connection = await self._connection(server)
        named: Any = {f"replan/{name}": value for name, value in meta.items()} or None
        return await self._read(await (await connection.client()).call_tool(tool, args, meta=named), connection, tool)

    async def _connection(self, server: str) -> Connection:
        place = "" if self._reach.is_shared else server
        if place not in self._connections:
            self._connections[place] = await self._reach.connect(server)
            self.last.append(self._connections[place])
        return self._connections[place]

    async def _drop(self, server: str) -> None:
        connection = self._connections.pop("" if self._reach.is_shared else server, None)
        if connection is not None:
            await connection.close()

    # What breaks.

    async def _break(self, token: str, server: str, happens: Break) -> None:
        """Hold the call at the moment when something breaks, break it, and let it go on."""
        blow = happens.blow
        if blow is Blow.NONE or happens.moment is Moment.WRITTEN:
            return
        if self._reach.strike is None and blow in GATEWAYS_OWN:
            return
        hold = f"die-{happens.moment}" if blow is Blow.SERVER else happens.moment
        (self._world.folder / "holds" / token).write_text(hold)
        if blow is Blow.SERVER:
            return
        held = self._world.folder / "held" / token
        try:
            async with asyncio.timeout(HELD_WITHIN):
                while not held.exists():  # noqa: ASYNC110  # another process makes it
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return
        begun = self._begun
        await self._strike(blow, server)
        if happens.is_late:
            with suppress(TimeoutError):
                async with asyncio.timeout(LATE_SECONDS):
                    while self._begun == begun:  # noqa: ASYNC110  # at most for LATE_SECONDS
                        await asyncio.sleep(LOOK_SECONDS)
                    await asyncio.sleep(AGAIN_SECONDS)
        held.unlink(missing_ok=True)

    async def _strike(self, blow: Blow, server: str) -> None:
        connection = self._connections.get("" if self._reach.is_shared else server)
        if blow in GATEWAYS_OWN and self._reach.strike is not None:
            await self._reach.strike(blow)
        elif connection is not None:
            self._tally.cut += 1
            connection.pipes.kill() if blow is Blow.KILL else connection.pipes.hang_up()

    def _release(self, token: str) -> None:
        for name in ("holds", "held"):
            (self._world.folder / name / token).unlink(missing_ok=True)

    async def close(self) -> None:
        for server in list(self._connections):
            await self._drop(server)
        for connection in self.last:
            await connection.pipes.gone(0 if self._reach.is_shared else 2)


def _told(result: CallToolResult) -> dict[str, Any]:
    """What the gateway says as data; nothing in the errors of others."""
    if isinstance(result.structured_content, dict):
        return result.structured_content
    for part in result.content:
        if isinstance(part, TextContent) and part.text.startswith('{"'):
            with suppress(ValueError):
                return dict(json.loads(part.text))
    return {}


def _text(result: CallToolResult) -> str:
    return " ".join(part.text for part in result.content if isinstance(part, TextContent))
