"""The borders between the rooms: who may import whom, and what is said in one place only."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("workflows", "activities", "runtime", "console")
SCRIPTS = ("worker.py", "starter.py")
OURS = {*ROOMS, "worker", "starter", "tests", "evals", "benchmarks", "examples"}

MAY_IMPORT: Mapping[str, set[str]] = {
    "workflows": {"workflows"},
    "activities": {"activities", "workflows"},
    "runtime": {"runtime", "workflows"},
    "console": {"console", "runtime", "workflows"},
    "starter.py": {"console", "runtime", "workflows"},
    "worker.py": {"activities", "runtime", "workflows"},
}
"""Of our own; each way leads towards `workflows`."""

SOURCES = sorted(
    [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    + [ROOT / script for script in SCRIPTS if (ROOT / script).exists()]
)


def named(file: Path) -> str:
    """A file as messages name it."""
    return file.relative_to(ROOT).as_posix()


def tree(file: Path) -> ast.Module:
    """A file as Python reads it."""
    return ast.parse(file.read_text(encoding="utf-8"), named(file))


def imported(file: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it; its own room for a relative import."""
    found = set[str]()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0] if node.level == 0 else named(file).partition("/")[0])
    return found


def calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the dotted name that it is made by, as far as it has one."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("file", SOURCES, ids=named)
def test_imports_between_rooms_point_one_way(file: Path) -> None:
    """`worker -> activities, runtime -> workflows` and `starter -> console, runtime -> workflows`; never back."""
    room = named(file).partition("/")[0]

    assert (imported(file) & OURS) - MAY_IMPORT[room] == set()


@pytest.mark.parametrize("file", sorted((ROOT / "workflows").rglob("*.py")), ids=named)
def test_workflows_import_the_standard_library_pydantic_and_temporalio_only(file: Path) -> None:
    """What replays must not depend on what the world's libraries do, nor pay for importing them."""
    assert imported(file) - set(sys.stdlib_module_names) <= {"workflows", "pydantic", "temporalio"}


def test_one_line_schedules_activities() -> None:
    """Whatever every call needs (header, policy, cancellation type) is said once."""
    ways = {f"workflow.{how}{what}" for how in ("execute", "start") for what in WHATS}
    found = [named(file) for file in SOURCES for name, _ in calls(file) if name in ways]

    assert found == ["workflows/call.py"]


WHATS = ("_activity", "_activity_class", "_activity_method", "_local_activity", "_local_activity_method")


@pytest.mark.parametrize("file", [file for file in SOURCES if named(file) != "workflows/routing.py"], ids=named)
def test_retry_numbers_are_in_routing_only(file: Path) -> None:
    """No policy and no number of attempts is made elsewhere; the SDKs' own retries are off."""
    said = [name for name, _ in calls(file) if name.endswith("RetryPolicy")]
    keywords = [word.arg for _, call in calls(file) for word in call.keywords if word.arg == "maximum_attempts"]

    assert said + keywords == []


@pytest.mark.parametrize("file", sorted((ROOT / "workflows").rglob("*.py")), ids=named)
def test_timeouts_of_workflows_are_in_routing_only(file: Path) -> None:
    """A duration that is written out says in one file how patient we are; elsewhere it is data."""
    written_out = [
        ast.unparse(call)
        for name, call in calls(file)
        if name.endswith("timedelta")
        for value in [*call.args, *(word.value for word in call.keywords)]
        if isinstance(value, ast.Constant)
    ]

    assert not written_out or named(file) == "workflows/routing.py"


@pytest.mark.parametrize("file", SOURCES, ids=named)
def test_nothing_evaluates_text_as_code(file: Path) -> None:
    """What a model or a user wrote is data, always."""
    assert {name for name, _ in calls(file)} & {"eval", "exec", "compile", "__import__"} == set()


