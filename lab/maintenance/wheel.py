"""Copies Replan into the one package that the wheel installs: the rooms of the checkout become `replan._internal.*`.

Users have packages named `workflows` or `client` of their own, so the wheel may not install these names. Every absolute
import of a room is rewritten, and every string that is the dotted name of a room's module. All else stays as it is: the
types of workflows and activities, and the names of loggers, do not depend on modules.
"""

import ast
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

INTERNAL = "_internal"
SBOM = "replan.cdx.json"
"""The list of packages that `make dist` writes for the wheel's metadata; a wheel that is built without it has none."""
NOT_COPIED = ("__pycache__", "ruff.toml", ".*", "tests")


class NotMovable(Exception):
    """Some code names a room in a way that cannot be rewritten; there is one line for each place, with the remedy."""


class _Place(NamedTuple):
    """Where a source names a room: its line, counted from 1, and its column in bytes."""

    line: int
    column: int
    name: str


def copy(checkout: Path, rooms: Collection[str], package: Path) -> None:
    """Copy `replan/` of a checkout to the folder `package`, and the rooms into it: paths of folders, and of scripts.

    Raises:
        NotMovable: a file names a room in a way that cannot be rewritten.
    """
    ignored = shutil.ignore_patterns(*NOT_COPIED)
    shutil.copytree(checkout / "replan", package, ignore=ignored)
    internal = package / INTERNAL
    for room in rooms:
        source, target = checkout / room, internal / room
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copyfile(source, target)
    for folder in {(internal / room).parent for room in rooms}:  # of the rooms that are a part of a folder only
        (folder / "__init__.py").touch()
    modules = {".".join(file.relative_to(internal).with_suffix("").parts) for file in internal.rglob("*.py")}
    modules = {module.removesuffix(".__init__") for module in modules} - {"__init__"}
    wrong = list[str]()
    for file in sorted(package.rglob("*.py")):
        try:
            file.write_text(moved(file.read_text(encoding="utf-8"), modules), encoding="utf-8")
        except NotMovable as error:
            name = file.relative_to(internal if file.is_relative_to(internal) else package.parent)
            wrong += [f"{name}:{line}" for line in str(error).splitlines()]
    if wrong:
        raise NotMovable("\n".join(wrong))


def moved(source: str, modules: Collection[str]) -> str:
    """The source of a module, with every name of one of `modules` below `replan._internal`.

    Raises:
        NotMovable: a name cannot be rewritten; each line begins with the number of the source's line.
    """
    lines = source.encode().splitlines(keepends=True)
    wrong = list[str]()
    for place in sorted(_places(ast.parse(source), modules), reverse=True):
        line = lines[place.line - 1]
        # An import from a module begins with `from`, and a string with its quote.
        start = line.find(place.name.encode(), place.column, place.column + len("from ") + len(place.name.encode()))
        if start < 0 or not place.name:
            wrong.append(f"{place.line}: {line.decode().strip()}")
        else:
            lines[place.line - 1] = line[:start] + f"replan.{INTERNAL}.".encode() + line[start:]
    if wrong:
        remedy = "names a room in a way that the wheel cannot have: write `from ROOM import NAME`, or the whole name"
        raise NotMovable("\n".join(f"{mistake}: {remedy}" for mistake in reversed(wrong)))
    return b"".join(lines).decode()


def _places(tree: ast.Module, modules: Collection[str]) -> Iterator[_Place]:
    """The places where a module names one of `modules`; a place that cannot be rewritten has an empty name."""
    rooms = {module.partition(".")[0] for module in modules}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(name), level=0) if name.partition(".")[0] in rooms:
                yield _Place(node.lineno, node.col_offset, name)
            case ast.Import(names=aliases):
                for alias in aliases:
                    if alias.name.partition(".")[0] in rooms:  # without `as`, the name that it binds is the room's
                        yield _Place(alias.lineno, alias.col_offset, alias.name if alias.asname else "")
            case ast.Constant(value=str(text)) if _is_module(text, modules):
                yield _Place(node.lineno, node.col_offset, text)
            case ast.Constant(value=str(text)) if text.endswith(".") and text[:-1] in rooms:
                yield _Place(node.lineno, node.col_offset, "")


def _is_module(text: str, modules: Collection[str]) -> bool:
    """Whether a text is the dotted name of a module in a room, or of an attribute of such a module."""
    return any("." in name and name in modules for name in (text, text.rpartition(".")[0]))
