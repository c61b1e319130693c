"""The borders between the rooms: who may import whom, and what is said in one place only."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXTRAS = tuple(sorted(f"extras/{plugin.parent.name}" for plugin in (ROOT / "extras").glob("*/plugin.py")))
"""The rooms that can be left out."""
ROOMS = ("workflows", "activities", "runtime", "client", "console", "replan", "lab/maintenance", "extras")
SCRIPTS = ("worker.py", "starter.py")
LAB = {"evals", "benchmarks", "maintenance"}
"""What is in `lab/`, by the names under which it is imported: no user's process does."""
OURS = {*ROOMS, *LAB, *EXTRAS, "worker", "starter", "tests", "examples"} - {"lab/maintenance"}

DOORS_OF_EFFECTS = ("console/commands/store.py", "extras/web/page/store.py")
"""What people see of a store of `replan.effects`, which no task and no worker has."""
MAY_IMPORT: Mapping[str, set[str]] = {
    "workflows": {"workflows"},
    "activities": {"activities", "extras", "workflows"},
    "runtime": {"runtime", "workflows"},
    "replan": {"replan", "activities", "client", "console", "runtime", "starter", "worker", "workflows"},
    "client": {"client", "runtime", "workflows"},
    "extras/audit": {"activities", "client", "console", "extras", "extras/audit", "workflows"},
    "replan/__main__.py": {"console", "extras", "runtime", "starter", "worker"},
    "extras/gateway": {
        *("activities", "client", "console", "extras", "extras/gateway", "extras/mcp", "runtime", "workflows"),
    },
    "extras/documents": {"activities", "extras", "extras/documents", "workflows"},
    "extras/libraries": {"activities", "extras", "extras/libraries", "workflows"},
    "extras/mcp": {"activities", "extras", "extras/mcp", "workflows"},
    "extras/web": {"activities", "client", "console", "extras", "extras/web", "runtime", "workflows"},
    "console": {"client", "console", "extras", "runtime", "workflows"},
    "extras": set(),
    "lab/maintenance/office.py": {"replan"},
    "lab/maintenance": {"maintenance", "activities", "client", "console", "runtime", "workflows"},
    "starter.py": {"console", "runtime", "workflows"},
    "worker.py": {"activities", "client", "examples", "runtime", "workflows"},
    "console/commands/store.py": {"activities", "client", "console", "extras", "runtime", "workflows"},
}
"""Of our own; each way leads towards `workflows`. No other room imports `replan`: it is for users, and for a file
of tools. The worker imports
`examples` for the tools of the demo, and `client` for what `--check` says of open tasks, and `replan` the scripts and
the console for the command `replan`, and the bridge of the gateway, which has to start at once. The gateway imports the
tools and the store of effects: without tasks, it makes calls in its own process."""


def is_test(file: Path) -> bool:
    """Whether a file is one of an extra's own tests, which stand beside its code."""
    return "tests" in file.relative_to(ROOT).parts


SOURCES = sorted(
    [file for room in ROOMS for file in (ROOT / room).rglob("*.py") if not is_test(file)]
    + [ROOT / script for script in SCRIPTS if (ROOT / script).exists()]
)
WORKFLOWS = [file for file in SOURCES if file.is_relative_to(ROOT / "workflows")]


def named(file: Path) -> str:
    """A file as messages name it."""
    return file.relative_to(ROOT).as_posix()


@cache
def tree(file: Path) -> ast.Module:
    """A file as Python reads it."""
    return ast.parse(file.read_text(encoding="utf-8"), named(file))


