"""Limits on the pages: the settings file is one that is read, and the usual limits are those of the code."""

import re
from pathlib import Path

import pytest

from runtime.settings_file import Budget, SettingsFile
from tests import documentation
from tests.processes import ROOT
from workflows.account.task import REPLANS
from workflows.limits.budget import Limits
from workflows.limits.spending import MAX_OUTPUT

SECTION = (ROOT / "docs" / "models.md").read_text().partition("\n## Budgets\n")[2].partition("\n## ")[0]
ROWS = dict(re.findall(r"^\| `(\w+)` \| .*? \| (.*?) \|$", SECTION, re.MULTILINE))
START = documentation.sections((ROOT / "docs" / "console.md").read_text())["start"]
OPTIONS = dict(documentation.tables(START)["option"])
EXAMPLE = SECTION.partition("```toml\n")[2].partition("```")[0]


@pytest.fixture
def example(tmp_path: Path) -> SettingsFile:
    file = tmp_path / "replan.toml"
    file.write_text(EXAMPLE)
    return SettingsFile.read(file)


def test_the_settings_file_shows_everything_that_can_be_set(example: SettingsFile) -> None:
    budgets, models = example.budgets, example.models
    shown = budgets.interactive.model_fields_set | budgets.background.model_fields_set

    assert shown == set(Budget.model_fields)
    assert models.model_fields_set == set(type(models).model_fields)


def test_the_settings_file_means_what_its_comments_say(example: SettingsFile) -> None:
    assert example.limits("background", {})["tokens"] is None
    assert set(example.models.known_prices) == {"openai:qwen3@localhost:11434", "anthropic:claude-opus-5-5"}


def test_the_table_names_every_limit() -> None:
    """One vocabulary for limits; how many replans may be fruitless follows from whether `replans` is given."""
    assert set(ROWS) == set(Limits.model_fields) - {"fruitless"}


@pytest.mark.parametrize("limit", ["tool_calls", "tokens", "usd", "deadline"])
def test_the_table_has_the_usual_limits(limit: str) -> None:
    usual = getattr(Limits(), limit)

    assert ROWS[limit] == ("no limit" if usual is None else f"{usual:,}")


@pytest.mark.parametrize("limit", ["tool_calls", "tokens"])
def test_the_options_have_the_usual_limits(limit: str) -> None:
    assert OPTIONS[f"--{limit.replace('_', '-')} N"].endswith(f"; else {getattr(Limits(), limit)}.")
    assert OPTIONS["--replans N"].endswith(f": {REPLANS['plan']}, with `react` {REPLANS['react']}.")


def test_the_table_has_the_usual_replans() -> None:
    assert ROWS["replans"] == f"{REPLANS['plan']}, with `--strategy react` {REPLANS['react']}"


def test_the_longest_answer_is_the_one_on_the_page() -> None:
    assert f"from {MAX_OUTPUT:,} tokens down" in SECTION
