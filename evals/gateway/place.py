"""The gateway's state folder in a run: its processes, which can be killed, and the person who answers its questions."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from temporalio.service import RPCError

from client.client import Client
from client.listing import Waiting
from client.problem import Problem
from evals.gateway.moments import Blow
from evals.gateway.shim import TOKEN
from evals.gateway.world import World
from runtime import state_folder
from server.gateway.daemon import LOCK
from workflows.people.requests import Choice, HumanRequest, RequestKind

ROOT = Path(__file__).parents[2]
LOOK_SECONDS = 0.7
IDLE_SECONDS = 900
END_SECONDS = 10
PATIENCE = 2
"""Seconds for which a call waits for a person before the agent is told so."""


def environment() -> dict[str, str]:
    """The environment of agents: nothing of it leads to another gateway, or another server."""
    others = ("REPLAN_", "TEMPORAL_", "ANTHROPIC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


class Place:
    """A state folder with the tools of a world."""

    def __init__(self, world: World, state: Path, servers: Mapping[str, str]) -> None:
        """`servers` has the server of each token."""
        state.mkdir()
        self._world, self.state, self._servers = world, state, servers
        self._tools = world.tools_file()
        self._striking = asyncio.Lock()
        self.struck = Counter[Blow]()
        self.asked = list[tuple[str, RequestKind]]()
        """What a person was asked: the token of the effect, and for what."""
        self.to_repeat = set[str]()
        """The tokens of the effects of which that person said that they were not made, and are to be made again."""
        self._answered = set[tuple[str, str]]()

    def command(self, session: str | None, *options: str) -> list[str]:
        """What the agent's configuration names in place of a server's own command."""
        named = ["--session", session] if session else []
        state = ["--state", str(self.state), "--idle", str(IDLE_SECONDS), "--patience", str(PATIENCE)]
        return [sys.executable, "-m", "replan", "mcp", "--tasks", *state, *named, *options, "--tools", str(self._tools)]

    async def strike(self, blow: Blow) -> None:
        """Kill a process of the gateway, if it is there."""
        async with self._striking:
            for process in self._processes(blow):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
                    self.struck[blow] += 1

    def _processes(self, blow: Blow) -> list[psutil.Process]:
        try:
            daemon = psutil.Process(int((self.state / LOCK).read_text()))
            if blow is Blow.DAEMON:
                return [daemon]
            mark = "--mcp-socket" if blow is Blow.WORKER else "start-dev"
            return [child for child in daemon.children() if mark in child.cmdline()]
        except (psutil.NoSuchProcess, OSError, ValueError):
            return []  # it was killed a moment ago

    async def close(self) -> None:
        """End the daemon and all that it started."""
        daemons = self._processes(Blow.DAEMON)
        all_of_them = [one for daemon in daemons for one in (daemon, *daemon.children(recursive=True))]
        for daemon in daemons:
            daemon.terminate()
        _, alive = await asyncio.to_thread(psutil.wait_procs, all_of_them, END_SECONDS)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    async def answer_all(self) -> None:
        """Be the person who looks into the world, and answers what is asked; until cancelled."""
        clients = dict[str, Client]()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            address = state_folder.server_address(self.state)
            if address is None:
                continue
            with suppress(RPCError, Problem, TimeoutError):
                async with asyncio.timeout(20):
                    if address not in clients:
                        clients[address] = await Client.connect(address)
                    for waiting in await clients[address].waiting():
                        await self._answer(clients[address], waiting)

    async def _answer(self, client: Client, waiting: Waiting) -> None:
        found = TOKEN.search(waiting.task)
        asked = (waiting.task_id, waiting.request.id)
        if found is None or asked in self._answered:
            return
        token, task = found.group(), await client.task(waiting.task_id)
        for request in await task.requests():
            choice, values = self._decided(token, request)
            if choice is Choice.APPROVE and request.call is None:
                return  # no worker is there now to show the call: look again
            await task.answer(choice, request=request, by="eval", **values)
            if choice is Choice.ABORT:
                self.to_repeat.add(token)
            self.asked.append((token, request.kind))
            self._answered.add(asked)

    def _decided(self, token: str, request: HumanRequest) -> tuple[Choice, dict[str, Any]]:
        """What a person says who sees whether the effect is in the world; a click is meant each time."""
        is_made = bool(self._world.executions()[token]) and not token.startswith("click")
        if request.kind is RequestKind.APPROVAL:
            return (Choice.REJECT, {"reason": "It was done."}) if is_made else (Choice.APPROVE, {})
        if not is_made:
            return Choice.ABORT, {"reason": "It was not done: call again."}
        return Choice.PROVIDE, {"result": self._world.call(self._servers[token], "", token).result}
