"""Tools of MCP servers as a worker loads them, with servers that misbehave."""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.toolbox.declare.tool import Tool
from activities.toolbox.http.network import Reach, Web
from extras.mcp.loading import McpTools, load_servers
from extras.mcp.servers import McpServers
from tests.processes import wait_until as wait_until, written as written

SERVER = Path(__file__).with_name("bad_server.py")


def command(mode: str, *options: object) -> tuple[str, ...]:
    """The command of a server of the tests that misbehaves so."""
    return (sys.executable, "-I", "-S", str(SERVER), mode, *map(str, options))


def table(mode: str = "ok", *options: object, server: str = "shop") -> str:
    """The table of a server in a tools file."""
    return f"[servers.{server}]\ncommand = {json.dumps(command(mode, *options))}\n"


def loaded(
    folder: Path, text: str, environment: Mapping[str, str] | None = None, others: tuple[Tool[..., Any], ...] = ()
) -> McpTools:
    """What a worker loads from a tools file with this text."""
    return load_servers([str(written(folder, text))], environment or {}, others)


def serving(foreign: McpTools, mode: str, *options: object, server: str = "shop") -> McpTools:
    """The same tools, whose server has begun to misbehave."""
    config = replace(foreign.configs[server], command=command(mode, *options))
    return replace(foreign, configs={**foreign.configs, server: config})


@asynccontextmanager
async def asked(foreign: McpTools) -> AsyncIterator[McpServers]:
    """The servers of the tools, as a gateway reaches them."""
    servers = McpServers(foreign.configs, None, Web(Reach.of(())), has_layout=True)
    servers.expect(foreign.listings)
    async with servers.opened():
        yield servers


class AtGateway(McpTools):
    """The tools as a gateway calls them."""

    def servers(self, engine: AsyncEngine, web: Web) -> McpServers:
        servers = McpServers(self.configs, engine, web, has_layout=True)
        servers.expect(self.listings)
        return servers


def tool_of(foreign: McpTools, kind: str) -> Tool[..., Any]:
    return next(tool for tool in foreign.tools if tool.__name__ == kind)


def lines(file: Path) -> list[str]:
    """The lines of a file that a server appends to."""
    return file.read_text().splitlines() if file.exists() else []


def of_gateway(module: str) -> Any:
    """A module of the gateway, for what a test says of it, too; where that extra is not here, the test is skipped."""
    return pytest.importorskip(f"extras.gateway.{module}")
