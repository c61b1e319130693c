"""Tools that ask a model: which one they are given, and what a worker without one makes of them."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from activities.planning.selection import PlannerSelection
from activities.providers.registry import UnknownPlanner
from activities.toolbox.registry import Registry, ToolMistakes
from replan import LanguageModel, tool
from tests.activities.bench import bench
from workflows.faults.fault import Code

KEYS = {"ANTHROPIC_API_KEY": "x", "OPENAI_API_KEY": "x"}
SONNET, MINI = "anthropic:claude-sonnet-5-5", "openai:gpt-5.4-mini"


class Letter(BaseModel):
    text: str = ""


@tool.read(tokens=100)
async def judge(args: Letter, model: LanguageModel) -> Letter:
    """Judge a letter."""
    return Letter(text=model.name)


@tool.read
async def count(args: Letter) -> Letter:
    """Count its words."""
    return args


@tool.read(fallback=judge)
async def guess(args: Letter) -> Letter:
    """Guess its tone."""
    return args


async def test_without_a_model_a_tool_that_asks_one_is_left_out(tmp_path: Path) -> None:
    """One line says what is missing; a tool that needs it would be offered with a promise that nobody can keep."""
    without, whole = Registry([judge, count], has_model=False), Registry([judge, count])
    missing = "Not offered, since this worker has no model: judge"

    assert [([*one], one.left_out) for one in (without, whole)] == [(["count"], ["judge"]), (["judge", "count"], [])]
    assert missing in without.catalogue().splitlines()
    assert "tokens=100" in whole.catalogue() and "Not offered" not in whole.catalogue()

    with pytest.raises(ToolMistakes, match="guess: names 'judge', which takes a model, and this worker has none"):
        Registry([judge, guess], has_model=False)

    async with bench(tmp_path) as table:
        fault, _ = await table.fails(judge)

    assert fault.code is Code.NEEDS_PERSON and "set a key in its environment" in fault.reason


CHOSEN: list[tuple[str | None, dict[str, str], str | None]] = [
    (None, {}, None),
    (None, KEYS, SONNET),
    (None, {"OPENAI_API_KEY": "x"}, MINI),
    ("openai, anthropic", KEYS, MINI),
    ("anthropic:other", KEYS, "anthropic:other"),
    ("offline,anthropic", KEYS, SONNET),
    ("offline", KEYS, None),
    ("scripted:plan.json", KEYS, None),
    ("openai", {"OPENAI_BASE_URL": "http://localhost:11434/v1"}, f"{MINI}@localhost:11434"),
]
"""Names of planners, environment, and the model that steps ask."""


def test_steps_ask_the_first_model_of_the_planners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever chooses to plan without a model has steps without one, too; one that cannot be used is a sentence."""
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text("[]")
    for names, environment, expected in CHOSEN:
        models = PlannerSelection(names, environment).models
        assert next((model.name for model in models), None) == expected
    for names in ("anthropic", "nobody", "openai:"):
        with pytest.raises(UnknownPlanner):
            PlannerSelection(names, {})
