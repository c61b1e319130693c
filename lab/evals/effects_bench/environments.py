"""The arms: each a program as its own documentation has it, in an environment with pinned versions."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from evals.chaos.stage import Server
from evals.effects_bench.trial import Arm
from evals.frameworks.environments import NoEnvironment, Say, python_of
from runtime.dev_server import free_port

HERE = Path(__file__).parent / "arms"
OWN = ""
"""The environment that runs here."""


@dataclass(frozen=True)
class Row:
    """What an arm is."""

    environment: str
    """The name of its file of requirements; OWN for none."""
    needs_temporal: bool = False
    is_ours: bool = False
    has_keys: bool = False
    """Whether its calls have idempotency keys."""


ARMS: Mapping[str, Row] = {
    "langgraph": Row("langgraph"),
    "langgraph_keys": Row("langgraph", has_keys=True),
    "langgraph_mcp": Row("langgraph"),
    "langgraph_mcp_keys": Row("langgraph", has_keys=True),
    "agent_once": Row("langgraph", has_keys=True),
    "agent_once_verify": Row("langgraph", has_keys=True),
    "dbos": Row("dbos"),
    "dbos_keys": Row("dbos", has_keys=True),
    "pydantic_ai_dbos": Row("dbos"),
    "pydantic_ai_dbos_keys": Row("dbos", has_keys=True),
    "temporal": Row(OWN, needs_temporal=True),
    "temporal_keys": Row(OWN, needs_temporal=True, has_keys=True),
    "pydantic_ai_temporal": Row("pydantic-ai-temporal", needs_temporal=True),
    "pydantic_ai_temporal_keys": Row("pydantic-ai-temporal", needs_temporal=True, has_keys=True),
    "temporal_mcp": Row("temporal-mcp", needs_temporal=True),
    "temporal_mcp_keys": Row("temporal-mcp", needs_temporal=True, has_keys=True),
    "temporal_faults": Row(OWN, needs_temporal=True, is_ours=True),
    "replan_functions": Row("langgraph", is_ours=True, has_keys=True),
    "langgraph_gateway": Row("langgraph", is_ours=True),
    "langgraph_gateway_keys": Row("langgraph", is_ours=True, has_keys=True),
    "replan_tasks": Row(OWN, needs_temporal=True, is_ours=True),
    "replan_tasks_keys": Row(OWN, needs_temporal=True, is_ours=True, has_keys=True),
}


class Environments:
    """What arms and worlds run in: their packages, and a Temporal server for those that need one."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder, self._say, self._stack = folder, say, AsyncExitStack()
        self._port = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def of_worlds(self) -> Path:
        """The Python of the worlds. Raises NoEnvironment."""
        python = await python_of(HERE.parent / "worlds-requirements.txt", self._say)
        made = python.parent.parent / "worlds"
        if not made.exists():
            process = await asyncio.create_subprocess_exec(
                *(str(python), "-m", "pip", "install", "--quiet", "--no-deps"),
                *("--requirement", str(HERE.parent / "worlds-alone.txt")),
            )
            if await process.wait():
                raise NoEnvironment("The packages of the worlds cannot be installed")
            made.touch()
        return python

    async def arm(self, name: str) -> Arm:
        """An arm that can be run. Raises NoEnvironment."""
        row = ARMS[name]
        python = Path(sys.executable)
        if row.environment:
            python = await python_of(HERE / f"{row.environment}-requirements.txt", self._say)
        more = {"REPLAN": sys.executable}
        if row.needs_temporal:
            more |= {"TEMPORAL_ADDRESS": await self._temporal()}
        return Arm(name, HERE / f"{name}_arm.py", python, more, row.has_keys)

    async def _temporal(self) -> str:
        """The address of a server, which the first that asks starts."""
        if not self._port:
            self._port, folder = free_port(), self._folder / "server"
            folder.mkdir()
            await self._stack.enter_async_context(Server(folder, self._port))
        return f"127.0.0.1:{self._port}"
