"""`python -m evals.faults`: what the line changes for libraries that raise their own errors, as docs say it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio.client import Client

from evals.fakes.postgresql import find_postgresql
from evals.faults import trial
from evals.faults.__main__ import FaultsReport, is_good, pages
from evals.faults.libraries import LIBRARIES, Kind
from evals.faults.trial import ATTEMPTS, Cell, Side
from tests.documentation import sections
from tests.processes import ROOT


def test_each_library_has_eight_situations() -> None:
    kinds = {name: [one.kind for one in library.situations.values()] for name, library in LIBRARIES.items()}

    assert {name: len(found) for name, found in kinds.items()} == dict.fromkeys(kinds, 8)
    assert {name: found.count(Kind.NEVER) for name, found in kinds.items()} == dict.fromkeys(kinds, 5)


@pytest.mark.parametrize("name", ["boto3", "psycopg"])
async def test_the_line_spares_what_cannot_help_and_keeps_what_does(client: Client, name: str) -> None:
    if name == "psycopg" and find_postgresql() is None:
        pytest.skip("PostgreSQL is not installed")
    cells = await trial.run(client, [name])
    never = [cell for cell in cells if cell.kind is Kind.NEVER]
    passing = [cell for cell in cells if cell.kind is not Kind.NEVER]

    assert {(cell.without.attempts, cell.within.attempts) for cell in never} == {(ATTEMPTS, 1)}
    assert [cell.without for cell in passing] == [cell.within for cell in passing]
    assert all(cell.without.is_done for cell in passing) and is_good(cells)


def cell(kind: Kind, without: tuple[int, str], within: tuple[int, str]) -> Cell:
    sides = [Side(attempts=attempts, ended=ended) for attempts, ended in (without, within)]
    return Cell(library="requests", situation="conflict", kind=kind, without=sides[0], within=sides[1])


@pytest.mark.parametrize(
    ("made", "good"),
    [
        (cell(Kind.NEVER, (5, "HTTPError: no"), (1, "HTTPError: no")), True),
        (cell(Kind.NEVER, (5, "HTTPError: no"), (2, "HTTPError: no")), False),
        (cell(Kind.NEVER, (5, "HTTPError: no"), (1, "OtherError: no")), False),
        (cell(Kind.PASSES, (3, "done"), (3, "done")), True),
        (cell(Kind.PASSES, (3, "done"), (1, "WatchError: changed")), False),
        (cell(Kind.LIMIT, (5, "HTTPError: no"), (2, "done")), True),
        (cell(Kind.LIMIT, (5, "done"), (3, "done")), False),
    ],
)
def test_a_line_that_costs_a_success_or_leaves_a_useless_retry_is_not_good(made: Cell, good: bool) -> None:
    assert is_good([made]) is good


def test_docs_have_the_table_of_all_libraries() -> None:
    text = sections((ROOT / "docs" / "faults.md").read_text(encoding="utf-8"))["Measured"]
    columns = pages([cell(Kind.NEVER, (5, "HTTPError: no"), (1, "HTTPError: no"))])[0].splitlines()[0]
    rows = [[part.strip() for part in line.strip("| ").split("|")] for line in text.splitlines() if line[:2] == "| "]
    sums = [row for row in rows if len(row) == 7 and row[1].isdigit()]

    assert columns in text and "python -m evals.faults" in text
    assert [row[0] for row in sums] == [*LIBRARIES, "all"]
    assert {row[4] for row in sums} == {"0"}
    assert all(re.fullmatch(r"(\d+) of \1", row[6]) for row in sums)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_command_measures_every_library(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    command = [sys.executable, "-m", "evals.faults", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=850)
    if done.returncode == 6:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    report = FaultsReport.model_validate_json(file.read_text())

    assert done.returncode == 0, done.stdout
    assert {cell.library for cell in report.cells} == {*LIBRARIES} and len(report.cells) == 8 * len(LIBRARIES)
