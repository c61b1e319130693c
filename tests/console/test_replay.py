"""`replay`: whether this version could continue tasks, from files and from the server."""

import asyncio
import base64
import gc
import gzip
import json
import os
import shutil
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHistory

from client.people import open_requests
from client.replay import replayed, saved
from replan import NeedsPerson, tool
from runtime.dev_server import DevServer
from tests.console.replaying import HISTORIES
from tests.gate import sampled
from tests.harness import DONE, plan, staged, step
from tests.processes import Processes
from tests.workflows.props import Said, Word, echo
from workflows.account.task import Task


@tool.read
async def locked(args: Word) -> Said:
    """Say nothing to anybody."""
    raise NeedsPerson("the key was revoked", code="unauthorized")


STRAIGHT = next(file for file in HISTORIES if file.stem == "straight")
DOCUMENT = json.loads(STRAIGHT.read_text(encoding="utf-8"))
EVENTS = DOCUMENT["events"]


@pytest.fixture
def commands(server: DevServer, tmp_path: Path) -> Processes:
    """The console of the shared server."""
    return Processes(server.address, tmp_path)


def changed(folder: Path, old: str, new: str) -> str:
    """A saved history in which a word is another one."""
    (file := folder / "changed.json").write_text(STRAIGHT.read_text().replace(old, new))
    return str(file)


def test_a_history_that_differs_fails(commands: Processes, tmp_path: Path) -> None:
    """With what differs, what that means, and what to do."""
    file, running = changed(tmp_path, '"plan"', '"another"'), tmp_path / "running.json"
    events = json.loads(Path(file).read_text())["events"]
    running.write_text(json.dumps({"task_id": "book-a-slot", "events": events[:-1]}))
    done = commands.starter("replay", str(STRAIGHT), file, str(running))
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (1, "")
    assert lines[0] == f"{STRAIGHT}: ok, 33 events"
    assert lines[1].startswith(f"{file}: does not replay (ended): the worker's code decides otherwise")
    assert lines[1].endswith("scheduled event 'another' does not match activity type of activity command 'plan'")
    assert lines[2].startswith(f"{running}: does not replay (running): ")
    assert lines[3:] == [
        "2 of 3 histories do not replay with this version.",
        "1 of them still running: a worker of this version stops at the next step, and nothing is lost.",
        "1 of them ended: `undo` and `reset` need a version that replays them.",
        "nondeterminism: guard the change (workflow.patched), or let workers of the earlier version end these tasks.",
    ]


def test_an_encrypted_history_is_none_of_another_version(commands: Processes, tmp_path: Path) -> None:
    """Whoever has the codec replays it in a program."""
    plain, encrypted = (base64.b64encode(name).decode() for name in (b"json/plain", b"binary/encrypted"))
    done = commands.starter("replay", changed(tmp_path, plain, encrypted), "--json")
    document = json.loads(done.stdout)

    assert (done.returncode, document["replayed"], document["failed"]) == (1, 1, 1)
    assert document["histories"][0]["cause"] == "payload"
    assert document["histories"][0]["reason"] == "its values are encrypted by a codec that is not here"


WRONG = {
    "a.json --limit 3": "--limit is for --query",
    "pyproject.toml": "'pyproject.toml' holds no history",
    "tests/golden.json": "",
}


@pytest.mark.parametrize("words", sampled({words: [words] for words in WRONG}, "tests/golden.json"))
def test_what_cannot_be_replayed_is_bad_usage(commands: Processes, words: str) -> None:
    """It is no verdict on this version; of mistakes.toml only what it lacks."""
    done = commands.starter("replay", *words.split())

    assert (done.returncode, done.stdout, WRONG[words] in done.stderr) == (2, "", True)


STRANGE: dict[str, bytes] = {
    "surrogate": b'{"events":[{"eventId":"1","eventType":"\\ud800"}]}',
    "deep": b"[" * 10_000 + b"]" * 10_000,
    "cut gzip": gzip.compress(STRAIGHT.read_bytes())[:500],
    "empty": b"",
    "null": b"null",
    "not a number": b'{"events":[{"eventId":NaN}]}',
    "long number": b'{"events":[{"eventId":' + b"9" * 5000 + b"}]}",
    "no order": json.dumps({**DOCUMENT, "events": [EVENTS[0], *EVENTS[:1:-1]]}).encode(),
    "no ids": json.dumps({**DOCUMENT, "events": [{**event, "eventId": "0"} for event in EVENTS]}).encode(),
}
"""Files that hold no history; the SDK's core does not end for the last two."""


