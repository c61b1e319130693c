"""The server of `--dev`: it comes up, it says why when it cannot, its state lasts, and nothing stays behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime import state_folder
from runtime.client import answers, connect, register_search_attributes
from runtime.dev_server import DevServer, ServerSpec, ServerUnavailable, dev_server, find_cli, free_port
from tests.gate import sampled
from tests.processes import ROOT

PARENT = """
import asyncio, sys
from pathlib import Path
from runtime.dev_server import DevServer, ServerSpec, find_cli

async def main(folder, port, ui_port):
    spec = ServerSpec(Path(folder), port=int(port), ui_port=int(ui_port))
    async with DevServer(spec, await find_cli(print)):
        print("up", flush=True)
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


def own(folder: Path, *keywords: str) -> ServerSpec:
    attributes = dict.fromkeys(keywords, "Keyword")
    return ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=attributes)


async def binary() -> Path:
    return await find_cli(lambda _: None)


def processes_of(folder: Path) -> list[str]:
    listing = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=2) for line in listing.stdout.splitlines() if str(folder) in line]
    return [args for _pid, state, args in rows if not state.startswith("Z")]


async def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return condition()


def kill(server: DevServer) -> None:
    assert server.pid
    os.kill(server.pid, signal.SIGKILL)


async def test_a_server_lives_as_long_as_its_block_and_its_state_longer(tmp_path: Path) -> None:
    """Its database is in its folder, whatever letters are in the path, and outlives a kill; two would spoil it.

    A new version of Replan finds its new attributes in a database that an older one made.
    """
    (folder := tmp_path / "a?b=%41 #é").mkdir()
    addresses = [state_folder.server_address(folder)]
    async with DevServer(own(folder, "TestOld"), await binary()) as server:
        addresses.append(state_folder.server_address(folder))
        is_there = await answers(server.address)
        with pytest.raises(ServerUnavailable, match=r"uses .*temporal\.db already"):
            await DevServer(own(folder), await binary()).start()
        client = await connect(address=server.address, plain=True)
        await client.start_workflow("Nobody", id="kept", task_queue="nobody")
        kill(server)
        is_forgotten = await eventually(lambda: state_folder.server_address(folder) is None)
        await server.start()
        again = await connect(address=server.address, plain=True)
        kept = await again.get_workflow_handle("kept").describe()
    left = (await answers(server.address), server.pid, processes_of(folder))
    async with DevServer(own(folder, "TestNew"), await binary()) as newer:
        client = await connect(address=newer.address, plain=True)
        found = [run async for run in client.list_workflows("TestOld = 'a' AND TestNew = 'a'")]

    assert (addresses, is_there, is_forgotten) == ([None, server.address], True, True)
    assert (kept.id, left, found) == ("kept", (False, None, []), [])
    assert (folder / "temporal.db").exists() and [path.name for path in tmp_path.iterdir()] == [folder.name]


@pytest.mark.full
async def test_a_server_that_ends_again_at_once_is_given_up(tmp_path: Path) -> None:
    said = list[str]()
    async with DevServer(own(tmp_path), await binary()) as server:
        keeping = asyncio.create_task(server.keep_running(said.append))
        kill(server)
        assert await eventually(lambda: len(said) == 2)
        kill(server)

        with pytest.raises(ServerUnavailable, match=r"ended again \(SIGKILL\)"):
            await keeping

    assert said[1] == "The Temporal server runs again."


SIGNALS = {
    "Ctrl-C": ("up", signal.SIGINT),
    "kill": ("up", signal.SIGTERM),
    "kill -9": ("up", signal.SIGKILL),
    "Ctrl-C while starting": ("starting", signal.SIGINT),
    "kill while starting": ("starting", signal.SIGTERM),
}


