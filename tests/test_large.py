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


def test_a_large_result_reaches_the_next_step(document: dict[str, Any]) -> None:
    assert [step["status"] for step in document["steps"]] == ["completed", "completed"]
    assert document["steps"][1]["result"] == {"length": LARGE}


async def test_the_history_holds_no_large_payload(commands: Processes, document: dict[str, Any]) -> None:
    client = await connect(address=commands.address, plain=True)
    history = await client.get_workflow_handle("large-one").fetch_history()
    sizes = {event.event_id: event.ByteSize() for event in history.events[:-1]}

    assert max(sizes.values()) < 64 * 1024
    assert document["task_id"] == "large-one"


def test_the_store_keeps_what_the_history_refers_to(commands: Processes, document: dict[str, Any]) -> None:
    assert len(payloads(commands)) >= 2 and min(payloads(commands)) >= 64 * 1024


def test_show_prints_what_a_step_returned(commands: Processes, document: dict[str, Any]) -> None:
    shown = ran(commands, "show", "large-one", "--result", "make")

    assert len(json.loads(shown.stdout)["words"]) == LARGE
    assert shown.stderr.endswith("from a worker's store\n") and "sha256 " in shown.stderr


def test_show_prints_a_small_result_without_a_worker(commands: Processes, document: dict[str, Any]) -> None:
    shown = commands.starter("show", "large-one", "--result", "look", "--queue", "nobody")

    assert (json.loads(shown.stdout), shown.stderr) == ({"length": LARGE}, "")


def test_a_step_without_a_result_is_a_sentence(commands: Processes, document: dict[str, Any]) -> None:
    shown = ran(commands, "show", "large-one", "--result", "mak")

    assert shown.returncode == 2
    assert shown.stderr.startswith("No step 'mak' of this run has a result: did you mean make?")


def test_a_result_of_more_than_a_megabyte_is_a_typed_fault(commands: Processes) -> None:
    """It is refused by the tool's boundary, whatever lies beyond."""
    done = ran(commands, "call", "produce", '{"size": 5000000}', "--json")
    fault = json.loads(done.stdout)["faults"][0]

    assert (done.returncode, fault["code"]) == (3, "too_large")
    assert "returned 5000012 bytes, more than 1048576: let it return less." in fault["reason"]


def test_a_history_explains_itself_without_the_large_values(commands: Processes, document: dict[str, Any]) -> None:
    explained = ran(commands, "explain", "large-one")

    assert explained.returncode == 0
    assert "stored elsewhere" in explained.stdout


def test_an_exported_history_replays_without_the_store(commands: Processes, document: dict[str, Any]) -> None:
    exported = commands.folder / "large.json"
    ran(commands, "export", "large-one", str(exported))
    done = commands.starter("replay", str(exported))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "large.json: ok" in done.stdout


def test_reset_goes_back_to_where_large_results_are_needed(commands: Processes, document: dict[str, Any]) -> None:
    done = ran(commands, "reset", "large-one", "--to", "look")
    shown = ran(commands, "show", "large-one", "--follow", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(shown.stdout)["steps"][1]["result"] == {"length": LARGE}


def test_prune_leaves_what_is_young(commands: Processes, document: dict[str, Any]) -> None:
    pruned = ran(commands, "prune", "--json")

    assert (json.loads(pruned.stdout)["pruned"], len(payloads(commands)) >= 2) == (0, True)


@pytest.fixture
def waiting(commands: Processes, document: dict[str, Any]) -> Iterator[str]:
    (commands.folder / "waits.json").write_text(json.dumps(WAITING))
    done = ran(commands, "--plan", str(commands.folder / "waits.json"), "--detach", "--id", "waits")
    assert done.returncode == 0
    while not payloads(commands, "SELECT size FROM replan_payloads WHERE task = 'waits'"):
        time.sleep(0.1)
    payloads(commands, "UPDATE replan_payloads SET stored = datetime('now', '-2 days')")
    yield "waits"
    commands.starter("cancel", "waits")


def test_prune_deletes_what_closed_tasks_left_and_nothing_of_open_ones(commands: Processes, waiting: str) -> None:
    """Afterwards `show` says what became of it, and `reset` does not go back to where it is needed."""
    pruned = ran(commands, "prune", "--older-than", "1")
    left = payloads(commands, "SELECT DISTINCT task FROM replan_payloads WHERE pruned IS NULL")
    shown = ran(commands, "show", "large-one", "--result", "make")
    reset = ran(commands, "reset", "large-one", "--to", "look")

    assert pruned.stdout.startswith("pruned ") and "kept all of 1 task, open or being undone" in pruned.stdout
    assert left == ["waits"]
    assert shown.returncode == 1 and "was deleted by `prune` (20" in shown.stderr
    assert reset.returncode == 1 and reset.stderr.startswith("The new run would lack what the old one had (The payload")
