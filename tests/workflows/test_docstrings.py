"""What a reader is told first: when the code of a module runs, and when the fields of a large class are set."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.workflows.test_rooms import SOURCES, named, tree

PLACES = ("workflows", "activities/boundary", "client")
"""The folders whose modules say when they run: they are read beside a task, and seldom from top to bottom."""
WHEN = re.compile(r"[^\n]+\.(?: |\n\n)(?:Runs|Made|Read|Used) [^.]")
"""A first line that says what the module is; right after it, the sentence that says when in a task it runs."""
MANY = 20
"""A class with as many fields, or more, has them in groups."""
GROUP = re.compile(r"    # (?:Set|Read) \S")
"""The comment above a group: when its fields are set or, if they are all set at once, when they are read."""

MODULES = [file for file in SOURCES if named(file).startswith(tuple(f"{place}/" for place in PLACES))]


def bags() -> Iterator[tuple[Path, ast.ClassDef]]:
    """The classes of the product with many fields."""
    for file in SOURCES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ClassDef) and len(_fields(node)) >= MANY:
                yield file, node


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    return [each for each in node.body if isinstance(each, ast.AnnAssign)]


def _groups(file: Path, node: ast.ClassDef) -> list[str]:
    fields = _fields(node)
    lines = file.read_text(encoding="utf-8").splitlines()[node.lineno : fields[-1].end_lineno]
    return [line for line in lines if GROUP.match(line)]


def test_a_module_says_first_when_it_runs() -> None:
    """A perfect contract of each function does not tell a reader at which moment of a task the module matters."""
    silent = [
        named(file) for file in MODULES if tree(file).body and not WHEN.match(ast.get_docstring(tree(file)) or "")
    ]

    assert silent == [], (
        "begin the docstring with a line that says what the module is, and go on with a sentence that says when in a"
        " task, or in which command, it matters: `Runs after each fault ...` for code, `Made when ...` for data,"
        " `Read ...` or `Used ...` for what others look up"
    )


def test_fields_of_a_large_class_are_grouped_by_when_they_are_set() -> None:
    """Who looks for a field among twenty knows when it is set, and seldom what it is called."""
    ungrouped = [f"{named(file)}: {node.name}" for file, node in bags() if len(_groups(file, node)) < 2]

    assert ungrouped == [], (
        f"these classes have {MANY} fields or more: put comments between them, such as `# Set when the task begins` or,"
        " if all are set at once, `# Read before each call`"
    )


def test_a_docstring_without_a_moment_is_found() -> None:
    """The test above would notice."""
    silent = ("What it is.", "Runs.", "What it is.\n\nRun it after a fault.", "Is read\nRuns a.")

    assert [docstring for docstring in silent if WHEN.match(docstring)] == []
