"""`python -m maintenance.mutants`: changes the product at one place after the other, and sees whether a test fails.

The places are drawn by chance, with a seed, from the modules that decide what happens to an effect. Each change is made
in a copy of the checkout. First the tests run that reach the line (coverage says which, from one run without a change),
then all tests of its module. A mutant that all of them pass has survived: a test is missing, or the place says nothing,
and can go. Needs the extra `maintenance`.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).parents[1]
TESTS: Mapping[str, str] = {
    "workflows/faults/decision.py": "workflows/test_decisions workflows/test_agent_faults"
    " workflows/test_agent_fallback",
    "workflows/calls": "workflows/test_losses workflows/test_replay workflows/test_agent workflows/test_agent_turns"
    " workflows/test_agent_limits workflows/test_agent_reconcile workflows/test_agent_people workflows/test_approvals",
    "workflows/people/approval.py": "workflows/test_approvals workflows/test_approved_together",
    "workflows/plans/contract.py": "workflows/test_agent_contract workflows/test_undo_contract activities/test_origins",
    "workflows/plans/guards.py": "workflows/test_guard workflows/test_loops",
    "activities/boundary/breakers": "activities/test_breaker activities/test_turns activities/test_breakers"
    " workflows/test_agent_turns",
    "activities/boundary": "activities/test_boundary activities/test_boundary_faults activities/test_effects"
    " activities/test_waits activities/test_sends activities/test_deadline activities/test_threads"
    " activities/test_cancelled",
    "activities/effects": "effects/test_same_call effects/test_sequences effects/test_undo effects/test_settling_race"
    " effects/test_transactional effects/test_killed effects/test_owners activities/test_ledger effects/test_desk",
}
"""By module or folder, the tests that fail if it is wrong, the quick ones first; the first row that fits counts."""
COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SECONDS = 400
"""A mutant that takes longer than this counts as noticed."""
MOST = 40
"""The most tests of those that reach a line that run first."""
RECORDED = "lines"
"""The file of a copy in which coverage says which tests reach which lines."""


class Mutant(NamedTuple):
    """One small change of a module."""

    file: str
    line: int
    change: str
    source: str
    tests: str


def mutants_of(file: Path, tests: str) -> Iterator[Mutant]:
    """Every mutant of a module: turned conditions and comparisons, other numbers and flags, and lost statements."""
    text = file.read_text(encoding="utf-8")
    for place, node in enumerate(ast.walk(ast.parse(text))):
        if _can_change(node):
            tree = ast.parse(text)
            change = _change(next(other for at, other in enumerate(ast.walk(tree)) if at == place))
            yield Mutant(str(file.relative_to(ROOT)), getattr(node, "lineno", 0), change, ast.unparse(tree), tests)


def _can_change(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[op]):
            return type(op) in COMPARED
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.If() | ast.IfExp() | ast.BinOp(op=ast.Add() | ast.Sub()):
            return True
        case ast.Constant(value=bool() | int() | float()) | ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign():
            return True
    return False


def _change(node: ast.AST) -> str:
    """Change a node in place, and say how."""
    before = ast.unparse(node).splitlines()[0]
    match node:
        case ast.Compare(ops=[op]):
            node.ops = [COMPARED[type(op)]()]
        case ast.BoolOp(op=op):
            node.op = ast.And() if isinstance(op, ast.Or) else ast.Or()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            node.operand = ast.UnaryOp(ast.Not(), operand)
        case ast.If(test=test) | ast.IfExp(test=test):
            node.test = ast.UnaryOp(ast.Not(), test)
        case ast.BinOp(op=op):
            node.op = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() | float() as value):
            node.value = value + 1
        case ast.Expr():
            node.value = ast.Constant(None)
        case ast.AugAssign():
            node.value = ast.Constant(0)
    return f"{before}  ->  {ast.unparse(node).splitlines()[0]}"


def all_mutants() -> Iterator[Mutant]:
    """The mutants of every module in TESTS."""
    seen = set[Path]()
    for where, tests in TESTS.items():
        path = ROOT / where
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file not in seen:
                seen.add(file)
                yield from mutants_of(file, tests)


def record(tests: str, copy: Path) -> bool:
    """Run tests without a mutant, and record which of them reach which lines; whether all of them pass."""
    options = ["-m", "coverage", "run", f"--data-file={RECORDED}", f"--include={copy}/workflows/*,{copy}/activities/*"]
    return _run([*options, "-m", "pytest", "-q", "-p", "maintenance.contexts", *_arguments(_files(tests))], copy) == 0


def reaching(mutant: Mutant, copy: Path) -> list[str]:
    """The tests that reach the line of a mutant; empty if it is reached only where nothing records it."""
    from coverage import CoverageData  # not at the top: `--help` and the tests of this module do not need it

    data = CoverageData(str(copy / RECORDED))
    data.read()
    found = data.contexts_by_lineno(str(copy / mutant.file)).get(mutant.line, [])
    return sorted(filter(None, found))[:MOST]


def is_noticed(mutant: Mutant, first: Sequence[str], copy: Path) -> bool:
    """Whether a test fails on the mutant in a copy of the checkout, which is as before afterwards."""
    file = copy / mutant.file
    before = file.read_text(encoding="utf-8")
    file.write_text(mutant.source, encoding="utf-8")
    try:
        return any(
            _run(["-m", "pytest", "-x", "-q", *_arguments(run)], copy) for run in (first, _files(mutant.tests)) if run
        )
    finally:
        file.write_text(before, encoding="utf-8")


def _files(tests: str) -> list[str]:
    return [f"tests/{name}.py" for name in tests.split()]


def _arguments(tests: Sequence[str]) -> list[str]:
    return ["-p", "no:cacheprovider", "-m", "not full", *tests]


def _run(arguments: Sequence[str], copy: Path) -> int:
    """The exit code of Python with these arguments, in a copy; 1 if it takes too long."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        command = [sys.executable, *arguments]
        return subprocess.run(  # noqa: S603  # our own tests
            command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return 1


def main(
    number: Annotated[int, typer.Option(min=1, help="How many mutants are drawn.")] = 200,
    seed: Annotated[int, typer.Option(help="The seed of the draw.")] = 7,
    jobs: Annotated[int, typer.Option(min=1, help="How many are tried at once.")] = 2,
    only: Annotated[str, typer.Option(help="Only modules whose path begins so.")] = "",
) -> None:
    """Print the mutants that no test notices; exit code 1 if they are more than one in twenty."""
    every = [mutant for mutant in all_mutants() if mutant.file.startswith(only)]
    drawn = random.Random(seed).sample(every, min(number, len(every)))  # noqa: S311  # no secret
    survivors, copies = list[Mutant](), Queue[Path]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        for job in range(jobs):
            copy = Path(folder, str(job))
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"), symlinks=True)
            copies.put(copy)

        first = dict[Mutant, list[str]]()
        for tests in dict.fromkeys(mutant.tests for mutant in drawn):
            if not record(tests, Path(folder, "0")):
                sys.exit(f"These tests fail, or take too long, without a mutant: {tests}")
            first |= {mutant: reaching(mutant, Path(folder, "0")) for mutant in drawn if mutant.tests == tests}

        def tried(mutant: Mutant) -> None:
            copy = copies.get()
            if not is_noticed(mutant, first[mutant], copy):
                survivors.append(mutant)
                typer.echo(f"{mutant.file}:{mutant.line}: {mutant.change}")
            copies.put(copy)

        console = Console(stderr=True)
        for _ in track(pool.map(tried, drawn), "mutants", len(drawn), console=console):
            pass
    typer.echo(f"{len(drawn) - len(survivors)} of {len(drawn)} were noticed; {len(every)} can be drawn; seed {seed}")
    sys.exit(len(survivors) * 20 > len(drawn))


if __name__ == "__main__":
    typer.run(main)
