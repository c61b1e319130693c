"""The gateway's state folder in a run: its holders, which can be killed, and the person who answers its questions."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from activities.effects.calls import State
from activities.effects.database import Database
from activities.effects.desk import CallRecord, Desk
from activities.effects.errors import EffectRefused
from evals.gateway.moments import Blow
from evals.gateway.world import World

ROOT = Path(__file__).parents[3]
AGAIN_SECONDS = 0.5
IDLE_SECONDS = 3
"""Seconds for which a holder stays when nobody needs it: a run has many."""
END_SECONDS = 10


def environment() -> dict[str, str]:
    """The environment of agents: nothing of it leads to another gateway, or another server."""
    others = ("REPLAN_", "TEMPORAL_", "ANTHROPIC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


def holders(state: Path) -> dict[psutil.Process, str]:
    """The holders of a state folder that live, each with the name of its session."""
    found = dict[psutil.Process, str]()
    for lock in (state / "gateway").glob("*.lock"):
        with suppress(psutil.Error, OSError, ValueError):  # it ended a moment ago
            process = psutil.Process(int(lock.read_text()))
            words = process.cmdline()
            if lock.stem in words:
                found[process] = str(json.loads(words[-1])["session"])
    return found


async def end_holders(state: Path) -> None:
    """End the holders of a state folder, and all that they started."""
    living = [*holders(state)]
    all_of_them = list[psutil.Process]()
    for holder in living:
        with suppress(psutil.NoSuchProcess):
            all_of_them += [holder, *holder.children(recursive=True)]
            holder.terminate()
    _, alive = await asyncio.to_thread(psutil.wait_procs, all_of_them, END_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()


class Place:
    """A state folder with the tools of a world."""

    def __init__(self, world: World, state: Path, servers: Mapping[str, str]) -> None:
        """`servers` has the server of each token."""
        state.mkdir()
        self._world, self.state, self._servers = world, state, servers
        self._database = Database(str(state / "store.db"))
        self._desk = Desk(self._database)
        self.struck = Counter[Blow]()
        self.asked = list[tuple[str, str]]()
        """What a person was asked: the token of the effect, and what is not known of the call."""

    def command(self, agent: str, *, has_session: bool) -> list[str]:
        """What the agent's configuration names in place of a server's own command; its session has its name."""
        named = ["--session", agent] if has_session and agent else []
        state = ["--state", str(self.state), "--idle", str(IDLE_SECONDS)]
        tools = self._world.tools_file(agent)
        return [sys.executable, "-m", "replan", "mcp", *state, *named, "--tools", str(tools)]

    async def strike(self, blow: Blow, session: str) -> None:
        """Kill the holder of a session, if it is there."""
        for holder, its_session in holders(self.state).items():
            if its_session == session:
                with suppress(psutil.NoSuchProcess):
                    holder.kill()
                    self.struck[blow] += 1

    async def close(self) -> None:
        """End the holders and all that they started."""
        await end_holders(self.state)
        self._database.close()

    async def settle(self, key: str, token: str) -> None:
        """Be the person who looks into the world, and says what became of a call."""
        while True:
            with suppress(EffectRefused):
                record = await asyncio.to_thread(self._desk.call, key)
                if record.is_unsettled:
                    await asyncio.to_thread(self._settle, record, token)
                    self.asked.append((token, record.state.value))
                return
            await asyncio.sleep(AGAIN_SECONDS)  # it still runs

    def _settle(self, record: CallRecord, token: str) -> None:
        is_made = bool(self._world.executions()[token])
        if record.state is State.DOUBTFUL:
            self._desk.settle(record.key, "same" if is_made else "another", by="eval")
        elif is_made:
            result = self._world.call(self._servers[token], "", token).result
            self._desk.settle(record.key, "applied", result=result, by="eval")
        else:
            self._desk.settle(record.key, "not-applied", by="eval")
