"""docs/errors.md and docs/console.md: what is published is what the code says, and nothing is missing."""

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest

import worker
from console import document
from console.problem import Exit
from console.reference import keys, pages
from console.reference.console_page import EXITS
from console.reference.endings import ENDINGS
from console.reference.faults import FAULTS
from console.reference.following import WORDS, course
from console.reference.problems import PROBLEMS
from console.reference.starting import STARTING
from console.view import Silent
from tests.console.outcomes import fault, outcome, step
from tests.processes import ROOT
from workflows import spending
from workflows.faults import Code
from workflows.record import Compaction, Failover, Rejection, Revision, UndoRecord
from workflows.task import TaskStatus


class Said(NamedTuple):
    """A code in the source, and what stands beside it."""

    where: str
    code: str
    beside: str


def returned(function: Callable[..., str]) -> list[str]:
    """The words that a function may return."""
    return list(get_args(get_type_hints(function)["return"]))


LIMITS = {"limit": returned(spending.short_of), "execution.short": returned(spending.step_short_of)}
"""The codes that are computed, by the names under which they end a task."""


def calls(name: str, *rooms: str) -> Iterator[tuple[ast.Module, ast.Call, str]]:
    """Each call of a name in some rooms, with its file as read and where it is."""
    for room in rooms:
        for file in [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).rglob("*.py")):
            module = ast.parse(file.read_text(encoding="utf-8"))
            for node in ast.walk(module):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                    yield module, node, f"{file.relative_to(ROOT)}:{node.lineno}"


def literals(module: ast.Module, node: ast.expr) -> list[str]:
    """The strings that an expression may be; of a name, those that its file gives it."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp(body=body, orelse=orelse):
            return [*literals(module, body), *literals(module, orelse)]
        case ast.Name(id=name):
            given = [one.value for one in ast.walk(module) if isinstance(one, ast.Assign) and _names(one) == [name]]
            return [text for value in given for text in literals(module, value)]
        case _:
            return []


def _names(assignment: ast.Assign) -> list[str]:
    return [ast.unparse(target) for target in assignment.targets]


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """An argument of a call, however it is given."""
    named = next((one.value for one in call.keywords if one.arg == name), None)
    return call.args[position] if len(call.args) > position else named


@cache
def endings() -> list[Said]:
    """Every ending in the source that has a code of its own: one that is not a fault's."""
    found = list[Said]()
    for module, call, where in [*calls("Ends", "workflows", "console"), *calls("Ending", "workflows", "console")]:
        status, code = argument(call, 0, "status"), argument(call, 2, "code")
        texts = literals(module, code) if code is not None else []
        texts = texts or (LIMITS.get(ast.unparse(code), []) if code is not None else [])
        found += [Said(where, text, ast.unparse(status) if status else "") for text in texts]
    return [one for one in found if one.code not in set(Code)]


@cache
def problems() -> list[Said]:
    """Every problem in the source, with its exit code."""
    found = list[Said]()
    for module, call, where in calls("Problem", "console"):
        code, exit = argument(call, 0, "code"), argument(call, 3, "exit")
        texts = literals(module, code) if code is not None else []
        assert texts, f"{where}: the code of this Problem is no literal, so nobody can look for it"
        found += [Said(where, text, ast.unparse(exit) if exit else "Exit.BAD_USAGE") for text in texts]
    return found


