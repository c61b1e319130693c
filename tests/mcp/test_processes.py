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
from activities.toolbox.mcp.loading import ForeignTools
from activities.toolbox.mcp.servers import Servers
from tests.mcp.foreign import command, lines, loaded, serving, table, wait_until
from tests.processes import ROOT

HOLDING = """
import asyncio, json, sys
from activities.toolbox.http.network import Web
from activities.toolbox.mcp.config import Config
from activities.toolbox.mcp.servers import Servers

async def hold():
    config = Config("shop", command=sys.argv[1:])
    async with Servers({"shop": config}, None, Web()).opened() as servers:
        print((await servers.call("shop", "plain", {}))["text"], flush=True)
        await asyncio.sleep(3600)

asyncio.run(hold())
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ForeignTools:
    """Tools of a server."""
    return loaded(tmp_path_factory.mktemp("shop"), table())


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


@pytest.mark.parametrize("mode", ["pids", "ignore-term"])
async def test_a_server_and_its_children_end_when_its_connection_is_closed(shop: ForeignTools, mode: str) -> None:
    """As above, when a worker stops."""
    async with Servers(serving(shop, mode).configs, None, Web()).opened() as servers:
        answer: Any = await servers.call("shop", "plain", {})
        server, child = map(int, answer["text"].split())
        began = time.monotonic()

    assert not lives(server) and wait_until(lambda: not lives(child), 1)
    assert time.monotonic() - began < 6


async def test_the_children_of_a_server_that_has_ended_by_itself_end_too(shop: ForeignTools) -> None:
    """They would hold files and ports that the next server needs."""
    async with Servers(serving(shop, "pids").configs, None, Web()).opened() as servers:
        answer: Any = await servers.call("shop", "plain", {})
        server, child = map(int, answer["text"].split())
        os.kill(server, signal.SIGKILL)

        assert wait_until(lambda: not lives(child), 5)


async def test_a_server_gets_no_variable_that_its_table_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of a worker has the keys of its models."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    text = table("environment") + '[servers.shop.env]\nSHOP_KEY = "MY_SHOP_KEY"\nPATHS = "file:paths"\n'
    (tmp_path / "paths").write_text("/a:/b\n")
    foreign = loaded(tmp_path, text, {"MY_SHOP_KEY": "open sesame", "OTHER": "hidden"})
    async with Servers(foreign.configs, None, Web()).opened() as servers:
        answer: Any = await servers.call("shop", "plain", {})
    environment = json.loads(answer["text"])

    assert {"SHOP_KEY": "open sesame", "PATHS": "/a:/b"}.items() <= environment.items()
    assert not {"OPENAI_API_KEY", "MY_SHOP_KEY", "OTHER"} & {*environment} and "PATH" in environment


async def test_a_server_runs_in_the_folder_that_its_table_names(tmp_path: Path) -> None:
    """Relative to the file, wherever the worker was started."""
    (tmp_path / "below").mkdir()
    text = f"[servers.shop]\ncwd = 'below'\ncommand = {json.dumps(command('ok', '--starts', 'here'))}\n"
    loaded(tmp_path, text)

    assert len(lines(tmp_path / "below" / "here")) == 1


def test_a_server_has_few_variables_of_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where certificates are, and what the file names; no key of the worker."""
    for name in ("SSL_CERT_FILE", "OPENAI_API_KEY", "SHOP_TOKEN"):
        monkeypatch.setenv(name, "x")
    names = tmp_path / "names"
    text = f"{table('ok', '--variables', names)}env = {{ TOKEN = 'SHOP_TOKEN' }}\n"
    loaded(tmp_path, text, {"SHOP_TOKEN": "x"})
    has = {*lines(names)[0].split()}

    assert {"SSL_CERT_FILE", "TOKEN", "PATH"} <= has and not {"OPENAI_API_KEY", "SHOP_TOKEN"} & has
