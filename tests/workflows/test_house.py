"""The shape of the house: which module may import which, and that nothing stands in it twice or for nobody."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.workflows.test_rooms import SOURCES, named, tree
from workflows.faults.fault import Code

ORDER: Mapping[str, Sequence[str]] = {
    "activities": (
        *("extent", "errors", "tracing", "libraries", "sends", "deadline", "counting", "borders", "scrubbing"),
        *("progress", "storage", "effects", "providers", "words", "toolbox", "log_redaction", "boundary", "offline"),
        *("planning", "notification", "resolving", "inspection", "registration"),
    ),
    "extras.audit": ("tools", "secrets", "errors", "record", "findings", "sources", "report"),
    "client": ("text", "remedy", "problem", "connection", "tasks", "workflow_task", "pauses", "history"),
    "console": (
        *("exits", "completion", "options", "arguments", "files", "serving", "render", "confirm", "answers", "prompt"),
        *("commands", "entry", "app"),
    ),
}
"""From the ground up: a module imports only from those that stand before its own. What is not named stands on top."""
SCRIPTS_OF_MAINTENANCE = (
    *("pictures", "page_pictures", "office", "audit", "packages", "dist", "build_hook", "dashboards", "exceptions"),
    *("slim", "lines", "names", "contexts", "mutants"),
)
ENTRIES = {
    *("extras.mcp.supervisor", "extras.documents.pdf_child", "runtime.dev_server"),
    *("worker", "starter", "console.demo", *(f"maintenance.{name}" for name in SCRIPTS_OF_MAINTENANCE)),
}
"""Modules that are run: by people, by a Makefile, by the build of the wheel, as a child process."""
PRODUCERS = ("activities.", "workflows.")


@cache
def modules() -> Mapping[str, Path]:
    """Every module of the product by its dotted name."""
    names = {named(file).removeprefix("lab/").removesuffix(".py").removesuffix("/__init__"): file for file in SOURCES}
    return {name.replace("/", "."): file for name, file in names.items()}


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """The modules of the product that each one imports, wherever in it."""
    return {name: frozenset(set(_imported(file)) - {name}) for name, file in modules().items()}


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                for name in (f"{node.module}.{alias.name}", node.module):
                    if name in modules():
                        yield name
                        break


def level(module: str) -> tuple[str, int] | None:
    """The room of a module, and how high it stands there."""
    room, rest = _room(module)
    if room not in ORDER or not rest:
        return None
    floor, floors = rest.partition(".")[0], ORDER[room]
    return room, floors.index(floor) if floor in floors else len(floors)


def _room(module: str) -> tuple[str, str]:
    """The room of a module, and its name in there."""
    first, _, rest = module.partition(".")
    extra, _, more = rest.partition(".")
    return (f"{first}.{extra}", more) if first == "extras" and extra else (first, rest)


def test_imports_within_a_room_point_down() -> None:
    """What everything stands on does not know what stands on it."""
    found = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in sorted(others)
        if (mine := level(name)) and (its := level(other)) and mine[0] == its[0] and its[1] > mine[1]
    ]

    assert found == []


def test_no_import_leads_back() -> None:
    """No cycle, not even one that an import inside a function or under TYPE_CHECKING holds open."""
    cycle: list[str] = []
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as found:
        cycle = found.args[1]

    assert cycle == []


def test_every_module_has_a_reader() -> None:
    """A module that nothing imports is run by somebody, or it goes."""
    read = {other for others in imports().values() for other in others}
    read |= {name.rpartition(".")[0] for name in read | ENTRIES}
    unread = sorted(name for name in modules().keys() - read - ENTRIES if not _is_found_by_name(name))

    assert unread == []


def _is_found_by_name(module: str) -> bool:
    """Whether it is loaded by its name: a command, a migration, an SDK's table, a package for users' files."""
    if module.startswith("extras."):
        return module.count(".") == 1 or module.endswith(".plugin") or module in _named_by_plugins()
    by_name = ("console.commands.", "activities.borders.", "activities.toolbox.importable.", "replan")
    return module.startswith(by_name) or ".migrations" in module


@cache
def _named_by_plugins() -> frozenset[str]:
    nodes = (node for name, file in modules().items() if name.endswith(".plugin") for node in ast.walk(tree(file)))
    return frozenset(str(node.value) for node in nodes if isinstance(node, ast.Constant))


def test_one_name_is_one_class_in_a_room() -> None:
    """Who reads `Call` in a message of the type checker finds one class of that name in the room."""
    found = defaultdict[tuple[str, str], list[str]](list)
    for name, file in modules().items():
        for node in tree(file).body:
            if isinstance(node, ast.ClassDef):
                found[_room(name)[0], node.name].append(name)

    assert {f"{room}: {name}": where for (room, name), where in found.items() if len(where) > 1} == {}


def test_every_code_has_a_producer() -> None:
    """A code that nothing can raise is a promise of the pages that nobody keeps."""
    raised = {code for name, file in modules().items() if name.startswith(PRODUCERS) for code in _made(tree(file))}

    assert [code for code in Code if code.name not in raised] == []


def _made(node: ast.AST) -> Iterator[str]:
    """The codes that a module makes faults of: named in calls and tables; a comparison only asks."""
    if isinstance(node, ast.Compare):
        return
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Code":
        yield node.attr
    if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
        yield str(node.value.value).upper()
    is_group = isinstance(node, ast.Assign) and "frozenset" in ast.unparse(node.value)
    if not is_group and not (isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp)):
        for child in ast.iter_child_nodes(node):
            yield from _made(child)
