"""The wheel: one package, in which every room is found below `replan._internal`."""

import ast
import importlib
import tomllib
from pathlib import Path

import pytest

import replan
from maintenance import wheel
from tests.processes import ROOT
from tests.workflows import test_rooms

BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
MOVED = BUILD["wheel"]["hooks"]["custom"]["rooms"]
MODULES = {"workflows", "workflows.plan", "activities", "activities.errors", "console", "console.commands", "worker"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from workflows.plan import nearest", "from replan._internal.workflows.plan import nearest"),
        ("from workflows import plan", "from replan._internal.workflows import plan"),
        ("def f():\n    from worker import main", "def f():\n    from replan._internal.worker import main"),
        ("import activities.errors as e, ast", "import replan._internal.activities.errors as e, ast"),
        ('NAME = "workflows.plan"', 'NAME = "replan._internal.workflows.plan"'),
        ('load(f"console.commands.{name}")', 'load(f"replan._internal.console.commands.{name}")'),
        ('é = "é", "activities.errors.Busy"', 'é = "é", "replan._internal.activities.errors.Busy"'),
        ('A = "workflows", "worker.py", "workflows.plans", "the workflows.plan"', None),
        ("from . import plan\nfrom workflows_of_mine import x\nimport my.workflows", None),
        ('"""from workflows import plan"""  # import workflows', None),
    ],
)
def test_a_name_of_a_room_is_moved(source: str, expected: str | None) -> None:
    """In imports, wherever they are, and in strings that name a module; everything else stays as it is."""
    assert wheel.moved(source, MODULES) == (expected or source)


@pytest.mark.parametrize(
    "line",
    [
        "import workflows",
        "import ast, workflows.plan",
        'load("workflows." + name)',
        'NAME = "workflows" ".plan"',
        'NAME = "work\\x66lows.plan"',
    ],
)
def test_a_name_that_cannot_be_moved_fails_the_build(line: str) -> None:
    """With the line, and what to write instead."""
    with pytest.raises(wheel.NotMovable) as failed:
        wheel.moved(f"import ast\n{line}\n", MODULES)

    assert str(failed.value).startswith(f"2: {line}: names a room in a way that the wheel cannot have: write `from ")


def test_the_build_names_the_file(tmp_path: Path) -> None:
    """Of each place that cannot be moved."""
    for folder in ("replan", "client"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("import client\n")

    with pytest.raises(wheel.NotMovable) as failed:
        wheel.copy(tmp_path, ["client"], tmp_path / "made" / "replan")

    assert [line.partition(" import")[0] for line in str(failed.value).splitlines()] == [
        "replan/__init__.py:1:",
        "client/__init__.py:1:",
    ]


def test_all_rooms_are_in_the_wheel() -> None:
    rooms = {room.partition("/")[0] for room in MOVED}

    assert rooms | {"replan", "lab/maintenance"} == {*test_rooms.ROOMS, *test_rooms.SCRIPTS, "examples"}
    assert rooms | {"replan", "lab/maintenance"} <= set(BUILD["sdist"]["only-include"])


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wheel") / "replan"
    wheel.copy(ROOT, MOVED, made)
    return made


def test_no_module_of_the_wheel_imports_a_room(package: Path) -> None:
    """A user's packages of these names are never asked for."""
    files = list(package.rglob("*.py"))
    imported = {file: test_rooms.packages(ast.parse(file.read_text()), own="") for file in files}

    assert len(files) > 200
    assert {file: names for file in files if (names := imported[file] & (test_rooms.OURS - {"replan"}))} == {}
    assert {file.name for file in package.iterdir()} == {*(p.name for p in (ROOT / "replan").glob("[!_]*")), *PRIVATE}


def test_the_wheel_has_the_templates_and_the_static_files_of_the_web_server(package: Path) -> None:
    read = {
        file.relative_to(ROOT)
        for name in ("templates", "static")
        for file in (ROOT / "extras" / "web" / name).iterdir()
    }

    assert len(read) > 10
    assert [file for file in read if not (package / "_internal" / file).is_file()] == []


PRIVATE = {"__init__.py", "__main__.py", "_internal"}


def test_every_public_name_is_one_for_type_checkers_too() -> None:
    [checked] = [
        node
        for node in ast.parse(Path(replan.__file__).read_text()).body
        if isinstance(node, ast.If) and not node.orelse
    ][:1]
    seen = {name.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for name in node.names}

    assert seen == replan._MODULES
    assert sorted(seen) == sorted(replan.__all__)
    assert all(getattr(replan, name) is getattr(importlib.import_module(seen[name] or ""), name) for name in seen)
