"""`python -m maintenance.mutants`: changes the product at one place after the other, and sees whether a test fails.

The places are drawn by chance, with a seed, from the modules that decide what happens to an effect. Once, the quick
tests of the rooms in RECORDED run without a change, and coverage records which of them reach which lines; `--lines
FOLDER` keeps that for the next time. Then each change is made in a copy of the checkout, and tests run that reach its
line, or its module if the line runs at import alone. A mutant that all of them pass has survived: a test is missing, or
the place says nothing, and can go. Needs the extra `maintenance`.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, zip_longest
from pathlib import Path
from queue import Queue
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track

from maintenance.contexts import FAILED, SECONDS, VARIABLE

ROOT = Path(__file__).parents[2]
CHANGED = (
    *("workflows/faults/decision.py", "workflows/calls", "workflows/people/approval.py", "workflows/plans/contract.py"),
    *("workflows/plans/repeated_calls.py", "activities/boundary", "activities/effects"),
)
"""The modules and folders that are changed."""
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
LONGEST = 400
"""A mutant whose tests take longer than this, in seconds, counts as noticed."""
MOST = 150
"""The most tests that run against a mutant: of those that reach its line, by turns from each file of tests the ones
that reach the most of its module, compared with all that they reach."""
TOGETHER = 120
"""The most seconds that these tests take together without a mutant; the quickest run first."""
RECORDED = (
    *("tests/activities", "tests/client", "tests/console", "tests/crash", "tests/effects", "tests/faults"),
    *("tests/workflows", "extras/gateway"),
)
"""The tests that are recorded: of the rooms that are changed, and of those beside them."""
UNRECORDED: Mapping[str, tuple[str, ...]] = {
    "activities/effects": ("tests/effects", "extras/gateway/tests/test_same_call.py"),
    "activities/boundary": ("tests/crash",),
    "workflows": ("tests/crash",),
}
"""By folder of the product, tests that run it in processes of their own, in which nothing is recorded."""


class Mutant(NamedTuple):
    """One small change of a module."""

    file: str
    line: int
    change: str
    source: str


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Every mutant of a module: turned conditions and comparisons, other numbers and flags, and lost statements.

    The numbers and columns of tables are left out: a test of them could only repeat them.
    """
    text = file.read_text(encoding="utf-8")
    whole = ast.parse(text)
    tables = [statement for statement in whole.body if isinstance(statement, ast.Assign | ast.AnnAssign)]
    left_out = {id(node) for table in tables for node in ast.walk(table)}
    for place, node in enumerate(ast.walk(whole)):
        if _can_change(node) and id(node) not in left_out:
            tree = ast.parse(text)
            change = _change(next(other for at, other in enumerate(ast.walk(tree)) if at == place))
            yield Mutant(str(file.relative_to(ROOT)), getattr(node, "lineno", 0), change, ast.unparse(tree))


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
    """The mutants of every module in CHANGED."""
    for path in (ROOT / where for where in CHANGED):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield from mutants_of(file)


def record(copy: Path, lines: Path) -> None:
    """Run the tests in RECORDED in a copy, and record in the folder `lines` which of them reach which lines."""
    options = ("--numprocesses=auto", "--dist=loadscope", "--no-loadscope-reorder", "-p", "maintenance.contexts")
    lines.mkdir(parents=True)
    _run([*options, *_QUICK, *RECORDED], copy, {VARIABLE: str(lines.absolute())}, None)


class Reached(NamedTuple):
    """What the tests reach, but those that failed without a mutant."""

    tests: Mapping[tuple[str, int], set[str]]
    """By file and line, the tests that reach it."""
    lines: Mapping[tuple[str, str], int]
    """By test and file, how many lines of it the test reaches; for the file "", how many of all."""

    def of(self, mutant: Mutant) -> Collection[str]:
        """All tests that reach the line of a mutant, or its module if the line runs at import alone."""
        return self.tests.get((mutant.file, mutant.line), ()) or self.tests.get((mutant.file, 0), ())

    def chosen(self, mutant: Mutant, seconds: Mapping[str, float]) -> list[str]:
        """The tests for a mutant, the quickest first; those that reach its module, if its line runs at import alone."""

        def share(test: str) -> float:
            return self.lines[test, mutant.file] / self.lines[test, ""]

        tests = self.of(mutant)
        files = defaultdict[str, list[str]](list)
        for test in sorted(tests, key=lambda test: (-share(test), test)):
            files[test.partition("::")[0]].append(test)
        some = [test for turn in zip_longest(*files.values()) for test in turn if test][:MOST]
        some.sort(key=lambda test: seconds.get(test, 0))
        ends = accumulate(seconds.get(test, 0) for test in some)
        return [test for number, (test, end) in enumerate(zip(some, ends, strict=True)) if end < TOGETHER or not number]