def imported(file: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it; its own room for a relative import."""
    return packages(tree(file), own=room_of(file))


def room_of(file: Path) -> str:
    """The room that a file is in, or the script that it is."""
    return next(room for room in (*EXTRAS, *ROOMS, *SCRIPTS, "") if named(file).startswith(room))


def packages(source: ast.Module, own: str) -> set[str]:
    """The top-level packages that a source imports, and which extras; `own` for a relative import."""
    found = set[str]()
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            found |= {_package(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(_package(node.module or "") if node.level == 0 else own)
    return found


def _package(module: str) -> str:
    first, _, rest = module.partition(".")
    return f"extras/{rest.partition('.')[0]}" if first == "extras" and rest else first


def calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the dotted name that it is made by, as far as it has one."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def violations(files: Iterable[Path], found: Callable[[Path], Collection[Any]]) -> dict[str, Collection[Any]]:
    """What is `found` in each file, for those in which anything is."""
    return {named(file): what for file in files if (what := found(file))}


def here(files: Iterable[str]) -> set[str]:
    """These files, without those of extras that are not in this copy."""
    return {file for file in files if (ROOT / file).exists() or not file.startswith("extras/")}


def test_every_file_is_looked_at() -> None:
    """The tests below walk all rooms."""
    assert {room_of(file) for file in SOURCES} == {*EXTRAS, *ROOMS, *SCRIPTS}
    assert len(WORKFLOWS) > 10


def test_imports_between_rooms_point_one_way() -> None:
    """`worker -> activities, client -> runtime -> workflows` and `starter -> console -> server -> client`.

    Nothing but the tests imports what is in `lab/`. Nothing imports an extra but itself; `extras` says which are here.
    """

    def foreign(file: Path) -> set[str]:
        path = named(file)
        folder = MAY_IMPORT.get(path.rpartition("/")[0], MAY_IMPORT[room_of(file)])
        return (imported(file) & OURS) - MAY_IMPORT.get(path, folder)

    assert violations(SOURCES, foreign) == {}


def of_activities(files: Iterable[Path]) -> set[str]:
    """The names that files import from `activities`."""
    nodes = (node for file in files for node in ast.walk(tree(file)) if isinstance(node, ast.ImportFrom))
    return {f"{node.module}.{node.names[0].name}" for node in nodes if (node.module or "").startswith("activities")}


def test_who_has_no_worker_knows_of_activities_only_the_tables() -> None:
    """An audit runs where there is none; `replan.effects` needs a database alone: no boundary, no tool, no model."""
    tables = ("activities.borders", "activities.scrubbing", "activities.sends")
    names = of_activities(file for file in SOURCES if file.is_relative_to(ROOT / "extras" / "audit"))
    doors = of_activities(ROOT / file for file in here(DOORS_OF_EFFECTS))

    assert [name for name in names if not name.startswith(tables)] == []
    assert doors
    assert [name for name in doors if not name.startswith(("activities.effects.", "activities.storage.store"))] == []


def test_docs_and_examples_import_the_face_only() -> None:
    """What a reader copies holds on to nothing that may move: `from replan import ...`."""
    examples = {named(file): imported(file) - {"examples"} for file in (ROOT / "examples").rglob("*.py")}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    blocks = {
        f"{named(page)}: {block[:40]}": packages(ast.parse(block), own="")
        for page in pages
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    }
    found = {place: found & OURS for place, found in {**examples, **blocks}.items()}

    assert {place: ours for place, ours in found.items() if ours - {"replan"}} == {}
    assert sum(ours == {"replan"} for ours in found.values()) > 8


def test_evals_and_benchmarks_import_no_tests() -> None:
    """The fakes that all of them need are in `evals.fakes`."""
    files = [file for room in ("lab", "replan") for file in (ROOT / room).rglob("*.py")]

    assert violations(files, lambda file: imported(file) & {"tests"}) == {}


def test_workflows_import_the_standard_library_pydantic_and_temporalio_only() -> None:
    """What replays must not depend on what the world's libraries do, nor pay for importing them."""
    allowed = {*sys.stdlib_module_names, "workflows", "pydantic", "temporalio"}

    assert violations(WORKFLOWS, lambda file: imported(file) - allowed) == {}


def test_one_file_schedules_activities() -> None:
    """Whatever every call needs (header, policy, cancellation type) is said once for each of the two kinds."""
    ways = {f"workflow.{how}{what}" for how in ("execute", "start") for what in WHATS}
    found = [(named(file), name) for file in SOURCES for name, _ in calls(file) if name in ways]

    assert found == [
        ("workflows/calls/running.py", "workflow.execute_activity"),
        ("workflows/calls/running.py", "workflow.execute_local_activity"),
    ]


WHATS = ("_activity", "_activity_class", "_activity_method", "_local_activity", "_local_activity_method")


def called(file: Path, *banned: str) -> set[str]:
    """Which of the banned names a file calls."""
    return {name for name, _ in calls(file)} & set(banned)


def test_retry_numbers_are_in_routing_only() -> None:
    """No policy and no number of attempts is made elsewhere; the SDKs' own retries are off."""

    def numbers(file: Path) -> list[str | None]:
        said = [name for name, _ in calls(file) if name.endswith("RetryPolicy")]
        return [*said, *(word.arg for _, call in calls(file) for word in call.keywords if word.arg == ATTEMPTS)]

    assert set(violations(SOURCES, numbers)) == {"workflows/faults/routes.py"}


ATTEMPTS = "maximum_attempts"


def test_timeouts_of_workflows_are_in_routing_only() -> None:
    """A duration that is written out says in one file how patient we are; elsewhere it is data."""

    def written_out(file: Path) -> list[str]:
        return [
            ast.unparse(call)
            for name, call in calls(file)
            if name.endswith("timedelta")
            for value in [*call.args, *(word.value for word in call.keywords)]
            if isinstance(value, ast.Constant)
        ]

    assert set(violations(WORKFLOWS, written_out)) == {"workflows/faults/retries.py"}


def test_nothing_evaluates_text_as_code() -> None:
    """What a model or a user wrote is data, always."""
    assert violations(SOURCES, lambda file: called(file, "eval", "exec", "compile", "__import__")) == {}


NORMALISES = {
    "workflows/text.py": "the one place: it cuts rows of marks first",
    "examples/desk/near.py": "each character alone",
}
NORMALISES_WITHIN = {
    "activities/notification.py": "the operator's URL",
    "activities/providers/adapter.py": "the operator's URL",
    "activities/providers/local.py": "the operator's URL",
    "activities/providers/registry.py": "the operator's URL",
    "activities/toolbox/expressions/expression.py": "at most 250 signs, and words of letters",
    "activities/toolbox/registry.py": "the source of a tool",
    "console/commands/doctor.py": "the operator's URL",
    "extras/web/command.py": "the operator's URL",
    "extras/web/provider.py": "the operator's URL",
    "lab/maintenance/lines.py": "our own source",
    "lab/maintenance/mutants.py": "our own source",
    "lab/maintenance/names.py": "our own source",
    "lab/maintenance/wheel.py": "our own source",
    "runtime/payloads.py": "the operator's URL",
    "console/serving/access.py": "a header, whose characters are Latin-1: it has no marks",
}
"""By file, why a text that Python normalises by itself has no long rows of marks."""


def test_one_place_normalises_text() -> None:
    """Python needs quadratic time for many marks in a row, and all threads wait; `normalized` cuts such rows first.

    Hosts of URLs, names in Python's syntax, and the codec for names of hosts are normalised, too.
    """
    files = [*SOURCES, *(ROOT / "examples").rglob("*.py")]

    def normalising(file: Path) -> list[str]:
        nodes = list(ast.walk(tree(file)))
        names = {"normalize", "is_normalized", "ucd_3_2_0"}
        of_module = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and node.attr in names]
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "unicodedata"]
        codecs = [node.value for node in nodes if isinstance(node, ast.Constant) and node.value == "idna"]
        return [
            *(name for name in of_module if name.startswith(("unicodedata.", "ucd"))),
            *(alias.name for node in froms for alias in node.names if alias.name in names),
            *map(str, codecs),
        ]

    def within(file: Path) -> list[str]:
        found = ("urlsplit", "urlparse", "urljoin", "urldefrag", "ast.parse")
        return [
            ast.unparse(call)
            for name, call in calls(file)
            if name in found or name.endswith((".urlsplit", ".urlparse", ".urljoin", ".urldefrag"))
            if not (call.args and ast.unparse(call.args[0]).startswith("stream_safe("))
        ]

    assert violations(files, normalising).keys() == here(NORMALISES)
    assert violations(files, within).keys() == here(NORMALISES_WITHIN)


