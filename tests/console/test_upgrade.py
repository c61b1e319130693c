"""`worker.py --check` and `doctor` name the open tasks whose next calls, results and undos the tools do not take."""

import asyncio
import json
import sys
import time
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field
from temporalio.client import Client

from activities.toolbox.declare.arguments import misfits
from activities.toolbox.registry import Registry
from client import upgrade
from replan import Tool, tool
from runtime.dev_server import DevServer
from tests.console.server_lists import listed
from tests.harness import plan, staged, step
from tests.processes import ROOT, Processes, Running
from tests.workflows.history import until
from tests.workflows.props import echo
from workflows.account.task import Task
from workflows.inquiries import NextCall
from workflows.plans.catalogue import CompanionSpec, Effect, ToolSpec


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
        await listed(client, f"TaskQueue = '{stage.queue}' AND CloseTime IS NULL", 8)
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


class Where(BaseModel):
    city: str


class Made(BaseModel):
    id: str
    number: int = 0
    place: Where | None = None
    places: list[Where] = []


class Open(Made):
    model_config = ConfigDict(extra="allow")


class Computed(Made):
    @computed_field  # type: ignore[prop-decorator]  # pydantic's way
    @property
    def label(self) -> str:
        return self.id


class Aliased(BaseModel):
    id: str = Field(serialization_alias="ID")


class Args(BaseModel):
    m: str = ""
    n: int = 0
    many: list[str] = []
    where: Where | None = None


def using(result: Any) -> Registry:
    """A registry with the tool `make`, which returns this, and `look`."""

    async def make(args: Args) -> Any:
        """Make it."""
        raise NotImplementedError

    async def look(args: Args) -> Made:
        """Look."""
        raise NotImplementedError

    make.__annotations__["return"] = result
    return Registry([tool.read(make), tool.read(look)])


def at(path: str) -> dict[str, str]:
    return {"$from": "c", "path": path}


def said(kinds: Registry, args: dict[str, Any], **more: Any) -> str:
    """What is said of a step that takes these arguments from the result of the step c, which `make` is to make."""
    call = NextCall(task="t", step="d", kind="look", effect=Effect.READ, args=args, sources={"c": "make"}, **more)
    return "; ".join(found.difference for found in misfits(kinds, [call]))


FITS: list[tuple[Any, dict[str, Any]]] = [
    (Made, {"m": at("id"), "n": at("number")}),
    (Made, {"m": at("place.city"), "where": at("place")}),
    (Made, {"m": at("places.0.city"), "many": [at("places.3.city")]}),
    (Open, {"m": at("anything.at.all")}),
    (dict[str, Any], {"m": at("id.x.0")}),
    (dict[str, str], {"m": at("id")}),
    (Any, {"m": at("id")}),
    (Computed, {"m": at("label")}),
    (Aliased, {"m": at("ID")}),
    (Aliased, {"m": at("id")}),
    (Made | Where, {"m": at("city")}),
    (Made, {"n": at("id")}),  # a text may be a number
    (list[Made], {"m": at("0.id")}),
]


@pytest.mark.parametrize(("result", "args"), FITS)
def test_what_a_tool_may_return_fits(result: Any, args: dict[str, Any]) -> None:
    """Also a field that is optional, computed, or of a result that may have any field."""
    assert said(using(result), args) == ""


MISFITS: list[tuple[Any, dict[str, Any], str]] = [
    (Made, {"m": at("name")}, "'m' is 'name' of the result of step c, which make does not return"),
    (Made, {"m": at("place.town")}, "'place.town' of the result of step c, which make does not return"),
    (Made, {"m": at("places.0.town")}, "'places.0.town' of the result"),
    (Made, {"many": [at("id"), at("gone")]}, "'gone' of the result"),
    (Made, {"where": {"city": at("gone")}}, "'gone' of the result"),
    (Where, {"m": at("id")}, "Where has ['city']"),
    (Made, {"m": at("number")}, "returns as a number"),
    (Made, {"m": at("place")}, "which make returns as"),
    (Made, {"many": at("id")}, "which make returns as"),
    (Made, {"where": at("places")}, "which make returns as"),
    (list[Made], {"m": at("id")}, "'id' of the result of step c, which make does not return"),
]


@pytest.mark.parametrize(("result", "args", "words"), MISFITS)
def test_what_a_tool_does_not_return_any_more_is_named(result: Any, args: dict[str, Any], words: str) -> None:
    """The argument, the path, the step and the tool."""
    assert words in said(using(result), args)


async def cancel(args: Args) -> Made:
    """Undo it."""
    raise NotImplementedError


async def order(args: Args) -> Made:
    """Order."""
    raise NotImplementedError


CANCEL = tool.idempotent(cancel)
ORDER, ORDER_WITH_UNDO = tool.idempotent(order), tool.idempotent(undo=CANCEL.using(m="result.id"))(order)


def planned(undo: str, **paths: str) -> ToolSpec:
    return ToolSpec(kind="order", effect=Effect.IDEMPOTENT, undo=CompanionSpec(kind=undo, args=paths))


UNDOS: list[tuple[tuple[Tool[..., Any], ...], ToolSpec, str]] = [
    ((ORDER_WITH_UNDO, CANCEL), planned("cancel", m="result.id"), ""),
    ((ORDER, CANCEL), planned("cancel", m="result.id"), "its undo= is gone, it was cancel"),
    ((ORDER_WITH_UNDO, CANCEL), planned("annul", m="result.id"), "its undo= annul is gone"),
    ((ORDER_WITH_UNDO, CANCEL), planned("cancel", m="result.number_1"), "result.number_1, which order does not return"),
    ((ORDER_WITH_UNDO, CANCEL), planned("cancel", of="args.m"), "'of' is gone"),
]


