"""The processes of MCP servers: they end with their worker, whatever they and their children do."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from activities.toolbox.http.network import Web
from extras.mcp.servers import McpServers
from extras.mcp.tests.foreign import command, lines, loaded, table, wait_until
from tests.processes import ROOT

HOLDING = """
import asyncio, json, sys
from activities.toolbox.http.network import Web
from extras.mcp.config import Config
from extras.mcp.servers import McpServers

async def hold():
    config = Config("shop", command=sys.argv[1:])
    async with McpServers({"shop": config}, None, Web()).opened() as servers:
        print((await servers.call("shop", "plain", {}))["text"], flush=True)
        await asyncio.sleep(3600)

asyncio.run(hold())
"""


def lives(process: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("mode", [pytest.param("pids", marks=pytest.mark.full), "ignore-term"])
def test_a_server_and_its_children_end_with_their_worker(mode: str) -> None:
    """Also those that ignore SIGTERM and the end of their input: within five seconds."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDING, *command(mode)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    with holder:
        assert holder.stdout is not None
        server, child = map(int, holder.stdout.readline().split())
        assert lives(server) and lives(child)
        holder.kill()

    assert wait_until(lambda: not lives(server) and not lives(child), 5)


@pytest.mark.parametrize("mode", ["pids", "ignore-term", "killed"])
async def test_a_server_and_its_children_end_when_its_connection_is_closed(tmp_path: Path, mode: str) -> None:
    """As above, when a worker stops; or when the server was killed: the next one may need their files and ports."""
    foreign = loaded(tmp_path, table("pids" if mode == "killed" else mode))
    async with McpServers(foreign.configs, None, Web()).opened() as servers:
        answer: Any = await servers.call("shop", "plain", {})
        server, child = map(int, answer["text"].split())
        if mode == "killed":
            os.kill(server, signal.SIGKILL)
            assert wait_until(lambda: not lives(child), 5)
        began = time.monotonic()

    assert not lives(server) and wait_until(lambda: not lives(child), 1)
    assert time.monotonic() - began < 6


async def test_a_server_has_few_variables_of_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where certificates are, and what its table names, also when it is only asked for its tools; no key of the worker.

    It runs in the folder that its table names, relative to the file, wherever the worker was started.
    """
    for name in ("SSL_CERT_FILE", "OPENAI_API_KEY", "MY_SHOP_KEY"):
        monkeypatch.setenv(name, "x")
    (tmp_path / "below").mkdir()
    (tmp_path / "paths").write_text("/a:/b\n")
    text = table("environment", "--variables", "names") + 'cwd = "below"\n[servers.shop.env]\n'
    foreign = loaded(
        tmp_path,
        f'{text}SHOP_KEY = "MY_SHOP_KEY"\nPATHS = "file:paths"\n',
        {"MY_SHOP_KEY": "open sesame", "OTHER": "hidden"},
    )
    async with McpServers(foreign.configs, None, Web()).opened() as servers:
        answer: Any = await servers.call("shop", "plain", {})
    environment, [at_load, _] = json.loads(answer["text"]), lines(tmp_path / "below" / "names")

    assert {"SHOP_KEY": "open sesame", "PATHS": "/a:/b"}.items() <= environment.items()
    for names in ({*environment}, {*at_load.split()}):
        assert {"SSL_CERT_FILE", "PATH", "SHOP_KEY"} <= names
        assert not {"OPENAI_API_KEY", "MY_SHOP_KEY", "OTHER"} & names