def test_a_strange_file_costs_itself(tmp_path: Path) -> None:
    """It is named, the others are replayed, and the exit code says that something is missing."""
    for name, content in STRANGE.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    names = [str(tmp_path / name) for name in (*STRANGE, "pipe")]
    commands = Processes("localhost:1", tmp_path)
    done = commands.starter("replay", *names, str(STRAIGHT))
    read = commands.starter("replay", "--json", *names, str(STRAIGHT))
    unread = json.loads(read.stdout)["unread"]

    assert (done.returncode, read.returncode) == (2, 2)
    assert [name for name in names if f"The file {name!r}" not in done.stdout] == []
    assert done.stdout.endswith("\n1 history replays with this version.\n10 files could not be read.\n")
    assert [row["file"] for row in unread] == names


async def test_a_history_that_has_just_begun_replays(tmp_path: Path) -> None:
    """A delayed start has one event, and nothing was decided; a file may have any name.

    The id of a workflow is in the ids of others that it starts, so its history is replayed under it.
    """
    for number in (1, 2, 3):
        begun = {**DOCUMENT, "events": EVENTS[:number]}
        (tmp_path / f"begun-{number}.json").write_text(json.dumps(begun))
    shutil.copy(STRAIGHT, tmp_path / "straight.json")
    files = [tmp_path / f"{name}.json" for name in ("begun-1", "straight", "begun-2", "begun-3")]
    async with asyncio.timeout(30):
        found = [one async for one in replayed(saved(files))]

    assert [(one.events, one.cause) for one in found] == [(1, None), (len(EVENTS), None), (2, None), (3, None)]
    assert found[1].task_id.startswith("test-")


async def test_the_histories_of_a_server_are_replayed(client: Client, commands: Processes, tmp_path: Path) -> None:
    """Of tasks that run and of those that ended, with a filter of Temporal."""
    waits = Task(text="wait", plan=(step("x", "locked", word="x"),), on_escalation="wait")
    async with staged(client, tmp_path, [echo, locked], [plan(step("a", "echo", word="x")), DONE]) as stage:
        await stage.run()
        handle = await stage.start(waits)
        query = f"TaskQueue = '{stage.queue}'"
        while not await open_requests(handle) or (await client.count_workflows(query)).count < 2:
            await asyncio.sleep(0.1)
        both, one, wrong, none = await asyncio.gather(
            *(
                asyncio.to_thread(commands.starter, "replay", "--query", *words)
                for words in ([query], [query, "--limit", "1"], ["Colour = 'red'"], ["WorkflowId = 'none'"])
            )
        )
        await handle.terminate()

    assert both.returncode == 0, both.stdout + both.stderr
    assert sorted(line.partition(": ok")[0] for line in both.stdout.splitlines()[:-1]) == sorted(stage.started)
    assert both.stdout.endswith("\n2 histories replay with this version.\n")
    assert one.stdout.endswith("\n1 history replays with this version.\n")
    assert (wrong.returncode, none.returncode) == (2, 0)
    assert "The server rejects this --query" in wrong.stderr
    assert none.stdout == "There is no history to replay.\n"


@pytest.mark.full
async def test_no_history_is_kept_in_memory() -> None:
    """Ten thousand of them take no more than two."""
    seen = list[weakref.ref[WorkflowHistory]]()

    async def read() -> AsyncIterator[WorkflowHistory]:
        async for history in saved(HISTORIES):
            seen.append(weakref.ref(history))
            yield history

    most = 0
    async for _ in replayed(read()):
        gc.collect()
        most = max(most, sum(one() is not None for one in seen))

    assert (len(seen), most <= 2) == (len(HISTORIES), True)


@pytest.mark.parametrize("name", ["continued", "beside_tasks/rollback", "straight"])
async def test_a_state_of_another_form_is_not_misread(tmp_path: Path, name: str) -> None:
    """The run of a long task that an unreleased version continued, and a rollback of what it did.

    A task that such a version began waits for a worker of that version, whatever its history says.
    """
    history = WorkflowHistory.from_json("older", (STRAIGHT.parent / f"{name}.json").read_text())
    markers = [event.marker_recorded_event_attributes.details.values() for event in history.events]
    payloads = [payload for details in markers for one in details for payload in one.payloads]
    if name != "straight":
        payloads = [*history.events[0].workflow_execution_started_event_attributes.input.payloads]
    assert any(b'"form":2,' in payload.data for payload in payloads)
    for payload in payloads:
        payload.data = payload.data.replace(b'"form":2,', b"")
    (file := tmp_path / "old.json").write_text(history.to_json())
    [old] = [one async for one in replayed(saved([file]))]

    begun = "This run was begun by another version of Replan (form 0, here 2): a worker of that version"
    assert old.is_stuck and (name != "straight" or begun in old.reason)