def reached(lines: Path) -> Reached:
    """What was recorded in the folder `lines`."""
    from coverage import CoverageData  # not at the top: `--help` does not need it

    found, counts = defaultdict[tuple[str, int], set[str]](set), defaultdict[tuple[str, str], int](int)
    failed = {line for file in lines.glob(FAILED.format("*")) for line in file.read_text(encoding="utf-8").splitlines()}
    for part in lines.glob("gw*"):
        data = CoverageData(str(part))
        data.read()
        for file in data.measured_files():
            name = next((file[file.index(where) :] for where in CHANGED if f"/{where}" in file), file)
            for line, contexts in data.contexts_by_lineno(file).items():
                for test in {*contexts} - {""} - failed:
                    found[name, line].add(test)
                    found[name, 0].add(test)
                    counts[test, name] += 1
                    counts[test, ""] += 1
    return Reached(found, counts)


def durations(lines: Path) -> Mapping[str, float]:
    """The seconds that each recorded test took."""
    seconds = defaultdict[str, float](float)
    for file in lines.glob(SECONDS.format("*")):
        for line in file.read_text(encoding="utf-8").splitlines():
            duration, _, test = line.partition(" ")
            seconds[test] += float(duration)
    return seconds


def is_noticed(mutant: Mutant, tests: Sequence[str], copy: Path, *, alone: bool = False) -> bool:
    """Whether a test fails on the mutant in a copy of the checkout, which is as before afterwards.

    First these tests run, then those that may reach the mutant in a process of their own; `alone`: not these.
    """
    file = copy / mutant.file
    before = file.read_text(encoding="utf-8")
    file.write_text(mutant.source, encoding="utf-8")
    unrecorded = [test for folder, some in UNRECORDED.items() if mutant.file.startswith(folder) for test in some]
    longest = None if alone else LONGEST
    try:
        more = () if alone else (unrecorded,)
        return any(_run(["-x", *_QUICK, *some], copy, {}, longest) for some in (tests, *more) if some)
    finally:
        file.write_text(before, encoding="utf-8")


_QUICK = ("-q", "-p", "no:cacheprovider", "-m", "not full")


def _run(arguments: Sequence[str], copy: Path, more: Mapping[str, str], seconds: float | None) -> int:
    """The exit code of pytest with these arguments, in a copy; 1 if it takes too long."""
    environment = {**os.environ, **more, "PYTHONPATH": os.pathsep.join([str(copy), str(copy / "lab")])}
    command = [sys.executable, "-m", "pytest", *arguments]
    try:
        return subprocess.run(  # noqa: S603  # our own tests
            command, cwd=copy, env=environment, capture_output=True, timeout=seconds, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return 1


def main(
    number: Annotated[int, typer.Option(min=1, help="How many mutants are drawn.")] = 200,
    seed: Annotated[int, typer.Option(help="The seed of the draw.")] = 7,
    jobs: Annotated[int, typer.Option(min=1, help="How many are tried at once.")] = 2,
    only: Annotated[str, typer.Option(help="Only modules whose path begins so.")] = "",
    lines: Annotated[Path | None, typer.Option(help="The folder with what coverage recorded; else it is made.")] = None,
    part: Annotated[str, typer.Option(metavar="K/N", help="Only this part of the draw; all of them are the whole.")] = (
        "1/1"
    ),
) -> None:
    """Print the mutants that no test notices; exit code 1 if they are more than one in twenty."""
    which, _, parts = part.partition("/")
    every = [mutant for mutant in all_mutants() if mutant.file.startswith(only)]
    drawn = random.Random(seed).sample(every, min(number, len(every)))  # noqa: S311  # no secret
    drawn = drawn[int(which) - 1 :: int(parts)]
    survivors, copies = list[Mutant](), Queue[Path]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        for job in range(jobs):
            copy = Path(folder, str(job))
            shutil.copytree(
                ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__"), symlinks=True
            )
            (copy / ".venv").symlink_to(ROOT / ".venv")  # some tests call `make`, which would install all packages
            copies.put(copy)

        recorded = lines or Path(folder, "lines")
        if not recorded.exists():
            record(Path(folder, "0"), recorded)
        everything, seconds = reached(recorded), durations(recorded)

        def tried(mutant: Mutant) -> None:
            copy = copies.get()
            tests = everything.chosen(mutant, seconds)
            noticed = is_noticed(mutant, tests, copy)
            if not noticed and (others := sorted({*everything.of(mutant)} - {*tests})):
                noticed = is_noticed(mutant, others, copy, alone=True)
            if not noticed:
                survivors.append(mutant)
            said = "" if noticed else ": no test notices it"
            typer.echo(f"{mutant.file}:{mutant.line}: {mutant.change} ({len(tests)} tests){said}")
            copies.put(copy)

        console = Console(stderr=True)
        for _ in track(pool.map(tried, drawn), "mutants", len(drawn), console=console):
            pass
    typer.echo(f"{len(drawn) - len(survivors)} of {len(drawn)} were noticed; {len(every)} can be drawn; seed {seed}")
    sys.exit(len(survivors) * 20 > len(drawn))


if __name__ == "__main__":
    typer.run(main)