@pytest.mark.parametrize(("moment", "number"), sampled(SIGNALS, "kill -9", "kill while starting"))
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child whose parent was killed")
async def test_no_signal_to_the_parent_leaves_a_server_behind(
    moment: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Nor between the start of the process and its first answer."""
    command = [sys.executable, "-c", PARENT, str(tmp_path / "state"), str(free_port()), str(free_port())]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        try:
            if moment == "up":
                assert parent.stdout and await asyncio.to_thread(parent.stdout.readline) == "up\n"
            assert await eventually(lambda: (tmp_path / "state" / "temporal.lock").exists())
            parent.send_signal(number)
            has_ended = await eventually(lambda: parent.poll() is not None)
        finally:
            parent.kill()

    assert has_ended and await eventually(lambda: not processes_of(tmp_path))


async def test_cancelling_a_start_leaves_no_server_behind(tmp_path: Path) -> None:
    starting = asyncio.create_task(DevServer(own(tmp_path), await binary()).start())
    assert await eventually(lambda: bool(processes_of(tmp_path)))
    starting.cancel()
    await asyncio.wait([starting])

    assert (starting.cancelled(), processes_of(tmp_path)) == (True, [])


@pytest.mark.parametrize("which", ["port", pytest.param("ui_port", marks=pytest.mark.full)])
async def test_a_taken_port_is_named_with_the_remedy(which: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        spec = ServerSpec(tmp_path, **{"port": free_port(), "ui_port": free_port(), which: taken})

        with pytest.raises(ServerUnavailable, match=rf"Port {taken} .* --port \d+"):
            await DevServer(spec, await binary()).start()


async def test_a_server_that_ends_at_once_shows_its_last_words(tmp_path: Path) -> None:
    """A program that ends before it answers is told at once, with its last line."""
    broken = tmp_path / "temporal"
    broken.write_text("#!/bin/sh\necho all is well\necho no memory left\nexit 1\n")
    broken.chmod(0o755)

    with pytest.raises(ServerUnavailable, match=r"ended while it started \(no memory left\)"):
        await DevServer(own(tmp_path), broken).start()


async def test_dev_reuses_a_server_that_answers(
    server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    async with dev_server(tmp_path, say=pytest.fail, fail=pytest.fail) as local:
        assert (local.address, local.whose) == (server.address, "was running already, not ours")
    assert await answers(server.address)


@pytest.mark.parametrize("other", ["server", pytest.param("program", marks=pytest.mark.full)])
async def test_dev_leaves_other_programs_their_port(
    other: str, server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody named a server, one that is not of this state folder is not adopted: free ports are taken."""
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        usual = {"server": server.address, "program": f"localhost:{listener.getsockname()[1]}"}[other]
        async with dev_server(tmp_path, say=pytest.fail, fail=pytest.fail, usual=usual) as local:
            reached = await answers(local.address)

    port = int(usual.rpartition(":")[2])
    assert local.whose == f"ours; port {port} or {port + 1000} is in use" and local.address != usual and reached


async def test_two_starts_at_once_share_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    usual = f"localhost:{free_port()}"

    async def start() -> tuple[str, str]:
        async with dev_server(tmp_path, say=pytest.fail, fail=pytest.fail, usual=usual) as local:
            done.append(local.address)
            while len(done) < 2:  # pytest-timeout ends it
                await asyncio.sleep(0.05)
            return local.address, local.whose

    done = list[str]()
    first = asyncio.create_task(start())
    assert await eventually(lambda: state_folder.server_address(tmp_path) is not None)
    second = await start()

    assert {await first, second} == {(usual, "ours"), (usual, "was running already")}


async def test_dev_starts_a_server_where_none_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--dev` listens where TEMPORAL_ADDRESS says, the web UI a thousand ports above, its state in the folder."""
    port = 20_000 + free_port() % 10_000
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"localhost:{port}")
    async with dev_server(tmp_path, say=pytest.fail, fail=pytest.fail, attributes={"TestDev": "Int"}) as local:
        client = await connect(address=local.address, plain=True)

        assert (local.address, local.ui_url) == (f"localhost:{port}", f"http://localhost:{port + 1000}")
        assert local.whose == "ours"
        assert await register_search_attributes(client, {"TestDev": "Int"})
    assert (tmp_path / "temporal.db").exists()
    assert not await answers(local.address)


@pytest.mark.parametrize("address", ["temporal.example:7233", "10.0.0.1:7233", "localhost", "localhost:http"])
async def test_dev_refuses_what_is_not_on_this_machine(address: str, tmp_path: Path) -> None:
    """`--dev` never takes a far server for its own, and says what to change."""
    with pytest.raises(ServerUnavailable, match=f"'{address}' is no localhost:PORT"):
        async with dev_server(tmp_path, say=pytest.fail, fail=pytest.fail, address=address):
            pass


def test_free_ports_are_not_handed_out_twice() -> None:
    assert len({free_port() for _ in range(50)}) == 50
