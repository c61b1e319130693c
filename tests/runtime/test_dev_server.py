"""The server of `--dev`: it comes up, it says why when it cannot, its state lasts, and nothing stays behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime import state_folder
from runtime.client import answers, connect, register_search_attributes
from runtime.dev_server import DevServer, ServerSpec, ServerUnavailable, dev_server, find_cli, free_port

CHECKOUT = Path(__file__).parents[2]

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


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "state"), str(free_port()), str(free_port())]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        yield child
        child.kill()


async def wait_for_up(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout
    assert await asyncio.to_thread(parent.stdout.readline) == "up\n"


async def test_a_server_is_up_inside_and_gone_afterwards(tmp_path: Path) -> None:
    async with DevServer(own(tmp_path), await binary()) as server:
        inside = await answers(server.address)

    assert (inside, await answers(server.address), server.pid, processes_of(tmp_path)) == (True, False, None, [])


async def test_the_state_outlives_a_kill_of_the_server(tmp_path: Path) -> None:
    """A workflow that was started before kill -9 is there after the restart."""
    async with DevServer(own(tmp_path), await binary()) as server:
        client = await connect(address=server.address, plain=True)
        await client.start_workflow("Nobody", id="kept", task_queue="nobody")
        kill(server)
        await server.start()
        again = await connect(address=server.address, plain=True)

        assert (await again.get_workflow_handle("kept").describe()).id == "kept"


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


async def test_a_later_start_adds_search_attributes_to_an_old_database(tmp_path: Path) -> None:
    async with DevServer(own(tmp_path, "TestOld"), await binary()):
        pass
    async with DevServer(own(tmp_path, "TestNew"), await binary()) as server:
        client = await connect(address=server.address, plain=True)

        assert [run async for run in client.list_workflows("TestOld = 'a' AND TestNew = 'a'")] == []


@pytest.mark.parametrize(
    "number", [*(pytest.param(one, marks=pytest.mark.full) for one in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL]
)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child whose parent was killed")
async def test_no_signal_to_the_parent_leaves_a_server_behind(
    number: signal.Signals, parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    await wait_for_up(parent)
    parent.send_signal(number)

    assert await eventually(lambda: parent.poll() is not None)
    assert await eventually(lambda: not processes_of(tmp_path))


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM])
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child whose parent was killed")
async def test_a_signal_while_starting_leaves_no_server_behind(
    number: signal.Signals, parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert await eventually(lambda: (tmp_path / "state" / "temporal.lock").exists())
    parent.send_signal(number)

    assert await eventually(lambda: parent.poll() is not None)
    assert await eventually(lambda: not processes_of(tmp_path))


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


async def test_two_servers_do_not_share_a_database(tmp_path: Path) -> None:
    """A second server on the same state folder is refused: two would write over each other."""
    async with DevServer(own(tmp_path), await binary()):
        with pytest.raises(ServerUnavailable, match=r"uses .*temporal\.db already"):
            await DevServer(own(tmp_path), await binary()).start()


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


@pytest.mark.full
async def test_the_address_of_a_server_is_known_while_it_runs(tmp_path: Path) -> None:
    """What a server wrote does not count any more when it has ended, even by a kill."""
    before = state_folder.server_address(tmp_path)
    async with DevServer(own(tmp_path), await binary()) as server:
        inside = state_folder.server_address(tmp_path)
        kill(server)
        gone = await eventually(lambda: state_folder.server_address(tmp_path) is None)

    assert (before, inside, gone) == (None, server.address, True)


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


@pytest.mark.parametrize("name", ["a?b=%41 #é", pytest.param("two words", marks=pytest.mark.full)])
async def test_the_path_of_a_state_folder_is_no_url(tmp_path: Path, name: str) -> None:
    """The database of the server is in the folder, whatever letters are in its path."""
    (folder := tmp_path / name).mkdir()
    async with DevServer(own(folder), await binary()) as server:
        assert state_folder.server_address(folder) == server.address

    assert (folder / "temporal.db").exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("address", ["temporal.example:7233", "10.0.0.1:7233", "localhost", "localhost:http"])
async def test_dev_refuses_what_is_not_on_this_machine(address: str, tmp_path: Path) -> None:
    """`--dev` never takes a far server for its own, and says what to change."""
    with pytest.raises(ServerUnavailable, match=f"'{address}' is no localhost:PORT"):
        async with dev_server(tmp_path, say=pytest.fail, fail=pytest.fail, address=address):
            pass


def test_dynamic_values_reach_the_command_line(tmp_path: Path) -> None:
    spec = ServerSpec(tmp_path, dynamic={"limit.historyCount.suggestContinueAsNew": "100"})

    assert spec.command(Path("temporal"))[-2:] == [
        "--dynamic-config-value",
        "limit.historyCount.suggestContinueAsNew=100",
    ]


def test_free_ports_are_not_handed_out_twice() -> None:
    assert len({free_port() for _ in range(50)}) == 50
