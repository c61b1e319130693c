"""Large values on a real worker: they lie in the store, the history stays small, and people still get at them."""

import json
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from runtime.client import connect
from runtime.dev_server import free_port
from tests.processes import Processes

TOOLS = """
import asyncio
from pydantic import BaseModel
from replan import tool

class Size(BaseModel):
    size: int

class Words(BaseModel):
    words: str

class Length(BaseModel):
    length: int

@tool.read
async def produce(args: Size) -> Words:
    "Make a long text."
    return Words(words="word " * (args.size // 5))

@tool.read(timeout=300)
async def rest(args: Words) -> Length:
    "Rest for a while."
    await asyncio.sleep(200)
    return Length(length=0)

@tool.read
async def measure(args: Words) -> Length:
    "Measure a text."
    return Length(length=len(args.words))
"""
LARGE = 400_000
PLAN = {
    "steps": [
        {"id": "make", "kind": "produce", "args": {"size": LARGE}},
        {"id": "look", "kind": "measure", "args": {"words": {"$from": "make", "path": "words"}}},
    ]
}

WAITING = {
    "steps": [
        {"id": "make", "kind": "produce", "args": {"size": 100_000}},
        {"id": "rest", "kind": "rest", "args": {"words": {"$from": "make", "path": "words"}}},
    ]
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A worker with the tools above and a server of its own: what may be pruned depends on all open tasks."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "tools.py").write_text(TOOLS)
    (folder / "plan.json").write_text(json.dumps(PLAN))
    processes = Processes(f"localhost:{free_port()}", folder)
    with processes.worker("--dev", "--tools", str(folder / "tools.py"), "--queue", "large"):
        yield processes


def ran(commands: Processes, *words: str) -> subprocess.CompletedProcess[str]:
    return commands.starter(*words, "--queue", "large")


@pytest.fixture(scope="module")
def document(commands: Processes) -> dict[str, Any]:
    done = ran(commands, "--plan", str(commands.folder / "plan.json"), "--id", "large-one", "--json")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def payloads(
    commands: Processes, statement: str = "SELECT size FROM replan_payloads WHERE task = 'large-one'"
) -> list[Any]:
    with sqlite3.connect(commands.folder / "state" / "store.db") as store:
        return [row[0] for row in store.execute(statement)]


async def test_a_large_result_reaches_the_next_step_and_lies_in_the_store(
    commands: Processes, document: dict[str, Any]
) -> None:
    """So do what the second step was given and what the planner was told; the outcome, which the console reads, not."""
    client = await connect(address=commands.address, plain=True)
    history = await client.get_workflow_handle("large-one").fetch_history()
    pruned = ran(commands, "prune", "--json")  # what is young stays: thirty days are the default

    assert [step["status"] for step in document["steps"]] == ["completed", "completed"]
    assert document["steps"][1]["result"] == {"length": LARGE}
    assert max(event.ByteSize() for event in history.events[:-1]) < 64 * 1024
    assert json.loads(pruned.stdout)["pruned"] == 0
    assert len(payloads(commands)) >= 2 and min(payloads(commands)) >= 64 * 1024


def test_show_prints_what_a_step_returned(commands: Processes, document: dict[str, Any]) -> None:
    """Size and digest of what is elsewhere on stderr, the value on stdout; a small one needs no worker."""
    shown, none = (ran(commands, "show", "large-one", "--result", step) for step in ("make", "mak"))
    small = commands.starter("show", "large-one", "--result", "look", "--queue", "nobody")

    assert len(json.loads(shown.stdout)["words"]) == LARGE
    assert shown.stderr.endswith("from a worker's store\n") and "sha256 " in shown.stderr
    assert (json.loads(small.stdout), small.stderr) == ({"length": LARGE}, "")
    assert none.returncode == 2
    assert none.stderr.startswith("No step 'mak' of this run has a result: did you mean make?")


def test_a_result_of_more_than_a_megabyte_is_a_typed_fault(commands: Processes) -> None:
    """It is refused by the tool's boundary, whatever lies beyond."""
    done = ran(commands, "call", "produce", '{"size": 5000000}', "--json")
    fault = json.loads(done.stdout)["faults"][0]

    assert (done.returncode, fault["code"]) == (3, "too_large")
    assert "returned 5000012 bytes, more than 1048576: let it return less." in fault["reason"]


def test_a_history_is_explained_and_replays_without_the_large_values(
    commands: Processes, document: dict[str, Any]
) -> None:
    """What lies elsewhere is noted; a replay takes the ways that the task took. `reset` looks whether it is there."""
    explained = ran(commands, "explain", "large-one")
    ran(commands, "export", "large-one", str(commands.folder / "large.json"))
    replayed = commands.starter("replay", str(commands.folder / "large.json"))
    reset = ran(commands, "reset", "large-one", "--to", "look")
    again = ran(commands, "show", "large-one", "--follow", "--json")

    assert (explained.returncode, "stored elsewhere" in explained.stdout) == (0, True)
    assert (replayed.returncode, "large.json: ok" in replayed.stdout) == (0, True), replayed.stdout + replayed.stderr
    assert reset.returncode == 0, reset.stderr
    assert json.loads(again.stdout)["steps"][1]["result"] == {"length": LARGE}


def test_prune_deletes_what_closed_tasks_left_and_nothing_of_open_ones(
    commands: Processes, document: dict[str, Any]
) -> None:
    """Afterwards `show` says what became of it, and `reset` does not go back to where it is needed."""
    (commands.folder / "waits.json").write_text(json.dumps(WAITING))
    done = ran(commands, "--plan", str(commands.folder / "waits.json"), "--detach", "--id", "waits")
    assert done.returncode == 0
    while not payloads(commands, "SELECT size FROM replan_payloads WHERE task = 'waits'"):
        time.sleep(0.1)
    payloads(commands, "UPDATE replan_payloads SET stored = datetime('now', '-2 days')")
    pruned = ran(commands, "prune", "--older-than", "1")
    left = payloads(commands, "SELECT DISTINCT task FROM replan_payloads WHERE pruned IS NULL")
    shown = ran(commands, "show", "large-one", "--result", "make")
    reset = ran(commands, "reset", "large-one", "--to", "look")
    commands.starter("cancel", "waits")

    assert pruned.stdout.startswith("pruned ") and "kept all of 1 task, open or being undone" in pruned.stdout
    assert left == ["waits"]
    assert shown.returncode == 1 and "was deleted by `prune` (20" in shown.stderr
    assert reset.returncode == 1 and reset.stderr.startswith("The new run would lack what the old one had (The payload")
