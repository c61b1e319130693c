"""`worker.py --check` and `doctor` name the open tasks whose next calls the tools do not take."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.client import Client

from client import upgrade
from runtime.dev_server import DevServer
from tests.harness import plan, staged, step
from tests.processes import ROOT, Processes
from tests.workflows.history import until
from tests.workflows.props import echo
from workflows.account.task import Task
from workflows.inquiries import NextCall
from workflows.plans.catalogue import Effect

TOOLS = """
from pydantic import BaseModel

from replan import Key, tool


class Order(BaseModel):
    article: str
    note: str = ""
    {field}


class Done(BaseModel):
    ok: bool = True


@tool.read(approve="always")
async def confirm(args: Done) -> Done:
    \"\"\"Ask a person.\"\"\"
    return args


@tool.keyed
async def order(args: Order, key: Key) -> Done:
    \"\"\"Order an article.\"\"\"
    return Done()
"""
VERSIONS = {"old": "", "required": "currency: str", "default": "currency: str = 'EUR'"}
PLAN = [plan(step("c", "confirm"), step("o", "order", "c", article="a lamp", note="soon"))]


@pytest.fixture
def place(server: DevServer, tmp_path: Path) -> Processes:
    """Commands in a folder with a script, and with each version of the tools."""
    for name, field in VERSIONS.items():
        (tmp_path / f"{name}.py").write_text(TOOLS.format(field=field))
    script = [proposal.model_dump(mode="json") for proposal in PLAN]
    (tmp_path / "script.json").write_text(json.dumps(script))
    return Processes(server.address, tmp_path)


@contextmanager
def serving(place: Processes, version: str) -> Iterator[None]:
    """A worker with this version of the tools."""
    tools, script = str(place.folder / f"{version}.py"), f"scripted:{place.folder / 'script.json'}"
    with place.worker("--queue", place.folder.name, "--tools", tools, "--planner", script):
        yield


def begin(place: Processes, task: str) -> None:
    """Start a task, and wait until it is listed as waiting for the approval before its order."""
    options = ("--queue", place.folder.name, "--id", task, "--on-escalation", "wait", "--detach")
    started = place.starter("--task", "order a lamp", *options)
    assert started.returncode == 0, started.stderr
    until = time.monotonic() + 20
    while task not in place.starter("list", "--status", "waiting").stdout and time.monotonic() < until:
        time.sleep(0.2)


def checked(place: Processes, version: str) -> list[str]:
    """What `--check` says of the open tasks, line by line."""
    done = place.asked("--check", "--queue", place.folder.name, "--tools", str(place.folder / f"{version}.py"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("Open tasks")) :]


NEEDED = "order: 'currency' is new and required"


@pytest.mark.full
def test_check_and_doctor_name_the_tasks_whose_next_calls_do_not_fit(place: Processes) -> None:
    """With a worker and without one; `doctor` asks the worker that runs, and a default makes the calls fit."""
    queue, task = place.folder.name, f"{place.folder.name}-1"
    with serving(place, "old"):
        begin(place, task)
        by_query, fitting = checked(place, "required"), checked(place, "default")
    by_replay = checked(place, "required")
    with serving(place, "required"):
        document = json.loads(place.starter("doctor", "--queue", queue, "--json").stdout)
        found = next(check for check in document["checks"] if check["name"] == "open tasks")

    assert by_query[:2] == [
        f"Open tasks on queue {queue}: 1 looked at. These next calls do not fit the tools:",
        f"  {task}, step o: {NEEDED}",
    ]
    assert by_query[2].startswith("Finish or answer these tasks before the deploy") and len(by_query) == 3
    assert fitting == [f"Open tasks on queue {queue}: 1 looked at, and the tools take all their next calls."]
    assert by_replay == by_query
    assert found["status"] == "warn" and f"{task}, step o: {NEEDED}" in found["found"]


def test_check_without_a_server_says_that_it_did_not_look(tmp_path: Path) -> None:
    """And is otherwise as with one."""
    done = Processes("localhost:1", tmp_path).asked("--check")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("Open tasks were not looked at: No Temporal server answers")


async def test_no_more_tasks_are_looked_at_than_the_limit(client: Client, tmp_path: Path) -> None:
    """The newest are, and it is said how many were not; where no worker answers, their histories are replayed."""
    async with staged(client, tmp_path, [echo], [plan(step("a", "echo", word="x"))]) as stage:
        handles = [await stage.start(Task(text="t", approve="all", on_escalation="wait")) for _ in range(5)]
        for handle in handles:
            await until(handle, lambda now: bool(now.open_requests))
        async with asyncio.timeout(20):
            while (found := await upgrade.open_tasks(client, stage.queue, limit=3)).running < 5:
                await asyncio.sleep(0.2)
        late = await upgrade.open_tasks(client, stage.queue, seconds=-1)
    progress = list[tuple[int, int]]()
    replayed = await upgrade.open_tasks(client, stage.queue, on_progress=lambda *now: progress.append(now))
    for handle in handles:
        await handle.terminate()

    call = NextCall(task="", step="a", kind="echo", effect=Effect.READ, args={"word": "x"})
    assert [(one.counted, len(one.calls)) for one in (found, late, replayed)] == [
        ("3 of 5 looked at", 3),
        ("0 of 5 looked at", 0),
        ("5 looked at", 5),
    ]
    assert {one.task for one in replayed.calls} == {handle.id for handle in handles}
    assert all(one.model_copy(update={"task": ""}) == call for one in (*found.calls, *replayed.calls))
    assert progress == [(number, 5) for number in range(1, 6)]


FAILS = """
import asyncio, sys
from temporalio.client import Client
from client import upgrade
from runtime.payloads import DATA_CONVERTER

def fails(done, all):
    raise RuntimeError("the server went away")

async def main():
    client = await Client.connect(sys.argv[1], data_converter=DATA_CONVERTER)
    await upgrade.open_tasks(client, sys.argv[2], on_progress=fails)

asyncio.run(main())
"""


async def test_an_error_while_histories_are_replayed_ends_the_process(client: Client, tmp_path: Path) -> None:
    """The other replays of the moment are cancelled, and end: a replay that asyncio.run cancels never does."""
    async with staged(client, tmp_path, [echo], [plan(step("a", "echo", word="x"))]) as stage:
        handles = [await stage.start(Task(text="t", approve="all", on_escalation="wait")) for _ in range(8)]
        for handle in handles:
            await until(handle, lambda now: bool(now.open_requests))
        async with asyncio.timeout(20):
            while (await client.count_workflows(f"TaskQueue = '{stage.queue}' AND CloseTime IS NULL")).count < 8:
                await asyncio.sleep(0.2)
    address = client.service_client.config.target_host
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FAILS, address, stage.queue, stderr=asyncio.subprocess.PIPE, cwd=ROOT
    )
    try:
        _, errors = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        for handle in handles:
            await handle.terminate()

    assert errors.decode().splitlines()[-1] == "RuntimeError: the server went away"


def test_many_calls_are_sent_in_parts() -> None:
    """None is lost, and each part is small enough for one inquiry."""
    call = NextCall(task="t", step="s", kind="k", effect=Effect.READ, args={"text": "x" * 100_000})
    parts = list(upgrade._split_by_size([call] * 7))

    assert [len(part) for part in parts] == [2, 2, 2, 1]
