"""`doctor` as a user runs it: every line of a worker that is well, and what is said where something is missing."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from runtime.dev_server import DevServer, free_port
from runtime.process import version
from tests.processes import ROOT, Processes
from workflows.task_queues import control_queue

QUEUE = "doctor"
SECRETS = ("sk-planted-key", "sk-planted-password")
NAMES = ["server", "namespace", "web ui", "search attributes", "workflow tasks", "worker", "planner", "keys"]
PLACES = ["store", "state", "documents", "workspace"]
LAST = ["clocks", "capacity", "notifications", "breakers", "tools"]
TOOLS = """
from pydantic import BaseModel

from replan import tool


class Word(BaseModel):
    word: str


@tool.idempotent
async def engrave(args: Word) -> Word:
    \"\"\"Engrave a word.\"\"\"
    return args
"""
"""A tool of the user's own that lacks an `undo`, as some tools of Replan do, which nobody can give one."""


@pytest.fixture(scope="module")
def well(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A worker that has everything, and secrets planted in its environment and in the URL of its store."""
    folder = tmp_path_factory.mktemp("doctor")
    store = f"sqlite+aiosqlite:///file:{folder}/store.db?uri=true&password={SECRETS[1]}"
    environment = {"ANTHROPIC_API_KEY": SECRETS[0], "OPENAI_API_KEY": "", "REPLAN_UI": server.ui_url}
    processes = Processes(server.address, folder, {**environment, "REPLAN_STORE": store})
    documents, workspace = ROOT / "examples" / "documents", folder / "workspace"
    (tools := folder / "tools.py").write_text(TOOLS)
    options = ("--documents", str(documents), "--workspace", str(workspace), "--queue", QUEUE, "--tools", str(tools))
    with processes.worker(*options):
        yield processes


def by_name(stdout: str) -> Mapping[str, Any]:
    """The checks of the JSON document."""
    document = json.loads(stdout)
    assert set(document) == {"schema", "checks"}
    return {check["name"]: check for check in document["checks"]}


async def test_where_all_is_well_nothing_fails(well: Processes, client: Client) -> None:
    """Every check has its line, none fails, exit code 0; of the tools only those of the user are a warning.

    Neither a key nor the store's password is printed or written into a history, where the store's path is.
    """
    done = await asyncio.to_thread(well.starter, "doctor", "--queue", QUEUE)
    document = await asyncio.to_thread(well.starter, "doctor", "--queue", QUEUE, "--json")
    lines, checks = done.stdout.splitlines(), by_name(document.stdout)
    texts = [document.stdout, *await histories(client)]

    assert (done.returncode, done.stderr, lines[-1]) == (0, "", "nothing failed, 1 warning")
    names = [*NAMES, *PLACES, *LAST, "tool engrave", "open tasks", "ledger"]
    assert [line[6:24].strip() for line in lines[:-1]] == names == list(checks)  # one worker is nothing to say
    assert all(set(check) == {"name", "status", "found", "remedy"} for check in checks.values())
    assert checks["worker"]["found"].startswith(f"Replan {version()}, Python 3.")
    assert checks["capacity"]["found"] == "0 of 100 slots in use, 0 of 64 threads held by calls that do not return"
    assert checks["keys"]["found"].startswith("ANTHROPIC_API_KEY set, OPENAI_API_KEY not set")
    assert all("store.db" in text for text in texts)
    assert not any(secret in text for text in (*texts, done.stdout, document.stderr) for secret in SECRETS)


@pytest.mark.full
def test_two_workers_with_different_tools_are_noticed(well: Processes) -> None:
    """A step that one of them cannot run waits for the other one: the kinds are named."""
    tools = ("--tools", str(well.folder / "tools.py"))
    with well.worker("--queue", "mixed", *tools), well.worker("--queue", "mixed"):
        mixed = by_name(well.starter("doctor", "--queue", "mixed", "--json").stdout)["workers"]
    with well.worker("--queue", "alike", *tools), well.worker("--queue", "alike", *tools):
        alike = by_name(well.starter("doctor", "--queue", "alike", "--json").stdout)["workers"]

    assert (mixed["status"], mixed["found"]) == ("warn", "2 serve the queue, with different tools: engrave")
    assert (alike["status"], alike["found"]) == ("ok", "2 serve the queue, with the same tools")


async def histories(client: Client) -> list[str]:
    """The histories of everything that was asked on our queue, as soon as the server lists something."""
    query = f"TaskQueue = '{control_queue(QUEUE)}' AND ExecutionStatus = 'Completed'"
    async with asyncio.timeout(20):
        while not (found := [one async for one in client.list_workflows(query)]):
            await asyncio.sleep(0.2)
    return [str([event async for event in client.get_workflow_handle(one.id).fetch_history_events()]) for one in found]


@pytest.fixture
def elsewhere(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Processes:
    """Commands for the shared server, far from any worker."""
    return Processes(server.address, tmp_path_factory.mktemp("elsewhere"), {"REPLAN_UI": server.ui_url})


def test_without_a_worker_the_rest_is_still_looked_at(elsewhere: Processes) -> None:
    """What needs a worker is skipped, not failed; the remedy starts one on this queue; exit code 1.

    A namespace that is missing has the command that makes it.
    """
    done = elsewhere.starter("doctor", "--queue", "nobody-there", "--json")
    missing = elsewhere.starter("doctor", "--namespace", "shop", "--json")
    checks, others = by_name(done.stdout), by_name(missing.stdout)

    assert (done.returncode, checks["search attributes"]["status"]) == (1, "ok")
    assert checks["worker"]["remedy"] == "start one with `python worker.py --queue nobody-there`"
    needs_worker = ("planner", "keys", *PLACES, *LAST, "open tasks", "ledger")
    assert {checks[name]["status"] for name in needs_worker} == {"skipped"}
    assert (missing.returncode, others["server"]["status"], others["namespace"]["status"]) == (1, "ok", "fail")
    assert "temporal operator namespace create -n shop" in others["namespace"]["remedy"]


def test_a_frozen_worker_does_not_hold_it_up(server: DevServer, tmp_path: Path) -> None:
    """The checks that need the worker fail, all others are made, and it ends without a traceback."""
    processes = Processes(server.address, tmp_path)
    with processes.worker("--queue", "frozen") as worker:
        processes.starter("start", "--task", "calculate 1+1", "--queue", "frozen", "--detach")
        worker.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        try:
            done = processes.starter("doctor", "--json", "--queue", "frozen")
        finally:
            worker.send_signal(signal.SIGCONT)
    checks = by_name(done.stdout)

    assert (done.returncode, done.stderr, checks["worker"]["status"]) == (1, "", "fail")
    assert checks["server"]["status"] == "ok"
    assert time.monotonic() - begun < 40


def test_without_a_server_everything_else_is_skipped(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One failure with its remedy, exit code 6, the same names as ever; an address that is none is bad usage."""
    nobody = Processes(f"localhost:{free_port()}", tmp_path_factory.mktemp("nobody"))
    done, text, nonsense = (nobody.starter("doctor", *more) for more in (["--json"], [], ["--address", "nonsense:x"]))
    server, *others = by_name(done.stdout).values()

    assert (done.returncode, server["status"], done.stderr) == (6, "fail", "")
    assert "python worker.py --dev" in server["remedy"] and "starter.py doctor" not in text.stdout
    assert {check["status"] for check in others} == {"skipped"}
    assert [check["name"] for check in others] == [*NAMES[1:], *PLACES, *LAST, "open tasks", "ledger"]
    assert (nonsense.returncode, nonsense.stderr) == (2, "")
    assert "'nonsense:x' is no address" in nonsense.stdout and "write host:port" in nonsense.stdout


@pytest.mark.full
def test_a_server_that_never_says_a_word_does_not_hold_it_up(elsewhere: Processes) -> None:
    """Within about ten seconds, whatever hangs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        done = elsewhere.starter("doctor", "--address", f"127.0.0.1:{listener.getsockname()[1]}")

    assert (done.returncode, done.stderr) == (6, "") and done.stdout.startswith("fail  server ")
    assert time.monotonic() - began < 12
