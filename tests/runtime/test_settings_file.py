"""The settings file: budgets by profile, models with prices of their own, and one sentence for what it gets wrong."""

from pathlib import Path

import pytest

from activities.providers import prices, streaming
from runtime.settings_file import BadSettings, Models, SettingsFile
from workflows.durations import seconds
from workflows.limits.budget import Limits
from workflows.plans.catalogue import Price

WHOLE = """
[budgets.interactive]
tool_calls = 40
replans = 4
tokens = 80_000
usd = 0.50
deadline = 600

[budgets.background]
tokens = "unlimited"

[models]
compact_at = 0.5

[models.prices]
"openai:qwen3" = { input = 0, output = 0 }
"anthropic:claude-opus-5-5" = { input = 3, output = 15, cache_read = 0.15, cache_write = 3.75 }

[models.windows]
"openai:qwen3" = 32_768
"""


def read(folder: Path, text: str) -> SettingsFile:
    file = folder / "replan.toml"
    file.write_text(text)
    return SettingsFile.read(file)


def test_what_the_file_says_goes_before_the_usual_and_what_is_given_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`replan.toml` of the current folder is read where there is one. None is what nobody gave.

    `unlimited` takes a limit away, which TOML has no other word for.
    """
    monkeypatch.chdir(tmp_path)
    without = SettingsFile.read(None)
    named = read(tmp_path, WHOLE)
    interactive = {"tool_calls": 40, "replans": 4, "tokens": 80_000, "usd": 0.5, "deadline": 600.0}
    given = {"tool_calls": 7, "tokens": None, "usd": 9.0}

    assert without == SettingsFile() and SettingsFile.read(None) == named
    assert named.limits("interactive", {}) == interactive
    assert named.limits("background", {}) == {"tokens": None}
    assert named.limits("interactive", given) == {**interactive, "tool_calls": 7, "usd": 9.0}


DURATIONS = {"90": 90, "1.5": 1.5, "90s": 90, "5m": 300, "1h": 3600, "1h30m": 5400, "2d": 172_800, "0.5H": 1800}


@pytest.mark.parametrize("text", DURATIONS)
def test_a_duration_may_have_units(tmp_path: Path, text: str) -> None:
    """The same on the command line and, as text, in the file."""
    assert seconds(text) == DURATIONS[text]
    assert read(tmp_path, f"[budgets.background]\ndeadline = '{text}'").budgets.background.deadline == DURATIONS[text]


@pytest.mark.parametrize("text", ["", "soon", "1 h", "h", "30m1h", "1y", "1h30", "--5m"])
def test_what_is_no_duration_is_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration: write seconds, or as in 90s, 5m, 1h30m or 2d"):
        seconds(text)


def test_the_words_of_the_limits_are_those_of_the_task() -> None:
    ours = {"fruitless"}  # no limit that a user gives: it follows from `replans`

    assert set(type(SettingsFile().budgets.interactive).model_fields) == set(Limits.model_fields) - ours


def test_a_model_may_have_a_price_and_a_window_of_its_own(tmp_path: Path) -> None:
    models = read(tmp_path, WHOLE).models

    assert models.known_prices == {
        "openai:qwen3": Price(input=0, output=0, cache_read=0, cache_write=0),
        "anthropic:claude-opus-5-5": Price(input=3, output=15, cache_read=0.15, cache_write=3.75),
    }
    assert (models.windows, models.compact_at) == ({"openai:qwen3": 32_768}, 0.5)


def test_the_usual_share_of_the_window_is_that_of_the_models() -> None:
    """It is said twice, since neither room may ask the other."""
    assert (Models().compact_at, Models().idle_timeout) == (prices.COMPACT_AT, streaming.IDLE_TIMEOUT)


BUDGET, MODELS = "'budgets.interactive", "'models"
MISTAKES = {
    "[budgets.batch]": "'budgets.batch' is no setting (there are interactive, background)",
    "[budget.interactive]": "'budget' is no setting (did you mean budgets?)",
    "[budgets]\ninteractive = 3": f"{BUDGET}' must be a table",
    "[budgets.interactive]\ntool_cals = 3": f"{BUDGET}.tool_cals' is no setting (did you mean tool_calls?)",
    "[budgets.interactive]\ntool_calls = 0": f"{BUDGET}.tool_calls' cannot be 0: it must be at least 1",
    "[budgets.interactive]\ntool_calls = '3'": f"{BUDGET}.tool_calls' cannot be '3': it must be a whole num",
    "[budgets.interactive]\ntool_calls = 'unlimited'": f"{BUDGET}.tool_calls' cannot be 'unlimited'",
    "[budgets.interactive]\ntokens = 'none'": (
        f"{BUDGET}.tokens' cannot be 'none': it must be a number or \"unlimited\":"
    ),
    "[budgets.interactive]\nusd = inf": f"{BUDGET}.usd' cannot be inf: it must be a finite number",
    "[budgets.interactive]\ndeadline = 'soon'": (
        f"{BUDGET}.deadline' cannot be 'soon': it must be seconds, a time as \"1h30m"
    ),
    "[budgets.interactive]\ndeadline = 1e12": f"{BUDGET}.deadline' cannot be 1000000000000.0: it must",
    "[budgets.interactive]\nreplans = true": f"{BUDGET}.replans' cannot be True: it must be a whole",
    "[models]\ncompact_at = 2": f"{MODELS}.compact_at' cannot be 2: it must be at most 1",
    "[models]\nidle_timeout = 0": f"{MODELS}.idle_timeout' cannot be 0: it must be more than 0",
    '[models]\nidle_timeout = "soon"': f"{MODELS}.idle_timeout' cannot be 'soon': it must be seconds",
    "[models.prices.claude]\ninput = 1\noutput = 2": f"{MODELS}.prices.claude' names no model (write it as --planner",
    '[models.prices."a:b"]\ninput = 1': f"{MODELS}.prices.a:b.output' is missing",
    '[models.prices."a:b"]\ninput = 1\noutput = 2\ncached = 3': f"{MODELS}.prices.a:b.cached' is no setting (did you",
    '[models.windows]\n"a:b" = 0': f"{MODELS}.windows.a:b' cannot be 0: it must be at least 1",
    '[models.wires]\n"anthropic:a" = "responses"': (
        f"{MODELS}.wires.anthropic:a' names no model of openai (write it as --plan"
    ),
    '[models.wires]\n"openai:a" = "chat"': f"{MODELS}.wires.openai:a' cannot be 'chat': it must be 'responses' or",
    '[models.reasoning_effort]\n"openai:a" = 3': f"{MODELS}.reasoning_effort.openai:a' cannot be 3: it must be 'none',",
    "tool_calls": "is no TOML (Expected '=' after a key",
}


@pytest.mark.parametrize(("text", "mistake"), MISTAKES.items())
def test_a_mistake_is_one_sentence_with_the_place_and_a_remedy(tmp_path: Path, text: str, mistake: str) -> None:
    """The file, the setting, what is wrong with it, and where to look."""
    with pytest.raises(BadSettings) as wrong:
        read(tmp_path, text)

    assert str(wrong.value).startswith(f"The settings file {str(tmp_path / 'replan.toml')!r}")
    assert mistake in str(wrong.value)
    assert str(wrong.value).endswith(": correct it, docs/models.md#budgets shows one.")


@pytest.mark.parametrize(("name", "said"), [("none.toml", "There is no settings file"), (".", "cannot be read (Is a")])
def test_a_file_that_was_named_must_be_there(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(BadSettings, match="check --settings and REPLAN_SETTINGS") as wrong:
        SettingsFile.read(tmp_path / name)

    assert said in str(wrong.value)