@pytest.mark.parametrize(("tools", "spec", "words"), UNDOS)
def test_an_undo_that_is_gone_or_takes_the_call_no_more_is_named(
    tools: tuple[Tool[..., Any], ...], spec: ToolSpec, words: str
) -> None:
    """Of a call that is still to be made."""
    call = NextCall(task="t", step="o", kind="order", effect=Effect.IDEMPOTENT, args={"m": "x"}, tool=spec)
    found = "; ".join(each.difference for each in misfits(Registry(tools), [call]))

    assert words in found and bool(words) is bool(found)


TOOLS = """
from pydantic import BaseModel

from replan import tool


class Name(BaseModel):
    n: str
    m: str = ""
    {more}


class Done(BaseModel):
    {field}: str = "x"


@tool.read(approve="always")
async def gate(args: Name) -> Name:
    "Ask a person."
    return args


@tool.idempotent
async def {undo}(args: Name) -> Done:
    "Take it back."
    return Done()


@tool.idempotent({option})
async def take(args: Name) -> Done:
    "Take it."
    return Done()


@tool.read
async def find(args: Name) -> Done:
    "Find it."
    return Done()


@tool.read
async def look(args: Name) -> Name:
    "Look."
    return args
"""
OLD = {"more": "", "field": "id", "undo": "give_back", "option": "undo=give_back"}
VERSIONS = {
    "old": OLD,
    "renamed": OLD | {"field": "number"},
    "no_undo": OLD | {"option": ""},
    "required": OLD | {"more": "currency: str"},
    "default": OLD | {"more": "currency: str = 'EUR'"},
}
PLAN = """{"steps": [
 {"id": "t", "kind": "take", "args": {"n": "x"}},
 {"id": "g", "kind": "gate", "args": {"n": "x"}, "needs": ["t"]},
 {"id": "c", "kind": "find", "args": {"n": "x"}, "needs": ["g"]},
 {"id": "d", "kind": "look", "args": {"n": {"$from": "t", "path": "id"}, "m": {"$from": "c", "path": "id"}}}
]}"""


@pytest.mark.timeout(120)
def test_a_deploy_sees_which_open_tasks_do_not_fit(server: DevServer, tmp_path: Path) -> None:
    """With exit code 1 under --strict; the result of the finished step stays, and so its field is no misfit. A default
    makes the calls fit. With a worker and without one; `doctor` asks the worker that runs."""
    task = queue = f"q-{uuid.uuid4().hex[:8]}"
    place = Processes(server.address, tmp_path)
    for name, parts in VERSIONS.items():
        (tmp_path / f"{name}.py").write_text(TOOLS.format(**parts))
    (tmp_path / "plan.json").write_text(PLAN)

    def checked(version: str, *options: str) -> tuple[int, list[str]]:
        done = place.asked("--check", *options, "--queue", queue, "--tools", str(tmp_path / f"{version}.py"))
        return done.returncode, done.stdout[done.stdout.find("Open tasks on") :].splitlines()

    def worker(version: str) -> AbstractContextManager[Running]:
        return place.worker("--queue", queue, "--tools", str(tmp_path / f"{version}.py"), "--planner", "offline")

    with worker("old"):
        options = ("--queue", queue, "--id", task, "--on-escalation", "wait", "--detach")
        started = place.starter("--task", "take it", "--plan", str(tmp_path / "plan.json"), *options)
        until = time.monotonic() + 30
        while task not in place.starter("list", "--status", "waiting").stdout and time.monotonic() < until:
            time.sleep(0.2)
        by_query = {version: checked(version, "--strict") for version in VERSIONS}
    lenient, by_replay = checked("no_undo")
    with worker("required"):
        checks = json.loads(place.starter("doctor", "--queue", queue, "--json").stdout)["checks"]
    [found] = [check for check in checks if check["name"] == "open tasks"]

    heading = f"Open tasks on queue {queue}: 1 looked at"
    needed = f"{task}, step c: find: 'currency' is new and required"
    assert started.returncode == 0, started.stderr
    assert (lenient, by_replay) == (0, by_query["no_undo"][1])
    codes = {**dict.fromkeys(VERSIONS, 1), "old": 0, "default": 0}
    assert {version: code for version, (code, _) in by_query.items()} == codes
    said = {version: "\n".join(lines) for version, (_, lines) in by_query.items()}
    assert f"{task}, step d: look: 'm' is 'id' of the result of step c, which find does not" in said["renamed"]
    assert "step t" not in said["renamed"]
    assert f"{task}, step t: take: its undo= is gone, it was give_back" in said["no_undo"]
    assert said["default"] == f"{heading}, and the tools take all their next calls."
    assert (
        said["required"].startswith(f"{heading}. These next calls do not fit the tools:\n")
        and needed in said["required"]
    )
    assert by_query["required"][1][-1].startswith("Finish or answer these tasks before the deploy")
    assert found["status"] == "warn" and f"{task}, step " in found["found"]
    assert "'currency' is new and required" in found["found"]


def test_a_check_that_could_not_look_says_so(tmp_path: Path) -> None:
    """By its last line and, since a deploy must not take silence for a yes, with --strict by its exit code."""
    processes = Processes("localhost:1", tmp_path)
    done = processes.asked("--check")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("Open tasks were not looked at: No Temporal server answers")
    assert (processes.asked("--check", "--strict").returncode, processes.asked("--strict").returncode) == (6, 2)


def test_many_calls_are_sent_in_parts() -> None:
    """None is lost, and each part is small enough for one inquiry."""
    call = NextCall(task="t", step="s", kind="k", effect=Effect.READ, args={"text": "x" * 100_000})

    assert [len(part) for part in upgrade._split_by_size([call] * 7)] == [2, 2, 2, 1]
