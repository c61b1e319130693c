"""No branch of the workflow hangs on a clock: a worker that replays may see another time than the run did."""

import ast
from collections.abc import Iterator
from pathlib import Path

WORKFLOWS = Path(__file__).parents[2] / "workflows"
TIMES = frozenset({"at", "started", "ended", "started_at", "ended_at"})
"""Attributes of records that hold a time."""
PLACES = frozenset({"origin.at", "statement.at"})
"""Where a value stands, which is called like a time; and what a door has signed, which is data of an answer."""
IDENTITY = (ast.Is, ast.IsNot)

PLANTED = {
    "the clock": "def f():\n    if workflow.now() > deadline:\n        pass",
    "a name for the clock": "async def f():\n    over = workflow.now()\n    while asked >= over:\n        pass",
    "a time of a record": "def f(one, other):\n    return one.ended < other.ended",
    "the order of times": "def f(records):\n    return sorted(records, key=lambda one: one.ended)",
    "the later time": "def f(one):\n    return max(one.started, limit)",
}
"""What the check must find."""


def clock_branches(source: str) -> list[str]:
    """Comparisons and orders that hang on a time."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [ast.unparse(node) for function in functions for node in _branches(function)]


def _branches(function: ast.AST) -> Iterator[ast.AST]:
    clocks = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and "workflow.now()" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and not all(isinstance(op, IDENTITY) for op in node.ops):
            if any(_is_time(part, clocks) for part in (node.left, *node.comparators)):
                yield node
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"sorted", "min", "max"}:
            parts = [*node.args, *(word.value for word in node.keywords)]
            if any(_is_time(part, clocks) for part in parts):
                yield node


def _is_time(part: ast.AST, clocks: set[str]) -> bool:
    return any(
        (isinstance(node, ast.Call) and ast.unparse(node) == "workflow.now()")
        or (isinstance(node, ast.Name) and node.id in clocks)
        or (isinstance(node, ast.Attribute) and node.attr in TIMES and ast.unparse(node) not in PLACES)
        for node in ast.walk(part)
    )


def test_no_branch_hangs_on_a_clock() -> None:
    """Limits of waiting are sums of finished sleeps kept in state, or timers."""
    found = {
        file.relative_to(WORKFLOWS).as_posix(): clock_branches(file.read_text(encoding="utf-8"))
        for file in WORKFLOWS.rglob("*.py")
    }

    assert {name: branches for name, branches in found.items() if branches} == {}


def test_a_planted_branch_is_found() -> None:
    """The check above can fail."""
    assert [name for name, source in PLANTED.items() if not clock_branches(source)] == []