@pytest.mark.parametrize("file", sorted((ROOT / "workflows").rglob("*.py")), ids=named)
def test_workflows_call_no_builtin_that_the_linter_cannot_ban(file: Path) -> None:
    """Files and the terminal are the world; hashes and ids differ from process to process."""
    assert {name for name, _ in calls(file)} & {"open", "input", "print", "hash", "id", "breakpoint"} == set()


PLANTED: list[tuple[str, str]] = [
    ("import datetime as d; d.datetime.now()", "Use workflow.now()"),
    ("from datetime import datetime; datetime.utcnow()", "Use workflow.now()"),
    ("from datetime import datetime; datetime.today()", "Use workflow.now()"),
    ("from datetime import date; date.today()", "Use workflow.now().date()"),
    ("import time", "workflow.sleep(..., summary=...)"),
    ("from time import monotonic", "Use workflow.now()"),
    ("import random", "Use workflow.random()"),
    ("import secrets", "Use workflow.random()"),
    ("from uuid import uuid4", "Use workflow.uuid4()"),
    ("import uuid; uuid.uuid1()", "Use workflow.uuid4()"),
    ("from functools import cache", "keep it in Progress"),
    ("import functools; functools.lru_cache", "keep it in Progress"),
    ("import asyncio; asyncio.sleep(1)", "Use workflow.sleep(..., summary=...)"),
    ("import asyncio; asyncio.wait([])", "Use workflow.wait()"),
    ("from asyncio import as_completed", "Use workflow.as_completed()"),
    ("import asyncio; asyncio.wait_for", "Use workflow.wait_condition("),
    ("import asyncio; asyncio.timeout(1)", "Use workflow.wait_condition("),
    ("import asyncio; asyncio.to_thread(print)", "write an activity"),
    ("from concurrent.futures import ThreadPoolExecutor", "write an activity"),
    ("import threading", "write an activity"),
    ("import os", "belong to activities"),
    ("from os import environ", "settings arrive as data"),
    ("from pathlib import Path", "a path travels as text"),
    ("import socket", "The network belongs to activities"),
    ("import subprocess", "Processes belong to activities"),
    ("import urllib.request", "The network belongs to activities"),
    ("import httpx2", "The network belongs to activities"),
    ("import sqlite3", "The store is opened by activities"),
    ("from sqlalchemy.ext.asyncio import AsyncEngine", "The store is opened by activities"),
    ("import anthropic", "Models are called by activities"),
    ("import openai", "Models are called by activities"),
    ("import structlog", "Use workflow.logger"),
    ("import logging", "Use workflow.logger"),
    ("from activities.boundary import Boundary", "Workflows import no other room"),
    ("import runtime.client", "Workflows import no other room"),
    ("from console import problem", "Workflows import no other room"),
    ("from tests.harness import plan", "Workflows import no other room"),
    ("from temporalio.client import Client", "use temporalio.workflow"),
    ("from temporalio import activity", "belongs to activities"),
]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, str]:
    """What ruff says of each line, in a copy of the project that has one file of planted violations in `workflows`."""
    copy = tmp_path_factory.mktemp("project")
    (copy / "workflows").mkdir()
    for config in ("pyproject.toml", "workflows/ruff.toml"):
        (copy / config).write_text((ROOT / config).read_text(encoding="utf-8"), encoding="utf-8")
    planted = copy / "workflows" / "planted.py"
    planted.write_text("".join(f"{line}\n" for line, _ in PLANTED), encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise", str(planted)]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    found = [line.split(":", 3) for line in done.stdout.splitlines() if " TID251 " in line]
    return {int(number): message for _, number, _, message in found}


@pytest.mark.parametrize(
    ("number", "says"), [pytest.param(index, says, id=line) for index, (line, says) in enumerate(PLANTED, start=1)]
)
def test_what_does_not_replay_is_banned_with_the_right_call(
    reported: Mapping[int, str], number: int, says: str
) -> None:
    """The linter that everybody runs finds it in this room, and says what to use instead."""
    assert says in reported.get(number, "not reported at all")