@pytest.mark.parametrize("name", pages.PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    """Generated, never written by hand."""
    published = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")

    assert published == pages.PAGES[name](), f"python -m console.reference {name} > docs/{name}.md"


def test_a_page_is_printed_by_its_name() -> None:
    """As the first lines of the page say; another name is bad usage."""
    command = [sys.executable, "-m", "console.reference"]
    printed = subprocess.run([*command, "errors"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    unknown = subprocess.run([*command, "erors"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert printed == pages.PAGES["errors"]()
    assert (unknown.returncode, unknown.stderr) == (2, "usage: python -m console.reference errors|console\n")


def test_every_fault_has_its_words() -> None:
    """In the order of the enum, which is the page's."""
    assert list(FAULTS) == list(Code)


def test_what_follows_is_what_is_decided() -> None:
    """Every course that the code takes has its words, and none has words that it does not take."""
    assert {course(code) for code in Code} == set(WORDS)


def test_every_ending_has_its_words() -> None:
    """Each code that ends a task is explained, and none that is explained is gone."""
    found = endings()

    assert [one for one in found if one.code not in ENDINGS] == []
    assert set(ENDINGS) <= {one.code for one in found}


@pytest.mark.parametrize("code", [code for code in ENDINGS if code != "closed"])
def test_an_ending_has_the_status_that_the_page_names(code: str) -> None:
    """Wherever a task ends so; `closed` takes its status from the server."""
    said = {one.beside for one in endings() if one.code == code}

    assert said == {f"TaskStatus.{status.name}" for status in ENDINGS[code].statuses}


def test_a_task_that_was_closed_from_outside_has_one_of_two_statuses() -> None:
    """As console/outcome.py decides."""
    assert set(ENDINGS["closed"].statuses) == {TaskStatus.FAILED, TaskStatus.CANCELLED}


def test_every_problem_has_its_words() -> None:
    """Each code of a command's problem is explained, and none that is explained is gone."""
    found = problems()

    assert [one for one in found if one.code not in PROBLEMS] == []
    assert set(PROBLEMS) <= {one.code for one in found}


@pytest.mark.parametrize("code", PROBLEMS)
def test_a_problem_has_the_exit_codes_that_the_page_names(code: str) -> None:
    """Wherever it arises; of one that is computed, the page's word is taken."""
    said, named = {one.beside for one in problems() if one.code == code}, PROBLEMS[code].exits
    computed = {beside for beside in said if not beside.startswith("Exit.")}

    assert said - computed <= {f"Exit.{exit.name}" for exit in named}
    assert computed or len(said) == len(named)


def test_every_code_can_be_linked_to() -> None:
    """Each is a heading of its own, and no two headings are the same."""
    headings = [line.lstrip("# ") for line in pages.PAGES["errors"]().splitlines() if line.startswith("#")]

    assert len(headings) == len(set(headings))
    assert {*Code, *ENDINGS, *(f"error {code}" for code in PROBLEMS)} <= set(headings)


def test_whatever_keeps_a_worker_from_starting_is_named() -> None:
    """With the exit code that worker.py gives it."""
    wanted = {error.__name__: Exit.BAD_USAGE for error in worker.BAD_USAGE}
    wanted |= {error.__name__: Exit.UNREACHABLE for error in worker.UNREACHABLE}

    assert {name: exit for name, (exit, _) in STARTING.items()} == wanted


def test_every_exit_code_is_explained() -> None:
    """A new one cannot be forgotten."""
    assert set(EXITS) == set(Exit)


def test_every_key_of_the_document_is_explained() -> None:
    """In the order of the document."""
    refused = fault()
    undone = UndoRecord(step_id="book")
    short = Compaction(turn=2, turns=1, planner="openai:x", tokens=9)
    passed = Failover(planner="openai:x", code="unauthorized", reason="No.", turn=1)
    unused = Rejection(turn=2, reasons=("No.",))
    parts_of: dict[str, tuple[Any, ...]] = {"revisions": (Revision(number=1),), "undo": (undone,)}
    parts_of |= {"compactions": (short,), "failovers": (passed,), "rejections": (unused,)}
    whole = outcome(steps=(step(fault=refused),), faults=(refused,), **parts_of)
    told = json.loads(document.of_task(whole, None, None))
    parts = {"": told, "spent": told["spent"]} | {f"{name}[]": told[name][0] for name in ("steps", "faults", *parts_of)}

    assert {place: list(part) for place, part in parts.items()} == {place: list(of) for place, of in keys.TASK.items()}


def test_every_event_is_explained() -> None:
    """Those that the source writes, by name or by who is silent."""
    found = [one for name in ("self._write", "self._once", "line") for one in calls(name, "console/events.py")]
    written = {text for module, call, _ in found for text in literals(module, call.args[0])}

    assert set(keys.EVENTS) == {*written, *Silent}