def in_locale(file: Path) -> list[str]:
    """The calls of a file that read or write text in the locale's encoding."""
    return [ast.unparse(call) for name, call in calls(file) if _is_in_locale(name, call)]


def _is_in_locale(function: str, call: ast.Call) -> bool:
    words = {word.arg: word.value for word in call.keywords}
    if "encoding" in words:
        return False
    match function.rpartition(".")[2]:
        case "Popen" | "run" | "check_output":
            return bool(words.keys() & {"text", "universal_newlines"})
        case "read_text" | "write_text":
            return True
        case "open" | "fdopen":
            place = 1 if function in ("open", "os.fdopen") else 0
            mode = words.get("mode", call.args[place] if len(call.args) > place else ast.Constant("r"))
            return isinstance(mode, ast.Constant) and re.fullmatch(r"[rwaxt+]{1,3}", str(mode.value)) is not None
    return any(isinstance(part, ast.Attribute) and part.attr in ("read_text", "write_text") for part in call.args)


def test_no_file_is_read_in_the_encoding_of_the_locale() -> None:
    """A file means the same on every machine: text is read as UTF-8, whatever the locale."""
    assert violations(SOURCES, in_locale) == {}


TEXT = (
    *("path.read_text()", "path.write_text(text)", "open(name)", "path.open('w')", "path.open()"),
    *("open(name, mode='a')", "os.fdopen(handle, 'w')", "asyncio.to_thread(path.read_text)"),
    "subprocess.run(command, text=True)",
)
BYTES = ("path.read_text(encoding='utf-8')", "path.open('rb')", "open(name, 'ab')", "os.open(name, flags)")


