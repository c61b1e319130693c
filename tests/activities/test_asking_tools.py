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
    """What is judged."""

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


def test_without_a_model_a_tool_that_asks_one_is_left_out() -> None:
    """The others are there, and one line says what is missing."""
    registry = Registry([judge, count], has_model=False)

    assert ([*registry], registry.left_out) == (["count"], ["judge"])
    assert "Not offered, since this worker has no model: judge" in registry.catalogue().splitlines()


def test_with_a_model_nothing_is_left_out() -> None:
    """And what it may use is shown to whoever looks at the tools."""
    registry = Registry([judge, count])

    assert ([*registry], registry.left_out) == (["judge", "count"], [])
    assert "tokens=100" in registry.catalogue() and "Not offered" not in registry.catalogue()


def test_a_tool_that_needs_one_which_is_left_out_is_a_mistake() -> None:
    """It would be offered with a promise that nobody can keep."""
    with pytest.raises(ToolMistakes, match="guess: names 'judge', which takes a model, and this worker has none"):
        Registry([judge, guess], has_model=False)


async def test_a_worker_that_lost_its_model_needs_a_person(tmp_path: Path) -> None:
    """A task that was planned by another worker may bring such a step here."""
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
]


@pytest.mark.parametrize(("names", "environment", "expected"), CHOSEN)
def test_steps_ask_the_first_model_of_the_planners(
    names: str | None,
    environment: dict[str, str],
    expected: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever chooses to plan without a model has steps without one, too."""
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text("[]")
    models = PlannerSelection(names, environment).models

    assert next((model.name for model in models), None) == expected


def test_a_model_of_one_s_own_serves_steps_as_well() -> None:
    """At the address that is given for it."""
    models = PlannerSelection("openai", {"OPENAI_BASE_URL": "http://localhost:11434/v1"}).models

    assert [model.name for model in models] == [f"{MINI}@localhost:11434"]


@pytest.mark.parametrize("names", ["anthropic", "nobody", "openai:"])
def test_a_model_that_cannot_be_used_is_a_sentence(names: str) -> None:
    """As it is for planners."""
    with pytest.raises(UnknownPlanner):
        PlannerSelection(names, {})
