"""docs/guarantees.md: each promise has a test that is there, and nothing that needs a promise is left out."""

import ast
import tomllib
from typing import NamedTuple

import pytest

from tests.processes import ROOT
from workflows.faults.decision import DECISIONS
from workflows.plans.catalogue import Effect

PAGE = ROOT / "docs" / "guarantees.md"
SHOWN_BY = tomllib.loads(PAGE.with_suffix(".toml").read_text(encoding="utf-8"))
"""By section of the page and by the cell `When` of a promise: `path::name` of each test that shows it."""
HEADING = ["When", "Holds", "Does not hold"]


class Row(NamedTuple):
    section: str
    when: str
    holds: str
    lacks: str

    @property
    def tests(self) -> list[str]:
        tests: list[str] = SHOWN_BY.get(self.section, {}).get(self.when, [])
        return tests


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows() -> list[Row]:
    found, section = list[Row](), ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("|") and cells(line) != HEADING and set(line) != {"|", "-"}:
            found.append(Row(section, *cells(line)))
    return found


def test_no_tests_are_kept_for_a_promise_that_is_gone() -> None:
    kept = {(section, when) for section, promises in SHOWN_BY.items() for when in promises}

    assert kept == {(row.section, row.when) for row in rows()}


def functions_in(path: str) -> frozenset[str]:
    found = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    return frozenset(one.name for one in found if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


NAMED = sorted({test for row in rows() for test in row.tests})


@pytest.mark.parametrize("test", NAMED)
def test_a_named_test_is_there(test: str) -> None:
    """A promise without a test is a hope."""
    path, _, name = test.partition("::")

    assert (path.startswith("tests/") or "/tests/" in path) and name.startswith("test_")
    assert name in functions_in(path), f"{path} has no {name}"


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.section}: {row.when}")
def test_a_promise_is_whole(row: Row) -> None:
    assert row.when and row.holds
    assert row.tests


EFFECTS = [effect.value for effect in Effect]
RECORDED = [name for name, words in DECISIONS.items() if words.is_recorded]


@pytest.mark.parametrize("word", [*EFFECTS, *RECORDED])
def test_every_effect_and_every_decision_has_a_promise(word: str) -> None:
    """A new one cannot be forgotten."""
    assert [row for row in rows() if row.when.startswith(f"`{word}`:")]


def test_the_hole_is_named() -> None:
    """What cannot be promised stands in the table, with what closes it."""
    [hole] = [row for row in rows() if "The hole" in row.when]

    assert "twice" in hole.lacks and "a key at the service does" in hole.lacks