def test_such_a_call_would_be_found() -> None:
    """The test above sees each way to open a file as text."""
    nodes = {code: next(ast.walk(ast.parse(code, mode="eval").body)) for code in (*TEXT, *BYTES)}
    found = {
        code
        for code, call in nodes.items()
        if isinstance(call, ast.Call) and _is_in_locale(ast.unparse(call.func), call)
    }

    assert found == set(TEXT)


def test_workflows_call_no_builtin_that_the_linter_cannot_ban() -> None:
    """Files and the terminal are the world; hashes and ids differ from process to process."""
    banned = ("open", "input", "print", "hash", "id", "breakpoint")

    assert violations(WORKFLOWS, lambda file: called(file, *banned)) == {}


PLANTED: Mapping[str, Sequence[str]] = {
    "Use workflow.now()": (
        *("import datetime as d; d.datetime.now()", "from datetime import datetime; datetime.utcnow()"),
        *("from datetime import datetime; datetime.today()", "from time import monotonic"),
    ),
    "Use workflow.now().date()": ("from datetime import date; date.today()",),
    "workflow.sleep(..., summary=...)": ("import time", "import asyncio; asyncio.sleep(1)"),
    "Use workflow.random()": ("import random", "import secrets"),
    "Use workflow.uuid4()": ("from uuid import uuid4", "import uuid; uuid.uuid1()"),
    "keep it in Progress": ("from functools import cache", "import functools; functools.lru_cache"),
    "Use workflow.wait()": ("import asyncio; asyncio.wait([])",),
    "Use workflow.as_completed()": ("from asyncio import as_completed",),
    "Use workflow.wait_condition(": ("import asyncio; asyncio.wait_for", "import asyncio; asyncio.timeout(1)"),
    "write an activity": (
        *("import asyncio; asyncio.to_thread(print)", "from concurrent.futures import ThreadPoolExecutor"),
        "import threading",
    ),
    "belong to activities": ("import os",),
    "settings arrive as data": ("from os import environ",),
    "a path travels as text": ("from pathlib import Path",),
    "The network belongs to activities": ("import socket", "import urllib.request", "import httpx2"),
    "Processes belong to activities": ("import subprocess",),
    "The store is opened by activities": ("import sqlite3", "from sqlalchemy.ext.asyncio import AsyncEngine"),
    "Models are called by activities": ("import anthropic", "import openai"),
    "Use workflow.logger": ("import structlog", "import logging"),
    "Workflows import no other room": (
        *("from activities.boundary.boundary import Boundary", "import runtime.client", "from console import problem"),
        *("from replan import tool", "from tests.harness import plan"),
    ),
    "use temporalio.workflow": ("from temporalio.client import Client",),
    "belongs to activities": ("from temporalio import activity",),
}
"""By what the linter says, the lines that it says it of."""
LINES = [(line, says) for says, lines in PLANTED.items() for line in lines]


def reported(folder: Path) -> Mapping[int, str]:
    """What ruff says of each line, in a copy of the project that has one file of planted violations in `workflows`."""
    (folder / "workflows").mkdir()
    for config in ("pyproject.toml", "workflows/ruff.toml"):
        (folder / config).write_text((ROOT / config).read_text(encoding="utf-8"), encoding="utf-8")
    planted = folder / "workflows" / "planted.py"
    planted.write_text("".join(f"{line}\n" for line, _ in LINES), encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise", str(planted)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = [line.split(":", 3) for line in done.stdout.splitlines() if " TID251 " in line]
    return {int(number): message for _, number, _, message in found}


def test_what_does_not_replay_is_banned_with_the_right_call(tmp_path: Path) -> None:
    """The linter that everybody runs finds it in this room, and says what to use instead."""
    said = reported(tmp_path)
    silent = [line for number, (line, says) in enumerate(LINES, start=1) if says not in said.get(number, "")]

    assert silent == [], said
