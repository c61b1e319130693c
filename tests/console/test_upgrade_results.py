"""`worker.py --check` compares the plans of open tasks with what new tools return, and with their undos."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

from activities.toolbox.declare.arguments import misfits
from activities.toolbox.registry import Registry
from replan import Tool, tool
from runtime.dev_server import DevServer
from tests.processes import Processes
from workflows.inquiries import NextCall
from workflows.plans.catalogue import CompanionSpec, Effect, ToolSpec


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
    return registry(tool.read(make), tool.read(look))


def registry(*tools: Tool[..., Any]) -> Registry:
    return Registry(tools)


def said(kinds: Registry, args: dict[str, Any], **more: Any) -> str:
    """What is said of a step that takes these arguments from the result of the step c, which `make` is to make."""
    call = NextCall(task="t", step="d", kind="look", effect=Effect.READ, args=args, sources={"c": "make"}, **more)
    return "; ".join(found.difference for found in misfits(kinds, [call]))


def at(path: str) -> dict[str, str]:
    return {"$from": "c", "path": path} if path else {"$from": "c"}


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
    found = "; ".join(each.difference for each in misfits(registry(*tools), [call]))

    assert words in found and bool(words) is bool(found)


TOOLS = """
from pydantic import BaseModel

from replan import tool


class Name(BaseModel):
    n: str
    m: str = ""


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
VERSIONS = {
    "old": {"field": "id", "undo": "give_back", "option": "undo=give_back"},
    "renamed": {"field": "number", "undo": "give_back", "option": "undo=give_back"},
    "no_undo": {"field": "id", "undo": "give_back", "option": ""},
}
PLAN = """{"steps": [
 {"id": "t", "kind": "take", "args": {"n": "x"}},
 {"id": "g", "kind": "gate", "args": {"n": "x"}, "needs": ["t"]},
 {"id": "c", "kind": "find", "args": {"n": "x"}, "needs": ["g"]},
 {"id": "d", "kind": "look", "args": {"n": {"$from": "t", "path": "id"}, "m": {"$from": "c", "path": "id"}}}
]}"""


@pytest.fixture
def place(server: DevServer, tmp_path: Path) -> Iterator[Processes]:
    """A folder with each version of the tools."""
    for name, parts in VERSIONS.items():
        (tmp_path / f"{name}.py").write_text(TOOLS.format(**parts))
    (tmp_path / "plan.json").write_text(PLAN)
    yield Processes(server.address, tmp_path)


@pytest.mark.timeout(120)
def test_a_deploy_sees_which_open_tasks_do_not_fit(place: Processes) -> None:
    """With exit code 1 under --strict; the result of the finished step stays, and so its field is no misfit."""
    task = queue = f"q-{uuid.uuid4().hex[:8]}"

    def checked(version: str, *options: str) -> tuple[int, str]:
        done = place.asked("--check", *options, "--queue", queue, "--tools", str(place.folder / f"{version}.py"))
        return done.returncode, done.stdout[done.stdout.find("Open tasks on") :]

    with place.worker("--queue", queue, "--tools", str(place.folder / "old.py"), "--planner", "offline"):
        options = ("--queue", queue, "--id", task, "--on-escalation", "wait", "--detach")
        started = place.starter("--task", "take it", "--plan", str(place.folder / "plan.json"), *options)
        until = time.monotonic() + 30
        while task not in place.starter("list", "--status", "waiting").stdout and time.monotonic() < until:
            time.sleep(0.2)
        by_query = {version: checked(version, "--strict") for version in VERSIONS}
    lenient, by_replay = checked("no_undo")

    assert started.returncode == 0, started.stderr
    assert (lenient, by_replay) == (0, by_query["no_undo"][1])
    assert {version: code for version, (code, _) in by_query.items()} == {**dict.fromkeys(VERSIONS, 1), "old": 0}
    assert f"{task}, step d: look: 'm' is 'id' of the result of step c, which find does not" in by_query["renamed"][1]
    assert "step t" not in by_query["renamed"][1]
    assert f"{task}, step t: take: its undo= is gone, it was give_back" in by_query["no_undo"][1]


def test_a_strict_check_that_could_not_look_says_so_by_its_exit_code(tmp_path: Path) -> None:
    """A deploy must not take silence for a yes."""
    processes = Processes("localhost:1", tmp_path)

    assert processes.asked("--check", "--strict").returncode == 6
    assert processes.asked("--strict").returncode == 2
